//! The life of a connection: which protocol, its requests, its end.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::debug;

use super::caps::{Counted, Refusal};
use super::http2::Serving;
use super::io::{ClientIo, Protocol};
use super::opening::{Opened, Opening, Unopened};
use super::transport::Transport;
use crate::body::{ClientStream, LINGER, LINGER_BYTES};
use crate::clock::deadline::Deadline;
use crate::proxy::{self, Gateway, Handover};
use crate::request::{BodyLeft, ConnInfo, InFlight, Progress};
use crate::snapshot::Listener;
use crate::socket::Stream;
use crate::telemetry::metrics::Lane;

/// By which a connection is asked to end: after its requests in flight, or at once if it is idle.
#[derive(Debug, Default)]
pub(super) struct Closing {
    asked: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Closing {
    pub(super) fn ask(&self) {
        if self.asked.replace(true) {
            return;
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    pub(super) fn poll(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        self.asked.get()
    }
}

/// A connection that has been accepted.
#[derive(Debug)]
pub(super) struct Arrival<S> {
    pub(super) stream: S,
    /// `None` is the peer of a Unix socket.
    pub(super) peer: Option<SocketAddr>,
    pub(super) listener: Arc<Listener>,
}

/// What all requests of a connection come in by.
#[derive(Debug)]
struct Door {
    listener: Arc<Listener>,
    handover: Handover,
}

/// Serves a connection until it ends.
pub(super) async fn serve(
    arrival: Arrival<Stream>,
    counted: &mut Counted,
    gateway: Rc<Gateway>,
    lane: Lane,
    closing: Rc<Closing>,
) {
    let Arrival { stream, mut peer, listener } = arrival;
    // Responses are written whole; waiting to fill a segment would only delay them.
    stream.send_at_once();
    let local = stream.local_address();
    let mut opening = Opening::new(stream, &closing);
    if listener.proxy_protocol {
        match opening.announced(&listener).await {
            // From here on the balancer is forgotten: the source is the peer.
            Ok(source) => peer = source.or(peer),
            Err(Unopened::Ended) => return,
            Err(Unopened::Header(fault)) => {
                debug!(%fault, listener = &*listener.name, "connection refused");
                return counted.refused_for(Refusal::ProxyHeader, lane);
            }
        }
        if !counted.count_peer(peer, &gateway.snapshot().identity, &listener, lane) {
            return;
        }
    }
    let opened = match &listener.tls {
        None => opening.protocol(&listener).await,
        Some(tls) => Box::pin(opening.secure(&listener, tls, &gateway, lane)).await,
    };
    if let Some(opened) = opened {
        speak(opened, (peer, local), listener, gateway, &closing).await;
    }
}

/// Answers the requests of a connection.
async fn speak(
    opened: Opened,
    (peer, local): (Option<SocketAddr>, Option<SocketAddr>),
    listener: Arc<Listener>,
    gateway: Rc<Gateway>,
    closing: &Closing,
) {
    let Opened { transport, protocol, prefix, certificate } = opened;
    let scheme = if transport.is_tls() { "https" } else { "http" };
    let conn = peer.map_or_else(|| ConnInfo::local(scheme), |peer| ConnInfo::new(peer, scheme));
    let conn = Rc::new(conn.showing(certificate).at(local));
    let io = ClientIo::new(transport, prefix, protocol, Rc::clone(&conn), &listener);
    match protocol {
        Protocol::Http1 => speak_http1(io, conn, listener, gateway, closing).await,
        // Boxed, so that HTTP/1.1's future is no larger for it.
        Protocol::Http2 => Box::pin(speak_http2(io, conn, listener, gateway, closing)).await,
    }
}

async fn speak_http1(io: ClientIo, conn: Rc<ConnInfo>, listener: Arc<Listener>, gateway: Rc<Gateway>, closing: &Closing) {
    let (door, idle) = (Rc::new(Door { listener, handover: Handover::default() }), Rc::clone(&conn));
    let entered = Rc::clone(&door);
    let service = service_fn(move |request: Request<Incoming>| {
        // Begun here and not in the future: hyper reads on before it polls that for the first time.
        let in_flight = InFlight::begin(&conn, following(request.body()));
        let (gateway, door) = (Rc::clone(&gateway), Rc::clone(&entered));
        // Boxed, because hyper moves the future it gets, and this one is a few kilobytes.
        Box::pin(async move {
            let Door { listener, handover } = &*door;
            let request = request.map(ClientStream::from);
            Ok::<_, Infallible>(proxy::handle(gateway, listener, handover, in_flight, request).await)
        })
    });
    let mut connection = http1().serve_connection(TokioIo::new(io), service);
    let ended = drive(Pin::new(&mut connection), closing, |connection| {
        idle.hurry();
        // hyper would say `Connection: close` beside the upgrade.
        let may = !idle.progress.switching.get();
        if may {
            connection.graceful_shutdown();
        }
        may
    })
    .await;
    let tunnel = door.handover.take();
    let parts = connection.into_parts();
    let io = parts.io.into_inner();
    if let Some(tunnel) = tunnel.filter(|_| ended.is_ok()) {
        let (transport, held) = io.into_parts();
        // Boxed, so that connections that stay what they are have no room for it.
        let mut tunnel = Box::pin(tunnel.over_socket(transport, joined(&parts.read_buf, &held)));
        let end = |_: Pin<&mut _>| {
            idle.hurry();
            true
        };
        return drive(tunnel.as_mut(), closing, end).await;
    }
    // After a parse error hyper has answered 400, 414 or 431, which the client shall be able to read.
    let is_over = ended.as_ref().map_or_else(hyper::Error::is_parse, |()| true);
    if io.overdue {
        take_leave(io.into_transport()).await;
    } else if is_over && !io.ended {
        linger(io.into_transport()).await;
    }
}

async fn speak_http2(io: ClientIo, conn: Rc<ConnInfo>, listener: Arc<Listener>, gateway: Rc<Gateway>, closing: &Closing) {
    let mut connection = pin!(Serving::new(io, Rc::clone(&conn), Rc::clone(&gateway), listener));
    let served = drive(connection.as_mut(), closing, |mut connection| {
        conn.hurry();
        connection.graceful_shutdown();
        true
    });
    let how = until_idle(served, &conn.progress).await;
    if how == Http2End::Abused {
        debug!(peer = %conn.peer, "connection ended: its client resets what it asks for");
        gateway.count_reset_flood();
    }
    if let Some(patience) = how.patience() {
        // A GOAWAY first, so that a client with a request on its way knows that it may send it elsewhere.
        connection.as_mut().graceful_shutdown();
        let _ = Deadline::new().bound(patience, connection).await;
    }
}

/// What hyper has read, and behind it what was held back from it.
fn joined(read: &Bytes, held: &[u8]) -> Bytes {
    if held.is_empty() { read.clone() } else { [read, held].concat().into() }
}

/// How much of the body is still to come: nothing, a known length, or chunks.
fn following(body: &Incoming) -> BodyLeft {
    match body.size_hint().exact() {
        Some(0) => BodyLeft::Nothing,
        Some(length) => BodyLeft::Bytes(length),
        None => BodyLeft::Unknown,
    }
}

fn http1() -> http1::Builder {
    // Timeouts are the socket's (see `io`); the rest are hyper's defaults: 100 fields.
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD).half_close(false);
    builder
}

/// Runs a connection, and asks it to end when we are asked to; at its next turn again, if it can't be asked yet.
async fn drive<C: Future>(mut connection: Pin<&mut C>, closing: &Closing, end: impl Fn(Pin<&mut C>) -> bool) -> C::Output {
    let mut told = false;
    std::future::poll_fn(|cx| {
        if closing.poll(cx) && !told {
            told = end(connection.as_mut());
        }
        connection.as_mut().poll(cx)
    })
    .await
}

/// How an HTTP/2 connection comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Http2End {
    /// By itself.
    Ended,
    /// It has been idle too long.
    Idle,
    /// Its client resets what it asks for.
    Abused,
}

impl Http2End {
    /// How long its client has to go; `None` if it has gone.
    fn patience(self) -> Option<Duration> {
        match self {
            Self::Ended => None,
            Self::Idle => Some(GOODBYE),
            Self::Abused => Some(Duration::ZERO),
        }
    }
}

/// Watches a connection: its deadline runs only while no request is in flight.
async fn until_idle<F: Future>(served: F, progress: &Progress) -> Http2End {
    let mut served = pin!(served);
    std::future::poll_fn(|cx| match served.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(Http2End::Ended),
        Poll::Pending if progress.streams.are_abused() => Poll::Ready(Http2End::Abused),
        Poll::Pending => progress.deadline.poll_due(cx).map(|()| Http2End::Idle),
    })
    .await
}

/// Reads and forgets what a client is still sending, for a moment: closing on unread bytes would reset the connection, and the
/// client might never see the answer that told it to stop (RFC 9112 §9.6).
pub(super) async fn linger(mut stream: Transport) {
    // Over TLS, where a message ends with the connection this is what says so; it is never said of one that was cut. In clear text hyper
    // has done so, unless the request had an `Upgrade`: then it leaves the socket as it is, whatever the answer was.
    let _ = Deadline::new().bound(GOODBYE, stream.shutdown()).await;
    let mut sink = vec![0; 16 << 10];
    let mut left = LINGER_BYTES;
    let deadline = Deadline::new();
    let drain = async {
        while let Ok(read @ 1..) = stream.read(&mut sink).await {
            left = left.saturating_sub(read);
            if left == 0 {
                break;
            }
        }
    };
    let _ = deadline.bound(LINGER, drain).await;
}

/// Ends a connection that nobody is using: over TLS with a word, as TLS wants it.
async fn take_leave(mut stream: Transport) {
    if stream.is_tls() {
        let _ = Deadline::new().bound(GOODBYE, stream.shutdown()).await;
    }
}

/// More than the longest request target hyper knows (64 KiB), so that too long a one is told from too large a head.
const MAX_HEAD: usize = 128 << 10;
/// How long a client has to close after a GOAWAY.
const GOODBYE: Duration = Duration::from_secs(2);
