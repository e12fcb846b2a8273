//! The first bytes of a connection: a PROXY protocol header where one is due, then a TLS handshake or else which protocol is spoken.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;

use super::connection::Closing;
use super::io::Protocol;
use super::proxy_protocol::{self, HeaderFault, Progress};
use super::transport::Transport;
use crate::clock::deadline::Deadline;
use crate::request::ClientCertificate;
use crate::snapshot::Listener;
use crate::socket::Stream;

/// A connection of which it is not known yet what it is.
#[derive(Debug)]
pub(super) struct Opening<'c> {
    pub(super) stream: Stream,
    /// Read, and not yet taken.
    pub(super) seen: BytesMut,
    pub(super) patience: Patience<'c>,
}

/// A connection of which it is.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) transport: Transport,
    pub(super) protocol: Protocol,
    /// What has been read of it.
    pub(super) prefix: BytesMut,
    pub(super) certificate: Option<Box<ClientCertificate>>,
}

/// Why a connection is over before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unopened {
    /// It ended, stalled, or came while we were ending.
    Ended,
    /// It has no valid PROXY protocol header.
    Header(HeaderFault),
}

impl<'c> Opening<'c> {
    pub(super) fn new(stream: Stream, closing: &'c Closing) -> Self {
        let patience = Patience { closing, deadline: Deadline::new(), hurried: false };
        Self { stream, seen: BytesMut::with_capacity(ROOM), patience }
    }

    /// Reads a PROXY protocol header: the source it names, `None` if the socket's own is to be used.
    pub(super) async fn announced(&mut self, listener: &Listener) -> Result<Option<SocketAddr>, Unopened> {
        self.patience.begin(listener.header_timeout.min(PROXY_HEADER));
        loop {
            match proxy_protocol::parse(&self.seen).map_err(Unopened::Header)? {
                Progress::Incomplete => self.more().await.map_err(|_| Unopened::Ended)?,
                Progress::Complete { source, length } => {
                    let _ = self.seen.split_to(length);
                    return Ok(source);
                }
            }
        }
    }

    /// Reads as far as it takes to tell HTTP/2's preface from a request line. `None` if the connection ends first or speaks what it
    /// may not.
    pub(super) async fn protocol(mut self, listener: &Listener) -> Option<Opened> {
        if !listener.http2 {
            return Some(self.speaks(Protocol::Http1));
        }
        self.patience.begin(listener.header_timeout);
        loop {
            let compared = self.seen.len().min(PREFACE.len());
            if self.seen.get(..compared) != PREFACE.get(..compared) {
                return listener.http1.then(|| self.speaks(Protocol::Http1));
            }
            if compared == PREFACE.len() {
                return Some(self.speaks(Protocol::Http2));
            }
            self.more().await.ok()?;
        }
    }

    fn speaks(self, protocol: Protocol) -> Opened {
        Opened { transport: self.stream.into(), protocol, prefix: self.seen, certificate: None }
    }

    /// Reads what there is, waiting for it until the deadline.
    pub(super) async fn more(&mut self) -> io::Result<()> {
        let Self { stream, seen, patience } = self;
        if seen.len() == seen.capacity() {
            seen.reserve(ROOM);
        }
        let read = std::future::poll_fn(|cx| {
            let begun = !seen.is_empty();
            // The future has no state of its own, so a new one per poll is the same one.
            patience.poll(cx, begun, |cx| pin!(stream.read_buf(seen)).poll(cx))
        });
        match read.await?? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// How long a connection may take to say what it is.
#[derive(Debug)]
pub(super) struct Patience<'c> {
    closing: &'c Closing,
    deadline: Deadline,
    hurried: bool,
}

impl Patience<'_> {
    /// From now on.
    pub(super) fn begin(&mut self, most: Duration) {
        self.deadline.arm(most);
        // That deadline is shortened again if we are ending.
        self.hurried = false;
    }

    /// Polls `work` until the deadline. A connection that shall end is done at once if it has not begun, and has little time otherwise.
    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        begun: bool,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<io::Result<T>> {
        if self.closing.poll(cx) {
            if !begun {
                return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
            }
            if !std::mem::replace(&mut self.hurried, true) {
                self.deadline.arm(HURRY);
            }
        }
        match work(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => self.deadline.poll_due(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Does some work of a connection that has begun.
    pub(super) async fn bound<F: Future>(&mut self, work: F) -> io::Result<F::Output> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| self.poll(cx, true, |cx| work.as_mut().poll(cx))).await
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Enough for the preface, and for the usual PROXY protocol header.
const ROOM: usize = 256;
/// The standard wants at least 3 s; a load balancer sends its header at once.
const PROXY_HEADER: Duration = Duration::from_secs(5);
/// What a connection that has begun to say what it is may take to do so when it shall end.
const HURRY: Duration = Duration::from_secs(2);
