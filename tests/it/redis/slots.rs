//! Slots of concurrency limits, and the heartbeat.

use super::{Store, key};
use std::time::Duration;
use tollgate::store::redis::script::{Slots, SlotsAnswer, beat, beaten, leave, renew_slots, said_slots, take_slots};

const NOW: u64 = 1_796_000_000_000_000;
const SECOND: u64 = 1_000_000;
const LEASE: Duration = Duration::from_secs(10);

fn slots(instance: &str, count: u32, sequence: u64) -> Slots<'_> {
    Slots { key: key("slots"), instance, count, lease: LEASE, sequence }
}

impl Store {
    fn take(&mut self, slots: &Slots<'_>, now: u64) -> SlotsAnswer {
        said_slots(&self.run(&take_slots(slots, 10, Some(now)))).unwrap()
    }

    fn renew(&mut self, slots: &Slots<'_>, now: u64) -> SlotsAnswer {
        said_slots(&self.run(&renew_slots(slots, Some(now)))).unwrap()
    }
}

#[test]
fn all_gateways_together_have_no_more_than_the_most() {
    let mut store = Store::start();
    assert_eq!(store.take(&slots("a", 6, 1), NOW), SlotsAnswer::Taken { others: 0 });
    assert_eq!(store.take(&slots("b", 5, 1), NOW), SlotsAnswer::Full { others: 6 });
    assert_eq!(store.take(&slots("b", 4, 2), NOW), SlotsAnswer::Taken { others: 6 });
    assert_eq!(store.take(&slots("a", 7, 2), NOW), SlotsAnswer::Full { others: 4 });
    // A number is said anew, not added.
    assert_eq!(store.take(&slots("a", 6, 3), NOW), SlotsAnswer::Taken { others: 4 });
    assert_eq!(store.renew(&slots("a", 2, 4), NOW), SlotsAnswer::Taken { others: 4 });
    assert_eq!(store.take(&slots("b", 8, 3), NOW), SlotsAnswer::Taken { others: 2 });
    store.assert_all_expire();
}

#[test]
fn what_is_not_renewed_comes_back() {
    let mut store = Store::start();
    store.take(&slots("killed", 10, 1), NOW);
    assert_eq!(store.take(&slots("b", 1, 1), NOW + 10 * SECOND - 1), SlotsAnswer::Full { others: 10 });
    assert_eq!(store.take(&slots("b", 10, 2), NOW + 10 * SECOND), SlotsAnswer::Taken { others: 0 });
    assert_eq!(store.command(&["HLEN", "test:slots"]), "1", "what has ended is removed");
    assert_eq!(store.renew(&slots("b", 10, 3), NOW + 19 * SECOND), SlotsAnswer::Taken { others: 0 });
    assert_eq!(store.take(&slots("c", 1, 1), NOW + 28 * SECOND), SlotsAnswer::Full { others: 10 });
}

#[test]
fn what_arrives_late_changes_nothing() {
    let mut store = Store::start();
    store.take(&slots("a", 3, 7), NOW);
    assert_eq!(store.take(&slots("a", 9, 6), NOW), SlotsAnswer::Overtaken);
    assert_eq!(store.renew(&slots("a", 9, 7), NOW), SlotsAnswer::Overtaken);
    assert_eq!(store.renew(&slots("a", 0, 9), NOW), SlotsAnswer::Taken { others: 0 });
    assert_eq!(store.take(&slots("a", 4, 8), NOW), SlotsAnswer::Overtaken, "nor after all were given back");
    assert_eq!(store.take(&slots("b", 10, 1), NOW), SlotsAnswer::Taken { others: 0 });
}

#[test]
fn what_was_lost_is_right_again_when_everybody_has_said_theirs() {
    let mut store = Store::start();
    store.take(&slots("a", 6, 1), NOW);
    store.take(&slots("b", 4, 1), NOW);
    store.command(&["FLUSHALL"]);
    store.renew(&slots("a", 6, 2), NOW);
    store.renew(&slots("b", 4, 2), NOW);
    assert_eq!(store.take(&slots("c", 1, 1), NOW), SlotsAnswer::Full { others: 10 });
}

#[test]
fn values_that_make_no_sense_and_a_clock_that_went_back() {
    let mut store = Store::start();
    store.command(&["SET", "test:slots", "text"]);
    assert_eq!(store.take(&slots("a", 3, 1), NOW), SlotsAnswer::Taken { others: 0 });
    store.command(&["HSET", "test:slots", "x", "nonsense", "y", "5:nan:1", "z", "-5:99:1", "a", "?"]);
    assert_eq!(store.take(&slots("b", 10, 1), NOW), SlotsAnswer::Taken { others: 0 });
    assert_eq!(store.take(&slots("c", 1, 1), NOW - 48 * 3600 * SECOND), SlotsAnswer::Taken { others: 0 });
    store.assert_all_expire();
}

#[test]
fn a_random_crowd_never_has_more_than_the_most() {
    let mut store = Store::start();
    let names = ["a", "b", "c", "d"];
    let mut said = [(0_u32, 0_u64); 4];
    let (mut now, mut seed) = (NOW, 1_u64);
    for sequence in 1..=3000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (who, count) = (usize::try_from(seed >> 62).unwrap(), u32::try_from((seed >> 33) % 12).unwrap());
        now += (seed >> 20) % (3 * SECOND);
        let live = |(count, until): (u32, u64)| if until > now { count } else { 0 };
        let others: u32 = (0..4).filter(|other| *other != who).map(|other| live(said[other])).sum();
        let answer = store.take(&slots(names[who], count, sequence), now);
        let fits = count == 0 || count + others <= 10;
        let others = u64::from(others);
        assert_eq!(answer, if fits { SlotsAnswer::Taken { others } } else { SlotsAnswer::Full { others } }, "{sequence}");
        if fits {
            said[who] = (count, now + 10 * SECOND);
        }
    }
}

#[test]
fn gateways_are_counted_while_they_beat() {
    let mut store = Store::start();
    let every = Duration::from_secs(1);
    let mut live = |instance: Option<&str>, now| {
        let invocation = match instance {
            Some(instance) => beat(key("instances"), instance, every, Some(now)),
            None => leave(key("instances"), "a", Some(now)),
        };
        beaten(&store.run(&invocation)).unwrap()
    };
    assert_eq!((live(Some("a"), NOW), live(Some("b"), NOW), live(Some("a"), NOW + SECOND)), (1, 2, 2));
    assert_eq!(live(Some("a"), NOW + 3 * SECOND - 1), 2);
    assert_eq!(live(Some("a"), NOW + 3 * SECOND), 1, "three beats without a word");
    assert_eq!(live(Some("b"), NOW + 4 * SECOND), 2);
    assert_eq!(live(None, NOW + 4 * SECOND), 1);
    assert_eq!(live(Some("c"), NOW - 3600 * SECOND), 1, "the clock went back");
    store.assert_all_expire();
    store.command(&["SET", "test:instances", "text"]);
    assert_eq!(beaten(&store.run(&beat(key("instances"), "a", every, None))), Ok(1));
}
