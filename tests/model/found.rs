//! What these models once found, and what their reports were answered with: one small example each.

use std::time::Duration;

use crate::store::{Fixture, SPACES, charge, key, wait};
use crate::subject::Counter;
use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::Algorithm::{self, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Boost, Interned, Quota, Verdict};
use tollgate::store::{Origin, Taken};

#[test]
fn a_lowered_rate_admits_when_it_said_it_would() {
    // The table of docs/limits.md: 9 of 10/hour used, lowered to 2/hour, "the first again in 48 minutes".
    let fixture = Fixture::new(100);
    let (ten, two) = (stored(&fixture, 10, 3600, Gcra), stored(&fixture, 2, 3600, Gcra));
    let key = key(0, 0);
    assert!(fixture.store.charge(&[charge(SPACES[0], key, &ten, 9)], 0).conforms);
    let refused = fixture.store.charge(&[charge(SPACES[0], key, &two, 1)], 0);
    assert_eq!(wait(&refused), Some(2880 * SECOND));
    assert!(!fixture.store.charge(&[charge(SPACES[0], key, &two, 1)], 2880 * SECOND - 1).conforms);
    assert!(fixture.store.charge(&[charge(SPACES[0], key, &two, 1)], 2880 * SECOND).conforms);
}

#[test]
fn one_cell_is_one_cell_used() {
    let mut counter = counter(7, 1, Gcra);
    for used in 1..=7 {
        assert!(counter.charge(0, 1).verdict.conforms());
        assert_eq!(counter.used(0), used);
    }
}

#[test]
fn an_almost_empty_store_keeps_everybody_apart() {
    let fixture = Fixture::new(800_000);
    let two = stored(&fixture, 2, 3600, Gcra);
    let left = |cost, client| fixture.store.charge(&[charge(SPACES[0], key(60, client), &two, cost)], 0).outcomes[0].remaining;
    let strangers_debts: Vec<u64> = (0..CLIENTS).filter(|client| left(1, *client) != 1).collect();
    let refilled: Vec<u64> = (0..CLIENTS).filter(|client| left(0, *client) == 2).collect();
    assert_eq!((strangers_debts, refilled), (vec![], vec![]));
}

#[test]
fn a_late_refund_does_not_double_a_burst() {
    for algorithm in [Gcra, TokenBucket, LeakyBucket] {
        let mut counter = counter(10, 10, algorithm);
        assert!(counter.charge(0, 10).verdict.conforms());
        let mark = counter.mark(0);
        assert!(counter.charge(10 * SECOND, 10).verdict.conforms());
        counter.refund(Some(mark), 10 * SECOND, 10);
        assert!(!counter.charge(10 * SECOND, 1).verdict.conforms(), "{algorithm:?}: more than a burst at once");
    }
}

#[test]
fn a_log_gives_back_what_was_reserved_whoever_looked_meanwhile() {
    let fixture = Fixture::new(100);
    let log = stored(&fixture, 5, 10, SlidingLog);
    let five = charge(SPACES[0], key(0, 0), &log, 5);
    let taken = Taken::of(&five, &fixture.store.charge(&[five], 100).outcomes[0], Origin::Memory);
    assert!(!fixture.store.charge(&[five], 99).conforms);
    fixture.store.settle(&taken, 0, 101);
    assert_eq!(fixture.used(&five, 101), 0);
}

#[test]
fn a_settlement_after_a_reload_to_a_log_gives_back() {
    let fixture = Fixture::new(100);
    let (hourly, daily) = (stored(&fixture, 10, 3600, Gcra), stored(&fixture, 100, 86_400, SlidingLog));
    let five = charge(SPACES[0], key(0, 0), &hourly, 5);
    let taken = Taken::of(&five, &fixture.store.charge(&[five], 0).outcomes[0], Origin::Memory);
    assert!(fixture.store.charge(&[charge(SPACES[0], key(0, 0), &daily, 1)], SECOND).conforms);
    fixture.store.settle(&taken, 0, 2 * SECOND);
    assert_eq!(fixture.used(&charge(SPACES[0], key(0, 0), &daily, 0), 2 * SECOND), 1);
}

#[test]
fn a_refund_finds_what_a_kept_window_counted() {
    for algorithm in [FixedWindow, SlidingWindow] {
        let mut counter = counter(10, 60, algorithm);
        assert!(counter.charge(61 * SECOND, 1).verdict.conforms());
        assert!(counter.charge(59 * SECOND, 4).verdict.conforms());
        counter.refund(Some(counter.mark(59 * SECOND)), 62 * SECOND, 4);
        assert_eq!(counter.used(62 * SECOND), 1, "{algorithm:?}");
    }
}

#[test]
fn a_counter_never_seen_is_that_in_every_window() {
    let sliding = Quota::new(5, Duration::from_millis(10), None, SlidingWindow).unwrap();
    let now = ((1 << 24) - 1) * sliding.period();
    assert_eq!(Counter::new(sliding, 0).charge(now, 5).reset_after, 2 * sliding.period());
    let fixed = quota(5, 1, FixedWindow);
    let now = ((1 << 32) - 1) * fixed.period();
    assert_eq!(Counter::new(fixed, 0).charge(now, 5).reset_after, fixed.period());
}

#[test]
fn a_debt_goes_over_to_every_quota_that_lets_clients_owe() {
    for algorithm in [Gcra, TokenBucket, LeakyBucket, FixedWindow, SlidingWindow] {
        let quota = quota(10, 60, algorithm).owing();
        assert_eq!(quota.used(quota.with_used(12, 0, 0), 0, 0), 12, "{algorithm:?}");
    }
}

#[test]
fn a_refund_counts_after_a_step_back() {
    let mut counter = counter(10, 10, Gcra);
    assert!(counter.charge(3600 * SECOND, 10).verdict.conforms());
    counter.refund(Some(counter.mark(3600 * SECOND)), 0, 10);
    assert_eq!(counter.used(0), 0);
}

#[test]
fn a_whole_burst_fits_one_by_one_where_an_interval_has_a_nanosecond_for_each_cell() {
    // What `Quota::capacity` documents: room for a nanosecond a cell, but for less than a cell.
    for (count, seconds, admitted) in [(7, 1, 7), (31_607, 1, 31_607), (999_983, 1, 999_001), (999_983, 1000, 999_983)] {
        let mut counter = counter(count, seconds, Gcra);
        let passed = (0..=count).filter(|_| counter.charge(0, 1).verdict.conforms()).count();
        assert_eq!(u64::try_from(passed).unwrap(), admitted, "{count} in {seconds} s");
        assert!(counter.charge(2 * seconds * SECOND, count).verdict.conforms(), "{count} in {seconds} s, at once");
    }
}

#[test]
fn what_remains_passes_without_a_wait() {
    let mut counter = Counter::new(quota(10, 10, Gcra).delaying(Duration::from_secs(5), 100).unwrap(), 0);
    assert_eq!(counter.charge(0, 10).remaining, 0);
    let told = counter.ask(0, 1);
    assert_eq!((told.verdict, told.delay), (Verdict::Conforms, SECOND));
}

#[test]
fn a_queue_takes_those_that_fit_into_its_time_and_its_places() {
    for (millis, queue, burst) in [(1000, 100, 11), (1000, 10, 11), (1000, 9, 10), (250, 100, 3), (1000, 0, 1), (1, u32::MAX, 1)]
    {
        let quota = quota(10, 1, LeakyBucket).delaying(Duration::from_millis(millis), queue).unwrap();
        assert_eq!(quota.burst(), burst, "{millis} ms, {queue} places");
        assert_eq!(quota.largest_cost(), 10, "{millis} ms, {queue} places");
        assert_eq!(Counter::new(quota, 0).ask(0, 0).remaining, burst, "{millis} ms, {queue} places");
    }
}

#[test]
fn what_waits_behind_a_place_keeps_its_own() {
    for algorithm in [Gcra, LeakyBucket] {
        let fixture = Fixture::new(100);
        let delayed = fixture.intern(quota(1, 1, algorithm).delaying(Duration::from_secs(10), 100).unwrap());
        let one = charge(SPACES[0], key(0, 0), &delayed, 1);
        let [first, last] = [(); 2].map(|()| Taken::of(&one, &fixture.store.charge(&[one], 0).outcomes[0], Origin::Memory));
        let next = || fixture.store.peek(&[one], 0).outcomes[0].delay;
        let full = next();
        fixture.store.settle(&first, 0, 0);
        assert_eq!(next(), full, "{algorithm:?}");
        fixture.store.settle(&last, 0, 0);
        assert_eq!(next(), full - SECOND, "{algorithm:?}");
    }
}

#[test]
fn a_log_says_when_a_cell_of_a_slightly_later_clock_ends() {
    let mut counter = counter(1, 10, SlidingLog);
    assert!(counter.charge(15 * SECOND, 1).verdict.conforms());
    let refused = counter.charge(10 * SECOND, 1);
    assert_eq!((refused.verdict, refused.reset_after), (Verdict::Exceeds { retry_after: 15 * SECOND }, 15 * SECOND));
    assert!(counter.charge(25 * SECOND, 1).verdict.conforms());
}

#[test]
fn what_a_queue_takes_it_takes_of_newcomers_too() {
    let queue = quota(10, 1, LeakyBucket).delaying(Duration::from_millis(250), 100).unwrap();
    let boosted = queue.boosted(Boost(2048));
    assert!(queue.decide(0, 0, 0, 10).outcome.verdict.conforms());
    assert!(boosted.decide(0, 0, 0, 10).outcome.verdict.conforms());
    assert_eq!(boosted.largest_cost(), 20);
}

fn stored(fixture: &Fixture, count: u64, seconds: Nanos, algorithm: Algorithm) -> Interned {
    fixture.intern(quota(count, seconds, algorithm))
}

fn counter(count: u64, seconds: u64, algorithm: Algorithm) -> Counter {
    Counter::new(quota(count, seconds, algorithm), 0)
}

fn quota(count: u64, seconds: u64, algorithm: Algorithm) -> Quota {
    Quota::new(count, Duration::from_secs(seconds), None, algorithm).unwrap()
}

const CLIENTS: u64 = 2000;
