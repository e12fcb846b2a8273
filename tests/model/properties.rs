//! Properties of arbitrary sequences of operations. A failure shrinks to the shortest sequence, and its seed is kept beside this file.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::oracle::Oracle;
use crate::subject::Counter;
use crate::worst::{End, bound, departures, worst};
use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::Algorithm::{self, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Quota, Verdict};

/// One operation, after a step of time.
#[derive(Debug, Clone, Copy)]
struct Operation {
    step: Step,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    On(Nanos),
    Back(Nanos),
}

#[derive(Debug, Clone, Copy)]
enum What {
    Charge(u64),
    Force(u64),
    /// Of the newest charge that may still be corrected.
    Refund(u64),
}

/// Periods that are short, so that a sequence of few operations sees many of them.
fn quotas() -> impl Strategy<Value = Quota> {
    let delays = prop_oneof![Just(0), 1..5 * SECOND];
    (prop::sample::select(&ALL[..]), 1..20_u64, 1..20_u64, 1..4_u64, delays).prop_map(quota)
}

fn quota((algorithm, count, burst, seconds, delay): (Algorithm, u64, u64, u64, Nanos)) -> Quota {
    let (period, delay) = (Duration::from_secs(seconds), Duration::from_nanos(delay));
    let has_burst = matches!(algorithm, Gcra | TokenBucket | LeakyBucket);
    let is_queue = algorithm == LeakyBucket && !delay.is_zero();
    let quota = Quota::new(count, period, (has_burst && !is_queue).then_some(burst), algorithm).unwrap();
    if has_burst { quota.delaying(delay, 100).unwrap() } else { quota }
}

/// Costs from nothing to hostile.
fn costs() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 6 => Just(1), 4 => 1..25_u64, 1 => any::<u64>()]
}

fn steps(back: u32) -> impl Strategy<Value = Step> {
    let on = prop_oneof![Just(0), Just(1), 0..SECOND / 10, 0..4 * SECOND, (0..4_u64).prop_map(|seconds| seconds * SECOND)];
    prop_oneof![20 => on.prop_map(Step::On), back => (0..20 * SECOND).prop_map(Step::Back)]
}

fn operations(back: u32) -> impl Strategy<Value = Vec<Operation>> {
    let what = prop_oneof![
        9 => costs().prop_map(What::Charge),
        1 => costs().prop_map(What::Force),
        2 => costs().prop_map(What::Refund)
    ];
    prop::collection::vec((steps(back), what).prop_map(|(step, what)| Operation { step, what }), 1..60)
}

/// Charges only, and time only goes on.
fn charges() -> impl Strategy<Value = Vec<(Nanos, u64)>> {
    let charge = prop_oneof![Just(0), 0..SECOND / 10, 0..2 * SECOND].prop_flat_map(|step| (Just(step), costs()));
    prop::collection::vec(charge, 1..80).prop_map(|steps| {
        let at = |now: &mut Nanos, (step, cost)| {
            *now += step;
            Some((*now, cost))
        };
        steps.into_iter().scan(START, at).collect()
    })
}

fn moved(now: Nanos, step: Step) -> Nanos {
    match step {
        Step::On(by) => now + by,
        Step::Back(by) => now.saturating_sub(by),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_answer_is_the_oracles(quota in quotas(), phase in 0..5 * SECOND, operations in operations(2)) {
        let (mut counter, mut oracle, mut now) = (Counter::new(quota, phase), Oracle::new(&quota, phase), START);
        let mut taken = Vec::new();
        for Operation { step, what } in operations {
            now = moved(now, step);
            match what {
                What::Charge(cost) => {
                    let told = counter.charge(now, cost);
                    prop_assert_eq!(told, oracle.charge(now, cost));
                    if told.verdict.conforms() && cost > 0 {
                        taken.push((counter.mark(now), oracle.receipt(now), cost));
                    }
                }
                What::Refund(most) => {
                    let Some((mark, receipt, cost)) = taken.pop() else { continue };
                    counter.refund(Some(mark), now, cost.min(most));
                    oracle.refund(Some(receipt), now, cost.min(most));
                }
                What::Force(cost) => {
                    counter.force(now, cost);
                    oracle.force(now, cost);
                }
            }
            prop_assert_eq!(counter.used(now), oracle.used(now));
        }
    }

    #[test]
    fn waiting_as_long_as_told_is_needed_and_enough(quota in quotas(), phase in 0..5 * SECOND, operations in operations(2)) {
        let (mut counter, mut now) = (Counter::new(quota, phase), START);
        for Operation { step, what } in operations {
            now = moved(now, step);
            match what {
                What::Force(cost) => counter.force(now, cost),
                What::Refund(cost) => counter.refund(None, now, cost),
                What::Charge(cost) => {
                    if let Verdict::Exceeds { retry_after } = counter.charge(now, cost).verdict {
                        prop_assert!(!counter.conforms(now + retry_after - 1, cost));
                        prop_assert!(counter.conforms(now + retry_after, cost));
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_used_and_what_remains_are_the_limit_at_most(whole in whole_intervals(), charges in charges()) {
        let mut counter = Counter::new(whole, 0);
        for (now, cost) in charges {
            let told = counter.charge(now, cost);
            prop_assert!(told.remaining <= told.limit);
            prop_assert!(told.remaining + counter.used(now) <= told.limit, "{} + {}", told.remaining, counter.used(now));
        }
    }

    #[test]
    fn to_ask_changes_nothing(quota in quotas(), phase in 0..5 * SECOND, charges in charges()) {
        let (mut silent, mut asking) = (Counter::new(quota, phase), Counter::new(quota, phase));
        for (now, cost) in charges {
            prop_assert!(asking.charge(now, 0).verdict.conforms());
            prop_assert_eq!(asking.charge(now, cost), silent.charge(now, cost));
            prop_assert_eq!(asking.used(now), silent.used(now));
        }
    }

    #[test]
    fn a_refusal_costs_nothing(quota in quotas(), phase in 0..5 * SECOND, charges in charges()) {
        let (mut meek, mut hammering) = (Counter::new(quota, phase), Counter::new(quota, phase));
        for (now, cost) in charges {
            if meek.conforms(now, cost) {
                prop_assert_eq!(meek.charge(now, cost), hammering.charge(now, cost));
            } else {
                prop_assert!(!hammering.charge(now, cost).verdict.conforms());
            }
        }
    }

    #[test]
    fn a_refund_gives_back_no_more_than_its_charge_has_added(
        quota in quotas(), phase in 0..5 * SECOND, charges in charges(), which in any::<prop::sample::Index>(), late in 0..4 * SECOND,
    ) {
        let which = which.index(charges.len());
        let (mut counter, mut without, mut mark) = (Counter::new(quota, phase), Counter::new(quota, phase), None);
        let mut now = START;
        for (number, (at, cost)) in (0..).zip(charges) {
            now = at;
            if !counter.charge(now, cost).verdict.conforms() || cost == 0 {
                continue;
            }
            if number == which {
                mark = Some((counter.mark(now), cost));
            } else {
                without.force(now, cost);
            }
        }
        now += late;
        if let Some((mark, cost)) = mark {
            counter.refund(Some(mark), now, cost);
        }
        prop_assert!(counter.used(now) >= without.used(now), "{} < {}", counter.used(now), without.used(now));
        let is_bucket = !matches!(quota.algorithm(), FixedWindow | SlidingWindow | SlidingLog);
        prop_assert!(counter.used(now) == without.used(now) || is_bucket || mark.is_none(), "what still counts all comes back");
    }

    #[test]
    fn no_window_of_a_period_sees_more_than_is_documented(quota in quotas(), charges in charges()) {
        let end = if matches!(quota.algorithm(), FixedWindow | SlidingWindow | SlidingLog) { End::Out } else { End::In };
        let is_queue = quota.algorithm() == LeakyBucket && quota.max_delay() > 0;
        // What costs more than one keeps several places of a queue, but leaves in one.
        let charges: Vec<_> = charges.into_iter().map(|(now, cost)| (now, if is_queue { cost.min(1) } else { cost })).collect();
        prop_assert!(worst(&departures(quota, &charges), &quota, end) <= bound(&quota));
    }
}

/// Buckets whose interval is a whole number of nanoseconds, and windows; without a wait, which is a debt.
fn whole_intervals() -> impl Strategy<Value = Quota> {
    let counts = prop::sample::select(&[1, 2, 5, 8, 10, 20][..]);
    (prop::sample::select(&ALL[..]), counts, 1..20_u64, 1..4_u64, Just(0)).prop_map(quota)
}

fn config() -> ProptestConfig {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/proptest-regressions/properties.txt");
    ProptestConfig {
        cases: 1000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(seeds))),
        ..ProptestConfig::default()
    }
}

const ALL: [Algorithm; 6] = [Gcra, TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog];
/// Long after the origin, so that the clock can step back.
const START: Nanos = 1000 * SECOND;
