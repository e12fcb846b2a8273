//! `adaptive_concurrency` of an upstream.

use super::Compiler;
use crate::config;
use crate::config::diagnostic::Path;
use crate::snapshot::Adaptive;

impl Compiler<'_> {
    pub(super) fn adaptive(&mut self, upstream: &config::Upstream, path: &Path, tiers: usize) -> Option<Adaptive> {
        let settings = upstream.adaptive_concurrency.as_ref()?;
        let path = path.key("adaptive_concurrency");
        let config::AdaptiveConcurrency { min, max, initial, tolerance, reserve, mode } = *settings;
        if upstream.builtin.is_some() {
            self.problem(&path, "an upstream that is built in has no load");
        }
        if min == 0 {
            self.problem(&path.key("min"), "must be at least 1");
        }
        if max < min {
            self.problem(&path.key("max"), "must not be less than `min`");
        } else if initial.is_some_and(|initial| !(min..=max).contains(&initial)) {
            self.problem(&path.key("initial"), format!("must be from `min` to `max`, {min} to {max}"));
        }
        if !(MIN_TOLERANCE..=MAX_TOLERANCE).contains(&tolerance) {
            self.problem(&path.key("tolerance"), "must be from 1.1 to 10");
        }
        if reserve.0 > MAX_RESERVE {
            self.problem(&path.key("reserve"), "at most 90%: the rest is for all other tiers");
        }
        (mode != config::Mode::Off).then_some(Adaptive {
            min: min.max(1),
            max: max.max(min).max(1),
            initial: initial.unwrap_or(DEFAULT_INITIAL).min(max).max(min),
            tolerance,
            reserve: reserve.0,
            tiers,
            enforced: mode == config::Mode::Enforce,
        })
    }
}

/// As Netflix's limits begin: low enough for a weak upstream, and found to be too low within a second or two.
const DEFAULT_INITIAL: u32 = 20;
/// Less is within what latency varies by anyway.
const MIN_TOLERANCE: f64 = 1.1;
/// Beyond this nothing is bounded any more.
const MAX_TOLERANCE: f64 = 10.0;
const MAX_RESERVE: f64 = 0.9;
