//! A counter's key: a keyed 108-bit digest, so that memory does not depend on what clients send, and nobody outside
//! can choose two keys that collide.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use super::QuotaId;
use siphasher::sip128::{Hasher128, SipHasher13};

/// The digest of (limit, values of its `per` parts, window). `[u64; 2]` rather than `u128`: the latter's alignment
/// would pad a map entry from 24 to 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub [u64; 2]);

impl Key {
    /// A number that is fixed per key, for [`Quota::decide`](super::Quota::decide).
    #[must_use]
    pub fn phase(self) -> u64 {
        let [_, phase] = self.0;
        // Without the id, and far enough from the end of 64 bits that `now + phase` stays there.
        (phase & !TAG) >> 2
    }

    /// The key of another window of the same limit and parts.
    #[must_use]
    pub fn window(self, ordinal: u8) -> Self {
        let [a, b] = self.0;
        // The low bits, by which a store chooses a shard, stay: they are as good for every window.
        Self([a ^ (u64::from(ordinal).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !0xffff), b])
    }

    /// The key with an id in the bits that digests leave free.
    #[must_use]
    pub fn tagged(self, QuotaId(id): QuotaId) -> Self {
        let [a, b] = self.0;
        Self([a, (b & !TAG) | u64::from(id & QuotaId::MAX)])
    }

    /// The id in those bits.
    #[must_use]
    pub fn tag(self) -> QuotaId {
        QuotaId(u32::try_from(self.0[1] & TAG).unwrap_or(0))
    }

    /// Whether both are the same counter's, whatever their ids.
    #[must_use]
    pub fn is_same_counter(self, other: Self) -> bool {
        let ([a, b], [other_a, other_b]) = (self.0, other.0);
        a == other_a && (b ^ other_b) <= TAG
    }
}

/// Digests have 108 bits; the others of an entry say under which quota it was written.
const TAG: u64 = QuotaId::MAX as u64;

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Already a keyed hash: the maps use the first half as it is.
        state.write_u64(self.0[0]);
    }
}

/// Makes keys; seeded at random per process.
#[derive(Debug, Clone)]
pub struct KeyHasher(SipHasher13);

impl Default for KeyHasher {
    fn default() -> Self {
        // The standard library's own random seeds, without another crate for randomness.
        Self(SipHasher13::new_with_keys(RandomState::new().hash_one(1_u8), RandomState::new().hash_one(2_u8)))
    }
}

impl KeyHasher {
    /// Makes the same keys wherever it is made from the same bytes, so that processes agree about them.
    #[must_use]
    pub fn keyed(key: [u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(&key))
    }

    /// Starts a key for the limit of this name.
    #[must_use]
    pub fn start(&self, limit: &str) -> KeyParts {
        let mut parts = KeyParts(self.0);
        parts.push(0, limit.as_bytes());
        parts
    }
}

/// A key in the making. Every part goes in with its kind and length, so parts cannot run together.
#[derive(Debug, Clone)]
pub struct KeyParts(SipHasher13);

impl KeyParts {
    /// Adds a part of a kind.
    pub fn push(&mut self, kind: u8, value: &[u8]) {
        let length = u64::try_from(value.len()).unwrap_or(u64::MAX);
        self.0.write_u64((length << 8) | u64::from(kind));
        self.0.write(value);
    }

    /// The finished key.
    #[must_use]
    pub fn finish(&self) -> Key {
        let digest = self.0.finish128();
        Key([digest.h1, digest.h2 & !TAG])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cannot_run_together() {
        let hasher = KeyHasher::default();
        let key = |parts: &[(u8, &str)]| {
            let mut key = hasher.start("limit");
            for (kind, value) in parts {
                key.push(*kind, value.as_bytes());
            }
            key.finish()
        };
        assert_eq!(key(&[(1, "a"), (2, "b")]), key(&[(1, "a"), (2, "b")]));
        let distinct = [
            key(&[(1, "ab"), (1, "c")]),
            key(&[(1, "a"), (1, "bc")]),
            key(&[(1, "abc")]),
            key(&[(2, "abc")]),
            key(&[]),
            key(&[(1, "")]),
            key(&[(1, "abc")]).window(1),
        ];
        for (i, a) in distinct.iter().enumerate() {
            assert!(distinct.iter().skip(i + 1).all(|b| a != b), "{i}");
        }
    }
}
