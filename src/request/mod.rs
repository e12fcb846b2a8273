//! What later stages may look at: [`ConnInfo`] and [`Facts`].
//!
//! [`Facts::read`] is the gate between what a peer sent and what the gateway believes. It refuses what hyper lets
//! through and HTTP forbids (no Host, two Hosts, fragments, odd transfer codings, …), and makes the ONE normal form of
//! host and path that decides route, limits and log. What is forwarded stays the client's bytes, less dot segments.
//! It knows nothing of routes, limits or upstreams.

mod certificate;
pub mod cookie;
pub mod grpc;
pub mod host;
mod interim;
pub mod path;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Version, request::Parts};
use tokio::sync::Notify;

use crate::clock::deadline::Deadline;
pub use certificate::ClientCertificate;
pub use host::{Authority, HostFault};
pub use interim::{Interim, Writer};
pub use path::{PathFault, PathRules};

/// What is known of a connection before its first request.
#[derive(Debug)]
pub struct ConnInfo {
    /// The socket's peer or whom it has announced by the PROXY protocol; an IPv4-mapped address folded to IPv4.
    pub peer: SocketAddr,
    /// Where it is connected to, if that is an address and known.
    pub local: Option<SocketAddr>,
    /// Its address as text, for X-Forwarded-For.
    pub peer_text: Box<str>,
    /// The peer is a program on this machine that came by a Unix socket: a proxy, since nobody else can.
    pub is_local: bool,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// What the client has shown, checked.
    pub certificate: Option<Box<ClientCertificate>>,
    /// What its requests are up to.
    pub progress: Progress,
    ending: Ending,
}

/// By which what goes on over a connection learns that it shall end.
#[derive(Debug, Default)]
struct Ending {
    asked: Cell<bool>,
    told: Notify,
}

/// The header in which proxies name the addresses before them. Only one is ever read, and only that one continued: most proxies
/// write one, and pass on what a client has put in the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, a list of addresses.
    #[default]
    XForwardedFor,
    /// `Forwarded`, RFC 7239.
    Forwarded,
}

impl ConnInfo {
    /// A new connection.
    #[must_use]
    pub fn new(peer: SocketAddr, scheme: &'static str) -> Self {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let peer_text = peer.ip().to_string().into();
        let (progress, ending) = (Progress::default(), Ending::default());
        Self { peer, local: None, peer_text, is_local: false, scheme, certificate: None, progress, ending }
    }

    /// A new connection over a Unix socket, whose peer has no address: it stands under the loopback address.
    #[must_use]
    pub fn local(scheme: &'static str) -> Self {
        Self { is_local: true, ..Self::new((Ipv4Addr::LOCALHOST, 0).into(), scheme) }
    }
}

impl ConnInfo {
    /// The same of a client that has shown this certificate, checked.
    #[must_use]
    pub fn showing(self, certificate: Option<Box<ClientCertificate>>) -> Self {
        Self { certificate, ..self }
    }

    /// The same of one that is connected to here.
    #[must_use]
    pub fn at(self, local: Option<SocketAddr>) -> Self {
        Self { local, ..self }
    }

    /// Another one between the same ends, for who outlives it.
    #[must_use]
    pub fn likeness(&self) -> Self {
        Self { is_local: self.is_local, ..Self::new(self.peer, self.scheme).at(self.local) }
    }

    /// The connection shall end: whatever it is not busy with has little time left.
    pub fn hurry(&self) {
        self.progress.keep_alive.set(HURRY);
        if self.progress.in_flight.get() == 0 {
            self.progress.deadline.arm(HURRY);
        }
        self.ending.asked.set(true);
        self.ending.told.notify_waiters();
    }

    /// Waits until the connection shall end.
    pub async fn ending(&self) {
        if !self.ending.asked.get() {
            self.ending.told.notified().await;
        }
    }
}

/// How long a connection that shall end may be without a request in flight: enough to take note of a GOAWAY.
const HURRY: Duration = Duration::from_secs(1);

/// What the requests of a connection are up to: told by the proxy, watched by the socket, which runs one deadline by it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Ends a connection that is too slow with a head, or idle for too long. Runs only while no request is in flight.
    pub deadline: Deadline,
    /// How long the connection may be idle between two requests.
    pub keep_alive: Cell<Duration>,
    /// Requests whose response is not out yet.
    pub in_flight: Cell<u32>,
    /// What the current HTTP/1.1 request still has to bring.
    pub body: Cell<BodyLeft>,
    /// The head being read shows what the parser drops: a fragment in the request target.
    pub fragment_seen: Cell<bool>,
    /// Upstream is being asked whether an HTTP/1.1 connection becomes something else: until it has said, the connection is not told to end.
    pub switching: Cell<bool>,
    /// Wakes the connection when the bytes that the socket holds back may be read.
    pub held: RefCell<Option<Waker>>,
    /// Something has come since this was last looked at.
    pub heard: Cell<bool>,
    /// Interim responses to the current HTTP/1.1 request.
    pub interim: Interim,
    /// Streams of an HTTP/2 connection.
    pub streams: Streams,
}

/// How the streams of an HTTP/2 connection have ended so far.
///
/// A client may reset what it has asked for, and so may a browser that leaves a page. Who resets most of it, right away and many times
/// over, wants the work to be begun and nothing else (CVE-2023-44487); making the server reset its streams comes to the same (CVE-2025-8671).
#[derive(Debug, Default)]
pub struct Streams {
    begun: Cell<u32>,
    cut_short: Cell<u32>,
}

impl Streams {
    /// A stream has begun.
    pub fn begin(&self) {
        self.begun.set(self.begun.get().saturating_add(1));
    }

    /// A stream has ended before its answer did, after this time.
    pub fn end_early(&self, lived: Duration) {
        if lived < SHORT_LIFE {
            self.cut_short.set(self.cut_short.get().saturating_add(1));
        }
    }

    /// Whether the connection is good for nothing but beginning work.
    #[must_use]
    pub fn are_abused(&self) -> bool {
        self.begun.get() >= MANY_STREAMS && self.cut_short.get() > self.begun.get() / 2
    }
}

/// What lives longer than this was waited for by somebody.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// Two of the largest bursts that one connection may have (256 streams at once): a page left early is no attack.
const MANY_STREAMS: u32 = 512;

/// How much of a request's body is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyLeft {
    /// Nothing: what comes next is another head.
    #[default]
    Nothing,
    /// This many bytes.
    Bytes(u64),
    /// Only the parser knows: chunks.
    Unknown,
}

/// A request in flight on its connection, until dropped.
#[derive(Debug)]
pub struct InFlight {
    /// The connection.
    pub conn: Rc<ConnInfo>,
}

impl InFlight {
    /// A head is complete; `body` is what follows it. To be called before anything more is read from the connection.
    #[must_use]
    pub fn begin(conn: &Rc<ConnInfo>, body: BodyLeft) -> Self {
        let progress = &conn.progress;
        progress.in_flight.set(progress.in_flight.get() + 1);
        progress.body.set(body);
        progress.deadline.disarm();
        Self { conn: Rc::clone(conn) }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let progress = &self.conn.progress;
        let left = progress.in_flight.get().saturating_sub(1);
        progress.in_flight.set(left);
        if left == 0 {
            progress.deadline.arm(progress.keep_alive.get());
            if let Some(held) = progress.held.borrow_mut().take() {
                held.wake();
            }
        }
    }
}

/// One request as the rest of the gateway sees it. Borrows from the request's head.
#[derive(Debug)]
pub struct Facts<'r> {
    /// The method, case-sensitive.
    pub method: &'r Method,
    /// The normal form of the path: decoded, no dot segments, no empty segments. For matching only.
    pub path: Cow<'r, str>,
    /// The path as the client wrote it, less dot segments. For forwarding only.
    pub written_path: Cow<'r, str>,
    /// The raw query, without `?`.
    pub query: Option<&'r str>,
    /// Whom the client asked for.
    pub authority: Authority<'r>,
    /// The headers as received.
    pub headers: &'r HeaderMap,
    /// The protocol version as received.
    pub version: Version,
    /// The connection.
    pub conn: &'r ConnInfo,
    /// It came as an extended CONNECT for a WebSocket (RFC 8441), which is what a GET with an `Upgrade` is in HTTP/1.1; so its method is
    /// GET.
    pub extended_connect: bool,
}

/// Why a request is refused before anybody asks what it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The target is not what the method or the protocol allows.
    #[error("the request target is not valid")]
    Target,
    /// A fragment in the target.
    #[error("the request target must not contain a fragment")]
    Fragment,
    /// The path can't be brought to its normal form.
    #[error(transparent)]
    Path(#[from] PathFault),
    /// Host or authority.
    #[error(transparent)]
    Host(#[from] HostFault),
    /// More than one Host, or none in HTTP/1.1.
    #[error("a request has exactly one Host")]
    HostCount,
    /// Target and Host name different servers.
    #[error("the request target and Host differ")]
    HostMismatch,
    /// A transfer coding other than exactly one `chunked`.
    #[error("the only transfer coding understood is a single chunked")]
    TransferCoding,
    /// More than one Content-Length.
    #[error("a request has at most one Content-Length")]
    ContentLength,
    /// Leading or trailing blanks in an HTTP/2 field value.
    #[error("a field value starts or ends with a blank")]
    FieldValue,
    /// An expectation other than `100-continue`.
    #[error("the only expectation understood is 100-continue")]
    Expectation,
    /// CONNECT and TRACE.
    #[error("this method is not allowed")]
    Method,
    /// An extended CONNECT for something else than a WebSocket.
    #[error("the only protocol understood in a CONNECT is websocket")]
    Protocol,
}

impl<'r> Facts<'r> {
    /// Reads a request's head.
    ///
    /// # Errors
    /// [`Fault`] when the request must not be routed or forwarded at all.
    pub fn read(parts: &'r Parts, conn: &'r ConnInfo, rules: &PathRules) -> Result<Self, Fault> {
        if conn.progress.fragment_seen.take() {
            return Err(Fault::Fragment);
        }
        let extended_connect = parts.method == Method::CONNECT && is_extended_connect(parts)?;
        if parts.method == Method::TRACE {
            return Err(Fault::Method);
        }
        let authority = match parts.version {
            Version::HTTP_2 => {
                check_http2_fields(&parts.headers)?;
                authority_of_http2(parts, conn)?
            }
            _ => {
                check_transfer_coding(&parts.headers)?;
                authority_of_http1(parts, conn)?
            }
        };
        check_expectation(&parts.headers)?;
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let paths = if target == "*" {
            if parts.method != Method::OPTIONS {
                return Err(Fault::Target);
            }
            path::Paths { normal: Cow::Borrowed("*"), written: Cow::Borrowed("*") }
        } else {
            path::normalize(parts.uri.path(), rules)?
        };
        let query = parts.uri.query();
        if query.is_some_and(|query| query.bytes().any(|b| !b.is_ascii_graphic())) {
            return Err(Fault::Target);
        }
        Ok(Self {
            method: if extended_connect { &GET } else { &parts.method },
            path: paths.normal,
            written_path: paths.written,
            query,
            authority,
            headers: &parts.headers,
            version: parts.version,
            conn,
            extended_connect,
        })
    }

    /// The only value of a header; `None` when it is absent, repeated, empty or not visible ASCII.
    #[must_use]
    pub fn single(&self, name: &http::HeaderName) -> Option<&'r str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        if values.next().is_some() {
            return None;
        }
        value.to_str().ok().map(str::trim).filter(|value| !value.is_empty())
    }
}

/// Of a CONNECT, whether it is for a WebSocket: any other would be a tunnel to wherever the client wants.
fn is_extended_connect(parts: &Parts) -> Result<bool, Fault> {
    match parts.extensions.get::<h2::ext::Protocol>() {
        Some(protocol) if parts.version == Version::HTTP_2 && protocol.as_str() == "websocket" => Ok(true),
        Some(_) => Err(Fault::Protocol),
        None => Err(Fault::Method),
    }
}

static GET: Method = Method::GET;

fn authority_of_http1<'r>(parts: &'r Parts, conn: &ConnInfo) -> Result<Authority<'r>, Fault> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(Authority::parse(host.as_bytes(), conn.scheme)?),
        (None, _) if parts.version < Version::HTTP_11 => None,
        _ => return Err(Fault::HostCount),
    };
    let Some(named) = parts.uri.authority() else {
        return Ok(host.unwrap_or_default());
    };
    // `GET a:80` is authority-form, which belongs to CONNECT.
    check_scheme(parts)?;
    let named = Authority::parse(named.as_str().as_bytes(), conn.scheme)?;
    if host.is_some_and(|host| host != named) {
        return Err(Fault::HostMismatch);
    }
    Ok(named)
}

fn authority_of_http2<'r>(parts: &'r Parts, conn: &ConnInfo) -> Result<Authority<'r>, Fault> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (None, _) => None,
        (Some(host), None) => Some(Authority::parse(host.as_bytes(), conn.scheme)?),
        _ => return Err(Fault::HostCount),
    };
    let named = match parts.uri.authority() {
        Some(named) => {
            check_scheme(parts)?;
            Some(Authority::parse(named.as_str().as_bytes(), conn.scheme)?)
        }
        None => None,
    };
    match (named, host) {
        (Some(named), Some(host)) if named != host => Err(Fault::HostMismatch),
        (Some(named), _) => Ok(named),
        (None, Some(host)) => Ok(host),
        (None, None) => Err(Fault::HostCount),
    }
}

fn check_scheme(parts: &Parts) -> Result<(), Fault> {
    match parts.uri.scheme_str() {
        Some("http" | "https") => Ok(()),
        _ => Err(Fault::Target),
    }
}

/// hyper accepts every list that ends in `chunked`; upstream must never see anything but one.
fn check_transfer_coding(headers: &HeaderMap) -> Result<(), Fault> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Fault::TransferCoding),
    }
}

/// What RFC 9113 calls malformed and the h2 crate accepts.
fn check_http2_fields(headers: &HeaderMap) -> Result<(), Fault> {
    if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(Fault::ContentLength);
    }
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let padded = |value: &http::HeaderValue| blank(value.as_bytes().first()) || blank(value.as_bytes().last());
    if headers.values().any(padded) { Err(Fault::FieldValue) } else { Ok(()) }
}

fn check_expectation(headers: &HeaderMap) -> Result<(), Fault> {
    let known = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if headers.get_all(EXPECT).iter().all(known) { Ok(()) } else { Err(Fault::Expectation) }
}
