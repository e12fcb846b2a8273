//! Further tries, counted by their reasons, and by the reasons why they were not made.

use crate::telemetry::metrics::{self, Counter, Lane, Registry};

/// Why a request is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Reason {
    /// An endpoint can't be connected to.
    Connect,
    /// A connection at rest was just being closed.
    Closed,
    /// Upstream has not begun with it.
    Refused,
    /// The connection or the stream broke.
    Reset,
    /// A try took too long.
    Timeout,
    /// The response's status.
    Status,
    /// That of gRPC.
    Grpc,
}

/// Retries of an upstream, by reason, and those that were not made.
#[derive(Debug)]
pub(in crate::upstream) struct RetryCounters {
    made: [(Reason, Counter); 7],
    withheld: [(Withheld, Counter); 4],
}

/// Why a request that could be tried again is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Withheld {
    /// It has been tried as often as it may be.
    Attempts,
    /// More of its body has been sent than is kept.
    Body,
    /// The pause would be too long.
    Wait,
    /// There have been too many retries lately.
    Budget,
}

impl RetryCounters {
    pub(in crate::upstream) fn new(registry: &Registry, upstream: &str) -> Self {
        use Reason::{Closed, Connect, Grpc, Refused, Reset, Status, Timeout};
        let made = |reason: Reason, label| {
            (reason, registry.counter(metrics::UPSTREAM_RETRIES, &[("upstream", upstream), ("reason", label)]))
        };
        let withheld =
            |why, label| (why, registry.counter(metrics::RETRIES_WITHHELD, &[("upstream", upstream), ("reason", label)]));
        Self {
            made: [
                made(Connect, "connect"),
                made(Closed, "closed"),
                made(Refused, "refused"),
                made(Reset, "reset"),
                made(Timeout, "timeout"),
                made(Status, "status"),
                made(Grpc, "grpc"),
            ],
            withheld: [
                withheld(Withheld::Attempts, "attempts"),
                withheld(Withheld::Body, "body"),
                withheld(Withheld::Wait, "wait"),
                withheld(Withheld::Budget, "budget"),
            ],
        }
    }

    pub(in crate::upstream) fn one(&self, reason: Reason, lane: Lane) {
        self.made.iter().filter(|(made, _)| *made == reason).for_each(|(_, counter)| counter.one(lane));
    }

    pub(super) fn withhold(&self, why: Withheld, lane: Lane) {
        self.withheld.iter().filter(|(withheld, _)| *withheld == why).for_each(|(_, counter)| counter.one(lane));
    }
}
