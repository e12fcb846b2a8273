//! The same requests against any algorithm, on a clock that is only a number.

use tollgate::clock::{Nanos, SECOND};
use tollgate::limit::{Algorithm, Log, Outcome, Quota, sliding_log};

/// What an algorithm made of the requests.
pub(super) struct Run {
    pub(super) algorithm: Algorithm,
    /// Cells at once from idle.
    pub(super) limit: u64,
    pub(super) requests: Vec<Request>,
    /// Cells left, from each of these times on.
    pub(super) left: Vec<(Nanos, u64)>,
}

pub(super) struct Request {
    pub(super) at: Nanos,
    /// When it goes on, if it ever does.
    pub(super) goes_on: Option<Nanos>,
}

/// Sends the requests.
pub(super) fn run(quota: Quota) -> Run {
    let mut counter = Counter { quota, state: 0, log: Log::default() };
    let mut run = Run { algorithm: quota.algorithm(), limit: quota.burst(), requests: Vec::new(), left: Vec::new() };
    let requests = requests();
    for now in (0..=END).step_by(usize::try_from(TICK).unwrap()) {
        for at in requests.iter().copied().filter(|at| *at == now) {
            run.left(now, counter.ask(now, 0).remaining);
            let outcome = counter.ask(now, 1);
            let goes_on = outcome.verdict.conforms().then(|| now + outcome.delay);
            run.requests.push(Request { at, goes_on });
        }
        run.left(now, counter.ask(now, 0).remaining);
    }
    run
}

/// A burst, then one a second, then nothing for a while, then a burst over the edge of a window.
fn requests() -> Vec<Nanos> {
    let every = |count: u64, from: Nanos, apart: Nanos| (0..count).map(move |i| from + i * apart);
    every(8, SECOND, 300 * MILLI).chain(every(14, 5 * SECOND, SECOND)).chain(every(10, 28_600 * MILLI, 300 * MILLI)).collect()
}

impl Run {
    pub(super) fn admitted(&self) -> usize {
        self.goes_on().count()
    }

    /// The most that went on in any window of a period, wherever it begins.
    pub(super) fn most_in_a_period(&self) -> usize {
        let within = |from: Nanos| self.goes_on().filter(|at| (from..from + PERIOD).contains(at)).count();
        self.goes_on().map(within).max().unwrap_or(0)
    }

    fn goes_on(&self) -> impl Iterator<Item = Nanos> {
        self.requests.iter().filter_map(|request| request.goes_on)
    }

    fn left(&mut self, now: Nanos, left: u64) {
        if self.left.last().is_none_or(|(_, before)| *before != left) {
            self.left.push((now, left));
        }
    }
}

/// One key's state.
struct Counter {
    quota: Quota,
    state: u64,
    log: Log,
}

impl Counter {
    fn ask(&mut self, now: Nanos, cost: u64) -> Outcome {
        if self.quota.algorithm() == Algorithm::SlidingLog {
            let outcome = sliding_log::decide(&self.quota, &self.log, now, cost);
            if outcome.verdict.conforms() && cost > 0 {
                sliding_log::commit(&self.quota, &mut self.log, now, cost);
            }
            return outcome;
        }
        let step = self.quota.decide(self.state, 0, now, cost);
        self.state = step.state;
        step.outcome
    }
}

/// When the pictures end.
pub(super) const END: Nanos = 36 * SECOND;
/// What the quotas count in.
pub(super) const PERIOD: Nanos = 10 * SECOND;
/// Requests come at multiples of this, and steps are drawn as finely.
const TICK: Nanos = 50 * MILLI;
const MILLI: Nanos = SECOND / 1000;
