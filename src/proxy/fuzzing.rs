//! What the fuzz targets in `tests/fuzz` call: a client's bytes on their way through hyper, [`Facts`] and the heads for upstreams, without
//! sockets and configuration.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, request::Parts};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::forward::framing;
use crate::headers::{EndToEndFields, EndToEndHead, Forwarding, Framing, HeaderEdits, IdentityHeaders, Withheld};
use crate::request::{ConnInfo, Facts, ForwardedHeader, PathRules};
use crate::upstream::fuzzing::encode;

/// A client's first request, and what upstreams are sent for it.
#[derive(Debug)]
pub struct Translated {
    /// The method as received.
    pub method: Method,
    /// The fields as received.
    pub received: HeaderMap,
    /// The body as received.
    pub body: Vec<u8>,
    /// The trailers as received.
    pub trailers: HeaderMap,
    /// How it is framed towards upstream.
    pub framing: Framing,
    /// The path and query for upstream.
    pub target: String,
    /// The whole request for an HTTP/1.1 upstream.
    pub http1: Vec<u8>,
    /// The head for an HTTP/2 upstream, if it has one.
    pub http2: Option<Request<()>>,
}

/// A request that has come to its end.
struct Whole {
    parts: Parts,
    pieces: Vec<Vec<u8>>,
    trailers: HeaderMap,
}

/// What becomes of the first request in these bytes of a client; nothing if it is refused, or ends before its end.
#[must_use]
pub fn translate(bytes: &[u8]) -> Option<Translated> {
    let Whole { parts, pieces, trailers } = receive(bytes)?;
    let conn = ConnInfo::new(([203, 0, 113, 9], 5000).into(), "http");
    let rules = PathRules { distinct_trailing_slash: false, allow_encoded_slash: false };
    let facts = Facts::read(&parts, &conn, &rules).ok()?;
    let framing = framing(&facts, false);
    let target = facts.query.map_or_else(|| facts.written_path.to_string(), |query| [&*facts.written_path, "?", query].concat());
    let (identity, edits, withheld) = (identity_headers(), HeaderEdits::default(), Withheld::default());
    let forwarding = Forwarding {
        facts: &facts,
        target: &target,
        framing,
        via_trusted_proxy: false,
        client: conn.peer.ip(),
        edits: &edits,
        identity: &identity,
        told: &[],
        withheld: &withheld,
        plain_response: false,
        default_host: "upstream:1",
        offer: None,
    };
    let head = EndToEndHead::new(&forwarding);
    let mut http1 = head.bytes().to_vec();
    match framing {
        Framing::None => {}
        Framing::Length(_) => http1.extend(pieces.concat()),
        Framing::Chunked => {
            let allowed = |name: &HeaderName| head.allows_trailer(name);
            http1.extend(encode(pieces.iter().map(Vec::as_slice), &trailers, allowed));
        }
    }
    let http2 = EndToEndFields::new(&forwarding, &Scheme::HTTP).ok().map(|fields| fields.request);
    let method = facts.method.clone();
    Some(Translated { method, framing, target, http1, http2, body: pieces.concat(), trailers, received: parts.headers })
}

fn identity_headers() -> IdentityHeaders {
    let names = |names: &[&'static str]| names.iter().copied().map(HeaderName::from_static).collect();
    IdentityHeaders::new(names(&["x-user-id"]), names(&["x-api-key"]), names(&["x-client-id"]), ForwardedHeader::XForwardedFor)
}

/// The first request in these bytes as hyper's server understands it.
fn receive(bytes: &[u8]) -> Option<Whole> {
    let first = RefCell::new(None);
    let service = service_fn(|request: Request<Incoming>| {
        let first = &first;
        async move {
            let whole = read(request).await;
            first.borrow_mut().get_or_insert(whole);
            let mut response = Response::new(http_body_util::Empty::<&[u8]>::new());
            response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
            Ok::<_, Infallible>(response)
        }
    });
    let io = TokioIo::new(tokio::io::join(bytes, tokio::io::sink()));
    let mut builder = hyper::server::conn::http1::Builder::new();
    let mut connection = pin!(builder.half_close(false).serve_connection(io, service));
    // All bytes are there: whatever is not ready now never will be. hyper gives way to others now and then.
    for _ in 0..MAX_TURNS {
        if connection.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            break;
        }
    }
    first.take().flatten()
}

async fn read(request: Request<Incoming>) -> Option<Whole> {
    let (parts, mut body) = request.into_parts();
    let (mut pieces, mut trailers) = (Vec::new(), HeaderMap::new());
    while let Some(frame) = std::future::poll_fn(|cx| -> Poll<Option<_>> { Pin::new(&mut body).poll_frame(cx) }).await {
        match frame.ok()?.into_data() {
            Ok(data) => pieces.push(data.to_vec()),
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    Some(Whole { parts, pieces, trailers })
}

const MAX_TURNS: usize = 64;
