//! A connection that has become something else: who is at its ends, and what is remembered of it.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::Response;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::lasting::Lasting;
use super::pump::{Pump, Side, Why};
use crate::body::End;
use crate::clock::Nanos;
use crate::request::ConnInfo;
use crate::snapshot::UpgradeMetrics;
use crate::telemetry::access_log;
use crate::telemetry::metrics::Lane;
use crate::upstream::Switched;
use crate::websocket::Limits;

/// What client and upstream have agreed on, and what has come of it so far.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) protocol: Box<str>,
    pub(super) is_websocket: bool,
    pub(super) idle: Duration,
    pub(super) limits: Option<Limits>,
    /// How long it took to agree.
    pub(super) after: Nanos,
    /// Bytes from the client.
    pub(super) received: Cell<u64>,
    /// Bytes to the client.
    pub(super) sent: Cell<u64>,
    /// Why it is over; none when it was dropped before it was.
    pub(super) why: Cell<Option<Why>>,
}

impl Agreed {
    /// Counts it as over.
    pub(super) fn count(&self, metrics: &UpgradeMetrics, lasted: Nanos, lane: Lane) {
        metrics.open.less(lane);
        metrics.duration.observe(lane, lasted);
        metrics.received.add(lane, self.received.get());
        metrics.sent.add(lane, self.sent.get());
        if let Some(Why::Refused(refusal)) = self.why.get()
            && let Some((_, counter)) = metrics.refused.iter().find(|(of, _)| *of == refusal)
        {
            counter.one(lane);
        }
    }

    /// What the access log says of it.
    pub(super) fn line(&self) -> access_log::Upgraded<'_> {
        let ended = self.why.get().map_or("cut", Why::word);
        access_log::Upgraded { protocol: &self.protocol, received: self.received.get(), sent: self.sent.get(), ended }
    }
}

impl Why {
    fn word(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Idle => "idle",
            Self::Drain => "drain",
            Self::Refused(refusal) => refusal.word(),
        }
    }
}

impl From<Why> for End {
    fn from(why: Why) -> Self {
        match why {
            Why::Closed | Why::Drain => Self::Complete,
            Why::Client => Self::Aborted,
            Why::Upstream | Why::Idle | Why::Refused(_) => Self::Failed,
        }
    }
}

/// One end is here already: the connection to upstream. The client's comes when its 101 is out.
#[derive(Debug)]
pub struct Tunnel {
    upstream: Box<Switched>,
    lasting: Box<Lasting>,
    conn: Rc<ConnInfo>,
}

/// A client's connection in HTTP/1.1, or its stream in HTTP/2.
pub trait ClientSocket: AsyncRead + AsyncWrite + Unpin {
    /// Whether the end that was read is the client's own word: over TLS, whether a `close_notify` came before it.
    fn was_announced(&mut self) -> bool;

    /// Makes the drop that follows a reset rather than an end.
    fn reset_on_drop(&mut self);
}

/// Where a request leaves what is not its response: a tunnel for its connection or stream to go on with, once the answer is out; and over
/// HTTP/2 what is to be said before that.
#[derive(Debug, Default)]
pub struct Handover {
    tunnel: RefCell<Option<Tunnel>>,
    interim: RefCell<Vec<Response<()>>>,
    /// How much has been said.
    said: Cell<usize>,
}

impl Handover {
    pub(super) fn leave(&self, tunnel: Tunnel) {
        *self.tunnel.borrow_mut() = Some(tunnel);
    }

    /// The tunnel that was left, if any.
    #[must_use]
    pub fn take(&self) -> Option<Tunnel> {
        self.tunnel.borrow_mut().take()
    }

    /// Leaves an interim response. What comes before the response knows no window, so there is a bound.
    pub(super) fn say(&self, interim: Response<()>) {
        let length = interim.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum::<usize>();
        self.said.set(self.said.get().saturating_add(length));
        if self.said.get() <= MAX_SAID {
            self.interim.borrow_mut().push(interim);
        }
    }

    /// The interim responses that were left.
    #[must_use]
    pub fn take_interim(&self) -> Vec<Response<()>> {
        self.interim.take()
    }
}

/// What a request may be told before its response, in bytes.
const MAX_SAID: usize = 32 << 10;
/// What a field costs besides its text (RFC 9113 §6.5.2).
const FIELD: usize = 32;

impl Tunnel {
    pub(super) fn new(upstream: Box<Switched>, lasting: Lasting, conn: Rc<ConnInfo>) -> Self {
        lasting.begin();
        Self { upstream, lasting: Box::new(lasting), conn }
    }

    /// Goes on over a client's socket. `early` is what the client has sent behind its request.
    pub async fn over_socket(self, stream: impl ClientSocket, early: Bytes) {
        self.run(Client { early, stream }).await;
    }

    async fn run(self, mut client: impl Side) {
        let Self { mut upstream, mut lasting, conn } = self;
        let (clock, agreed) = (lasting.clock(), &lasting.agreed);
        let pump = if agreed.is_websocket {
            Pump::websocket(&mut client, &mut *upstream, agreed.idle, &clock, agreed.limits)
        } else {
            Pump::blind(&mut client, &mut *upstream, agreed.idle, &clock)
        };
        let told = |received, sent| {
            agreed.received.set(received);
            agreed.sent.set(sent);
        };
        let why = pump.run(conn.ending(), told).await;
        match why {
            Why::Client => Side::reset_on_drop(&mut *upstream),
            Why::Upstream => client.reset_on_drop(),
            Why::Closed | Why::Idle | Why::Drain | Why::Refused(_) => {}
        }
        agreed.why.set(Some(why));
        // Its slots are free once nobody is connected any more.
        drop((client, upstream));
        lasting.end(why.into());
    }
}

impl Side for Switched {
    fn poll_ended(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn reset_on_drop(&mut self) {
        Self::reset_on_drop(self);
    }
}

/// A client's connection or stream, with what was read from it already.
#[derive(Debug)]
struct Client<S> {
    early: Bytes,
    stream: S,
}

impl<S: ClientSocket> Side for Client<S> {
    fn poll_ended(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(if self.stream.was_announced() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) })
    }

    fn reset_on_drop(&mut self) {
        self.stream.reset_on_drop();
    }
}

impl<S: ClientSocket> AsyncRead for Client<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.early.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let taken = this.early.len().min(buffer.remaining());
        buffer.put_slice(this.early.get(..taken).unwrap_or_default());
        this.early.advance(taken);
        Poll::Ready(Ok(()))
    }
}

/// Passes writes on to a field.
macro_rules! write_through {
    ($side:ty, $field:ident $(, $socket:ident)?) => {
        impl$(<$socket: ClientSocket>)? AsyncWrite for $side {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.get_mut().$field).poll_write(cx, bytes)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.get_mut().$field).poll_flush(cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.get_mut().$field).poll_shutdown(cx)
            }
        }
    };
}

write_through!(Client<S>, stream, S);
