//! What is remembered of a tunnel to its end.
//!
//! A request holds the configuration that it was decided by. A tunnel may last for days and many reloads, so it takes along only what its
//! end will be told with: some counters and some words.

use std::rc::Rc;
use std::time::Duration;

use http::Method;

use super::gateway::Gateway;
use super::tunnel::Agreed;
use crate::admission::Permit;
use crate::body::End;
use crate::clock::{Clock, Nanos};
use crate::identity::{KeyDigest, LoggedAddress, ShortDigest};
use crate::request::InFlight;
use crate::snapshot::UpgradeMetrics;
use crate::telemetry::access_log::{Format, Line};
use crate::telemetry::metrics::Counter;

/// Holds the permit, so a concurrency slot is given back when a tunnel ends, however it does.
#[derive(Debug)]
pub(super) struct Lasting {
    pub(super) gateway: Rc<Gateway>,
    pub(super) agreed: Agreed,
    pub(super) started: Nanos,
    pub(super) status: u16,
    pub(super) permit: Option<Permit>,
    pub(super) in_flight: Option<InFlight>,
    /// Of requests of its route with its class of status.
    pub(super) requests: Option<Counter>,
    pub(super) metrics: Option<Box<UpgradeMetrics>>,
    pub(super) said: Option<Box<Said>>,
    pub(super) done: bool,
}

/// What the access log will say.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) format: Format,
    pub(super) sample: u64,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) host: String,
    pub(super) protocol: &'static str,
    pub(super) address: LoggedAddress,
    pub(super) client: Option<Box<str>>,
    pub(super) key: Option<KeyDigest>,
    pub(super) tier: Box<str>,
    pub(super) route: Option<Box<str>>,
    pub(super) upstream: Option<Box<str>>,
    pub(super) shadow: Option<Box<str>>,
    pub(super) delayed: Nanos,
}

impl Lasting {
    /// It has begun.
    pub(super) fn begin(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.open.one(self.gateway.lane);
        }
    }

    /// What time it is.
    pub(super) fn clock(&self) -> Clock {
        self.gateway.clock.clone()
    }

    /// It is over.
    pub(super) fn end(&mut self, end: End) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let tries = self.permit.as_ref().map_or(0, Permit::tries);
        (self.permit, self.in_flight) = (None, None);
        let (lane, now) = (self.gateway.lane, self.gateway.clock.now());
        let lasted = now.saturating_sub(self.started);
        if let Some(requests) = &self.requests {
            requests.one(lane);
        }
        if let Some(metrics) = &self.metrics {
            self.agreed.count(metrics, lasted, lane);
        }
        if end == End::Aborted {
            self.gateway.client_aborts.one(lane);
        }
        self.write_log(lasted, end, tries);
    }

    fn write_log(&mut self, lasted: Nanos, end: End, tries: u32) {
        let Some(said) = self.said.take() else { return };
        if end == End::Complete && !self.gateway.sampled(said.sample) {
            return;
        }
        let key = said.key.map(|key| key.short());
        let line = Line {
            time: self.gateway.clock.wall_now() - Duration::from_nanos(lasted),
            method: said.method.as_str(),
            path: &said.path,
            host: &said.host,
            protocol: said.protocol,
            status: self.status,
            grpc_status: None,
            duration_us: lasted / 1000,
            address: said.address.network.address,
            prefix: said.address.network.prefix,
            client_hash: said.address.pseudonym,
            client: said.client.as_deref(),
            key: key.as_ref().map(ShortDigest::as_str),
            tier: &said.tier,
            route: said.route.as_deref(),
            limited_by: None,
            upstream: said.upstream.as_deref(),
            shadow: said.shadow.as_deref(),
            delayed_us: said.delayed / 1000,
            tries,
            upgraded: Some(self.agreed.line()),
            aborted: end == End::Aborted,
            broken_off: false,
        };
        self.gateway.log.log(said.format, &line);
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        // It was cut off in the middle, or the client left before it began.
        self.end(End::Aborted);
    }
}
