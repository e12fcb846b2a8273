//! A client's socket as hyper sees it: with the timeouts hyper lacks, one write per small message, and an eye on what the
//! parser drops.
//!
//! hyper's own header timeout needs a timer per request and also ends idle connections. Here the socket knows what the
//! connection is up to ([`Progress`](crate::request::Progress)), so one coarse deadline serves for the head, for idling between
//! requests, and none runs while a request is being answered.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::clock::deadline::Deadline;
use crate::request::ConnInfo;
use crate::snapshot::Listener;

/// See the module.
#[derive(Debug)]
pub(super) struct ClientIo {
    stream: TcpStream,
    /// Read while finding out the protocol.
    prefix: Bytes,
    protocol: Protocol,
    conn: Rc<ConnInfo>,
    listener: Arc<Listener>,
    read_deadline: Deadline,
    armed: Armed,
    write_deadline: Deadline,
    write_waits: bool,
    line: Line,
    /// The client has closed its side.
    pub(super) ended: bool,
}

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// What the read deadline runs for, and since which request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Head(u64),
    Idle(u64),
}

/// How far into a request line the scan for fragments is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Before,
    Within,
    Behind,
}

impl ClientIo {
    pub(super) fn new(stream: TcpStream, prefix: Bytes, protocol: Protocol, conn: Rc<ConnInfo>, listener: Arc<Listener>) -> Self {
        Self {
            stream,
            prefix,
            protocol,
            conn,
            listener,
            read_deadline: Deadline::new(),
            armed: Armed::No,
            write_deadline: Deadline::new(),
            write_waits: false,
            line: Line::Before,
            ended: false,
        }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    fn saw(&mut self, bytes: &[u8]) {
        let progress = &self.conn.progress;
        if self.protocol == Protocol::Http2 || progress.in_flight.get() > 0 {
            return;
        }
        if !progress.reading_head.replace(true) {
            self.line = Line::Before;
            progress.fragment_seen.set(false);
        }
        if self.line != Line::Behind && scan_line(&mut self.line, bytes) {
            progress.fragment_seen.set(true);
        }
    }

    /// Runs the deadline that fits what the connection is up to.
    fn poll_patience(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let progress = &self.conn.progress;
        if progress.in_flight.get() > 0 {
            if self.armed != Armed::No {
                self.armed = Armed::No;
                self.read_deadline.disarm();
            }
            return Poll::Pending;
        }
        let begun = progress.begun.get();
        let (wanted, patience) = if progress.reading_head.get() {
            (Armed::Head(begun), self.listener.header_timeout)
        } else {
            (Armed::Idle(begun), self.listener.keep_alive_timeout)
        };
        if self.armed != wanted {
            self.armed = wanted;
            self.read_deadline.arm(patience);
        }
        self.read_deadline.poll_due(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_written(&mut self, cx: &Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(result) => {
                if self.write_waits {
                    self.write_waits = false;
                    self.write_deadline.disarm();
                }
                Poll::Ready(result)
            }
            Poll::Pending => {
                if !self.write_waits {
                    self.write_waits = true;
                    self.write_deadline.arm(self.listener.write_idle_timeout);
                }
                self.write_deadline.poll_due(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

/// Looks for `#` up to the end of the first line; empty lines in front are allowed. True once it is found.
fn scan_line(line: &mut Line, bytes: &[u8]) -> bool {
    for byte in bytes {
        match (*line, byte) {
            (Line::Before, b'\r' | b'\n') => {}
            (_, b'\n') => {
                *line = Line::Behind;
                return false;
            }
            (_, b'#') => return true,
            _ => *line = Line::Within,
        }
    }
    false
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if this.prefix.is_empty() {
            match Pin::new(&mut this.stream).poll_read(cx, buffer) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return this.poll_patience(cx),
            }
        } else {
            let taken = this.prefix.len().min(buffer.remaining());
            buffer.put_slice(this.prefix.get(..taken).unwrap_or_default());
            this.prefix.advance(taken);
        }
        let read = buffer.filled().get(before..).unwrap_or_default();
        if read.is_empty() {
            this.ended = true;
        } else {
            this.saw(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.poll_written(cx, written)
    }

    /// A head and a small body in one `send`: cheaper than `writev`, which pays only for large bodies.
    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let written = match parts {
            [only] => Pin::new(&mut this.stream).poll_write(cx, only),
            _ if total <= COALESCE => {
                let mut joined = [0; COALESCE];
                let mut at = 0;
                for part in parts {
                    if let Some(room) = joined.get_mut(at..at + part.len()) {
                        room.copy_from_slice(part);
                        at += part.len();
                    }
                }
                Pin::new(&mut this.stream).poll_write(cx, joined.get(..at).unwrap_or_default())
            }
            _ => Pin::new(&mut this.stream).poll_write_vectored(cx, parts),
        };
        this.poll_written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A TCP stream has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Measured: below this, copying and one `send` beats `writev`.
const COALESCE: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(pieces: &[&str]) -> bool {
        let mut line = Line::Before;
        pieces.iter().any(|piece| line != Line::Behind && scan_line(&mut line, piece.as_bytes()))
    }

    #[test]
    fn a_fragment_is_seen_in_the_request_line_and_nowhere_else() {
        assert!(scan(&["GET /a#b HTTP/1.1\r\n"]));
        assert!(scan(&["\r\n\r\nGET /", "a#", "b HTTP/1.1\r\n"]));
        assert!(!scan(&["GET /a HTTP/1.1\r\nx: #\r\n"]));
        assert!(!scan(&["GET /a HTTP/1.1\r", "\nx: #\r\n"]));
    }
}
