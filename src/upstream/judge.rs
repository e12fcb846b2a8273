//! Which outcomes of an exchange count against its endpoint, and which for it.
//!
//! What a client does never counts: leaving, a body that fails or dawdles, a time it chose that was too short. What an endpoint does
//! always counts, and once for each exchange: breaking a connection, resetting a stream, silence, nonsense, and the statuses that are
//! listed; and once for each attempt, a connection that can't be made.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::ExchangeError;
use super::event::Gone;
use super::group::Group;
use super::standing::{Counts, Standing};
use crate::clock::Clock;
use crate::request::grpc::GRPC_STATUS;
use crate::snapshot::Outlier;
use crate::telemetry::metrics::Registry;

/// Judges the endpoints of an upstream that has `outlier`.
#[derive(Debug)]
pub(super) struct Judge {
    upstream: Arc<str>,
    group: Arc<Group>,
    clock: Clock,
    registry: Registry,
    status: Vec<(u16, u16)>,
    consecutive_failures: u32,
    counts: Counts,
}

impl Judge {
    pub(super) fn new(upstream: &Arc<str>, group: &Arc<Group>, rules: &Outlier, clock: &Clock, registry: &Registry) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            group: Arc::clone(group),
            clock: clock.clone(),
            registry: registry.clone(),
            status: rules.status.clone(),
            consecutive_failures: rules.consecutive_failures,
            counts: if rules.success_rate.is_some() { Counts::Rate } else { Counts::Row },
        }
    }

    /// Whether a response with this status is a failure.
    pub(super) fn blames(&self, status: StatusCode) -> bool {
        self.status.iter().any(|(from, to)| (*from..=*to).contains(&status.as_u16()))
    }

    pub(super) fn good(&self, standing: &Standing) {
        standing.succeeded(self.counts);
    }

    /// The clock is read, and a lock taken, only when it is one too many.
    pub(super) fn bad(&self, standing: &Standing) {
        if standing.failed(self.counts) >= self.consecutive_failures {
            for event in self.group.eject(standing, Gone::ConsecutiveFailures, self.clock.now()) {
                event.say(&self.upstream, &self.registry);
            }
        }
    }
}

/// What an exchange was like when it failed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Circumstances {
    /// Its connection had carried another exchange before, and was at rest when this one began.
    pub(super) reused: bool,
    /// The time for the whole exchange was over, and the client had a part in how it was spent.
    pub(super) out_of_shared_time: bool,
}

/// What a failed exchange says about its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Failure,
    /// The same as a response with this status.
    As(StatusCode),
    Nothing,
}

/// For an exchange that has failed.
pub(super) fn verdict(error: &ExchangeError, when: Circumstances) -> Verdict {
    let fault = match error {
        // In HTTP/2 an endpoint that has too much to do can say so without an answer. That is no worse than with one. A refusal comes
        // here only when the next try has not made up for it: else whoever restarts in good order, or fills its streams, would count.
        ExchangeError::Refused | ExchangeError::Reset(ENHANCE_YOUR_CALM) => return Verdict::As(StatusCode::SERVICE_UNAVAILABLE),
        // How gRPC servers end a call whose time, which its client chooses, is over.
        ExchangeError::Reset(CANCEL) => false,
        // An idle connection may be closed at any time; that it was just now used is nobody's fault.
        ExchangeError::Closed => !when.reused,
        ExchangeError::Timeout => !when.out_of_shared_time,
        ExchangeError::Io(_) | ExchangeError::Invalid(_) | ExchangeError::Reset(_) => true,
        ExchangeError::RequestBody(_) | ExchangeError::Unsayable => false,
    };
    if fault { Verdict::Failure } else { Verdict::Nothing }
}

/// What gRPC's status says, as a status of HTTP. Only `UNAVAILABLE` says something about the endpoint: the others, `INTERNAL` too, a
/// request can bring about by itself.
pub(super) fn of_grpc(fields: &HeaderMap) -> Option<StatusCode> {
    let is_unavailable = fields.get(&GRPC_STATUS).is_some_and(|status| status == UNAVAILABLE);
    is_unavailable.then_some(StatusCode::SERVICE_UNAVAILABLE)
}

const UNAVAILABLE: &str = "14";
/// Codes of RFC 9113 §7.
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::RequestBodyError;

    #[test]
    fn only_what_an_endpoint_does_counts() {
        use Verdict::{As, Failure, Nothing};
        let plain = Circumstances::default();
        let reused = Circumstances { reused: true, ..plain };
        let shared = Circumstances { out_of_shared_time: true, ..plain };
        let busy = As(StatusCode::SERVICE_UNAVAILABLE);
        for (error, when, expected) in [
            (ExchangeError::Closed, plain, Failure),
            (ExchangeError::Closed, reused, Nothing),
            (ExchangeError::Timeout, plain, Failure),
            (ExchangeError::Timeout, reused, Failure),
            (ExchangeError::Timeout, shared, Nothing),
            (ExchangeError::Io(std::io::ErrorKind::ConnectionReset.into()), reused, Failure),
            (ExchangeError::Invalid("x"), plain, Failure),
            (ExchangeError::Reset(0), plain, Failure),
            (ExchangeError::Reset(1), plain, Failure),
            (ExchangeError::Reset(2), reused, Failure),
            (ExchangeError::Reset(CANCEL), plain, Nothing),
            (ExchangeError::Reset(ENHANCE_YOUR_CALM), plain, busy),
            (ExchangeError::Refused, plain, busy),
            (ExchangeError::Unsayable, plain, Nothing),
            (ExchangeError::RequestBody(RequestBodyError::Aborted), plain, Nothing),
            (ExchangeError::RequestBody(RequestBodyError::Idle), plain, Nothing),
            (ExchangeError::RequestBody(RequestBodyError::TooLarge), plain, Nothing),
            (ExchangeError::RequestBody(RequestBodyError::Malformed), plain, Nothing),
        ] {
            assert_eq!(verdict(&error, when), expected, "{error:?} {when:?}");
        }
    }

    #[test]
    fn of_grpc_only_unavailable_counts() {
        for (status, expected) in [("0", None), ("13", None), ("14", Some(503)), ("140", None), ("", None)] {
            let mut fields = HeaderMap::new();
            assert_eq!(of_grpc(&fields), None);
            fields.insert(GRPC_STATUS, status.parse().unwrap());
            assert_eq!(of_grpc(&fields).map(|status| status.as_u16()), expected, "{status}");
        }
    }
}
