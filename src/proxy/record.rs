//! What is remembered of a request: metrics and the access log, written when the last byte has gone out, or the client has.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Version};

use super::admit::Standing;
use super::gateway::Gateway;
use super::lasting::{Lasting, Said};
use super::settle::Unsettled;
use super::tunnel::Agreed;
use crate::admission::Permit;
use crate::body::{End, EndOfBody};
use crate::clock::Nanos;
use crate::identity::{ClientId, Identity, KeyDigest, ShortDigest};
use crate::policy::RouteId;
use crate::request::{Facts, InFlight, grpc};
use crate::respond::{Answer, CLIENT_CLOSED_REQUEST};
use crate::snapshot::{LocalSnapshot, RouteMetrics, SideMetrics};
use crate::telemetry::access_log::Line;
use crate::upstream::{Limited, Place, Shed};

/// Travels with a request from its head to its end. Holds the permit, so a concurrency slot is given back exactly then.
#[derive(Debug)]
pub struct Completion {
    gateway: Rc<Gateway>,
    in_flight: Option<InFlight>,
    snapshot: LocalSnapshot,
    pub(super) started: Nanos,
    pub(super) status: StatusCode,
    pub(super) tier: usize,
    pub(super) limited_by: Option<u16>,
    pub(super) shadow: Option<u16>,
    grpc: Grpc,
    route: Option<RouteId>,
    side: Option<usize>,
    wanted: Option<Rc<Limited>>,
    place: Option<Place>,
    permit: Option<Permit>,
    pub(super) unsettled: Unsettled,
    delayed: Nanos,
    tunnel: Option<Box<Agreed>>,
    log: Option<Box<Logged>>,
    done: bool,
}

/// Whether a request is a gRPC call, and what that came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grpc {
    No,
    Call(Option<u16>),
}

/// What only the access log wants.
#[derive(Debug)]
struct Logged {
    method: Method,
    path: String,
    host: String,
    version: Version,
    address: IpAddr,
    client: Option<ClientId>,
    key: Option<KeyDigest>,
}

/// Names in the configuration.
struct Words<'s> {
    client: Option<&'s str>,
    tier: &'s str,
    route: Option<&'s str>,
    upstream: Option<&'s str>,
    limited_by: Option<&'s str>,
    shadow: Option<&'s str>,
}

impl Completion {
    pub(super) fn new(gateway: &Rc<Gateway>, snapshot: &LocalSnapshot, parts: &Parts, in_flight: InFlight) -> Self {
        let peer = in_flight.conn.peer.ip();
        let log = snapshot.access_log.is_some().then(|| {
            Box::new(Logged {
                method: parts.method.clone(),
                path: String::new(),
                host: String::new(),
                version: parts.version,
                address: peer,
                client: None,
                key: None,
            })
        });
        Self {
            gateway: Rc::clone(gateway),
            in_flight: Some(in_flight),
            snapshot: Rc::clone(snapshot),
            started: gateway.clock.now(),
            status: CLIENT_CLOSED_REQUEST,
            tier: 0,
            limited_by: None,
            shadow: None,
            grpc: if grpc::is_grpc(parts) { Grpc::Call(None) } else { Grpc::No },
            route: None,
            side: None,
            wanted: None,
            place: None,
            permit: None,
            unsettled: Unsettled::default(),
            delayed: 0,
            tunnel: None,
            log,
            done: false,
        }
    }

    pub(super) fn saw(&mut self, facts: &Facts<'_>) {
        if let Some(log) = &mut self.log {
            log.path.push_str(&facts.path);
            log.host.push_str(&facts.authority.host);
        }
    }

    pub(super) fn identified(&mut self, identity: &Identity<'_>) {
        self.tier = usize::from(identity.tier.0);
        if let Some(log) = &mut self.log {
            log.address = identity.address;
            log.client = identity.client.map(|(id, _)| id);
            log.key = identity.key;
        }
    }

    pub(super) fn routed(&mut self, route: RouteId) {
        self.route = Some(route);
    }

    /// Of the upstreams that share the route, it goes to the one at this place.
    pub(super) fn goes_to(&mut self, side: Option<usize>) {
        self.side = side;
    }

    /// Whether it is a gRPC call.
    pub(super) fn is_grpc(&self) -> bool {
        self.grpc != Grpc::No
    }

    /// Looks for the status of a gRPC call: in the response's head if nothing follows it, else in the trailers.
    pub(super) fn look_for_grpc_status(&mut self, fields: &HeaderMap) {
        if let Grpc::Call(status @ None) = &mut self.grpc {
            *status = grpc::status(fields);
        }
    }

    /// Takes the permit into keeping.
    pub(super) fn keep(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// It wants a place at its upstream when it has waited.
    pub(super) fn wants_place(&mut self, limited: Option<Rc<Limited>>) {
        self.wanted = limited;
    }

    /// Takes one.
    pub(super) fn take_place(&mut self, limited: &Rc<Limited>, now: Nanos) -> Result<(), Shed> {
        self.place = Some(limited.take(self.tier, now)?);
        Ok(())
    }

    /// Upstream has answered, or won't: then the place tells by itself what that means.
    pub(super) fn answered(&mut self, status: Option<StatusCode>) {
        if let Some(place) = self.place.take()
            && status.is_some_and(|status| !status.is_server_error())
        {
            place.answered();
        }
    }

    /// Waits until the request's place is there, if it has one to wait for, and lends the permit for forwarding. Whoever leaves meanwhile
    /// drops this record, and with it his place.
    pub(super) async fn wait(&mut self) -> Result<Admitted<'_>, Answer> {
        let Some(permit) = &mut self.permit else { return Err(Answer::Unavailable) };
        if let Some((delay, limit)) = permit.wait() {
            tokio::time::sleep(Duration::from_nanos(delay)).await;
            self.delayed = delay;
            if let Some(metrics) = self.snapshot.limit_metrics.get(usize::from(limit)) {
                metrics.delay.observe(self.gateway.lane, delay);
            }
            if let Some(limited) = self.wanted.take() {
                let now = self.gateway.clock.now();
                let Ok(place) = limited.take(self.tier, now) else {
                    permit.abandon(&self.gateway.store, now);
                    self.unsettled.forget();
                    return Err(Answer::Shed);
                };
                self.place = Some(place);
            }
            permit.go_on(&self.gateway.store);
        }
        Ok(Admitted {
            permit,
            place: self.place.as_mut(),
            waited: self.delayed > 0,
            reads_response: self.unsettled.reads_body(&self.snapshot),
        })
    }

    /// The connection becomes something else.
    pub(super) fn agreed(&mut self, agreed: Agreed) {
        self.tunnel = Some(Box::new(agreed));
    }

    /// Hands everything over to what remembers a tunnel, which may outlast this configuration; nothing is left to be settled then.
    pub(super) fn outlive(&mut self) -> Option<Lasting> {
        let agreed = *self.tunnel.take()?;
        self.done = true;
        let now = self.gateway.clock.now();
        self.unsettled.end(&self.gateway, &self.snapshot, now);
        let said = self.log.take().zip(self.snapshot.access_log.as_ref()).map(|(log, settings)| {
            let words = self.words(&log);
            Box::new(Said {
                format: settings.format,
                sample: settings.sample,
                protocol: protocol(log.version),
                address: settings.addresses.logged(log.address, self.snapshot.identity.grouping),
                client: words.client.map(Into::into),
                key: log.key,
                tier: words.tier.into(),
                route: words.route.map(Into::into),
                upstream: words.upstream.map(Into::into),
                shadow: words.shadow.map(Into::into),
                delayed: self.delayed,
                method: log.method,
                path: log.path,
                host: log.host,
            })
        });
        let metrics = self.metrics();
        metrics.duration.observe(self.gateway.lane, agreed.after);
        self.count_side(agreed.after);
        Some(Lasting {
            gateway: Rc::clone(&self.gateway),
            started: self.started,
            status: self.status.as_u16(),
            requests: metrics.by_class.get(self.class()).cloned(),
            metrics: metrics.upgrades.clone(),
            permit: self.permit.take(),
            in_flight: self.in_flight.take(),
            agreed,
            said,
            done: false,
        })
    }

    /// The counters of its route.
    fn metrics(&self) -> &RouteMetrics {
        let metrics = self.route.and_then(|route| self.snapshot.route_metrics.get(usize::from(route.0)));
        metrics.unwrap_or(&self.snapshot.unrouted_metrics)
    }

    /// The counters of the upstream, if several share the route.
    fn side(&self) -> Option<&SideMetrics> {
        self.metrics().sides.get(self.side?)
    }

    fn count_side(&self, duration: Nanos) {
        let Some(side) = self.side() else { return };
        side.duration.observe(self.gateway.lane, duration);
        if let Some(counter) = side.by_class.get(self.class()) {
            counter.one(self.gateway.lane);
        }
    }

    /// The class of its status, 1xx first.
    fn class(&self) -> usize {
        usize::from(self.status.as_u16() / 100).saturating_sub(1)
    }

    /// What the configuration calls what the log names.
    fn words(&self, log: &Logged) -> Words<'_> {
        let snapshot = &self.snapshot;
        let name_of = |limit: u16| snapshot.policy.limits.get(usize::from(limit)).map(|limit| &*limit.name);
        Words {
            client: log.client.and_then(|id| snapshot.identity.clients.get(id)).map(|client| &*client.id),
            tier: snapshot.identity.tiers.get(self.tier).map_or("", |tier| tier),
            route: self.route.and_then(|route| snapshot.policy.routes.named(route)),
            upstream: self.side().map(|side| &*side.upstream),
            limited_by: self.limited_by.and_then(name_of),
            shadow: self.shadow.and_then(name_of),
        }
    }

    /// Lets a response's head settle what it decides.
    pub(super) fn settle_head(&mut self, status: StatusCode, headers: &HeaderMap, standing: &mut Standing<'_>) {
        self.unsettled.head(&self.gateway, &self.snapshot, (status, headers), standing);
    }

    fn finish(&mut self, end: End) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let now = self.gateway.clock.now();
        let mut tries = 0;
        if let Some(mut permit) = self.permit.take() {
            tries = permit.tries();
            if permit.abandon(&self.gateway.store, now) {
                self.unsettled.forget();
                self.delayed = now.saturating_sub(self.started);
            }
        }
        self.unsettled.end(&self.gateway, &self.snapshot, now);
        let lane = self.gateway.lane;
        let duration = now.saturating_sub(self.started);
        if let Some(in_flight) = self.in_flight.take()
            && end == End::Aborted
        {
            in_flight.conn.progress.streams.end_early(Duration::from_nanos(duration));
        }
        let metrics = self.metrics();
        if let Some(counter) = metrics.by_class.get(self.class()) {
            counter.one(lane);
        }
        metrics.duration.observe(lane, duration);
        self.count_side(duration);
        if end == End::Aborted {
            self.gateway.client_aborts.one(lane);
        }
        if let Grpc::Call(status) = self.grpc {
            self.gateway.count_grpc(status);
        }
        self.write_log(duration, end, tries);
    }

    fn write_log(&mut self, duration: Nanos, end: End, tries: u32) {
        let (Some(log), Some(settings)) = (self.log.take(), &self.snapshot.access_log) else { return };
        let grpc_status = match self.grpc {
            Grpc::No => None,
            Grpc::Call(status) => status,
        };
        let failed = self.status.is_client_error() || self.status.is_server_error() || grpc_status.is_some_and(|code| code != 0);
        let always = failed || end != End::Complete;
        if !always && !self.gateway.sampled(settings.sample) {
            return;
        }
        let key = log.key.map(|key| key.short());
        let address = settings.addresses.logged(log.address, self.snapshot.identity.grouping);
        let words = self.words(&log);
        let line = Line {
            time: self.gateway.clock.wall_now() - std::time::Duration::from_nanos(duration),
            method: log.method.as_str(),
            path: &log.path,
            host: &log.host,
            protocol: protocol(log.version),
            status: self.status.as_u16(),
            grpc_status,
            duration_us: duration / 1000,
            address: address.network.address,
            prefix: address.network.prefix,
            client_hash: address.pseudonym,
            client: words.client,
            key: key.as_ref().map(ShortDigest::as_str),
            tier: words.tier,
            route: words.route,
            upstream: words.upstream,
            limited_by: words.limited_by,
            shadow: words.shadow,
            delayed_us: self.delayed / 1000,
            tries,
            upgraded: None,
            aborted: end == End::Aborted,
            broken_off: end == End::Failed,
        };
        self.gateway.log.log(settings.format, &line);
    }
}

/// An admitted request's way on.
#[derive(Debug)]
pub(super) struct Admitted<'c> {
    pub(super) permit: &'c Permit,
    /// Its place at an upstream whose limit is found out.
    pub(super) place: Option<&'c mut Place>,
    /// Whether it had to wait.
    pub(super) waited: bool,
    /// Whether the response's body has to be read.
    pub(super) reads_response: bool,
}

impl EndOfBody for Completion {
    fn passed(&mut self, data: &Bytes) {
        self.unsettled.passed(data);
    }

    fn trailed(&mut self, trailers: &HeaderMap) {
        self.look_for_grpc_status(trailers);
    }

    fn ended(&mut self, end: End) {
        self.finish(end);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        // No response was ever made: the client left while upstream was being asked.
        self.finish(End::Aborted);
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}
