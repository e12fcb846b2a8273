//! By chance, in proportion to weight.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use super::{Candidate, Candidates, open};

/// Xorshift64 (Marsaglia, "Xorshift RNGs", 2003): good enough to spread load.
#[derive(Debug)]
pub(super) struct Random(Cell<u64>);

impl Random {
    /// Seeded from the standard library's own random seeds.
    pub(super) fn new() -> Self {
        // Xorshift must not start at 0.
        Self(Cell::new(RandomState::new().hash_one(0) | 1))
    }

    pub(super) fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        x
    }
}

/// One of those that may be used, `but` for this one.
pub(super) fn pick<C: Candidates>(candidates: &C, random: &Random, but: Option<usize>) -> Option<usize> {
    let others = || open(candidates).filter(|(index, _)| Some(*index) != but);
    let total: u64 = others().map(|(_, Candidate { weight, .. })| weight).sum();
    let mut at = random.next().checked_rem(total)?;
    let mut last = None;
    for (index, Candidate { weight, .. }) in others() {
        match at.checked_sub(weight) {
            Some(left) => at = left,
            None => return Some(index),
        }
        last = Some(index);
    }
    // Weights have shrunk since they were added up.
    last
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixed;
    use super::*;

    #[test]
    fn weights_decide_the_share() {
        let candidates = Fixed(vec![Some((1, 9)), None, Some((1, 0)), Some((8, 5))]);
        let random = Random::new();
        let mut picked = [0; 4];
        for _ in 0..10_000 {
            picked[pick(&candidates, &random, None).unwrap()] += 1;
        }
        // Six standard deviations around 1000 and 8000.
        assert!((820..1180).contains(&picked[0]) && picked[1] == 0, "{picked:?}");
        assert!((7_760..8_240).contains(&picked[3]), "{picked:?}");
    }

    #[test]
    fn one_can_be_left_out() {
        let candidates = Fixed(vec![Some((1, 0)), Some((1, 0))]);
        let random = Random::new();
        assert!((0..100).all(|_| pick(&candidates, &random, Some(0)) == Some(1)));
        assert_eq!(pick(&Fixed(vec![Some((1, 0))]), &random, Some(0)), None);
    }
}
