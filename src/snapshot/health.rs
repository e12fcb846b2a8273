//! What an upstream's endpoints are chosen by, and what keeps them in use.

use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue};

/// How an endpoint is chosen.
#[derive(Debug, Clone, PartialEq)]
pub enum Balance {
    /// In turn, by weight.
    RoundRobin,
    /// By chance, by weight.
    Random,
    /// The less busy of two picked at random.
    LeastRequests,
    /// The same one for the same key, as long as it isn't busier than its share allows.
    Hash {
        /// What a key is made of.
        by: HashBy,
        /// How many times its fair share of the load an endpoint takes, more than 1.
        load_bound: f64,
    },
}

/// What requests that stay together have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashBy {
    /// The client, as limits know it.
    Client,
    /// The grouped address.
    Ip,
    /// A header's value.
    Header(HeaderName),
}

/// Asking endpoints how they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked.
    pub probe: Probe,
    /// From one answer to the next question.
    pub interval: Duration,
    /// For connection and answer together.
    pub timeout: Duration,
    /// So many good answers in a row bring an endpoint back.
    pub healthy_after: u32,
    /// So many bad ones take it out.
    pub unhealthy_after: u32,
}

/// What a health check asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// A GET.
    Http {
        /// Of this.
        path: PathAndQuery,
        /// With this `Host`; the endpoint's own address otherwise.
        host: Option<HeaderValue>,
        /// Which statuses are good, as lowest and highest.
        status: Vec<(u16, u16)>,
        /// What has to be in the body, if anything.
        body: Option<Box<[u8]>>,
    },
    /// Whether it accepts a connection.
    Tcp,
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// Whose health; empty is the server's as a whole.
        service: Box<str>,
        /// With this `:authority`; the endpoint's own address otherwise.
        host: Option<HeaderValue>,
    },
}

/// Taking out endpoints whose answers are bad.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlier {
    /// So many failures in a row.
    pub consecutive_failures: u32,
    /// Which statuses are failures, as lowest and highest.
    pub status: Vec<(u16, u16)>,
    /// The first time for this long, the second time for twice as long, and so on.
    pub eject_for: Duration,
    /// But never longer.
    pub max_eject_for: Duration,
    /// No more than this share of the endpoints at once, from 0 to 1.
    pub max_ejected: f64,
    /// And by their share of good answers.
    pub success_rate: Option<SuccessRate>,
}

/// What share of an endpoint's answers has to be good.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SuccessRate {
    /// With fewer in a window nothing is said.
    pub minimum_requests: u32,
    /// Less than this takes it out; from 0 to 1.
    pub below: f64,
    /// How long is counted.
    pub window: Duration,
}
