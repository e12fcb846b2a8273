//! `retry`, `max_requests` and `max_pending` of upstreams.

use super::Compiler;
use crate::config::diagnostic::Path;
use crate::config::{self, List};
use crate::snapshot::{Retry, RetryOn};

impl Compiler<'_> {
    pub(super) fn retry(&mut self, upstream: &config::Upstream, path: &Path) -> Option<Retry> {
        let retry = upstream.retry.as_ref()?;
        let path = path.key("retry");
        if !(1..=MAX_ATTEMPTS).contains(&retry.attempts) {
            self.problem(
                &path.key("attempts"),
                format!("must be from 1 to {MAX_ATTEMPTS}; without `retry` nothing is tried again"),
            );
        }
        let config::Backoff { from, to } = retry.backoff;
        if from > to {
            self.problem(&path.key("backoff"), "the first duration must not be longer than the second");
        }
        if to.0 > MAX_PAUSE {
            self.problem(&path.key("backoff"), "nobody waits longer than a minute for the next try");
        }
        if retry.max_wait.0 > MAX_PAUSE {
            self.problem(&path.key("max_wait"), "nobody waits longer than a minute for the next try");
        }
        let size = |size: crate::units::ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        if retry.max_body.0 > MAX_BODY {
            self.problem(&path.key("max_body"), "must not be more than 16MiB: it is kept in memory for every request under way");
        }
        Some(Retry {
            attempts: retry.attempts,
            on: self.retry_on(&retry.on, &path.key("on")),
            budget: retry.budget.0,
            min_per_second: retry.min_per_second.min(MAX_PER_SECOND),
            backoff: (from.0, to.0),
            per_try: retry.per_try.map(|span| self.positive(span, &path.key("per_try"))),
            max_wait: retry.max_wait.0,
            max_body: size(retry.max_body),
            max_bodies: size(retry.max_bodies),
        })
    }

    fn retry_on(&mut self, List(outcomes): &List<config::RetryOn>, path: &Path) -> RetryOn {
        let mut on = RetryOn::default();
        if outcomes.is_empty() {
            self.problem(path, "after no outcome nothing is ever tried again");
        }
        for outcome in outcomes {
            match outcome {
                config::RetryOn::Connect => on.connect = true,
                config::RetryOn::Reset => on.reset = true,
                config::RetryOn::GrpcUnavailable => on.grpc.push(GRPC_UNAVAILABLE),
                config::RetryOn::GrpcResourceExhausted => on.grpc.push(GRPC_RESOURCE_EXHAUSTED),
                config::RetryOn::Status(pattern) => {
                    if pattern.from < 500 && !(pattern.from == pattern.to && PASSING.contains(&pattern.from)) {
                        self.problem(path, "only 5xx, 408, 425 and 429 can come out otherwise the next time");
                    }
                    on.status.push((pattern.from, pattern.to));
                }
            }
        }
        on
    }

    pub(super) fn bounds(&mut self, upstream: &config::Upstream, path: &Path) {
        if upstream.max_requests == Some(0) {
            self.problem(&path.key("max_requests"), "must be at least 1; leave it out for no bound");
        }
        let there = [
            ("retry", upstream.retry.is_some()),
            ("max_requests", upstream.max_requests.is_some()),
            ("max_pending", upstream.max_pending > 0),
        ];
        for (key, _) in there.iter().filter(|(_, is_there)| *is_there && upstream.builtin.is_some()) {
            self.problem(&path.key(key), "an upstream that is built in neither fails nor fills up");
        }
    }
}

/// More than that is hammering, whatever the budget says.
const MAX_ATTEMPTS: u32 = 10;
/// Clients have left by then.
const MAX_PAUSE: std::time::Duration = std::time::Duration::from_secs(60);
const MAX_BODY: u64 = 16 << 20;
/// As many as the budget's slots count exactly.
const MAX_PER_SECOND: u32 = 100_000;
/// Statuses below 500 that say that another time may be better: Request Timeout, Too Early, Too Many Requests.
const PASSING: [u16; 3] = [408, 425, 429];
const GRPC_RESOURCE_EXHAUSTED: u16 = 8;
const GRPC_UNAVAILABLE: u16 = 14;
