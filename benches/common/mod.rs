//! What the benchmarks of the counters share: the same keys for every contender, and the same way to sum up.

#[path = "machine.rs"]
mod machine;

use std::fmt::Write;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};

use tollgate::limit::{Key, QuotaId};

pub(crate) use machine::machine;

/// The key that everybody counts under, as the gateway digests it.
pub(crate) fn key(limit: usize, client: u64) -> Key {
    let seed = u64::try_from(limit).unwrap_or(0) << 56;
    Key([mix(seed ^ client), mix(seed ^ client ^ (1 << 48)) & !u64::from(QuotaId::MAX)])
}

/// What governor counts under.
pub(crate) trait ClientKey: Hash + Eq + Clone + Default + Send + Sync + 'static {
    /// Its hasher.
    type Hashing: BuildHasher + Default + Clone + Send + Sync + 'static;

    /// Makes it this client's.
    fn become_key(&mut self, limit: usize, client: u64);
}

/// As one keeps it who doesn't digest: 24 bytes.
impl ClientKey for String {
    type Hashing = RandomState;

    fn become_key(&mut self, limit: usize, client: u64) {
        self.clear();
        // Writing to a string can't fail.
        let _ = write!(self, "key-{limit:03}-{:016x}", mix(client));
    }
}

impl ClientKey for Digest {
    type Hashing = BuildHasherDefault<FirstHalf>;

    fn become_key(&mut self, limit: usize, client: u64) {
        let Key(halves) = key(limit, client);
        *self = Self(halves);
    }
}

/// The digest for governor: no wider than in our entries, and hashed to its own first half as ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Digest([u64; 2]);

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
    }
}

/// The hasher for what is one already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FirstHalf(u64);

impl Hasher for FirstHalf {
    fn write(&mut self, _: &[u8]) {
        unreachable!("digests write one number");
    }

    fn write_u64(&mut self, half: u64) {
        self.0 = half;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A bijection that leaves no pattern (the finalizer of SplitMix64): random numbers out of a count, the same in every run.
pub(crate) fn mix(count: u64) -> u64 {
    let x = count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
