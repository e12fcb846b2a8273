//! What happens to endpoints, as the log says it: each change once, with its reason.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use crate::telemetry::metrics::{self, Registry};

/// A change in what is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Ejected { address: Arc<str>, why: Gone, length: Duration },
    Returned { address: Arc<str> },
    Drained { address: Arc<str> },
    Enabled { address: Arc<str> },
    Panic { in_order: usize, of: usize },
    Calm { in_order: usize, of: usize },
}

/// Why an endpoint is ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    ConsecutiveFailures,
    SuccessRate,
}

impl Gone {
    /// The value of a metric's label.
    fn label(self) -> &'static str {
        match self {
            Self::ConsecutiveFailures => "consecutive_failures",
            Self::SuccessRate => "success_rate",
        }
    }
}

impl Event {
    pub(super) fn say(&self, upstream: &str, registry: &Registry) {
        match self {
            Self::Ejected { address, why, length } => {
                let labels = [("upstream", upstream), ("endpoint", &**address), ("reason", why.label())];
                registry.counter(metrics::EJECTIONS, &labels).one(registry.shared_lane());
                warn!(upstream, endpoint = &**address, reason = why.label(), ?length, "endpoint ejected");
            }
            Self::Returned { address } => info!(upstream, endpoint = &**address, "ejection is over"),
            Self::Drained { address } => info!(upstream, endpoint = &**address, "endpoint drained"),
            Self::Enabled { address } => info!(upstream, endpoint = &**address, "endpoint enabled"),
            Self::Panic { in_order, of } => {
                warn!(upstream, in_order, of, "too few endpoints are in order: all are used");
            }
            Self::Calm { in_order, of } => info!(upstream, in_order, of, "enough endpoints are in order again"),
        }
    }
}
