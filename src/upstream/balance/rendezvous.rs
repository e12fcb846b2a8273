//! The same endpoint for the same key: rendezvous hashing by weight, with bounded loads.
//!
//! Every endpoint has a score for a key, and the highest wins (Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit
//! Rates", IEEE/ACM Transactions on Networking 6(1), 1998). With the score `weight / -ln(hash)` shares are exactly those of the weights
//! (Schindelhauer and Schomaker, "Weighted Distributed Hash Tables", SPAA 2005). An endpoint that has its share of the load times the bound takes no
//! more, and the key goes to its next best (Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", SODA 2018).
//!
//! Rather than Maglev's table or a ring, because it has no state: an endpoint that leaves moves its own keys and no others, and spreads them
//! over all that stay instead of onto a neighbour; the same goes for one whose weight grows during its slow start; and nothing is to be built when
//! endpoints come and go. The price is a few nanoseconds for each endpoint, where the others look up one place in a table
//! (`benches/balance`).

use super::{Candidate, Candidates, FULL, open};

pub(super) fn pick<C: Candidates>(candidates: &C, key: u64, load_bound: f64) -> Option<usize> {
    let all = Totals::of(candidates);
    let (mut best, mut fallback) = (None::<(usize, Score)>, None::<(usize, Score)>);
    for (index, candidate) in open(candidates) {
        let score = Score::new(key, candidate, all.equal);
        let better = |than: &Option<(usize, Score)>| than.is_none_or(|(_, other)| score.is_above(other));
        if better(&best) && all.has_room_for_one(candidate, load_bound) {
            best = Some((index, score));
        }
        if better(&fallback) {
            fallback = Some((index, score));
        }
    }
    // Somebody always has room, unless loads have grown while they were looked at.
    best.or(fallback).map(|(index, _)| index)
}

/// All that may be used, together.
struct Totals {
    weight: u64,
    load: u64,
    equal: bool,
}

impl Totals {
    fn of<C: Candidates>(candidates: &C) -> Self {
        let (mut all, mut first) = (Self { weight: 0, load: 0, equal: true }, None);
        for (_, Candidate { weight, load, .. }) in open(candidates) {
            all.weight = all.weight.saturating_add(weight);
            all.load += u64::from(load);
            all.equal &= *first.get_or_insert(weight) == weight;
        }
        all
    }

    /// Whether an endpoint's load with one request more is at most its share of the whole with one more, times the bound; rounded up, so
    /// that a share below one request still takes one.
    fn has_room_for_one(&self, candidate: Candidate, load_bound: f64) -> bool {
        let most = load_bound * as_float(self.load + 1) * as_float(candidate.weight) / as_float(self.weight.max(1));
        f64::from(candidate.load) + 1.0 <= most.ceil()
    }
}

/// How much a key belongs to an endpoint.
#[derive(Clone, Copy)]
struct Score(f64, u64);

impl Score {
    fn new(key: u64, candidate: Candidate, equal_weights: bool) -> Self {
        let hash = mix(key ^ candidate.hash);
        if equal_weights {
            // The logarithm is monotonous, so without it the order is the same.
            return Self(0.0, hash);
        }
        // In (0, 1): 53 bits are what a float holds, and a half keeps it from both ends.
        let unit = (as_float(hash >> 11) + 0.5) * 2_f64.powi(-53);
        Self(as_float(candidate.weight) / as_float(FULL) / -unit.ln(), hash)
    }

    fn is_above(self, Self(score, hash): Self) -> bool {
        self.0 > score || (self.0 >= score && self.1 > hash)
    }
}

/// A bijection that leaves no pattern: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[expect(clippy::cast_precision_loss, reason = "weights and loads as shares of their sums: 53 bits are plenty")]
fn as_float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixed;
    use super::*;
    use proptest::prelude::*;

    const KEYS: u64 = 20_000;

    fn homes(candidates: &Fixed) -> Vec<usize> {
        // With loads of zero and a bound this wide, everybody has room.
        (0..KEYS).map(|key| pick(candidates, mix(key), 1000.0).unwrap()).collect()
    }

    fn shares(homes: &[usize], endpoints: usize) -> Vec<f64> {
        let count = |index| homes.iter().filter(|home| **home == index).count();
        (0..endpoints).map(|index| as_float(count(index) as u64) / as_float(KEYS)).collect()
    }

    #[test]
    fn an_endpoint_that_leaves_moves_its_own_keys_and_spreads_them_over_all() {
        for weights in [vec![FULL; 10], (1..=10).map(|weight| weight * FULL).collect()] {
            let all = Fixed(weights.iter().map(|weight| Some((*weight, 0))).collect());
            let mut less = Fixed(all.0.clone());
            less.0[3] = None;
            let (before, after) = (homes(&all), homes(&less));
            assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == 3));
            let orphans: Vec<_> =
                before.iter().zip(&after).filter(|(before, _)| **before == 3).map(|(_, after)| *after).collect();
            assert!((0..10).filter(|index| *index != 3).all(|index| orphans.contains(&index)), "nobody takes them all");
        }
    }

    #[test]
    fn weights_decide_the_share() {
        let weights = [1, 2, 3, 4].map(|weight| Some((weight * FULL, 0)));
        for (share, expected) in shares(&homes(&Fixed(weights.to_vec())), 4).iter().zip([0.1, 0.2, 0.3, 0.4]) {
            // Six standard deviations of a share of 20 000 keys.
            assert!((share - expected).abs() < 0.021, "{share} for {expected}");
        }
    }

    #[test]
    fn a_weight_that_grows_only_takes() {
        let at = |weight| Fixed(vec![Some((FULL, 0)), Some((weight, 0)), Some((FULL, 0))]);
        let mut before = homes(&at(FULL / 100));
        for percent in [5, 20, 50, 99, 100] {
            let after = homes(&at(FULL * percent / 100));
            assert!(before.iter().zip(&after).all(|(before, after)| before == after || *after == 1), "{percent} %");
            before = after;
        }
    }

    #[test]
    fn an_endpoint_at_its_bound_passes_the_key_on_and_takes_it_back() {
        let key = mix(7);
        let idle = Fixed(vec![Some((FULL, 0)); 4]);
        let home = pick(&idle, key, 1.25).unwrap();
        let mut busy = Fixed(vec![Some((FULL, 10)); 4]);
        busy.0[home] = Some((FULL, 12));
        assert_eq!(pick(&busy, key, 1.25), Some(home), "43 / 4 × 1.25 = 13.4, so a 13th has room");
        busy.0[home] = Some((FULL, 16));
        assert_ne!(pick(&busy, key, 1.25), Some(home));
        assert_eq!(pick(&busy, key, 2.0), Some(home));
        assert_eq!(pick(&idle, key, 1.25), Some(home));
    }

    proptest! {
        /// However keys are chosen, no endpoint gets more than the bound says.
        #[test]
        fn load_is_bounded(
            weights in prop::collection::vec(1_u64..8, 2..10),
            keys in prop::collection::vec(0_u64..4, 1..300),
            percent in 105_u32..300,
        ) {
            let bound = f64::from(percent) / 100.0;
            let total: u64 = weights.iter().sum();
            let mut candidates = Fixed(weights.iter().map(|weight| Some((weight * FULL, 0))).collect());
            for (requests, key) in (1_u64..).zip(&keys) {
                let index = pick(&candidates, mix(*key), bound).unwrap();
                candidates.0[index].as_mut().unwrap().1 += 1;
                let most = (bound * as_float(requests) * as_float(weights[index]) / as_float(total)).ceil();
                prop_assert!(f64::from(candidates.0[index].unwrap().1) <= most);
            }
        }
    }
}
