//! A store at its cap: ten times as many random keys as it has room for pass through, and whoever has used much is not forgotten.
//!
//! Time stands still, so that nothing drains: what is counted can only be lost, never lapse.

use std::time::Duration;

use crate::chance::Random;
use crate::store::{Fixture, SPACES, charge, key};
use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::Algorithm::{self, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Interned, Key, Quota};

#[test]
fn whoever_is_at_his_limit_stays_refused_and_the_busiest_keep_their_counts() {
    for algorithm in [Gcra, TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog] {
        let fixture = Fixture::new(MAX_KEYS);
        let quota = counting(&fixture, 1000, algorithm);
        let take = |key, cost| fixture.store.charge(&[charge(SPACES[0], key, &quota, cost)], NOW).conforms;
        let used = |key| fixture.used(&charge(SPACES[0], key, &quota, 0), NOW);
        let (blocked, busiest) = (key(0, 0), (0..BUSIEST).map(|client| key(1, client)).collect::<Vec<Key>>());
        assert!(take(blocked, 1000));
        // From 500 to 995, which is more than chance lets the flood collect anywhere.
        for (number, key) in (0..).zip(&busiest) {
            assert!(take(*key, 500 + 5 * number));
        }
        let mut random = Random::new(1);
        for client in 0..10 * u64::try_from(MAX_KEYS).unwrap() {
            assert!(take(key(2, client), 1 + random.below(3)), "{algorithm:?}: nobody of the flood is near the limit");
            if client % 4 == 0 {
                assert!(!take(blocked, 1), "{algorithm:?} after {client}");
            }
        }
        for (number, key) in (0..).zip(&busiest) {
            assert_eq!(used(*key), 500 + 5 * number, "{algorithm:?}");
        }
        assert_eq!(used(blocked), 1000, "{algorithm:?}");
        assert_capped(&fixture);
    }
}

#[test]
fn a_flood_that_uses_its_limits_up_frees_nobody() {
    for algorithm in [Gcra, FixedWindow, SlidingWindow, SlidingLog] {
        let fixture = Fixture::new(MAX_KEYS);
        let quota = counting(&fixture, 10, algorithm);
        let take = |key, cost| fixture.store.charge(&[charge(SPACES[0], key, &quota, cost)], NOW).conforms;
        let blocked: Vec<Key> = (0..BUSIEST).map(|client| key(3, client)).collect();
        assert!(blocked.iter().all(|key| take(*key, 10)));
        let mut random = Random::new(2);
        for client in 0..10 * u64::try_from(MAX_KEYS).unwrap() {
            let _ = take(key(4, client), 1 + random.below(10));
            assert!(!take(*random.pick(&blocked), 1), "{algorithm:?} after {client}");
        }
        assert_capped(&fixture);
    }
}

#[test]
fn a_flood_of_one_window_leaves_the_others_alone() {
    for (flooded, quiet) in [(Gcra, FixedWindow), (SlidingWindow, SlidingLog), (FixedWindow, TokenBucket)] {
        let fixture = Fixture::new(MAX_KEYS);
        let (flooded, quiet) = (counting(&fixture, 1000, flooded), counting(&fixture, 999, quiet));
        // A quarter of the room, and with one cell in use the emptiest of all.
        let quiet_keys: Vec<Key> = (0..u64::try_from(MAX_KEYS / 4).unwrap()).map(|client| key(5, client)).collect();
        for key in &quiet_keys {
            assert!(fixture.store.charge(&[charge(SPACES[0], *key, &quiet, 1)], NOW).conforms);
        }
        for client in 0..10 * u64::try_from(MAX_KEYS).unwrap() {
            assert!(fixture.store.charge(&[charge(SPACES[0], key(6, client), &flooded, 5)], NOW).conforms);
        }
        for key in &quiet_keys {
            assert_eq!(fixture.used(&charge(SPACES[0], *key, &quiet, 0), NOW), 1, "{flooded:?} over {quiet:?}");
        }
        assert_capped(&fixture);
    }
}

/// The flood did have to make room, and got no more than there is.
fn assert_capped(fixture: &Fixture) {
    let space = fixture.store.occupancy()[0];
    assert!(space.evicted_live > u64::try_from(MAX_KEYS).unwrap(), "{space:?}");
    assert!(space.keys <= space.max_keys && space.max_keys < MAX_KEYS + MAX_KEYS / 8, "{space:?}");
}

/// For so long that an interval is of whole nanoseconds, and buckets have used whole cells.
fn counting(fixture: &Fixture, count: u64, algorithm: Algorithm) -> Interned {
    fixture.intern(Quota::new(count, Duration::from_secs(999 * 1000), None, algorithm).unwrap())
}

const NOW: Nanos = 5_000_000 * SECOND + 1234;
const BUSIEST: u64 = 100;
const MAX_KEYS: usize = 2048;
