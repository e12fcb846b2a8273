//! The arithmetic of ejections and slow starts: who, how many, for how long. No state of its own; `now` is an argument.

use std::time::Duration;

use super::balance::FULL;
use super::standing::Tally;
use crate::clock::{Nanos, saturating_nanos};
use crate::snapshot::{Outlier, SuccessRate};

/// How often an endpoint has been ejected, and since when it is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Record {
    pub(super) ejections: u32,
    pub(super) back_since: Nanos,
}

impl Record {
    /// Enters an ejection; how long it lasts. Each time takes `eject_for` longer, and each `eject_for` without one is one forgotten.
    pub(super) fn eject(&mut self, rules: &Outlier, now: Nanos) -> Duration {
        let good = now.saturating_sub(self.back_since) / saturating_nanos(rules.eject_for).max(1);
        let remembered = u64::from(self.ejections).saturating_sub(good);
        self.ejections = u32::try_from(remembered).unwrap_or(u32::MAX).saturating_add(1);
        rules.eject_for.saturating_mul(self.ejections).min(rules.max_eject_for)
    }
}

/// How many of so many endpoints may be ejected at once.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share from 0 to 1 of a number of endpoints"
)]
pub(super) fn most_ejected(endpoints: usize, share: f64) -> usize {
    // A share such as 0.29 is a little less in binary, and 29 of 100 are meant.
    (endpoints as f64 * share + 1e-9) as usize
}

/// Whether so few of the endpoints are in order that all are to be used.
#[expect(clippy::cast_precision_loss, reason = "a number of endpoints")]
pub(super) fn is_panic(in_order: usize, endpoints: usize, panic_below: f64) -> bool {
    (in_order as f64) < endpoints as f64 * panic_below - 1e-9
}

/// Which of the endpoints had too few good answers in a window, worst first.
pub(super) fn below_rate(tallies: &[Tally], rule: &SuccessRate) -> Vec<usize> {
    let rate = |tally: &Tally| 1.0 - f64::from(tally.failures.min(tally.answers)) / f64::from(tally.answers.max(1));
    let judged = tallies.iter().enumerate().filter(|(_, tally)| tally.answers >= rule.minimum_requests);
    let mut below: Vec<_> = judged.map(|(index, tally)| (index, rate(tally))).filter(|(_, rate)| *rate < rule.below).collect();
    below.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    below.into_iter().map(|(index, _)| index).collect()
}

/// What an endpoint has of its weight this long after its return, in parts of [`FULL`]: from a hundredth, growing evenly.
pub(super) fn slow_start_share(since: Duration, slow_start: Duration) -> u64 {
    let (since, whole) = (since.as_nanos(), slow_start.as_nanos());
    if since >= whole {
        return FULL;
    }
    let share = since * u128::from(FULL) / whole.max(1);
    u64::try_from(share).unwrap_or(FULL).clamp(FULL / 100, FULL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;

    fn rules() -> Outlier {
        Outlier {
            consecutive_failures: 5,
            status: Vec::new(),
            eject_for: Duration::from_secs(30),
            max_eject_for: Duration::from_secs(100),
            max_ejected: 0.5,
            success_rate: None,
        }
    }

    #[test]
    fn ejections_grow_to_their_cap_and_are_forgotten() {
        let mut record = Record::default();
        for seconds in [30, 60, 90, 100, 100] {
            assert_eq!(record.eject(&rules(), 1000 * SECOND), Duration::from_secs(seconds));
            record.back_since = 1000 * SECOND;
        }
        // Just short of 30 s without one forgets nothing, 60 s two of five.
        assert_eq!(record.clone().eject(&rules(), 1030 * SECOND - 1), Duration::from_secs(100));
        record.eject(&rules(), 1060 * SECOND);
        assert_eq!(record.ejections, 4);
        record.back_since = 2000 * SECOND;
        assert_eq!(record.eject(&rules(), 9000 * SECOND), Duration::from_secs(30));
    }

    #[test]
    fn shares_of_endpoints_are_rounded_down() {
        for (endpoints, share, most) in
            [(1, 0.5, 0), (2, 0.5, 1), (3, 0.5, 1), (4, 0.5, 2), (3, 1.0, 3), (3, 0.0, 0), (100, 0.29, 29), (10, 0.7, 7)]
        {
            assert_eq!(most_ejected(endpoints, share), most, "{share} of {endpoints}");
        }
    }

    #[test]
    fn panic_begins_below_the_share() {
        for (in_order, endpoints, share, panic) in [
            (2, 4, 0.5, false),
            (1, 4, 0.5, true),
            (0, 4, 0.5, true),
            (0, 4, 0.0, false),
            (0, 0, 0.5, false),
            (3, 3, 1.0, false),
            (2, 3, 1.0, true),
            (7, 10, 0.7, false),
        ] {
            assert_eq!(is_panic(in_order, endpoints, share), panic, "{in_order} of {endpoints}, {share}");
        }
    }

    #[test]
    fn only_enough_answers_are_judged_and_the_worst_goes_first() {
        let rule = SuccessRate { minimum_requests: 10, below: 0.8, window: Duration::from_secs(10) };
        let tally = |(answers, failures)| Tally { answers, failures };
        let tallies = [(10, 2), (10, 3), (9, 9), (100, 100), (0, 0)].map(tally);
        assert_eq!(below_rate(&tallies, &rule), [3, 1], "exactly 80 % is enough, 9 answers are too few");
    }

    #[test]
    fn a_slow_start_grows_evenly() {
        let share = |ms| slow_start_share(Duration::from_millis(ms), Duration::from_secs(10));
        assert_eq!([0, 50, 2500, 5000, 9999, 10_000, 99_999].map(share), [655, 655, 16_384, 32_768, 65_529, FULL, FULL]);
        assert_eq!(slow_start_share(Duration::ZERO, Duration::ZERO), FULL);
    }
}
