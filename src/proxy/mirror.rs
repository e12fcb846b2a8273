//! Copies of requests for another upstream.
//!
//! A copy is made beside the request and sent by a task of its own, when the client's body has passed: what it meets with, slowness, faults, a
//! full upstream, meets nobody else. It takes no slot and no quota, and is in no counter but its own. What there is of copies at once, of bytes in
//! each and of bytes of each answer is bounded.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{Method, Uri};
use http_body::Body as _;
use tokio::sync::oneshot;

use super::affinity;
use super::forward::{Way, with_edits};
use super::gateway::Gateway;
use crate::admission::Permit;
use crate::body::{BodyCopy, CopyTooLarge, RequestBody, Unread};
use crate::headers::{EndToEndFields, EndToEndHead, Framing, ResponseHead, Unsayable};
use crate::policy::Mirror;
use crate::request::{ConnInfo, grpc};
use crate::snapshot::{MirrorMetrics, UpstreamProtocol};
use crate::telemetry::metrics::{Counter, Lane};
use crate::upstream::{ClientBody, Destination, Heads, Payload, Received, Request, TotalTimeout};

/// Begins a copy of the request, if its route wants one of it: `body` is the client's, of this framing.
pub(super) fn begin(
    gateway: &Rc<Gateway>,
    way: &Way<'_, '_>,
    mirror: &Mirror,
    permit: &Permit,
    framing: Framing,
    body: Option<&mut ClientBody>,
) {
    let metrics = way.snapshot.route_metrics.get(usize::from(way.proceed.route.id.0)).and_then(|metrics| metrics.mirror.as_ref());
    let (Some(metrics), Some(upstream)) = (metrics, way.snapshot.upstreams.get(usize::from(mirror.upstream.0))) else { return };
    let Some(destination) = way.destinations.get(mirror.upstream) else { return };
    // What is said on calls and tunnels is a conversation: a second partner would have to be answered.
    let is_call = grpc::is_call(way.facts.version, way.facts.headers, way.facts.method);
    if way.offer.is_some() || is_call || !gateway.mirrors(mirror.sample) {
        return;
    }
    if metrics.in_flight.total() >= mirror.max_in_flight {
        return metrics.dropped.one(gateway.lane);
    }
    let length = if let Framing::Length(length) = framing { Some(length) } else { None };
    if length.is_some_and(|length| usize::try_from(length).is_ok_and(|length| length > mirror.max_body)) {
        return metrics.too_large.one(gateway.lane);
    }
    let copy = body.map(|body| {
        let (tap, copy) = BodyCopy::new(mirror.max_body);
        body.tap(Box::new(tap), length);
        copy
    });
    let way = Way { upstream: mirror.upstream, reads_response: false, total_timeout: None, offer: None, ..*way };
    let http2 = match upstream.protocol {
        UpstreamProtocol::Http1 => false,
        UpstreamProtocol::Http2 => true,
        UpstreamProtocol::Auto => upstream.tls.is_some(),
    };
    let mirrored = Mirrored {
        gateway: Rc::clone(gateway),
        metrics: Arc::clone(metrics),
        _in_flight: InFlight::begin(metrics.in_flight.clone(), gateway.lane),
        destination,
        permit: permit.of_copy(),
        method: way.facts.method.clone(),
        heads: OwnHeads {
            http1: with_edits(&way, framing, &mirror.edits, EndToEndHead::new),
            http2: if http2 {
                with_edits(&way, framing, &mirror.edits, |head| EndToEndFields::new(head, &Scheme::HTTP))
            } else {
                Err(Unsayable)
            },
        },
        framing,
        balance_key: affinity::key(&way),
        patience: upstream.response_timeout,
        conn: way.facts.conn.likeness(),
    };
    tokio::task::spawn_local(mirrored.run(copy));
}

/// A copy on its way.
struct Mirrored {
    gateway: Rc<Gateway>,
    metrics: Arc<MirrorMetrics>,
    _in_flight: InFlight,
    destination: Destination,
    permit: Permit,
    method: Method,
    heads: OwnHeads,
    framing: Framing,
    balance_key: Option<std::num::NonZeroU64>,
    patience: Duration,
    /// Whom a connection speaks for, if that is wanted of it.
    conn: ConnInfo,
}

impl Mirrored {
    async fn run(self, copy: Option<oneshot::Receiver<Result<Bytes, CopyTooLarge>>>) {
        let (metrics, lane) = (&self.metrics, self.gateway.lane);
        let body = match copy {
            None => None,
            Some(copy) => match copy.await {
                Ok(Ok(body)) => Some(body),
                Ok(Err(CopyTooLarge)) => return metrics.too_large.one(lane),
                // The client has left, or upstream has answered and wanted no more of it.
                Err(_) => return metrics.abandoned.one(lane),
            },
        };
        let started = self.gateway.clock.now();
        match self.send(body).await {
            Some(status) if status >= 500 => metrics.server_error.one(lane),
            Some(_) => metrics.answered.one(lane),
            None => metrics.failed.one(lane),
        }
        metrics.duration.observe(lane, self.gateway.clock.now().saturating_sub(started));
    }

    /// The status of an answer that came to its end, or was longer than anybody reads.
    async fn send(&self, body: Option<Bytes>) -> Option<u16> {
        let whole = |bytes| RequestBody::new(Unread::here(bytes), u64::MAX, self.patience);
        let request = Request {
            method: &self.method,
            heads: &self.heads,
            framing: self.framing,
            body: body.map(whole).map(Payload::Client),
            response_timeout: None,
            total_timeout: Some(TotalTimeout::Configured(self.patience)),
            offer: None,
            balance_key: self.balance_key,
            conn: &self.conn,
        };
        let response = self.gateway.client.exchange(&self.permit, &self.destination, request).await.ok()?;
        let Received::Stream(mut body) = response.body else { return Some(response.status.as_u16()) };
        let mut left = MAX_ANSWER;
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let length = frame.ok()?.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        Some(response.status.as_u16())
    }
}

/// A copy's heads: the request they were made from is gone when they are wanted.
struct OwnHeads {
    http1: EndToEndHead,
    http2: Result<EndToEndFields, Unsayable>,
}

impl Heads for OwnHeads {
    fn http1(&self) -> EndToEndHead {
        self.http1.clone()
    }

    fn http2(&self, scheme: &Scheme) -> Result<EndToEndFields, Unsayable> {
        let EndToEndFields { request, trailers } = self.http2.as_ref().map_err(|_| Unsayable)?;
        let mut request = request.clone();
        let mut uri = std::mem::take(request.uri_mut()).into_parts();
        uri.scheme = Some(scheme.clone());
        *request.uri_mut() = Uri::from_parts(uri).map_err(|_| Unsayable)?;
        Ok(EndToEndFields { request, trailers: trailers.clone() })
    }

    fn interim(&self, _: &ResponseHead) {
        // Nobody waits for the answer.
    }
}

/// Counts until dropped.
struct InFlight(Counter, Lane);

impl InFlight {
    fn begin(counter: Counter, lane: Lane) -> Self {
        counter.one(lane);
        Self(counter, lane)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.less(self.1);
    }
}

/// What is read of an answer, to keep its connection; behind that the connection goes.
const MAX_ANSWER: usize = 1 << 20;
