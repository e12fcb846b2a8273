//! Which endpoint: the less busy of two picked at random by weight (Mitzenmacher, "The power of two choices", 2001). With one
//! endpoint there is nothing to choose.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use super::pool::WeightedEndpoint;

/// Picks endpoints for one worker.
#[derive(Debug)]
pub(super) struct Picker {
    random: Cell<u64>,
}

impl Picker {
    pub(super) fn new() -> Self {
        // Xorshift must not start at 0.
        Self { random: Cell::new(RandomState::new().hash_one(0) | 1) }
    }

    /// The place of an endpoint that has not been tried; `None` when all have.
    pub(super) fn pick(&self, endpoints: &[WeightedEndpoint], tried: &[usize]) -> Option<usize> {
        if endpoints.len() == 1 {
            return tried.is_empty().then_some(0);
        }
        let first = self.by_weight(endpoints, tried, None)?;
        let Some(second) = self.by_weight(endpoints, tried, Some(first)) else { return Some(first) };
        let relative = |index: usize| {
            let endpoint = endpoints.get(index);
            endpoint.map_or((u64::MAX, 1), |e| (u64::from(e.pool.load()), u64::from(e.weight.max(1))))
        };
        let ((a, a_weight), (b, b_weight)) = (relative(first), relative(second));
        Some(if b.saturating_mul(a_weight) < a.saturating_mul(b_weight) { second } else { first })
    }

    fn by_weight(&self, endpoints: &[WeightedEndpoint], tried: &[usize], not: Option<usize>) -> Option<usize> {
        let open = || endpoints.iter().enumerate().filter(|(index, _)| !tried.contains(index) && Some(*index) != not);
        let total: u64 = open().map(|(_, endpoint)| u64::from(endpoint.weight)).sum();
        let mut at = self.next().checked_rem(total)?;
        for (index, endpoint) in open() {
            match at.checked_sub(u64::from(endpoint.weight)) {
                Some(left) => at = left,
                None => return Some(index),
            }
        }
        None
    }

    /// Xorshift64 (Marsaglia, 2003): good enough to spread load.
    fn next(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::pool::{EndpointPool, LoadCount};
    use std::rc::Rc;

    fn endpoints(loads_and_weights: &[(u32, u32)]) -> Vec<WeightedEndpoint> {
        let make = |&(load, weight): &(u32, u32)| {
            let pool = Rc::new(EndpointPool::new("a:1".into(), LoadCount::of(load)));
            WeightedEndpoint { pool, weight, tls: None }
        };
        loads_and_weights.iter().map(make).collect()
    }

    #[test]
    fn the_busier_of_two_is_not_picked() {
        let endpoints = endpoints(&[(5, 1), (0, 1)]);
        let picker = Picker::new();
        assert!((0..100).all(|_| picker.pick(&endpoints, &[]) == Some(1)));
        assert_eq!(picker.pick(&endpoints, &[1]), Some(0));
        assert_eq!(picker.pick(&endpoints, &[1, 0]), None);
    }

    #[test]
    fn weights_decide_the_share() {
        let endpoints = endpoints(&[(0, 1), (0, 1), (0, 8)]);
        let picker = Picker::new();
        let mut picked = [0; 3];
        for _ in 0..10_000 {
            picked[picker.pick(&endpoints, &[]).unwrap()] += 1;
        }
        assert!((7_500..8_500).contains(&picked[2]) && picked[0] > 700, "{picked:?}");
    }
}
