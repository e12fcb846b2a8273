//! Which endpoint a request goes to: one file per algorithm, all over [`Candidates`].
//!
//! A [`Balancer`] belongs to one worker and one upstream, so it needs no lock; what workers share, load and standing, it is shown as
//! numbers. Knows no addresses, no connections and no time: whether an endpoint may be used and how much of its weight it has is
//! said by whoever shows it.

mod least_requests;
mod random;
mod rendezvous;
mod round_robin;

use std::hash::Hasher;
use std::num::NonZeroU64;

use siphasher::sip::SipHasher13;

use crate::snapshot::Balance;
use random::Random;
use round_robin::RoundRobin;

/// The endpoints of an upstream as a balancer sees them.
pub trait Candidates {
    /// How many there are, usable or not.
    fn count(&self) -> usize;

    /// The one at this place, unless it must not be used. May be asked more than once, and answer otherwise the second time:
    /// others change loads and standing meanwhile.
    fn at(&self, index: usize) -> Option<Candidate>;
}

/// An endpoint that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its weight at the moment, in parts of [`FULL`]; more than 0.
    pub weight: u64,
    /// Exchanges under way, over all workers.
    pub load: u32,
    /// [`endpoint_hash`] of its address.
    pub hash: u64,
}

/// A configured weight of 1.
pub const FULL: u64 = 1 << 16;

/// Chooses among the endpoints of one upstream, for one worker.
#[derive(Debug)]
pub struct Balancer {
    algorithm: Algorithm,
    random: Random,
}

#[derive(Debug)]
enum Algorithm {
    RoundRobin(RoundRobin),
    Random,
    LeastRequests,
    Hash { load_bound: f64 },
}

impl Balancer {
    /// For an upstream with so many endpoints.
    #[must_use]
    pub fn new(balance: &Balance, endpoints: usize) -> Self {
        let algorithm = match balance {
            Balance::RoundRobin => Algorithm::RoundRobin(RoundRobin::new(endpoints)),
            Balance::Random => Algorithm::Random,
            Balance::LeastRequests => Algorithm::LeastRequests,
            Balance::Hash { load_bound, .. } => Algorithm::Hash { load_bound: *load_bound },
        };
        Self { algorithm, random: Random::new() }
    }

    /// The place of an endpoint that may be used; `None` when none may. `key` is what requests that belong together have in common.
    pub fn pick(&self, candidates: &impl Candidates, key: Option<NonZeroU64>) -> Option<usize> {
        if candidates.count() == 1 {
            return candidates.at(0).map(|_| 0);
        }
        match (&self.algorithm, key) {
            (Algorithm::RoundRobin(turns), _) => turns.pick(candidates, &self.random),
            (Algorithm::Random, _) => random::pick(candidates, &self.random, None),
            (Algorithm::Hash { load_bound }, Some(key)) => rendezvous::pick(candidates, key.get(), *load_bound),
            // A request without a key belongs to nothing, so it may as well go where there is room.
            (Algorithm::LeastRequests | Algorithm::Hash { .. }, _) => least_requests::pick(candidates, &self.random),
        }
    }
}

/// What [`Candidate::hash`] is. The same in every process, so that gateways side by side agree on who goes where; a client can't gain by knowing
/// it, since the load bound holds whatever the keys are.
#[must_use]
pub fn endpoint_hash(address: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(address.as_bytes());
    hasher.finish()
}

/// Every endpoint that may be used, with its place.
fn open<C: Candidates>(candidates: &C) -> impl Iterator<Item = (usize, Candidate)> {
    (0..candidates.count()).filter_map(|index| Some((index, candidates.at(index)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::HashBy;

    /// Endpoints by weight and load; `None` may not be used.
    pub(super) struct Fixed(pub(super) Vec<Option<(u64, u32)>>);

    impl Candidates for Fixed {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn at(&self, index: usize) -> Option<Candidate> {
            let (weight, load) = self.0[index]?;
            Some(Candidate { weight, load, hash: endpoint_hash(&format!("10.0.0.{index}:80")) })
        }
    }

    fn all() -> Vec<Balance> {
        vec![Balance::RoundRobin, Balance::Random, Balance::LeastRequests, Balance::Hash { by: HashBy::Client, load_bound: 1.25 }]
    }

    proptest::proptest! {
        /// Whatever weights and loads are: an endpoint is picked exactly if one may be used, and only one that may.
        #[test]
        fn only_what_may_be_used_is_picked(
            endpoints in proptest::collection::vec(proptest::option::of((1_u64..1 << 48, 0_u32..=u32::MAX)), 1..8),
            keys in proptest::collection::vec(proptest::option::of(1_u64..=u64::MAX), 20),
        ) {
            let usable = endpoints.iter().any(Option::is_some);
            let candidates = Fixed(endpoints);
            for balance in all() {
                let balancer = Balancer::new(&balance, candidates.count());
                for key in &keys {
                    let picked = balancer.pick(&candidates, key.and_then(NonZeroU64::new));
                    assert_eq!(picked.is_some(), usable, "{balance:?}");
                    assert!(picked.is_none_or(|index| candidates.0[index].is_some()), "{balance:?} {picked:?}");
                }
            }
        }
    }

    #[test]
    fn an_upstream_without_endpoints_has_nothing_to_pick() {
        for balance in all() {
            assert_eq!(Balancer::new(&balance, 0).pick(&Fixed(Vec::new()), NonZeroU64::new(1)), None);
        }
    }
}
