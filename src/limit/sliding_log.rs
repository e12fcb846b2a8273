//! The sliding window log: the time of every admitted cell of the last period.
//!
//! The one algorithm that never admits more than `L` in any window of length `P`, wherever the window begins, and the
//! one whose memory grows with `L`: 8 bytes a cell. That is why `L` is at most [`MAX_CELLS`]. A cell exactly `P` old no longer counts.
//!
//! Cells up to a period ahead stay as they are: threads read the clock at slightly different times. If the clock goes back by more, cells
//! from beyond count as made just now: nothing is forgotten, and nobody is locked out for the size of the step.

use std::collections::VecDeque;

use super::{Boost, Outcome, Quota, Verdict};
use crate::clock::Nanos;

/// When each admitted cell was, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log(VecDeque<Nanos>);

/// Decides one charge; [`commit`] makes it.
#[must_use]
pub fn decide(quota: &Quota, log: &Log, now: Nanos, cost: u64) -> Outcome {
    let Live { expired, used } = log.live(quota, now);
    let limit = quota.count();
    let until_out = |at: usize| {
        log.0.get(at).map_or(0, |then| {
            (if is_beyond(quota, *then, now) { now } else { *then }).saturating_add(quota.period()).saturating_sub(now)
        })
    };
    let outcome = |verdict, used: u64, reset_after| Outcome {
        verdict,
        limit,
        remaining: limit.saturating_sub(used),
        reset_after,
        delay: 0,
        boost: Boost::NONE,
        mark: 0,
    };
    let last = if used == 0 { 0 } else { until_out(log.0.len() - 1) };
    match limit.checked_sub(used).and_then(|free| free.checked_sub(cost)) {
        _ if cost == 0 => outcome(Verdict::Conforms, used, last),
        Some(_) => outcome(Verdict::Conforms, used + cost, quota.period().max(last)),
        None if cost > limit => outcome(Verdict::Never, used, last),
        None => {
            // The cell with whose end enough have ended.
            let too_many = usize::try_from(used + cost - limit).unwrap_or(usize::MAX);
            let retry_after = until_out(expired.saturating_add(too_many).saturating_sub(1));
            outcome(Verdict::Exceeds { retry_after }, used, last)
        }
    }
}

/// Writes `cost` cells down. More than `L` are not kept: the oldest go.
pub fn commit(quota: &Quota, log: &mut Log, now: Nanos, cost: u64) {
    let Live { expired, .. } = log.live(quota, now);
    log.0.drain(..expired);
    heal(quota, log, now);
    let most = usize::try_from(quota.count()).unwrap_or(usize::MAX);
    let cells = usize::try_from(cost).unwrap_or(usize::MAX).min(most);
    let beyond = (log.0.len() + cells).saturating_sub(most);
    log.0.drain(..beyond.min(log.0.len()));
    // Doubling, but never to more than `L`: the store's budget counts on it.
    let (length, room) = (log.0.len(), log.0.capacity());
    if length + cells > room {
        log.0.reserve_exact((length + cells).max((2 * room).min(most)) - length);
    }
    // In order, even if another thread has been here with a slightly later time.
    let ahead = log.0.iter().rev().take_while(|then| **then > now).count();
    log.0.extend(std::iter::repeat_n(now, cells));
    if ahead > 0 {
        log.0.make_contiguous().sort_unstable();
    }
}

/// Brings cells from beyond to now; whether there were any. To be kept even if a charge is refused, so that waiting helps.
pub fn heal(quota: &Quota, log: &mut Log, now: Nanos) -> bool {
    let mut healed = false;
    for then in log.0.iter_mut().rev().take_while(|then| is_beyond(quota, **then, now)) {
        *then = now;
        healed = true;
    }
    if healed {
        // Cells a little ahead are now behind those.
        log.0.make_contiguous().sort_unstable();
    }
    healed
}

/// Takes back cells that were written at `mark`. If there are none left of that time the log has been rewritten since (or a
/// debt has pushed them out), and the newest go.
pub fn refund(quota: &Quota, log: &mut Log, mark: Option<u64>, now: Nanos, cost: u64) {
    let cells = usize::try_from(cost).unwrap_or(usize::MAX);
    if let Some(at) = mark {
        let (begin, end) = (log.0.partition_point(|then| *then < at), log.0.partition_point(|then| *then <= at));
        if begin < end {
            log.0.drain(begin..begin + cells.min(end - begin));
            return;
        }
        if at.saturating_add(quota.period()) <= now {
            return;
        }
    }
    log.0.truncate(log.0.len().saturating_sub(cells));
}

fn is_beyond(quota: &Quota, then: Nanos, now: Nanos) -> bool {
    then.saturating_sub(now) > quota.period()
}

/// Cells of the last period.
#[must_use]
pub fn used(quota: &Quota, log: &Log, now: Nanos) -> u64 {
    log.live(quota, now).used
}

/// The log of somebody who has just used `used` cells.
#[must_use]
pub fn with_used(quota: &Quota, used: u64, now: Nanos) -> Log {
    let mut log = Log::default();
    commit(quota, &mut log, now, used);
    log
}

/// What of a log still counts.
struct Live {
    /// Cells at its beginning that don't.
    expired: usize,
    /// Cells that do.
    used: u64,
}

impl Log {
    fn live(&self, quota: &Quota, now: Nanos) -> Live {
        let expired = self.0.partition_point(|then| then.saturating_add(quota.period()) <= now);
        Live { expired, used: u64::try_from(self.0.len() - expired).unwrap_or(u64::MAX) }
    }
}

/// 32 KiB a key. Above it the sliding window counter does nearly the same in 8 bytes.
pub const MAX_CELLS: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SECOND;
    use crate::limit::Algorithm;
    use std::time::Duration;

    fn quota(count: u64) -> Quota {
        Quota::new(count, Duration::from_secs(10), None, Algorithm::SlidingLog).unwrap()
    }

    fn take(quota: &Quota, log: &mut Log, now: Nanos, cost: u64) -> Outcome {
        let outcome = decide(quota, log, now, cost);
        if outcome.verdict.conforms() {
            commit(quota, log, now, cost);
        }
        outcome
    }

    #[test]
    fn every_cell_comes_back_when_it_is_a_period_old() {
        let quota = quota(3);
        let mut log = Log::default();
        for second in [0, 4, 4] {
            assert!(take(&quota, &mut log, second * SECOND, 1).verdict.conforms());
        }
        let refused = decide(&quota, &log, 5 * SECOND, 1);
        assert_eq!(refused.verdict, Verdict::Exceeds { retry_after: 5 * SECOND });
        assert_eq!((refused.remaining, refused.reset_after), (0, 9 * SECOND));
        assert_eq!(decide(&quota, &log, 5 * SECOND, 2).verdict, Verdict::Exceeds { retry_after: 9 * SECOND });
        assert!(!decide(&quota, &log, 10 * SECOND - 1, 1).verdict.conforms());
        assert_eq!(take(&quota, &mut log, 10 * SECOND, 1).remaining, 0);
        assert_eq!(decide(&quota, &log, 14 * SECOND, 0).remaining, 2);
    }

    #[test]
    fn hostile_costs_and_a_clock_that_goes_back() {
        let quota = quota(3);
        let mut log = with_used(&quota, u64::MAX, 3600 * SECOND);
        assert_eq!(used(&quota, &log, 3600 * SECOND), 3);
        assert_eq!(decide(&quota, &log, 0, u64::MAX).verdict, Verdict::Never);
        assert_eq!(decide(&quota, &log, 0, 1).verdict, Verdict::Exceeds { retry_after: 10 * SECOND });
        commit(&quota, &mut log, 0, 0);
        assert!(decide(&quota, &log, 10 * SECOND, 3).verdict.conforms());
    }

    #[test]
    fn a_refund_takes_out_its_own_cells() {
        let quota = quota(5);
        let mut log = Log::default();
        for (second, cost) in [(0, 2), (1, 2)] {
            take(&quota, &mut log, second * SECOND, cost);
        }
        refund(&quota, &mut log, Some(SECOND), SECOND, 9);
        assert_eq!(log, with_used(&quota, 2, 0));
        refund(&quota, &mut log, Some(0), 2 * SECOND, 1);
        assert_eq!(used(&quota, &log, SECOND), 1);
        refund(&quota, &mut log, Some(5), 11 * SECOND, 1);
        assert_eq!(log, with_used(&quota, 1, 0), "what has ended does not come back");
        refund(&quota, &mut log, None, SECOND, 1);
        assert_eq!(used(&quota, &log, SECOND), 0);
    }
}
