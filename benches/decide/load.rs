//! Asks a contender for decisions, and measures how long it takes to answer.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::mix;
use crate::contenders::Contender;
use crate::report::median;

/// What is decided, and by how many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) limits: usize,
    pub(crate) keys: u64,
    pub(crate) threads: u64,
}

/// One measurement.
pub(crate) struct Load {
    pub(crate) case: Case,
    length: Duration,
    round: u32,
    /// Batches, by all threads.
    finished: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    pub(crate) fn new(case: Case, length: Duration, round: u32) -> Self {
        Self { case, length, round, finished: AtomicU64::new(0), is_over: AtomicBool::new(false) }
    }

    /// Nanoseconds that a thread waits for a decision: in the median batch, because one in which the thread lost its core says nothing.
    /// Nothing if several threads did not meet often enough.
    pub(crate) fn measure(&self, contender: &dyn Contender) -> Option<f64> {
        let begin = Barrier::new(usize::try_from(self.case.threads).unwrap_or(1));
        let thread = |thread| {
            begin.wait();
            contender.decide(self, thread)
        };
        let batches: Vec<Duration> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.case.threads).map(|number| scope.spawn(move || thread(number))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a contender that panics is out")).collect()
        });
        let nanos = median(batches.iter().map(Duration::as_secs_f64)) * 1e9 / f64::from(BATCH);
        (self.case.threads == 1 || batches.len() >= ENOUGH).then_some(nanos)
    }

    /// A thread's part: has `fill` write down, in place of `blank`, what a random client asks of each limit (anew only if there are
    /// several clients), and `decide` decide a batch of that, which says whether all passed. How long each batch took; of several threads,
    /// each during which another was at it too, because two threads on one core don't meet.
    pub(crate) fn decide_batches<T: Clone>(
        &self,
        thread: u64,
        blank: T,
        fill: impl Fn(&mut T, usize, u64),
        decide: impl Fn(&[T]) -> bool,
    ) -> Vec<Duration> {
        let Case { limits, keys, threads } = self.case;
        let mut batch = vec![blank; usize::from(BATCH) * limits];
        let mut visits = (thread << 56) | (u64::from(self.round) << 40);
        let (mut times, mut seen) = (Vec::new(), None);
        let deadline = Instant::now() + self.length;
        loop {
            if keys > 1 || seen.is_none() {
                for asked in batch.chunks_exact_mut(limits) {
                    visits += 1;
                    let client = mix(visits) % keys;
                    asked.iter_mut().enumerate().for_each(|(limit, asked)| fill(asked, limit, client));
                }
            }
            let begin = Instant::now();
            let all_passed = decide(&batch);
            let end = Instant::now();
            assert!(all_passed, "a quota that is never reached was");
            let finished = self.finished.fetch_add(1, Ordering::Relaxed);
            let by_others = seen.map_or(0, |seen| finished - seen);
            seen = Some(finished + 1);
            if threads == 1 || (1..=AT_ONCE).contains(&by_others) {
                times.push(end - begin);
            }
            let is_enough = threads == 1 || times.len() >= ENOUGH || end > deadline + PATIENCE * self.length;
            if (end > deadline && is_enough) || self.is_over.load(Ordering::Relaxed) {
                self.is_over.store(threads > 1, Ordering::Relaxed);
                return times;
            }
        }
    }
}

/// Decisions between two looks at the clock: so many that looking costs less than half a nanosecond each, so few that what
/// is asked stays in the first-level cache beside the counters.
pub(crate) const BATCH: u8 = 128;
/// Batches that others finish during one of a thread that keeps its core.
const AT_ONCE: u64 = 4;
/// Batches of threads that met.
const ENOUGH: usize = 200;
/// So many times as long as otherwise, threads try to meet.
const PATIENCE: u32 = 2;
