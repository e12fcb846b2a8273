//! What of an upstream's requests is tried again, and how often.

use std::time::Duration;

/// Trying again.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// So many more tries after the first.
    pub attempts: u32,
    /// After which outcomes.
    pub on: RetryOn,
    /// Retries as a share of requests, from 0 to 1.
    pub budget: f64,
    /// So many a second are allowed however few requests there are.
    pub min_per_second: u32,
    /// The shortest pause and the longest.
    pub backoff: (Duration, Duration),
    /// How long one try may take.
    pub per_try: Option<Duration>,
    /// The longest pause that a response may ask for.
    pub max_wait: Duration,
    /// Bytes of a request's body that are kept to be sent again.
    pub max_body: usize,
    /// And of all requests' bodies together.
    pub max_bodies: usize,
}

/// Outcomes after which a request is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetryOn {
    /// No endpoint could be connected to.
    pub connect: bool,
    /// The connection or the stream broke before a byte of the response.
    pub reset: bool,
    /// Statuses, as lowest and highest.
    pub status: Vec<(u16, u16)>,
    /// Statuses of gRPC.
    pub grpc: Vec<u16>,
}
