//! A client's socket as hyper sees it: with the timeouts hyper lacks, one write per small message, and one head at a time.
//!
//! hyper's own header timeout needs a timer per request and also ends idle connections. Here the socket knows what the
//! connection is up to ([`Progress`](crate::request::Progress)), so one coarse deadline serves for the head and for idling between
//! requests, and none runs while a request is being answered.
//!
//! In HTTP/1.1 hyper gets the bytes of one request and no more: what a client sends ahead (pipelining) is held back until the
//! response before it is out. So the socket sees where every head begins, which is what it takes to time half a head that came with
//! the request before it, and to see a fragment in a request target, which the parser drops without a word.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::transport::Transport;
use crate::clock::deadline::Deadline;
use crate::request::{BodyLeft, ConnInfo, Writer};
use crate::snapshot::Listener;

/// See the module.
#[derive(Debug)]
pub(super) struct ClientIo {
    stream: Transport,
    protocol: Protocol,
    conn: Rc<ConnInfo>,
    header_timeout: Duration,
    write_timeout: Duration,
    write_deadline: Deadline,
    write_waits: bool,
    head: HeadScan,
    /// Whether a chunked body has come.
    had_chunks: bool,
    joined: Vec<u8>,
    /// What hyper writes. It flushes when it has nothing left to write, and not before.
    writer: Writer,
    /// Read from the socket, not yet given to hyper.
    held: BytesMut,
    /// The client has closed its side.
    pub(super) ended: bool,
    /// It was idle for too long, or too slow with a head: nothing that it was promised is missing.
    pub(super) overdue: bool,
}

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

impl ClientIo {
    /// `prefix` has been read already, while finding out the protocol.
    pub(super) fn new(stream: Transport, prefix: BytesMut, protocol: Protocol, conn: Rc<ConnInfo>, listener: &Listener) -> Self {
        conn.progress.keep_alive.set(listener.keep_alive_timeout);
        conn.progress.deadline.arm(listener.header_timeout);
        Self {
            stream,
            protocol,
            conn,
            header_timeout: listener.header_timeout,
            write_timeout: listener.write_idle_timeout,
            write_deadline: Deadline::new(),
            write_waits: false,
            head: HeadScan::default(),
            had_chunks: false,
            joined: Vec::new(),
            writer: Writer::BetweenMessages,
            held: prefix,
            ended: false,
            overdue: false,
        }
    }

    pub(super) fn into_transport(self) -> Transport {
        self.stream
    }

    /// The connection, and what was read from it and not given to hyper.
    pub(super) fn into_parts(self) -> (Transport, BytesMut) {
        (self.stream, self.held)
    }

    /// Bytes held back, or else from the socket.
    fn poll_source(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() {
            let taken = self.held.len().min(buffer.remaining());
            buffer.put_slice(&self.held.split_to(taken));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => {
                self.ended |= buffer.filled().len() == before;
                self.conn.progress.heard.set(true);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // An HTTP/2 connection says goodbye first; see `connection`.
            Poll::Pending if self.protocol == Protocol::Http2 => Poll::Pending,
            Poll::Pending => {
                ready!(self.conn.progress.deadline.poll_due(cx));
                self.overdue = self.conn.progress.in_flight.get() == 0;
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }

    /// What is behind `keep` bytes of this read is for later.
    fn hold_back(&mut self, buffer: &mut ReadBuf<'_>, before: usize, keep: usize) {
        let read = buffer.filled().get(before..).unwrap_or_default();
        if let Some(rest) = read.get(keep..).filter(|rest| !rest.is_empty()) {
            let mut held = BytesMut::with_capacity(rest.len() + self.held.len());
            held.extend_from_slice(rest);
            held.extend_from_slice(&self.held);
            self.held = held;
            buffer.set_filled(before + keep);
        }
    }

    /// The bytes of a head, up to its end.
    fn poll_head(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.poll_source(cx, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if read.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let progress = &self.conn.progress;
        if !std::mem::replace(&mut self.head.started, true) {
            progress.deadline.arm(self.header_timeout);
        }
        let end = self.head.scan(read);
        progress.fragment_seen.set(self.head.fragment && !self.had_chunks);
        if let Some(end) = end {
            self.head = HeadScan::default();
            self.hold_back(buffer, before, end);
        }
        Poll::Ready(Ok(()))
    }

    /// Chunks came before: where they end and the next head begins, only the parser knows. So nothing is held back, and this connection's
    /// heads are no longer looked at for fragments, which could be anything; the parser drops them, and what is routed is what is
    /// forwarded.
    fn poll_unseen_head(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.had_chunks = true;
        let before = buffer.filled().len();
        ready!(self.poll_source(cx, buffer))?;
        if buffer.filled().len() > before && !std::mem::replace(&mut self.head.started, true) {
            self.conn.progress.deadline.arm(self.header_timeout);
        }
        Poll::Ready(Ok(()))
    }

    /// The bytes of a body, `left` at most.
    fn poll_body(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>, left: u64) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.poll_source(cx, buffer))?;
        let read = buffer.filled().len() - before;
        let keep = usize::try_from(left).unwrap_or(usize::MAX).min(read);
        let left = left - u64::try_from(keep).unwrap_or(left);
        self.conn.progress.body.set(if left == 0 { BodyLeft::Nothing } else { BodyLeft::Bytes(left) });
        self.hold_back(buffer, before, keep);
        Poll::Ready(Ok(()))
    }

    /// hyper only wants to know whether the client is still there. What the client sends ahead is kept, a bit of it; hyper is
    /// told that nothing has come, so it must be woken when it may look again.
    fn poll_presence(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The deadline runs again when the response is out, which hyper may not follow by another look.
        let _ = self.conn.progress.deadline.poll_due(cx);
        if !self.held.is_empty() {
            *self.conn.progress.held.borrow_mut() = Some(cx.waker().clone());
        }
        while self.held.len() < MAX_HELD {
            self.held.reserve(HELD_ROOM);
            // The future has no state of its own, so a new one per poll is the same one.
            if ready!(pin!(self.stream.read_buf(&mut self.held)).poll(cx))? == 0 {
                self.ended = true;
                return Poll::Ready(Ok(()));
            }
            *self.conn.progress.held.borrow_mut() = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Interim responses go first.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.conn.progress.interim.is_waiting() {
            return Poll::Ready(Ok(()));
        }
        let (conn, stream) = (Rc::clone(&self.conn), &mut self.stream);
        let written = conn.progress.interim.poll_write(self.writer, |bytes| Pin::new(&mut *stream).poll_write(cx, bytes));
        self.poll_written(cx, written)
    }

    /// A client that takes nothing has its own deadline.
    fn poll_written<T>(&mut self, cx: &Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
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
                    self.write_deadline.arm(self.write_timeout);
                }
                self.write_deadline.poll_due(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

/// Follows the lines of a head as they arrive.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct HeadScan {
    /// Whether a byte has come, be it of an empty line in front.
    started: bool,
    /// Bytes of the line so far, line ends not counted.
    line: usize,
    /// Whether the last byte was a CR, which may be half a line end and is then no part of the line.
    half_end: bool,
    /// Whether the request line is complete.
    past_first: bool,
    /// Whether the request line has a `#`.
    fragment: bool,
}

impl HeadScan {
    /// Takes in what has arrived; where the head ends in it, if it does.
    fn scan(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.take_in(bytes.get(from..end).unwrap_or_default());
            self.half_end = false;
            from = end + 1;
            match (self.line, self.past_first) {
                (0, true) => return Some(from),
                // Empty lines in front of a request are allowed (RFC 9112 §2.2).
                (0, false) => {}
                _ => self.past_first = true,
            }
            self.line = 0;
        }
        self.take_in(bytes.get(from..).unwrap_or_default());
        None
    }

    fn take_in(&mut self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        // What looked like half a line end was none: something else came behind it.
        self.line += usize::from(self.half_end);
        let text = piece.strip_suffix(b"\r");
        self.half_end = text.is_some();
        let piece = text.unwrap_or(piece);
        self.line += piece.len();
        self.fragment |= !self.past_first && memchr::memchr(b'#', piece).is_some();
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let progress = &this.conn.progress;
        match (this.protocol, progress.body.get(), progress.in_flight.get()) {
            (Protocol::Http2, ..) => this.poll_source(cx, buffer),
            (_, BodyLeft::Unknown, 1..) => {
                this.head = HeadScan::default();
                this.poll_source(cx, buffer)
            }
            (_, BodyLeft::Bytes(left), _) => this.poll_body(cx, buffer, left),
            (_, BodyLeft::Nothing, 0) => this.poll_head(cx, buffer),
            (_, BodyLeft::Nothing, _) => this.poll_presence(cx),
            (_, BodyLeft::Unknown, 0) => this.poll_unseen_head(cx, buffer),
        }
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_interim(cx))?;
        this.writer = Writer::WithinMessage;
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.poll_written(cx, written)
    }

    /// A head and a small body in one `send`: cheaper than `writev`, which pays only for large bodies.
    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_interim(cx))?;
        this.writer = Writer::WithinMessage;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        let written = match parts {
            [only] => Pin::new(&mut this.stream).poll_write(cx, only),
            _ if total <= COALESCE => {
                // Kept from message to message, so that joining costs a copy and nothing else.
                this.joined.clear();
                parts.iter().for_each(|part| this.joined.extend_from_slice(part));
                Pin::new(&mut this.stream).poll_write(cx, &this.joined)
            }
            _ => Pin::new(&mut this.stream).poll_write_vectored(cx, parts),
        };
        this.poll_written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.writer = Writer::BetweenMessages;
        ready!(this.poll_interim(cx))?;
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.poll_written(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.poll_written(cx, shut)
    }
}

/// Measured: below this, copying and one `send` beats `writev`.
const COALESCE: usize = 4 << 10;
/// A client may be this far ahead; then it waits, by TCP's own means.
const MAX_HELD: usize = 16 << 10;
const HELD_ROOM: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The end of the head in all pieces together, and whether a fragment was seen.
    fn scan(pieces: &[&str]) -> (Option<usize>, bool) {
        let mut head = HeadScan::default();
        let mut before = 0;
        for piece in pieces {
            if let Some(end) = head.scan(piece.as_bytes()) {
                return (Some(before + end), head.fragment);
            }
            before += piece.len();
        }
        (None, head.fragment)
    }

    #[test]
    fn a_head_ends_where_the_parser_ends_it_however_it_is_cut() {
        for text in ["GET / HTTP/1.1\r\nx: y\r\n\r\n", "\r\n\nGET / HTTP/1.1\nx: y\n\n", "GET / HTTP/1.1\r\nx: y\n\r\n"] {
            let both = format!("{text}GET /2 HTTP/1.1\r\n\r\n");
            for cut in 0..both.len() {
                let (a, b) = both.split_at(cut);
                assert_eq!(scan(&[a, b]), (Some(text.len()), false), "{text:?} cut at {cut}");
            }
        }
        assert_eq!(scan(&["GET / HTTP/1.1\r\nx: y\r\n"]).0, None);
    }

    #[test]
    fn a_fragment_is_seen_in_the_request_line_and_nowhere_else() {
        assert!(scan(&["GET /a#b HTTP/1.1\r\n"]).1);
        assert!(scan(&["\r\n\r\nGET /", "a#", "b HTTP/1.1\r\n"]).1);
        assert!(!scan(&["GET /a HTTP/1.1\r\nx: #\r\n\r\n"]).1);
        assert!(!scan(&["GET /a HTTP/1.1\r", "\nx: #\r\n"]).1);
    }

    /// A head, and whatever somebody does to it.
    fn a_head() -> impl Strategy<Value = Vec<u8>> {
        let line = proptest::sample::select(&["a: b\r\n", "x: #\n", "y:\r\n", " z: 1\r\n", "\r", "q: \r1\r\n"]);
        let first =
            proptest::sample::select(&["GET / HTTP/1.1\r\n", "\r\nGET /#x HTTP/1.1\r\n", "\n\r\nPOST /a HTTP/1.1\n", "GET /"]);
        (first, proptest::collection::vec(line, 0..4), proptest::sample::select(&["\r\n", "\n", "\r"]), "[a-z#\\r\\n]{0,9}")
            .prop_map(|(first, lines, end, behind)| [first, &lines.concat(), end, &behind].concat().into_bytes())
    }

    #[test]
    fn a_carriage_return_is_half_a_line_end_only_before_the_other_half() {
        assert_eq!(scan(&["GET / HTTP/1.1\r\n\r", "\r\n"]).0, None);
        assert_eq!(scan(&["GET / HTTP/1.1\r\n\r", "\n"]).0, Some(18));
        assert_eq!(scan(&["GET / HTTP/1.1\r", "\n", "\r", "\n"]).0, Some(18));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Who disagreed with the parser on where a head ends would hold back its bytes, or take the next request's.
        #[test]
        fn a_head_ends_where_the_parser_ends_it(bytes in a_head()) {
            let mut fields = [httparse::EMPTY_HEADER; 16];
            let mut request = httparse::Request::new(&mut fields);
            if let Ok(httparse::Status::Complete(end)) = request.parse(&bytes) {
                let mut head = HeadScan::default();
                prop_assert_eq!(head.scan(&bytes), Some(end), "{:?}", String::from_utf8_lossy(&bytes));
                prop_assert_eq!(head.fragment, request.path.is_some_and(|path| path.contains('#')));
            }
        }

        #[test]
        fn cuts_change_nothing(bytes in a_head(), cut: usize) {
            let (a, b) = bytes.split_at(cut % (bytes.len() + 1));
            let (mut whole, mut pieces) = (HeadScan::default(), HeadScan::default());
            let at_once = whole.scan(&bytes);
            let in_two = pieces.scan(a).or_else(|| pieces.scan(b).map(|end| a.len() + end));
            prop_assert_eq!((at_once, whole.fragment), (in_two, pieces.fragment));
        }
    }
}
