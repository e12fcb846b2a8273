//! How long single calls took, and which part of it was the machine's fault.

use std::fmt;
use std::time::Duration;

use crate::process::without_core;

/// A histogram by powers of ten, of one thread's calls.
#[derive(Debug)]
pub(crate) struct Pauses {
    /// Below each of [`BOUNDS`], and above.
    counts: [u64; BOUNDS.len() + 1],
    longest: Duration,
    without_core: Duration,
}

impl Pauses {
    /// None yet; to be called by the thread whose calls they will be.
    pub(crate) fn new() -> Self {
        Self { counts: [0; BOUNDS.len() + 1], longest: Duration::ZERO, without_core: without_core() }
    }

    /// Notes a call. Asks the kernel only about long ones, because asking takes longer than the others.
    pub(crate) fn note(&mut self, nanos: u64) {
        let mut pause = Duration::from_nanos(nanos);
        if pause >= SUSPICIOUS {
            let without_core = without_core();
            pause = pause.saturating_sub(without_core.saturating_sub(self.without_core));
            self.without_core = without_core;
        }
        let bucket = BOUNDS.iter().position(|bound| pause < *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.longest = self.longest.max(pause);
    }
}

impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for count in self.counts {
            write!(f, "{count} | ")?;
        }
        write!(f, "{:.1?}", self.longest)
    }
}

const BOUNDS: [Duration; 4] =
    [Duration::from_micros(1), Duration::from_micros(10), Duration::from_micros(100), Duration::from_millis(1)];
/// Shorter than the kernel lets anybody else run.
const SUSPICIOUS: Duration = Duration::from_micros(50);
