//! Sending an admitted request to its upstream and taking the response.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::uri::Scheme;
use http::{HeaderMap, StatusCode, Version};
use http_body::Body as _;
use smallvec::SmallVec;
use tracing::warn;

use super::gateway::Gateway;
use super::record::Admitted;
use super::{Handover, Reply, affinity, error, mirror};
use crate::body::{ClientStream, RequestBody, Unread};
use crate::clock::Nanos;
use crate::headers::{EndToEndFields, EndToEndHead, Forwarding, Framing, HeaderEdits, Offer, ResponseHead, Unsayable, Withheld};
use crate::identity::{Identity, KeySource, is_query_pair};
use crate::policy::{Proceed, Route, UpstreamId};
use crate::request::{Facts, grpc};
use crate::respond::Answer;
use crate::snapshot::{Listener, Snapshot, UpstreamKind};
use crate::upstream::{ClientBody, Destinations, Heads, Payload, Request, Response, TotalTimeout};

/// Everything that decides what upstream sees.
pub(super) struct Way<'a, 's> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) listener: &'a Listener,
    pub(super) facts: &'a Facts<'a>,
    pub(super) identity: &'a Identity<'a>,
    pub(super) proceed: &'a Proceed<'s>,
    pub(super) upstream: UpstreamId,
    /// Of the generation that everything was decided by.
    pub(super) destinations: &'a Destinations,
    pub(super) reads_response: bool,
    pub(super) total_timeout: Option<TotalTimeout>,
    /// What upstream may switch to.
    pub(super) offer: Option<&'a Offer>,
    /// The way to a client of HTTP/2 for what comes before the response.
    pub(super) handover: &'a Handover,
    /// Bytes of the request's body per second, at least.
    pub(super) min_body_rate: Option<NonZeroU32>,
}

/// How long the whole exchange may take: as the route says, and no longer than the caller of gRPC (`grpc`: its fields) waits, whose time
/// began when the request did.
pub(super) fn total_timeout(
    gateway: &Gateway,
    route: &Route,
    grpc: Option<&HeaderMap>,
    started: Nanos,
) -> Result<Option<TotalTimeout>, Answer> {
    let configured = route.total_timeout.map(TotalTimeout::Configured);
    let Some(timeout) = grpc.and_then(grpc::timeout) else { return Ok(configured) };
    let spent = Duration::from_nanos(gateway.clock.now().saturating_sub(started));
    let left = timeout.checked_sub(spent).filter(|left| !left.is_zero()).ok_or(Answer::GatewayTimeout)?;
    Ok(configured.filter(|_| route.total_timeout.is_some_and(|total| total <= left)).or(Some(TotalTimeout::Callers(left))))
}

/// Refuses a body that says it is too large, before anybody is asked to take it.
pub(super) fn check_size(facts: &Facts<'_>, route: &Route) -> Result<(), Answer> {
    if declared_length(facts).is_some_and(|length| length > route.max_body) { Err(Answer::PayloadTooLarge) } else { Ok(()) }
}

/// Carries out the exchange. The permit is held for as long as it takes, and goes on in the response.
pub(super) async fn forward(
    gateway: &Rc<Gateway>,
    way: &Way<'_, '_>,
    Admitted { permit, place, .. }: Admitted<'_>,
    body: Unread<ClientStream>,
) -> Result<Reply, Answer> {
    let route = way.proceed.route;
    let framing = framing(way.facts, !body.is_end_stream());
    let mut body = RequestBody::new(body, route.max_body, way.listener.body_idle_timeout).at_least(way.min_body_rate);
    if framing == Framing::Length(0) {
        // HTTP/2 only: a length that the frames may yet contradict. Upstream must not take this for a complete request.
        expect_nothing(&mut body).await?;
    }
    let mut body = (!matches!(framing, Framing::None | Framing::Length(0))).then_some(body);
    if let (Some(place), Some(body)) = (place, &mut body) {
        body.tap(place.upload(), declared_length(way.facts));
    }
    if let Some(mirror) = &route.mirror {
        mirror::begin(gateway, way, mirror, permit, framing, body.as_mut());
    }
    let request = Request {
        method: way.facts.method,
        heads: &Sayable { way, framing },
        framing,
        body: body.map(Payload::Client),
        response_timeout: route.response_timeout,
        total_timeout: way.total_timeout,
        offer: way.offer,
        balance_key: affinity::key(way),
        conn: way.facts.conn,
    };
    let destination = way.destinations.get(way.upstream).ok_or(Answer::Unavailable)?;
    match gateway.client.exchange(permit, &destination, request).await {
        Ok(Response { status, headers, body }) => Ok(Reply { status, headers, body }),
        Err(error) => {
            if error.request_body().is_none()
                && let Some(unsaid) = gateway.may_warn(gateway.clock.now())
            {
                let upstream = way.snapshot.upstreams.get(usize::from(way.upstream.0)).map_or("", |upstream| &upstream.name);
                warn!(%error, upstream, route = &*route.name, unsaid, "upstream failed");
            }
            Err(error::answer(&error))
        }
    }
}

/// What upstream is sent first, once it is known what it speaks.
struct Sayable<'w, 'a, 's> {
    way: &'w Way<'a, 's>,
    framing: Framing,
}

impl Heads for Sayable<'_, '_, '_> {
    fn http1(&self) -> EndToEndHead {
        with_edits(self.way, self.framing, &self.way.proceed.route.request_edits, EndToEndHead::new)
    }

    fn http2(&self, scheme: &Scheme) -> Result<EndToEndFields, Unsayable> {
        with_edits(self.way, self.framing, &self.way.proceed.route.request_edits, |forwarding| {
            EndToEndFields::new(forwarding, scheme)
        })
    }

    /// HTTP/1.0 knows none (RFC 9110 §15.2). A `100` is the gateway's own to say: upstream was not asked for one.
    fn interim(&self, head: &ResponseHead) {
        let edits = &self.way.proceed.route.response_edits;
        match self.way.facts.version {
            _ if head.status == StatusCode::CONTINUE => {}
            Version::HTTP_11 => self.way.facts.conn.progress.interim.send(&head.interim_text(edits)),
            Version::HTTP_2 => self.way.handover.say(head.interim_fields(edits)),
            _ => {}
        }
    }
}

/// Says the request, with these edits.
pub(super) fn with_edits<T>(
    way: &Way<'_, '_>,
    framing: Framing,
    edits: &HeaderEdits,
    say: impl FnOnce(&Forwarding<'_>) -> T,
) -> T {
    let sources = way.snapshot.identity.withheld(way.facts);
    let (target, withheld) = (target(way, &sources), withheld(&sources));
    let told: SmallVec<[_; 7]> =
        way.snapshot.identity.forward.iter().filter_map(|(told, name)| Some((name, told.value(way.identity)?))).collect();
    say(&Forwarding {
        facts: way.facts,
        target: &target,
        framing,
        via_trusted_proxy: way.identity.via_trusted_proxy,
        client: way.identity.address,
        edits,
        identity: &way.snapshot.identity_headers,
        told: &told,
        withheld: &withheld,
        plain_response: way.reads_response,
        default_host: default_host(way),
        offer: way.offer,
    })
}

async fn expect_nothing(body: &mut ClientBody) -> Result<(), Answer> {
    while !body.is_end_stream() {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        match frame {
            None => break,
            Some(Ok(frame)) if frame.data_ref().is_none_or(Bytes::is_empty) => {}
            Some(Ok(_)) => return Err(Answer::MalformedBody),
            Some(Err(error)) => return Err(error::body_answer(error)),
        }
    }
    Ok(())
}

fn declared_length(facts: &Facts<'_>) -> Option<u64> {
    // hyper and `h2` have refused everything but one valid number.
    facts.headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// Whether anything follows an HTTP/1.1 request's head.
pub(super) fn has_body(facts: &Facts<'_>) -> bool {
    facts.headers.contains_key(TRANSFER_ENCODING) || declared_length(facts).is_some_and(|length| length > 0)
}

/// The body's framing is the client's where HTTP/1.1 has a word for it.
pub(super) fn framing(facts: &Facts<'_>, has_more: bool) -> Framing {
    match declared_length(facts) {
        Some(length) => Framing::Length(length),
        None if (facts.version == Version::HTTP_2 && has_more) || facts.headers.contains_key(TRANSFER_ENCODING) => {
            Framing::Chunked
        }
        None => Framing::None,
    }
}

/// The client's path, unless the route rewrites it, and the client's query, less what is for the gateway alone.
fn target<'a>(way: &Way<'a, '_>, sources: &[&KeySource]) -> Cow<'a, str> {
    let facts = way.facts;
    let path = match &way.proceed.route.rewrite {
        Some(rewrite) => Cow::Owned(rewrite.apply(facts, way.proceed.pattern)),
        None => Cow::Borrowed(&*facts.written_path),
    };
    match facts.query.and_then(|query| forwarded_query(query, sources)) {
        Some(query) => Cow::Owned([&*path, "?", &query].concat()),
        None => path,
    }
}

/// A query without the parameters that are keys or tokens; nothing if nothing is left of it.
fn forwarded_query<'q>(query: &'q str, sources: &[&KeySource]) -> Option<Cow<'q, str>> {
    let is_withheld =
        |pair: &str| sources.iter().any(|source| matches!(source, KeySource::Query(name) if is_query_pair(pair, name)));
    let pairs = || query.split_inclusive(['&', ';']).map(|pair| (pair, pair.trim_end_matches(['&', ';'])));
    if !pairs().any(|(_, pair)| is_withheld(pair)) {
        return Some(Cow::Borrowed(query));
    }
    let mut kept: String = pairs().filter(|(_, pair)| !is_withheld(pair)).map(|(written, _)| written).collect();
    if kept.ends_with(['&', ';']) && !query.ends_with(['&', ';']) {
        // What is last now had another behind it.
        kept.pop();
    }
    (!kept.is_empty()).then_some(Cow::Owned(kept))
}

/// The headers and cookies among the sources.
fn withheld<'a>(sources: &[&'a KeySource]) -> Withheld<'a> {
    let mut withheld = Withheld::default();
    for source in sources {
        match source {
            KeySource::Bearer => withheld.headers.push(&AUTHORIZATION),
            KeySource::Header(name) => withheld.headers.push(name),
            KeySource::Cookie(name) => withheld.cookies.push(name),
            KeySource::Query(_) => {}
        }
    }
    withheld
}

fn default_host<'a>(way: &Way<'a, '_>) -> &'a str {
    match way.snapshot.upstreams.get(usize::from(way.upstream.0)).map(|upstream| &upstream.kind) {
        Some(UpstreamKind::Endpoints(endpoints)) => &endpoints.host,
        _ => "echo",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_out_of_queries() {
        let key = KeySource::Query("key".into());
        for (query, expected) in [
            ("a=1", Some("a=1")),
            ("", Some("")),
            ("key=k", None),
            ("key", None),
            ("a=1&key=k", Some("a=1")),
            ("key=k&a=1&&b", Some("a=1&&b")),
            ("k%65y=k&keys=1&key=l", Some("keys=1")),
            ("a=key=k", Some("a=key=k")),
            ("a=1;key=k", Some("a=1")),
            ("a=1;+key=k&b=2", Some("a=1;b=2")),
            ("a=1&", Some("a=1&")),
        ] {
            assert_eq!(forwarded_query(query, &[&key]).as_deref(), expected, "{query}");
            assert_eq!(forwarded_query(query, &[]).as_deref(), Some(query), "{query}");
        }
    }
}
