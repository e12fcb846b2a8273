//! HTTP/1.1 towards upstream: one exchange on one connection, without a task of its own.
//!
//! Our own codec, because it is the larger part of what a proxy adds per request (docs/performance.md), and because a
//! gateway must see what a client library hides: interim responses, doubled framing, bytes behind the end. Heads are parsed by
//! httparse; what may be forwarded is decided in [`headers`](crate::headers).
//!
//! [`Exchange`] sends the head and the client's body while it waits for the response's head; [`Download`](super::download) then takes the
//! response's body, upload still going on if need be. Nothing is buffered beyond one read and one write in flight, so
//! backpressure goes through in both directions.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, Method};
use http_body::Body as _;
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::Heads;
use super::announce::Announced;
use super::chunked;
use super::payload::Payload;
use super::pool::Counted;
use super::transport::Transport;
use crate::body::{ClientStream, RequestBody, RequestBodyError, Unread};
use crate::clock::deadline::Deadline;
use crate::headers::{EndToEndHead, Framing, Offer, ResponseHead};

/// What a client sends as body.
pub type ClientBody = RequestBody<Unread<ClientStream>>;

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Upstream closed before a single byte of the response: on a used connection, usually the keep-alive race.
    #[error("upstream closed the connection before it answered")]
    Closed,
    /// The connection broke.
    #[error("connection to upstream: {0}")]
    Io(#[from] io::Error),
    /// Upstream took too long.
    #[error("upstream took too long")]
    Timeout,
    /// What came is not HTTP that may be forwarded.
    #[error("upstream sent an invalid response: {0}")]
    Invalid(&'static str),
    /// It is the client's body that failed.
    #[error("request body: {0}")]
    RequestBody(RequestBodyError),
    /// Upstream has reset the stream, with this code of RFC 9113 §7. The `h2` crate's own error is not kept as a source: hyper would
    /// pass its code on to a client, to whom `REFUSED_STREAM` says that nothing has happened.
    #[error("upstream reset the stream: code {0}")]
    Reset(u32),
    /// Upstream has refused the stream and done nothing with it.
    #[error("upstream refused the stream")]
    Refused,
    /// The request can't be said in the protocol that upstream speaks.
    #[error("the request has no form in HTTP/2")]
    Unsayable,
}

/// A connection to an endpoint.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Transport,
    pub(super) read: BytesMut,
    pub(super) deadline: Deadline,
    /// Whether it has carried an exchange before.
    pub(super) reused: bool,
    /// When it takes no more requests, in its pool's time.
    pub(super) ends: Duration,
    /// Whom it speaks for, if it speaks for anybody.
    pub(super) announced: Option<Box<Announced>>,
    /// Its place in the count of connections.
    _counted: Counted,
}

/// One request and its response.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) connection: Connection,
    upload: Upload,
    waits_for_client: bool,
    pub(super) patience: Duration,
    pub(super) total: Option<Rc<Deadline>>,
}

/// What is still to be sent.
#[derive(Debug)]
struct Upload {
    /// Sent in this order, each part possibly empty: head or chunk size, data, end of chunk.
    pending: [Bytes; 3],
    source: Source,
    /// Whether upstream has taken something since this was last looked at.
    sent: bool,
    /// Which trailers may follow.
    head: EndToEndHead,
}

#[derive(Debug)]
enum Source {
    /// Nothing more will come.
    Done,
    /// Upstream doesn't read any more; its answer may still be there.
    Broken,
    Length(Payload, u64),
    Chunked(Payload),
}

impl Connection {
    pub(super) fn new(stream: Transport, counted: Counted, ends: Duration) -> Self {
        let (read, deadline) = (BytesMut::new(), Deadline::new());
        Self { stream, read, deadline, reused: false, ends, announced: None, _counted: counted }
    }

    /// Whether nothing has happened on it since its last exchange.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet()
    }

    /// Reads once into the buffer; 0 is the end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        self.read.reserve(room);
        // The future has no state of its own, so a new one per poll is the same one.
        pin!(self.stream.read_buf(&mut self.read)).poll(cx)
    }
}

impl Exchange {
    pub(super) fn new(
        connection: Connection,
        head: EndToEndHead,
        framing: Framing,
        body: Option<Payload>,
        patience: Duration,
        total: Option<Rc<Deadline>>,
    ) -> Self {
        let source = match (framing, body) {
            (Framing::Length(length), Some(body)) if length > 0 => Source::Length(body, length),
            (Framing::Chunked, Some(body)) => Source::Chunked(body),
            _ => Source::Done,
        };
        let pending = [head.bytes(), Bytes::new(), Bytes::new()];
        connection.deadline.arm(patience);
        Self { connection, upload: Upload { pending, source, sent: false, head }, waits_for_client: false, patience, total }
    }

    /// Sends the request and waits for the final response's head, which may be a 101 that takes the `offer`, if there is one.
    /// Interim responses are the `heads`' to pass on; they change nothing about how long upstream may take.
    pub(super) async fn head(
        &mut self,
        method: &Method,
        offer: Option<&Offer>,
        heads: &dyn Heads,
    ) -> Result<(ResponseHead, Bytes), ExchangeError> {
        a_turn().await;
        let mut interim = 0;
        loop {
            let (head, rest) = std::future::poll_fn(|cx| self.poll_head(method, cx)).await?;
            match head.status.as_u16() {
                101 if offer.is_none() => return Err(ExchangeError::Invalid("it switched protocols unasked")),
                101 if !self.upload_done() || !offer.is_some_and(|offer| offer.is_taken(&head.headers)) => {
                    return Err(ExchangeError::Invalid("it switched protocols in another way than it was asked to"));
                }
                100 | 102..200 if interim < MAX_INTERIM => {
                    interim += 1;
                    heads.interim(&head);
                    self.connection.read = into_mut(rest);
                }
                100 | 102..200 => return Err(ExchangeError::Invalid("it sent too many interim responses")),
                _ => {
                    self.connection.deadline.disarm();
                    return Ok((head, rest));
                }
            }
        }
    }

    /// A complete head, and what was read behind it.
    fn poll_head(&mut self, method: &Method, cx: &mut Context<'_>) -> Poll<Result<(ResponseHead, Bytes), ExchangeError>> {
        loop {
            self.poll_upload(cx)?;
            if !self.connection.read.is_empty() {
                let raw = std::mem::take(&mut self.connection.read).freeze();
                if let Some((head, length)) = parse(&raw, method)? {
                    return Poll::Ready(Ok((head, raw.slice(length..))));
                }
                self.connection.read = into_mut(raw);
            }
            if self.connection.read.len() > MAX_HEAD {
                return Poll::Ready(Err(ExchangeError::Invalid("its head is too large")));
            }
            match self.connection.poll_fill(cx, HEAD_ROOM) {
                Poll::Ready(Ok(0)) if self.connection.read.is_empty() => return Poll::Ready(Err(ExchangeError::Closed)),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(ExchangeError::Invalid("it closed within the head"))),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) if self.connection.read.is_empty() && is_gone(&error) => {
                    return Poll::Ready(Err(ExchangeError::Closed));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    ready!(self.poll_overdue(cx));
                    return Poll::Ready(Err(ExchangeError::Timeout));
                }
            }
        }
    }

    pub(super) fn poll_overdue(&self, cx: &Context<'_>) -> Poll<()> {
        if let Some(total) = &self.total
            && total.poll_due(cx).is_ready()
        {
            return Poll::Ready(());
        }
        self.connection.deadline.poll_due(cx)
    }

    /// Whether the time for the whole exchange is over.
    pub(super) fn is_out_of_total(&self) -> bool {
        super::is_out_of(self.total.as_ref())
    }

    /// Sends as much as goes. Upstream's time runs while it has something to read or to answer, and not while everybody waits for
    /// the client.
    pub(super) fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError> {
        loop {
            match self.upload.poll_send(&mut self.connection.stream, cx) {
                Poll::Pending => {
                    self.waits_for_client = false;
                    if std::mem::take(&mut self.upload.sent) {
                        self.connection.deadline.arm(self.patience);
                    } else {
                        self.connection.deadline.arm_if_idle(self.patience);
                    }
                    return Ok(());
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    // It may have answered before it stopped reading (413, say): what comes decides, not this error.
                    self.upload.give_up();
                    return Ok(());
                }
            }
            match self.upload.poll_next(cx) {
                Poll::Ready(Ok(true)) => {
                    self.waits_for_client = false;
                    self.connection.deadline.arm(self.patience);
                }
                Poll::Ready(Ok(false)) => return Ok(()),
                Poll::Pending => {
                    if !std::mem::replace(&mut self.waits_for_client, true) {
                        self.connection.deadline.disarm();
                    }
                    return Ok(());
                }
                Poll::Ready(Err(error)) => return Err(ExchangeError::RequestBody(error)),
            }
        }
    }

    /// Whether the client's body is still on its way.
    pub(super) fn is_uploading(&self) -> bool {
        !matches!(self.upload.source, Source::Broken) && !self.upload_done()
    }

    pub(super) fn upload_done(&self) -> bool {
        matches!(self.upload.source, Source::Done) && self.upload.pending.iter().all(Bytes::is_empty)
    }
}

impl Upload {
    /// Sends nothing more.
    fn give_up(&mut self) {
        self.pending = Default::default();
        self.source = Source::Broken;
    }

    /// Sends what is pending; ready when nothing is.
    fn poll_send(&mut self, stream: &mut Transport, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let [first, second, third] = &self.pending;
            let written = match (second.is_empty(), third.is_empty()) {
                (true, true) if first.is_empty() => return Pin::new(stream).poll_flush(cx),
                (true, true) => ready!(Pin::new(&mut *stream).poll_write(cx, first))?,
                _ => {
                    let parts = [first, second, third].map(|part| IoSlice::new(part));
                    ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &parts))?
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent = true;
            let mut left = written;
            for part in &mut self.pending {
                let taken = left.min(part.len());
                part.advance(taken);
                left -= taken;
            }
        }
    }

    /// Takes the next piece of the client's body; `false` when there is none left.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, RequestBodyError>> {
        let (body, left) = match &mut self.source {
            Source::Done | Source::Broken => return Poll::Ready(Ok(false)),
            Source::Length(body, left) => (body, Some(left)),
            Source::Chunked(body) => (body, None),
        };
        let frame = ready!(Pin::new(body).poll_frame(cx)).transpose()?;
        match (frame.map(http_body::Frame::into_data), left) {
            (Some(Ok(data)), Some(left)) => {
                *left = left.checked_sub(length_of(&data)).ok_or(RequestBodyError::Malformed)?;
                let done = *left == 0;
                self.pending = [Bytes::new(), data, Bytes::new()];
                if done {
                    self.source = Source::Done;
                }
            }
            // Fewer bytes than announced: upstream must not take this for the whole.
            (None, Some(_)) => return Poll::Ready(Err(RequestBodyError::Aborted)),
            (Some(Err(_)), Some(_)) => {}
            (Some(Ok(data)), None) => self.pending = chunked::encode(data),
            (Some(Err(frame)), None) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let allowed = |name: &HeaderName| self.head.allows_trailer(name);
                self.pending = [chunked::encode_end(&trailers, allowed), Bytes::new(), Bytes::new()];
                self.source = Source::Done;
            }
            (None, None) => {
                self.pending = [chunked::encode_end(&HeaderMap::new(), |_| true), Bytes::new(), Bytes::new()];
                self.source = Source::Done;
            }
        }
        Poll::Ready(Ok(true))
    }
}

/// Lets everything else that is ready run first. So a worker reads all that has come in and then sends it on in one go, and an upstream on the
/// same machine is woken once for all of it, not once for each request: see docs/performance.md for what that saves.
/// `yield_now` would ask the system for events in between.
async fn a_turn() {
    let mut has_waited = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The head at the front of `raw` and its length; `None` while it is incomplete.
pub(super) fn parse(raw: &Bytes, method: &Method) -> Result<Option<(ResponseHead, usize)>, ExchangeError> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    match httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, raw, &mut fields) {
        Ok(httparse::Status::Complete(length)) => {
            let head = ResponseHead::new(&parsed, raw, method);
            Ok(Some((head.map_err(|fault| ExchangeError::Invalid(fault.words()))?, length)))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(ExchangeError::Invalid("its head has too many fields")),
        Err(_) => Err(ExchangeError::Invalid("its head is not HTTP")),
    }
}

/// Without a copy, unless somebody else still looks at the bytes.
fn into_mut(bytes: Bytes) -> BytesMut {
    bytes.try_into_mut().unwrap_or_else(|bytes| BytesMut::from(&*bytes))
}

/// The last is how TLS calls an end without a word.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
}

pub(super) fn length_of(data: &Bytes) -> u64 {
    u64::try_from(data.len()).unwrap_or(u64::MAX)
}

/// As many as hyper accepts from clients.
const MAX_FIELDS: usize = 100;
const MAX_HEAD: usize = 64 << 10;
/// One read takes a head and a small body.
pub(super) const HEAD_ROOM: usize = 4 << 10;
/// More interim responses than this are a flood.
const MAX_INTERIM: u32 = 32;
