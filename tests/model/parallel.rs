//! Many threads at once, on one counter, on a hundred thousand and on a million: totals are exact, whatever order threads run in.
//!
//! Time stands still, so that nothing drains: what is in use at the end is the sum of what was admitted and settled.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::chance::Random;
use crate::store::{Fixture, SPACES, charge, key};
use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::Algorithm::{self, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Charge, Interned, Key, Quota};
use tollgate::store::{Origin, Taken};

#[test]
fn a_hot_counter_admits_exactly_its_limit() {
    for (algorithm, threads) in all_at_8_and_64() {
        let (fixture, admitted) = (Fixture::new(1000), AtomicU64::new(0));
        let (hot, key) = (hourly(&fixture, 2000, algorithm), key(0, 0));
        in_threads(threads, 4000, |_, _| {
            if fixture.store.charge(&[charge(SPACES[0], key, &hot, 1)], NOW).conforms {
                admitted.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(admitted.into_inner(), 2000, "{algorithm:?}, {threads} threads");
    }
}

#[test]
fn a_hot_counter_with_settlements_has_used_the_sum() {
    for (algorithm, threads) in all_at_8_and_64() {
        let (fixture, sum) = (Fixture::new(1000), AtomicU64::new(0));
        let (hot, key) = (hourly(&fixture, 4000, algorithm), key(0, 0));
        in_threads(threads, 4000, |random, _| {
            // Refused often, since 4000 times 3 is much more than fits; a reservation is never exceeded, so what was admitted stays within.
            sum.fetch_add(
                reserve_and_settle(&fixture, &[charge(SPACES[0], key, &hot, 1 + random.below(6))], random),
                Ordering::Relaxed,
            );
        });
        let used = fixture.used(&charge(SPACES[0], key, &hot, 0), NOW);
        assert_eq!(used, sum.into_inner(), "{algorithm:?}, {threads} threads");
        assert!(used > 3900, "{algorithm:?}, {threads} threads: {used} used");
    }
}

#[test]
fn joint_charges_with_settlements_have_used_the_sum_everywhere() {
    for (algorithm, threads) in all_at_8_and_64() {
        let fixture = Fixture::new(10_000);
        // A hot counter of everybody behind cold ones of a few; either may refuse.
        let (own, shared) = (hourly(&fixture, 150, algorithm), hourly(&fixture, 4000, other(algorithm)));
        let narrow: Vec<Key> = (0..CLIENTS).map(|client| key(1, client)).collect();
        let (all, sum) = (key(2, 0), AtomicU64::new(0));
        let sums: Vec<AtomicU64> = narrow.iter().map(|_| AtomicU64::new(0)).collect();
        in_threads(threads, 4000, |random, _| {
            let client = usize::try_from(random.below(CLIENTS)).unwrap();
            let cost = 1 + random.below(6);
            let charges = [
                charge(SPACES[0], narrow[client], &own, cost),
                charge(SPACES[0], narrow[client].window(1), &own, cost),
                charge(SPACES[1], all, &shared, cost),
            ];
            let settled = reserve_and_settle(&fixture, &charges, random);
            sums[client].fetch_add(settled, Ordering::Relaxed);
            sum.fetch_add(settled, Ordering::Relaxed);
        });
        for (key, sum) in narrow.iter().zip(&sums) {
            let expected = sum.load(Ordering::Relaxed);
            for key in [*key, key.window(1)] {
                assert_eq!(fixture.used(&charge(SPACES[0], key, &own, 0), NOW), expected, "{algorithm:?}, {threads} threads");
            }
        }
        let used = fixture.used(&charge(SPACES[1], all, &shared, 0), NOW);
        assert_eq!(used, sum.into_inner(), "{algorithm:?}, {threads} threads");
        fixture.assert_roomy();
    }
}

#[test]
fn a_hundred_thousand_counters_have_used_the_sum() {
    for (algorithm, threads) in [(Gcra, 8), (SlidingWindow, 64), (SlidingLog, 8), (FixedWindow, 64)] {
        let fixture = Fixture::new(8 * usize::try_from(KEYS).unwrap());
        let quota = hourly(&fixture, 100, algorithm);
        let keys: Vec<Key> = (0..KEYS).map(|client| key(3, client)).collect();
        let sum = AtomicU64::new(0);
        // In steps of a prime every key is met, and by several threads.
        in_threads(threads, 2 * KEYS, |random, number| {
            let at = |offset| keys[usize::try_from((number * 7919 + offset) % KEYS).unwrap()];
            let cost = 1 + random.below(9);
            let charges = [charge(SPACES[0], at(0), &quota, cost), charge(SPACES[1], at(1), &quota, cost)];
            let several = if number.is_multiple_of(2) { &charges[..] } else { &charges[..1] };
            sum.fetch_add(reserve_and_settle(&fixture, several, random) * several.len() as u64, Ordering::Relaxed);
        });
        let used = |space| keys.iter().map(|key| fixture.used(&charge(space, *key, &quota, 0), NOW)).sum::<u64>();
        assert_eq!(used(SPACES[0]) + used(SPACES[1]), sum.into_inner(), "{algorithm:?}, {threads} threads");
        fixture.assert_roomy();
    }
}

#[test]
fn a_million_counters_admit_exactly_their_limits() {
    let fixture = Fixture::new(2 * usize::try_from(MANY_KEYS).unwrap());
    let (once, admitted) = (hourly(&fixture, 1, Gcra), AtomicU64::new(0));
    // Everybody asks twice, in two orders, so that of each key another thread is refused.
    in_threads(64, 2 * MANY_KEYS, |_, number| {
        let client = if number < MANY_KEYS { number } else { (number * 7919) % MANY_KEYS };
        if fixture.store.charge(&[charge(SPACES[0], key(4, client), &once, 1)], NOW).conforms {
            admitted.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(admitted.into_inner(), MANY_KEYS);
    assert_eq!(fixture.store.occupancy()[0].keys, usize::try_from(MANY_KEYS).unwrap());
    fixture.assert_roomy();
}

/// Reserves, then corrects every charge to the same lower cost; that, or 0 if it was refused.
fn reserve_and_settle(fixture: &Fixture, charges: &[Charge<'_>], random: &mut Random) -> u64 {
    let charged = fixture.store.charge(charges, NOW);
    if !charged.conforms {
        return 0;
    }
    let cost = random.below(charges[0].cost + 1);
    for (charge, outcome) in charges.iter().zip(&charged.outcomes) {
        fixture.store.settle(&Taken::of(charge, outcome, Origin::Memory), cost, NOW);
    }
    cost
}

/// Shares `total` calls among threads; each call gets its number.
fn in_threads(threads: u64, total: u64, call: impl Fn(&mut Random, u64) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let call = &call;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for number in (thread..total).step_by(usize::try_from(threads).unwrap()) {
                    call(&mut random, number);
                }
            });
        }
    });
}

fn all_at_8_and_64() -> impl Iterator<Item = (Algorithm, u64)> {
    [Gcra, TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog]
        .into_iter()
        .flat_map(|algorithm| [(algorithm, 8), (algorithm, 64)])
}

fn other(algorithm: Algorithm) -> Algorithm {
    match algorithm {
        Gcra => SlidingLog,
        TokenBucket => FixedWindow,
        LeakyBucket => SlidingWindow,
        _ => Gcra,
    }
}

/// An interval of whole nanoseconds, so that buckets have used whole cells.
fn hourly(fixture: &Fixture, count: u64, algorithm: Algorithm) -> Interned {
    fixture.intern(Quota::new(count, Duration::from_secs(3600), None, algorithm).unwrap())
}

const NOW: Nanos = 5 * 3600 * SECOND + 1234;
const CLIENTS: u64 = 20;
const KEYS: u64 = 100_000;
const MANY_KEYS: u64 = 1_000_000;
