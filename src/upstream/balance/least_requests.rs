//! The less busy of two picked at random by weight (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE
//! Transactions on Parallel and Distributed Systems 12(10), 2001). Looking at two is nearly as even as looking at all, and gateways that all see the
//! same least busy endpoint don't all run to it.

use super::random::{self, Random};
use super::{Candidate, Candidates};

pub(super) fn pick<C: Candidates>(candidates: &C, random: &Random) -> Option<usize> {
    let first = random::pick(candidates, random, None)?;
    let Some(second) = random::pick(candidates, random, Some(first)) else { return Some(first) };
    let (Some(a), Some(b)) = (candidates.at(first), candidates.at(second)) else {
        // One has just gone; the other may not even be the one that is left.
        return candidates.at(second).map(|_| second).or(Some(first));
    };
    Some(if is_busier(a, b) { second } else { first })
}

/// By what each has to do for its weight.
fn is_busier(a: Candidate, b: Candidate) -> bool {
    u128::from(a.load) * u128::from(b.weight) > u128::from(b.load) * u128::from(a.weight)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fixed;
    use super::*;

    #[test]
    fn the_busier_of_two_is_not_picked() {
        let random = Random::new();
        let candidates = Fixed(vec![Some((1, 5)), Some((1, 0))]);
        assert!((0..100).all(|_| pick(&candidates, &random) == Some(1)));
        let rest = Fixed(vec![Some((1, 5)), None]);
        assert_eq!(pick(&rest, &random), Some(0));
        assert_eq!(pick(&Fixed(vec![None, None]), &random), None);
    }

    #[test]
    fn load_is_measured_by_weight() {
        let random = Random::new();
        let candidates = Fixed(vec![Some((1, 2)), Some((4, 7))]);
        assert!((0..100).all(|_| pick(&candidates, &random) == Some(1)), "7 for a weight of 4 is less than 2 for 1");
    }
}
