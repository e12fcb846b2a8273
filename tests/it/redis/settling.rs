//! Corrections: by the mark that a charge was told.

use super::{Store, ask, correction};
use ::redis::Value;
use std::time::Duration;
use tollgate::limit::Algorithm::{FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow};
use tollgate::limit::{Boost, Quota, Verdict};
use tollgate::store::redis::script::{Ask, Correction};

const MINUTE: Duration = Duration::from_secs(60);
/// The beginning of a minute.
const NOW: u64 = 1_796_000_040_000_000;
const MICROS: u64 = 60_000_000;

fn quota(algorithm: tollgate::limit::Algorithm) -> Quota {
    Quota::new(10, MINUTE, None, algorithm).unwrap()
}

#[test]
fn what_was_too_much_comes_back_by_its_mark() {
    let mut store = Store::start();
    for algorithm in [Gcra, FixedWindow, SlidingWindow, SlidingLog] {
        let quota = quota(algorithm);
        let name = format!("{algorithm:?}");
        let mark = store.charge(&[ask(&name, &quota, 8)], NOW)[0].outcome.mark;
        assert_eq!(store.settle(&correction(&name, &quota, Some(mark), -5), NOW + 1), Value::Int(1), "{name}");
        assert_eq!(store.charge(&[ask(&name, &quota, 0)], NOW + 1)[0].outcome.remaining, 7, "{name}");
        store.settle(&correction(&name, &quota, Some(mark), 4), NOW + 1);
        assert_eq!(store.charge(&[ask(&name, &quota, 0)], NOW + 1)[0].outcome.remaining, 3, "{name}");
        // Two periods later it no longer counts.
        let later = NOW + 2 * MICROS;
        store.charge(&[ask(&name, &quota, 6)], later);
        store.settle(&correction(&name, &quota, Some(mark), -8), later);
        assert_eq!(store.charge(&[ask(&name, &quota, 0)], later)[0].outcome.remaining, 4, "{name}");
    }
    store.assert_all_expire();
}

#[test]
fn a_lease_comes_back_into_its_window_only() {
    let mut store = Store::start();
    let quota = quota(FixedWindow);
    let lease = store.charge(&[Ask { more: 9, ..ask("k", &quota, 0) }], NOW)[0];
    assert_eq!((lease.granted, lease.until_end), (9, MICROS * 1000));
    store.settle(&correction("k", &quota, Some(lease.window), -4), NOW + 1);
    assert_eq!(store.charge(&[ask("k", &quota, 0)], NOW + 1)[0].outcome.remaining, 5);
    store.charge(&[ask("k", &quota, 5)], NOW + MICROS);
    assert_eq!(store.settle(&correction("k", &quota, Some(lease.window), -4), NOW + MICROS), Value::Int(0));
    assert_eq!(store.charge(&[ask("k", &quota, 0)], NOW + MICROS)[0].outcome.remaining, 5);
}

#[test]
fn a_debt_is_worked_off_and_a_quota_without_debts_has_none() {
    let mut store = Store::start();
    for (name, quota, wait) in [("owes", quota(Gcra).owing(), 16), ("does not", quota(Gcra), 1)] {
        store.settle(&correction(name, &quota, None, 25), NOW);
        let refused = store.charge(&[ask(name, &quota, 1)], NOW)[0].outcome;
        assert_eq!(refused.verdict, Verdict::Exceeds { retry_after: wait * 6_000_000_000 }, "{name}");
    }
}

#[test]
fn a_place_with_others_behind_it_lapses() {
    let mut store = Store::start();
    let quota = quota(LeakyBucket).delaying(MINUTE, 100).unwrap();
    let first = store.charge(&[ask("k", &quota, 1)], NOW)[0].outcome;
    let second = store.charge(&[ask("k", &quota, 1)], NOW)[0].outcome;
    assert_eq!((first.delay, second.delay), (0, 6_000_000_000));
    assert_eq!(store.settle(&correction("k", &quota, Some(first.mark), -1), NOW), Value::Int(0));
    assert_eq!(store.settle(&correction("k", &quota, Some(second.mark), -1), NOW), Value::Int(1));
    assert_eq!(store.charge(&[ask("k", &quota, 1)], NOW)[0].outcome.delay, 6_000_000_000);
}

#[test]
fn a_correction_counts_under_the_quota_that_is_in_force() {
    let mut store = Store::start();
    let (old, new) = (quota(FixedWindow), Quota::new(100, MINUTE, None, Gcra).unwrap());
    let mark = store.charge(&[ask("k", &old, 5)], NOW)[0].outcome.mark;
    store.charge(&[ask("k", &new, 5)], NOW);
    store.settle(&correction("k", &old, Some(mark), -2), NOW);
    assert_eq!(store.charge(&[ask("k", &new, 0)], NOW)[0].outcome.remaining, 92);
    assert!(store.command(&["GET", "test:k"]).starts_with("g100/6e7 "), "it is not rewritten");
}

#[test]
fn nothing_comes_of_nothing() {
    let mut store = Store::start();
    for algorithm in [Gcra, FixedWindow, SlidingWindow, SlidingLog, LeakyBucket] {
        let quota = quota(algorithm);
        assert_eq!(store.settle(&correction("k", &quota, None, -3), NOW), Value::Int(0));
        assert_eq!(store.settle(&correction("k", &quota, None, 0), NOW), Value::Int(0));
    }
    assert_eq!(store.command(&["DBSIZE"]), "0");
}

#[test]
fn a_newcomers_charge_is_corrected_under_a_newcomers_numbers() {
    let mut store = Store::start();
    for (algorithm, plain) in [(Gcra, 9), (FixedWindow, 8), (SlidingWindow, 8), (SlidingLog, 8)] {
        let quota = quota(algorithm);
        let name = format!("{algorithm:?}");
        let charge = Ask { boost: Boost(2048), ..ask(&name, &quota, 4) };
        let outcome = store.charge(&[charge], NOW)[0].outcome;
        assert_eq!((outcome.limit, outcome.remaining), (20, 16), "{name}");
        let correction = Correction { boost: Boost(2048), ..correction(&name, &quota, Some(outcome.mark), -2) };
        assert_eq!(store.settle(&correction, NOW), Value::Int(1));
        // Half of a bucket's time is half as many of its cells.
        assert_eq!(store.charge(&[ask(&name, &quota, 0)], NOW)[0].outcome.remaining, plain, "{name}");
    }
}
