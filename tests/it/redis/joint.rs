//! Several asks at once: all or none.

use super::{Store, ask};
use std::time::Duration;
use tollgate::limit::Algorithm::{FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Calendar, CalendarUnit, Calendars, Quota, Verdict, WallOffset};
use tollgate::store::redis::script::Ask;

const HOUR: Duration = Duration::from_secs(3600);
const NOW: u64 = 1_796_000_000_000_000;

/// One of every kind, with room for this many.
fn quotas(count: u64) -> Vec<(&'static str, Quota)> {
    let quota = |algorithm| Quota::new(count, HOUR, None, algorithm).unwrap();
    vec![
        ("gcra", quota(Gcra)),
        ("bucket", quota(TokenBucket)),
        ("leaky", quota(LeakyBucket)),
        ("fixed", quota(FixedWindow)),
        ("sliding", quota(SlidingWindow)),
        ("log", quota(SlidingLog)),
        ("month", quota(FixedWindow).aligned(calendar()).unwrap()),
    ]
}

/// By a clock that stands still in 1970: the server's is far beyond the windows that it names.
fn calendar() -> &'static Calendar {
    Calendars::new(WallOffset::default()).intern(CalendarUnit::Month, "Europe/Berlin").unwrap()
}

#[test]
fn a_refusal_leaves_everything_as_it_was_to_the_byte() {
    let mut store = Store::start();
    let (wide, narrow) = (quotas(100), quotas(3));
    for (refusing, narrow) in &narrow {
        let asks: Vec<Ask<'_>> =
            wide.iter().map(|(name, quota)| if name == refusing { ask(name, narrow, 2) } else { ask(name, quota, 2) }).collect();
        let first = store.charge(&asks, NOW);
        assert!(first.iter().all(|answer| answer.outcome.verdict.conforms()), "{refusing}: {first:?}");
        let before = store.dump();
        assert_eq!(before.len(), wide.len());
        for later in [0, 1, 1_000_000] {
            let refused = store.charge(&asks, NOW + later);
            for (answer, (name, _)) in refused.iter().zip(&wide) {
                assert_eq!(!answer.outcome.verdict.conforms(), name == refusing, "{name} when {refusing} refuses");
            }
            assert_eq!(store.dump(), before, "{refusing} refused {later} µs later");
        }
        store.command(&["FLUSHALL"]);
    }
}

#[test]
fn a_key_that_is_refused_at_first_sight_is_not_there() {
    let mut store = Store::start();
    let quotas = quotas(3);
    let asks: Vec<Ask<'_>> = quotas.iter().map(|(name, quota)| ask(name, quota, 4)).collect();
    assert!(store.charge(&asks, NOW).iter().all(|answer| answer.outcome.verdict == Verdict::Never));
    let asking: Vec<Ask<'_>> = quotas.iter().map(|(name, quota)| ask(name, quota, 0)).collect();
    assert!(store.charge(&asking, NOW).iter().all(|answer| answer.outcome.remaining == 3));
    assert_eq!(store.command(&["DBSIZE"]), "0");
}

#[test]
fn what_is_granted_beside_a_charge_is_what_is_left() {
    let mut store = Store::start();
    for (name, quota) in &quotas(100) {
        let grants = *name != "log";
        let more = |cost, more| Ask { more, ..ask(name, quota, cost) };
        let some = store.charge(&[more(1, 50)], NOW)[0];
        assert_eq!((some.granted, some.outcome.remaining), (if grants { 50 } else { 0 }, 99), "{name}");
        let rest = store.charge(&[more(1, 80)], NOW)[0];
        assert_eq!(rest.granted, if grants { 48 } else { 0 }, "{name}");
        // What is left is less than a cell, or nothing.
        let none = store.charge(&[more(if grants { 1 } else { 99 }, 1)], NOW)[0];
        assert!(!none.outcome.verdict.conforms() && none.granted == 0, "{name}: {none:?}");
    }
    store.assert_all_expire();
}

#[test]
fn nothing_is_granted_when_another_refuses() {
    let mut store = Store::start();
    let (wide, narrow) = (Quota::new(100, HOUR, None, Gcra).unwrap(), Quota::new(1, HOUR, None, FixedWindow).unwrap());
    let asks = [Ask { more: 10, ..ask("wide", &wide, 1) }, ask("narrow", &narrow, 1)];
    assert_eq!(store.charge(&asks, NOW)[0].granted, 10);
    let refused = store.charge(&asks, NOW);
    assert_eq!((refused[0].granted, refused[1].outcome.verdict.conforms()), (0, false));
    assert_eq!(store.charge(&[ask("wide", &wide, 0)], NOW)[0].outcome.remaining, 89);
}

#[test]
fn many_connections_admit_no_more_than_there_is() {
    let store = Store::start();
    let quotas = quotas(40);
    let admitted: usize = crate::harness::together(4, |_| {
        let mut store = Store { client: store.server.as_ref().unwrap().client(), server: None };
        let asks: Vec<Ask<'_>> = quotas.iter().map(|(name, quota)| ask(name, quota, 1)).collect();
        (0..20).filter(|_| store.charge_now(&asks).iter().all(|answer| answer.outcome.verdict.conforms())).count()
    })
    .into_iter()
    .sum();
    assert_eq!(admitted, 40);
}
