//! How handshakes with clients end, counted.

use std::io;

use tokio_rustls::rustls::Error;

use crate::telemetry::metrics::{self, Counter, Lane, Registry};

/// Why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFault {
    /// It took too long, the wait for its turn included.
    Timeout,
    /// The client left.
    Closed,
    /// What came is not TLS, plain HTTP for example.
    NotTls,
    /// What came is broken TLS.
    Malformed,
    /// No version, cipher suite or the like in common.
    Incompatible,
    /// No protocol in common.
    Alpn,
    /// No client certificate where one is due, or a bad one.
    Certificate,
    /// The client refused us, our certificate perhaps.
    Alert,
}

impl HandshakeFault {
    /// What an error means.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            None => Self::Closed,
            Some(Error::AlertReceived(_)) => Self::Alert,
            Some(Error::NoCertificatesPresented | Error::InvalidCertificate(_)) => Self::Certificate,
            Some(Error::NoApplicationProtocol) => Self::Alpn,
            Some(Error::PeerIncompatible(_)) => Self::Incompatible,
            Some(_) => Self::Malformed,
        }
    }

    /// The value of a metric's label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Closed => "closed",
            Self::NotTls => "not_tls",
            Self::Malformed => "malformed",
            Self::Incompatible => "incompatible",
            Self::Alpn => "alpn",
            Self::Certificate => "certificate",
            Self::Alert => "alert",
        }
    }
}

/// A listener's counts of handshakes.
#[derive(Debug)]
pub struct TlsMetrics {
    /// Whole ones that succeeded.
    pub full: Counter,
    /// Those of clients that came back.
    pub resumed: Counter,
    /// Under way.
    pub under_way: Counter,
    failures: Vec<(HandshakeFault, Counter)>,
}

impl TlsMetrics {
    /// For a listener.
    #[must_use]
    pub fn new(registry: &Registry, listener: &str) -> Self {
        let kind = |kind| registry.counter(metrics::TLS_HANDSHAKES, &[("listener", listener), ("kind", kind)]);
        let failure = |fault: HandshakeFault| {
            let labels = [("listener", listener), ("kind", fault.label())];
            (fault, registry.counter(metrics::TLS_HANDSHAKE_FAILURES, &labels))
        };
        Self {
            full: kind("full"),
            resumed: kind("resumed"),
            under_way: registry.counter(metrics::TLS_HANDSHAKES_UNDER_WAY, &[("listener", listener)]),
            failures: FAULTS.map(failure).into(),
        }
    }

    /// Counts a failure.
    pub fn failed(&self, fault: HandshakeFault, lane: Lane) {
        if let Some((_, counter)) = self.failures.iter().find(|(counted, _)| *counted == fault) {
            counter.one(lane);
        }
    }
}

const FAULTS: [HandshakeFault; 8] = [
    HandshakeFault::Timeout,
    HandshakeFault::Closed,
    HandshakeFault::NotTls,
    HandshakeFault::Malformed,
    HandshakeFault::Incompatible,
    HandshakeFault::Alpn,
    HandshakeFault::Certificate,
    HandshakeFault::Alert,
];
