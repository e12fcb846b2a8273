//! How old a connection may become, without a clock: a pool's time goes on with its sweeps, and a connection knows when in it its end is.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// How long a connection that is made now shall live, of so much at most: connections that were made together don't end together.
pub(super) fn lifetime(max_age: Option<Duration>) -> Duration {
    let Some(max_age) = max_age else { return Duration::MAX };
    // The standard library's own random seeds, without another crate for randomness.
    let random = u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or_default();
    max_age.mul_f64(1.0 - SPREAD * f64::from(random) / f64::from(u32::MAX))
}

/// By this share of it connections live less than they may.
const SPREAD: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_spread_below_what_they_may_be() {
        let most = Duration::from_secs(100);
        let lives: Vec<_> = (0..200).map(|_| lifetime(Some(most)).as_secs_f64()).collect();
        assert!(lives.iter().all(|life| (80.0..=100.0).contains(life)), "{lives:?}");
        assert!(lives.iter().any(|life| *life < 86.0) && lives.iter().any(|life| *life > 94.0), "{lives:?}");
        assert_eq!(lifetime(None), Duration::MAX);
    }
}
