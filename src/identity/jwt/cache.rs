//! Tokens that were believed already, so that a signature is not verified with every request.
//!
//! Each worker has its own: nothing is shared and nothing locked, and a token is verified once by each. Only what was believed gets
//! in, so strangers can't fill it.

use std::collections::HashMap;
use std::rc::Rc;

use super::{Claims, Id, MAX_TOKEN, TokenFault, Verified, Verifier};
use crate::identity::KeyDigest;

/// Believed tokens by their digest.
#[derive(Debug)]
pub struct Cache {
    /// By which verifier and with which keys all of it was verified.
    under: Option<(Id, Id)>,
    young: HashMap<KeyDigest, Verified>,
    old: HashMap<KeyDigest, Verified>,
    half: usize,
}

/// How a token came to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// Its signature was verified.
    Verified,
    /// It had been before.
    Cached,
}

impl Default for Cache {
    fn default() -> Self {
        Self::new(CAPACITY)
    }
}

impl Cache {
    /// Of at most this many tokens.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { under: None, young: HashMap::new(), old: HashMap::new(), half: capacity / 2 }
    }

    /// Says what a token says if it is to be believed at `now`, in Unix seconds, with the keys in force.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(&mut self, verifier: &Verifier, token: &[u8], now: u64) -> Result<(Rc<Claims>, Checked), TokenFault> {
        let keys = verifier.keys.current();
        let keys = keys.as_ref().ok_or(TokenFault::NoKeys)?;
        let under = Some((verifier.id, keys.id()));
        if self.under != under {
            self.under = under;
            self.young.clear();
            self.old.clear();
        }
        if token.len() > MAX_TOKEN {
            return Err(TokenFault::TooLarge);
        }
        let digest = KeyDigest::of(token);
        if let Some(known) = self.find(&digest) {
            return if now < known.expires { Ok((known.claims, Checked::Cached)) } else { Err(TokenFault::Expired) };
        }
        let verified = verifier.verify(keys, token, now)?;
        let claims = Rc::clone(&verified.claims);
        self.insert(digest, verified);
        Ok((claims, Checked::Verified))
    }

    /// A token that is used stays: it moves from the old half to the young one.
    fn find(&mut self, digest: &KeyDigest) -> Option<Verified> {
        if let Some(known) = self.young.get(digest) {
            return Some(known.clone());
        }
        let known = self.old.remove(digest)?;
        self.insert(*digest, known.clone());
        Some(known)
    }

    /// When the young half is full it is the old one, and what was in that and hasn't been used since is forgotten.
    fn insert(&mut self, digest: KeyDigest, verified: Verified) {
        if self.young.len() >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, verified);
    }
}

/// By worker; a token takes some 300 bytes.
const CAPACITY: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(expires: u64) -> Verified {
        Verified { claims: Rc::default(), expires }
    }

    #[test]
    fn what_is_used_stays_and_the_rest_makes_room() {
        let mut cache = Cache::new(8);
        let digest = |n: u32| KeyDigest::of(&n.to_be_bytes());
        cache.insert(digest(0), verified(1));
        for n in 1..1000 {
            cache.insert(digest(n), verified(1));
            assert!(cache.find(&digest(0)).is_some(), "{n}");
            assert!(cache.young.len() + cache.old.len() <= 8, "{n}");
        }
        assert!(cache.find(&digest(999)).is_some());
        assert!(cache.find(&digest(980)).is_none());
    }
}
