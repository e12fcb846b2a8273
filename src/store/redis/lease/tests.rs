//! Each rule by itself.

use std::time::Duration;

use super::*;
use crate::clock::SECOND;
use crate::limit::{Algorithm, Boost, SpaceId, Verdict, Warmup};

const MS: Nanos = SECOND / 1000;

struct Bench {
    quotas: Quotas,
    leases: Leases,
}

impl Bench {
    fn new() -> Self {
        let quotas = Quotas::default();
        Self { leases: Leases::new(quotas.clone(), 6400), quotas }
    }

    fn quota(&self, count: u64, algorithm: Algorithm) -> Interned {
        self.quotas.intern(Quota::new(count, Duration::from_secs(1), None, algorithm).unwrap()).unwrap()
    }

    /// Makes the key busy: 100 cells in the slot of `now`, so that a block lasts for those.
    fn busy(&self, charge: &Charge<'_>, now: Nanos) {
        self.told(charge, conforms(charge.quota.quota.count() - 1), now);
        for _ in 0..100 {
            assert_eq!(self.leases.spend(charge, 1, now), Spend::Ask);
        }
    }

    /// The store answers a charge that was asked at `now`, at once.
    fn told(&self, charge: &Charge<'_>, answer: Answer, now: Nanos) {
        self.leases.answered(charge, &answer, 1, now, now);
    }

    fn spent(&self, charge: &Charge<'_>, now: Nanos) -> (u64, bool) {
        match self.leases.spend(charge, 1, now) {
            Spend::Spent { outcome, refill, .. } => (outcome.remaining, refill),
            other => panic!("{other:?}"),
        }
    }

    fn denied(&self, charge: &Charge<'_>, generation: u64, now: Nanos) -> Option<Nanos> {
        match self.leases.spend(charge, generation, now) {
            Spend::Denied { outcome: Outcome { verdict: Verdict::Exceeds { retry_after }, .. } } => Some(retry_after),
            Spend::Ask => None,
            other => panic!("{other:?}"),
        }
    }
}

fn charge(quota: &Interned, cost: u64) -> Charge<'_> {
    Charge { key: Key([7 << 40, 9 << 20]), space: SpaceId(3), quota, cost, limit: 0, queue: 0, warmup: None, sharing: None }
}

fn conforms(remaining: u64) -> Answer {
    answer(Verdict::Conforms, remaining)
}

fn exceeds(remaining: u64, retry_after: Nanos) -> Answer {
    answer(Verdict::Exceeds { retry_after }, remaining)
}

/// With half a second left of window 5.
fn answer(verdict: Verdict, remaining: u64) -> Answer {
    let outcome = Outcome { verdict, limit: 1000, remaining, reset_after: SECOND / 2, delay: 0, boost: Boost::NONE, mark: 77 };
    Answer { outcome, granted: 0, until_end: SECOND / 2, window: 5 }
}

/// With so many remaining beside what is granted.
fn grant(remaining: u64, granted: u64) -> Answer {
    Answer { granted, ..conforms(remaining + granted) }
}

fn cells(returns: &[Return]) -> Vec<(u64, u64)> {
    returns.iter().map(|returned| (returned.taken.cost, returned.window)).collect()
}

#[test]
fn a_block_is_spent_to_the_last_cell_and_then_the_store_is_asked() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    let one = charge(&quota, 1);
    assert_eq!(bench.leases.spend(&one, 1, SECOND), Spend::Ask);
    bench.told(&one, grant(900, 3), SECOND);
    assert_eq!([0, 1, 2].map(|_| bench.spent(&one, SECOND).0), [902, 901, 900]);
    assert_eq!(bench.leases.spend(&one, 1, SECOND), Spend::Ask);
    bench.told(&one, grant(800, 3), SECOND);
    assert_eq!(bench.leases.spend(&charge(&quota, 4), 1, SECOND), Spend::Ask);
    assert_eq!(bench.spent(&charge(&quota, 3), SECOND).0, 800);
}

#[test]
fn it_is_refilled_at_half_by_one_asker() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    let one = charge(&quota, 1);
    bench.busy(&one, SECOND);
    bench.told(&one, grant(900, 4), SECOND);
    assert_eq!([0, 1, 2].map(|_| bench.spent(&one, SECOND).1), [false, true, true]);
    let more = bench.leases.refill(&one, Reach::Narrow, 10, SECOND + 1);
    assert_eq!(more, 45, "a twentieth of 900");
    assert_eq!(bench.leases.refill(&one, Reach::Narrow, 10, SECOND + 2), 0);
    assert_eq!(bench.leases.block(&one, Reach::Narrow, 10, SECOND + 2), 0);
    assert!(!bench.spent(&one, SECOND + 2).1);
    // An answer to somebody else's question doesn't end the flight; its own does.
    bench.leases.answered(&one, &grant(850, 1), 1, SECOND + 2, SECOND + MS);
    assert!(!bench.spent(&one, SECOND + MS).1);
    bench.leases.answered(&charge(&quota, 0), &grant(800, 1), 1, SECOND + 1, SECOND + MS);
    assert!(bench.spent(&one, SECOND + MS).1);
}

#[test]
fn who_gets_no_answer_lets_others_ask_a_little_later() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    let one = charge(&quota, 1);
    bench.busy(&one, SECOND);
    assert!(bench.leases.block(&one, Reach::Narrow, 10, SECOND) > 0);
    bench.leases.unanswered(one.key, SECOND, SECOND + 20 * MS);
    assert_eq!(bench.leases.block(&one, Reach::Narrow, 10, SECOND + 21 * MS), 0);
    assert!(bench.leases.block(&one, Reach::Narrow, 10, SECOND + 40 * MS) > 0);
    // Nobody said that this one got none.
    assert_eq!(bench.leases.block(&one, Reach::Narrow, 10, SECOND + 90 * MS), 0);
}

#[test]
fn a_lease_ends_with_its_window_measured_from_the_question() {
    for (algorithm, returned) in [(Algorithm::FixedWindow, vec![]), (Algorithm::SlidingWindow, vec![(9, 5)])] {
        let bench = Bench::new();
        let quota = bench.quota(1000, algorithm);
        let one = charge(&quota, 1);
        bench.leases.answered(&one, &grant(900, 10), 1, SECOND, SECOND + 20 * MS);
        bench.spent(&one, SECOND + SECOND / 2 - 1);
        assert_eq!(bench.leases.spend(&one, 1, SECOND + SECOND / 2), Spend::Ask);
        assert_eq!(cells(&bench.leases.take_idle(SECOND + SECOND / 2)), returned, "{algorithm:?}");
        // An answer that comes after the window's end.
        bench.leases.answered(&one, &grant(900, 9), 1, SECOND, 2 * SECOND);
        assert_eq!(bench.leases.spend(&one, 1, 2 * SECOND), Spend::Ask);
        assert_eq!(cells(&bench.leases.take_idle(2 * SECOND)), returned, "{algorithm:?}");
    }
}

#[test]
fn an_older_windows_cells_never_join_a_newer_lease() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::SlidingWindow);
    let one = charge(&quota, 1);
    bench.leases.answered(&one, &Answer { window: 6, ..grant(900, 2) }, 1, SECOND + 1, SECOND + 1);
    bench.leases.answered(&one, &grant(900, 7), 1, SECOND, SECOND + 2);
    bench.spent(&charge(&quota, 2), SECOND + 3);
    assert_eq!(bench.leases.spend(&one, 1, SECOND + 3), Spend::Ask);
    assert_eq!(cells(&bench.leases.take_idle(SECOND + 4)), [(7, 5)]);
}

#[test]
fn what_nobody_needs_goes_back_once() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::Gcra);
    let one = charge(&quota, 1);
    bench.told(&one, Answer { until_end: Nanos::MAX, window: 0, ..grant(900, 10) }, SECOND);
    bench.spent(&one, SECOND + 100 * MS);
    assert!(bench.leases.take_idle(SECOND + 399 * MS).is_empty());
    let returns = bench.leases.take_idle(SECOND + 400 * MS);
    assert_eq!(cells(&returns), [(9, 0)]);
    let taken = returns[0].taken;
    assert_eq!((taken.key, taken.space, taken.quota, taken.mark), (one.key, one.space, quota, 77));
    assert!(bench.leases.take_idle(SECOND + 900 * MS).is_empty());
    assert_eq!(bench.leases.spend(&one, 1, SECOND + 900 * MS), Spend::Ask);
}

#[test]
fn a_shutdown_gives_everything_back() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    bench.told(&charge(&quota, 1), grant(900, 10), SECOND);
    assert_eq!(cells(&bench.leases.take_all(SECOND)), [(10, 5)]);
    assert_eq!(bench.leases.occupancy(), Occupancy::default());
    assert!(bench.leases.take_all(SECOND).is_empty());
}

#[test]
fn a_changed_quota_ends_lease_and_denial() {
    let bench = Bench::new();
    let (old, new) = (bench.quota(1000, Algorithm::FixedWindow), bench.quota(2000, Algorithm::FixedWindow));
    bench.told(&charge(&old, 1), grant(900, 10), SECOND);
    assert_eq!(bench.leases.spend(&charge(&new, 1), 1, SECOND), Spend::Ask);
    let returns = bench.leases.take_idle(SECOND);
    assert_eq!(cells(&returns), [(10, 5)]);
    assert_eq!(returns[0].taken.quota, new, "the store must not go back to the old numbers");
    bench.told(&charge(&new, 1), exceeds(0, SECOND / 4), SECOND);
    assert!(bench.denied(&charge(&new, 1), 1, SECOND).is_some());
    assert!(bench.denied(&charge(&old, 1), 1, SECOND).is_none());
}

#[test]
fn unspent_cells_are_there_again_in_their_window_only() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    let one = charge(&quota, 1);
    assert!(!bench.leases.unspend(one.key, 5, 1, SECOND), "never leased");
    bench.told(&one, grant(900, 2), SECOND);
    bench.spent(&charge(&quota, 2), SECOND);
    assert!(bench.leases.unspend(one.key, 5, 2, SECOND));
    assert_eq!(bench.leases.occupancy().cells, 2);
    bench.spent(&charge(&quota, 2), SECOND);
    assert!(!bench.leases.unspend(one.key, 4, 2, SECOND));
    assert!(!bench.leases.unspend(one.key, 5, 2, SECOND + SECOND / 2));
    assert_eq!(bench.leases.occupancy().cells, 0);
}

#[test]
fn a_block_is_what_is_asked_here_and_a_fair_part_of_what_is_left() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    let one = charge(&quota, 1);
    bench.busy(&one, SECOND);
    let mut now = SECOND;
    for (left, instances, more) in
        [(1000, 1, 101), (1000, 2, 101), (1000, 4, 101), (400, 4, 50), (400, 10, 20), (19, 10, 0), (0, 1, 0)]
    {
        now += 1;
        bench.told(&charge(&quota, 0), conforms(left), now);
        assert_eq!(bench.leases.refill(&one, Reach::Narrow, instances, now), more, "{left} left, {instances} instances");
        bench.leases.answered(&charge(&quota, 0), &conforms(left), 1, now, now);
        if more == 0 {
            assert_eq!(bench.leases.refill(&one, Reach::Narrow, 1, now), 0, "not again at once");
            return;
        }
    }
}

#[test]
fn strict_is_what_does_not_pay_or_is_too_small() {
    let bench = Bench::new();
    let more = |quota: &Interned, cost, reach, instances, asked: u64| {
        let bench = Bench { quotas: bench.quotas.clone(), leases: Leases::new(bench.quotas.clone(), 64) };
        let of = |cost| charge(quota, cost);
        bench.told(&of(0), conforms(quota.quota.burst()), SECOND);
        for _ in 0..asked {
            let _ = bench.leases.spend(&of(1), 1, SECOND);
        }
        bench.leases.block(&of(cost), reach, instances, SECOND)
    };
    let thousand = |algorithm| bench.quota(1000, algorithm);
    let fixed = thousand(Algorithm::FixedWindow);
    assert_eq!(more(&fixed, 1, Reach::Narrow, 10, 50), 49);
    assert_eq!(more(&fixed, 1, Reach::Narrow, 10, 4), 0, "not busy");
    assert_eq!(more(&fixed, 1, Reach::Broad, 10, 4), 3, "broad");
    assert_eq!(more(&fixed, 1, Reach::Narrow, 51, 50), 0, "less than 20 for each");
    assert_eq!(more(&fixed, 99, Reach::Narrow, 1, 200), 101);
    assert_eq!(more(&fixed, 100, Reach::Narrow, 1, 200), 0, "a tenth of the limit");
    assert_eq!(more(&fixed, u64::MAX, Reach::Narrow, 1, 200), 0);
    assert_eq!(more(&thousand(Algorithm::SlidingLog), 1, Reach::Broad, 1, 50), 0);
    for algorithm in [Algorithm::Gcra, Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::SlidingWindow] {
        assert_eq!(more(&thousand(algorithm), 1, Reach::Broad, 1, 50), 49, "{algorithm:?}");
    }
    for algorithm in [Algorithm::Gcra, Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let queue = thousand(algorithm).quota.delaying(Duration::from_secs(1), 100).unwrap();
        assert_eq!(more(&bench.quotas.intern(queue).unwrap(), 1, Reach::Broad, 1, 50), 0, "{algorithm:?} as a queue");
    }
}

#[test]
fn a_newcomers_quota_is_never_leased() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::Gcra);
    let warmup = Warmup { glide: SECOND, factor: Boost(2048), space: SpaceId(0), memory: quota };
    let one = Charge { warmup: Some((&warmup, Key([0, 0]))), ..charge(&quota, 1) };
    bench.busy(&one, SECOND);
    assert_eq!(bench.leases.block(&one, Reach::Broad, 1, SECOND), 0);
}

#[test]
fn a_denial_is_repeated_until_it_may_have_changed() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::Gcra);
    let three = charge(&quota, 3);
    bench.leases.answered(&three, &exceeds(2, 10 * MS), 1, SECOND, SECOND + 2 * MS);
    assert_eq!(bench.denied(&three, 1, SECOND + 2 * MS), Some(10 * MS));
    assert_eq!(bench.denied(&charge(&quota, 5), 1, SECOND + 2 * MS), Some(12 * MS), "two cells more");
    assert_eq!(bench.denied(&charge(&quota, 2), 1, SECOND + 2 * MS), None, "a lower cost may pass");
    assert_eq!(bench.denied(&three, 2, SECOND + 2 * MS), None, "another configuration");
    assert_eq!(bench.denied(&three, 1, SECOND + 10 * MS), None);
}

#[test]
fn a_denial_is_believed_for_seconds_and_told_in_full() {
    let bench = Bench::new();
    let quota = bench.quotas.intern(Quota::new(10, Duration::from_secs(60), None, Algorithm::FixedWindow).unwrap()).unwrap();
    let one = charge(&quota, 1);
    bench.told(&one, Answer { until_end: 40 * SECOND, ..exceeds(0, 40 * SECOND) }, SECOND);
    assert_eq!(bench.denied(&one, 1, 6 * SECOND - 1), Some(35 * SECOND + 1));
    assert_eq!(bench.denied(&one, 1, 6 * SECOND), None);
    bench.told(&one, Answer { until_end: 40 * SECOND, ..exceeds(0, 40 * SECOND) }, SECOND);
    bench.leases.forget(one.key);
    assert_eq!(bench.denied(&one, 1, SECOND), None, "an administrator has reset it");
}

#[test]
fn what_an_admission_left_over_refuses_nobody() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::Gcra, Algorithm::SlidingWindow, Algorithm::SlidingLog] {
        let bench = Bench::new();
        let quota = bench.quota(1000, algorithm);
        bench.told(&charge(&quota, 1), conforms(0), SECOND);
        assert_eq!(bench.denied(&charge(&quota, 500), 1, SECOND + 1), None, "{algorithm:?}: cells may have come back");
    }
}

#[test]
fn a_larger_charge_is_refused_only_where_its_wait_is_known() {
    let larger = |algorithm| {
        let bench = Bench::new();
        let quota = bench.quota(1000, algorithm);
        bench.told(&charge(&quota, 3), exceeds(0, 10 * MS), SECOND);
        [5, 1000].map(|cost| bench.denied(&charge(&quota, cost), 1, SECOND))
    };
    assert_eq!(larger(Algorithm::FixedWindow), [Some(10 * MS), Some(10 * MS)], "all of it comes back at once");
    assert_eq!(larger(Algorithm::Gcra), [Some(12 * MS), Some(1007 * MS)], "cell by cell");
    assert_eq!(larger(Algorithm::SlidingWindow), [None; 2]);
    assert_eq!(larger(Algorithm::SlidingLog), [None; 2]);
}

#[test]
fn what_can_never_pass_is_asked_about_only_for_what_is_left() {
    for algorithm in [Algorithm::Gcra, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog] {
        let bench = Bench::new();
        let quota = bench.quota(1000, algorithm);
        let too_much = charge(&quota, 1001);
        let never = |generation, now| match bench.leases.spend(&too_much, generation, now) {
            Spend::Denied { outcome } => Some((outcome.verdict, outcome.remaining)),
            Spend::Ask => None,
            other @ Spend::Spent { .. } => panic!("{other:?}"),
        };
        assert_eq!(never(1, SECOND), None, "{algorithm:?}: nobody knows what is left");
        let told = answer(Verdict::Never, 500);
        bench.told(&too_much, told, SECOND);
        assert_eq!(never(1, SECOND), Some((Verdict::Never, 500)), "{algorithm:?}");
        assert_eq!(never(2, SECOND), Some((Verdict::Never, 500)), "{algorithm:?}: the quota is the same after a reload");
        assert!(never(1, 6 * SECOND - 1).is_some(), "{algorithm:?}");
        assert_eq!(never(1, 6 * SECOND), None, "{algorithm:?}: that was long ago");
        bench.told(&too_much, told, 6 * SECOND);
        bench.leases.forget(too_much.key);
        assert_eq!(never(1, 6 * SECOND), None, "{algorithm:?}: an administrator has reset it");
        bench.told(&too_much, told, 6 * SECOND);
        let raised = bench.quota(2000, algorithm);
        assert_eq!(bench.leases.spend(&charge(&raised, 1001), 1, 6 * SECOND), Spend::Ask, "{algorithm:?}: now it may pass");
    }
}

#[test]
fn what_is_told_of_a_refusal_is_what_the_store_would_say_by_then() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::Gcra);
    let hundred = charge(&quota, 100);
    bench.told(
        &hundred,
        Answer { outcome: Outcome { reset_after: 950 * MS, ..exceeds(50, 50 * MS).outcome }, ..exceeds(50, 50 * MS) },
        SECOND,
    );
    let Spend::Denied { outcome } = bench.leases.spend(&hundred, 1, SECOND + 20 * MS) else { panic!("it is asked about") };
    assert_eq!(outcome.verdict, Verdict::Exceeds { retry_after: 30 * MS });
    assert_eq!((outcome.remaining, outcome.reset_after), (70, 930 * MS));
}

#[test]
fn what_responses_may_give_back_is_believed_for_a_moment() {
    let bench = Bench::new();
    let quota = bench.quota(1, Algorithm::FixedWindow);
    let sharing = |comes_back| crate::limit::Sharing {
        entity: 0,
        reach: Reach::Narrow,
        consistency: crate::limit::Consistency::Strict,
        on_failure: crate::limit::OnFailure::Open,
        comes_back,
    };
    for (comes_back, later) in [(false, Some(300 * MS)), (true, None)] {
        let one = Charge { sharing: Some(sharing(comes_back)), ..charge(&quota, 1) };
        bench.told(&one, exceeds(0, 500 * MS), SECOND);
        assert_eq!(bench.denied(&one, 1, SECOND), Some(500 * MS));
        assert_eq!(bench.denied(&one, 1, SECOND + 200 * MS), later, "{comes_back}");
    }
}

#[test]
fn a_refusal_that_knows_nothing_of_what_is_on_its_way_is_not_remembered() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    let one = charge(&quota, 1);
    bench.told(&one, exceeds(0, 400 * MS), SECOND);
    bench.leases.corrected(one.key, &quota.quota, -1, SECOND + MS);
    assert_eq!(bench.denied(&one, 1, SECOND + MS), None, "it may pass now");
    bench.told(&one, exceeds(0, 399 * MS), SECOND + 2 * MS);
    assert_eq!(bench.denied(&one, 1, SECOND + 2 * MS), None, "the store may have said so before the cell had come");
    bench.told(&one, exceeds(0, 200 * MS), SECOND + 200 * MS);
    assert_eq!(bench.denied(&one, 1, SECOND + 200 * MS), Some(200 * MS));
}

#[test]
fn a_denial_ends_with_a_smaller_charge_that_passes() {
    let later = |algorithm, smaller| {
        let bench = Bench::new();
        let quota = bench.quota(1000, algorithm);
        bench.told(&charge(&quota, 13), exceeds(12, 10 * MS), SECOND);
        bench.told(&charge(&quota, smaller), conforms(12 - smaller), SECOND + 1);
        bench.denied(&charge(&quota, 13), 1, SECOND + 1)
    };
    assert_eq!(later(Algorithm::Gcra, 1), None, "it waits for a cell more");
    assert_eq!(later(Algorithm::SlidingLog, 1), None);
    assert_eq!(later(Algorithm::SlidingWindow, 1), None);
    assert_eq!(later(Algorithm::FixedWindow, 1), Some(10 * MS - 1), "it waits for the window's end as before");
    assert_eq!(later(Algorithm::Gcra, 0), Some(10 * MS - 1), "that took nothing");
}

#[test]
fn what_costs_more_than_was_taken_ends_a_denial() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::Gcra);
    let three = charge(&quota, 3);
    bench.told(&three, exceeds(2, 10 * MS), SECOND);
    bench.leases.corrected(three.key, &quota.quota, 100, SECOND + MS);
    assert_eq!(bench.denied(&three, 1, SECOND + MS), None, "it waits longer now");
    bench.told(&three, exceeds(2, 10 * MS), SECOND + 2 * MS);
    assert_eq!(bench.denied(&three, 1, SECOND + 2 * MS), None, "the store may have said so before it had heard");
    bench.told(&three, exceeds(0, 110 * MS), SECOND + 200 * MS);
    assert_eq!(bench.denied(&three, 1, SECOND + 200 * MS), Some(110 * MS));
}

#[test]
fn what_we_give_back_is_not_denied() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    let one = charge(&quota, 1);
    bench.told(&one, grant(0, 10), SECOND);
    bench.leases.answered(&charge(&quota, 20), &exceeds(0, SECOND / 2), 1, SECOND + 1, SECOND + 1);
    assert!(bench.denied(&charge(&quota, 20), 1, SECOND + 2).is_some());
    assert_eq!(cells(&bench.leases.take_idle(SECOND + 400 * MS)), [(10, 5)]);
    assert_eq!(bench.denied(&charge(&quota, 10), 1, SECOND + 400 * MS), None);
}

#[test]
fn a_full_table_stays_as_large_and_loses_no_cells() {
    let quotas = Quotas::default();
    let quota = quotas.intern(Quota::new(1000, Duration::from_secs(1), None, Algorithm::FixedWindow).unwrap()).unwrap();
    let leases = Leases::new(quotas, SHARDS);
    let of = |i: u64| Charge { key: Key([i, 0]), ..charge(&quota, 1) };
    let mut given_back = 0;
    for i in 0..100 {
        leases.answered(&of(i), &grant(900, 2), 1, SECOND, SECOND);
        given_back += leases.take_idle(SECOND).iter().map(|returned| returned.taken.cost).sum::<u64>();
    }
    let full = leases.occupancy();
    assert_eq!((full.entries, full.cells, full.evicted, full.lost), (1, 2, 99, 0));
    assert_eq!(given_back, 99 * 2);
    // A counter of which nothing is leased goes first.
    let two = Leases::new(leases.quotas.clone(), 2 * SHARDS);
    two.answered(&of(1), &grant(900, 2), 1, SECOND, SECOND);
    two.answered(&of(2), &conforms(900), 1, 2 * SECOND, 2 * SECOND);
    two.answered(&of(3), &conforms(900), 1, 2 * SECOND, 2 * SECOND);
    assert_eq!(two.occupancy().cells, 2);
}

#[test]
fn entries_that_say_nothing_are_dropped() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    bench.told(&charge(&quota, 1), conforms(900), SECOND);
    for _ in 0..SLICES {
        assert!(bench.leases.take_idle(SECOND).is_empty());
    }
    assert_eq!(bench.leases.occupancy().entries, 1);
    for _ in 0..SLICES {
        let _ = bench.leases.take_idle(60 * SECOND);
    }
    assert_eq!(bench.leases.occupancy().entries, 0);
}

#[test]
fn threads_spend_each_cell_once() {
    let bench = Bench::new();
    let quota = bench.quota(1000, Algorithm::FixedWindow);
    bench.told(&charge(&quota, 1), grant(0, 10_000), SECOND);
    let spent = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while matches!(bench.leases.spend(&charge(&quota, 3), 1, SECOND), Spend::Spent { .. }) {
                    spent.fetch_add(3, Ordering::Relaxed);
                    // As when another limit refuses.
                    if spent.load(Ordering::Relaxed).is_multiple_of(2)
                        && bench.leases.unspend(charge(&quota, 1).key, 5, 2, SECOND)
                    {
                        spent.fetch_sub(2, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(spent.into_inner() + bench.leases.occupancy().cells, 10_000);
}
