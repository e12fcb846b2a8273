//! In turn, by weight, and smoothly: with weights 5, 1 and 1 the turns are `a a b a c a a`, not `a a a a a b c`. The algorithm is that of
//! nginx's weighted round robin (Nginx changeset 52327e0627383, "smooth weighted round-robin balancing", 2012): everybody's claim
//! grows by its weight, the greatest claim is served and pays the sum of all.
//!
//! Turns are each worker's own. Over a whole cycle each is exact, so all together are.

use std::cell::Cell;

use super::random::Random;
use super::{Candidates, open};

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct RoundRobin {
    claims: Box<[Cell<i64>]>,
    started: Cell<bool>,
}

impl RoundRobin {
    pub(super) fn new(endpoints: usize) -> Self {
        Self { claims: (0..endpoints).map(|_| Cell::new(0)).collect(), started: Cell::new(false) }
    }

    pub(super) fn pick<C: Candidates>(&self, candidates: &C, random: &Random) -> Option<usize> {
        if !self.started.replace(true) {
            // Somewhere in the cycle: workers that begin together must not all begin with the first endpoint.
            for _ in 0..random.next() % u64::try_from(self.claims.len()).unwrap_or(1).max(1) {
                let _ = self.turn(candidates);
            }
        }
        self.turn(candidates)
    }

    fn turn<C: Candidates>(&self, candidates: &C) -> Option<usize> {
        let (mut total, mut best) = (0_i64, None::<(usize, i64)>);
        for (index, candidate) in open(candidates) {
            let Some(claim) = self.claims.get(index) else { continue };
            let weight = i64::try_from(candidate.weight).unwrap_or(MOST).min(MOST);
            let grown = claim.get().saturating_add(weight);
            claim.set(grown);
            total = total.saturating_add(weight);
            if best.is_none_or(|(_, most)| grown > most) {
                best = Some((index, grown));
            }
        }
        let (index, grown) = best?;
        self.claims.get(index)?.set(grown.saturating_sub(total));
        Some(index)
    }
}

/// The largest configured weight, 2^32 - 1, in parts of `FULL`; sums of thousands of them are far from the end.
const MOST: i64 = 1 << 48;

#[cfg(test)]
mod tests {
    use super::super::tests::Fixed;
    use super::*;
    use proptest::prelude::*;

    fn turns(weights: &[Option<u64>], n: usize) -> Vec<usize> {
        let candidates = Fixed(weights.iter().map(|weight| Some(((*weight)?, 0))).collect());
        let turns = RoundRobin::new(weights.len());
        // From the cycle's begin.
        turns.started.set(true);
        (0..n).map(|_| turns.pick(&candidates, &Random::new()).unwrap()).collect()
    }

    #[test]
    fn the_heavy_one_does_not_have_all_its_turns_at_once() {
        assert_eq!(turns(&[Some(5), Some(1), Some(1)], 7), [0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(turns(&[Some(1), None, Some(1)], 4), [0, 2, 0, 2]);
    }

    #[test]
    fn a_worker_begins_anywhere() {
        let candidates = Fixed(vec![Some((1, 0)); 4]);
        let random = Random::new();
        let first = |_| RoundRobin::new(4).pick(&candidates, &random);
        let firsts: std::collections::BTreeSet<_> = (0..500).map(first).collect();
        assert_eq!(firsts.len(), 4);
    }

    proptest! {
        /// Over any whole cycle everybody has exactly its weight of turns, wherever the cycle begins.
        #[test]
        fn a_cycle_is_exact(weights in prop::collection::vec(1_u64..20, 1..6), skip in 0_usize..50) {
            let cycle: u64 = weights.iter().sum();
            let cycle = usize::try_from(cycle).unwrap();
            let weights: Vec<_> = weights.into_iter().map(Some).collect();
            let all = turns(&weights, skip + cycle);
            for (index, weight) in weights.iter().enumerate() {
                let had = all[skip..].iter().filter(|turn| **turn == index).count();
                prop_assert_eq!(u64::try_from(had).ok(), *weight);
            }
        }
    }
}
