//! The first bytes of a connection: a PROXY protocol header where one is due, then which protocol is spoken.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;

use super::connection::Closing;
use super::io::Protocol;
use super::proxy_protocol::{self, HeaderFault, Progress};
use crate::clock::deadline::Deadline;
use crate::snapshot::Listener;
use crate::socket::Stream;

/// A connection of which it is not known yet what it is.
#[derive(Debug)]
pub(super) struct Opening<'c> {
    stream: Stream,
    closing: &'c Closing,
    /// Read, and not yet taken.
    seen: BytesMut,
    deadline: Deadline,
    hurried: bool,
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
        Self { stream, closing, seen: BytesMut::with_capacity(ROOM), deadline: Deadline::new(), hurried: false }
    }

    /// Reads a PROXY protocol header: the source it names, `None` if the socket's own is to be used.
    pub(super) async fn announced(&mut self, listener: &Listener) -> Result<Option<SocketAddr>, Unopened> {
        self.deadline.arm(listener.header_timeout.min(PROXY_HEADER));
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

    /// Reads as far as it takes to tell HTTP/2's preface from a request line; with what has been read. `None` if the connection ends
    /// first or speaks what it may not.
    pub(super) async fn protocol(mut self, listener: &Listener) -> Option<(Stream, Protocol, BytesMut)> {
        if !listener.http2 {
            return Some((self.stream, Protocol::Http1, self.seen));
        }
        self.deadline.arm(listener.header_timeout);
        // That deadline is shortened again if we are ending.
        self.hurried = false;
        loop {
            let compared = self.seen.len().min(PREFACE.len());
            if self.seen.get(..compared) != PREFACE.get(..compared) {
                return listener.http1.then_some((self.stream, Protocol::Http1, self.seen));
            }
            if compared == PREFACE.len() {
                return Some((self.stream, Protocol::Http2, self.seen));
            }
            self.more().await.ok()?;
        }
    }

    /// Reads what there is, waiting for it until the deadline. A connection that shall end is done at once if it has said nothing yet,
    /// and has little time otherwise.
    async fn more(&mut self) -> io::Result<()> {
        let Self { stream, closing, seen, deadline, hurried } = self;
        if seen.len() == seen.capacity() {
            seen.reserve(ROOM);
        }
        let read = std::future::poll_fn(|cx| {
            if closing.poll(cx) {
                if seen.is_empty() {
                    return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
                }
                if !std::mem::replace(hurried, true) {
                    deadline.arm(HURRY);
                }
            }
            // The future has no state of its own, so a new one per poll is the same one.
            match pin!(stream.read_buf(seen)).poll(cx) {
                Poll::Ready(read) => Poll::Ready(read),
                Poll::Pending => deadline.poll_due(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
            }
        });
        match read.await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Enough for the preface, and for the usual PROXY protocol header.
const ROOM: usize = 256;
/// The standard wants at least 3 s; a load balancer sends its header at once.
const PROXY_HEADER: Duration = Duration::from_secs(5);
/// What a connection that has begun to say what it is may take to do so when it shall end.
const HURRY: Duration = Duration::from_secs(2);
