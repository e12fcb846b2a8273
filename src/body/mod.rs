//! The bodies that pass through the gateway.
//!
//! [`RequestBody`] wraps what a client sends: a size cap, an idle timeout and a least pace. [`Body`] is the one type of every response,
//! the gateway's own and upstream's; dropping it, at its end or before, drops the guard that travels with it, which is how
//! a concurrency slot is held to the last byte. [`usage`] reads a number out of a response that passes by. This module knows
//! neither clients nor upstreams: the source is a parameter.

mod client;
mod pace;
mod tap;
mod unread;
pub mod usage;

use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use crate::clock::deadline::Deadline;
pub use client::ClientStream;
use pace::Pace;
pub use tap::{BodyCopy, CopyTooLarge, Tap};
pub use unread::{LINGER, LINGER_BYTES, Unread};

/// Why a request body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestBodyError {
    /// Larger than the route allows.
    #[error("request body is larger than allowed")]
    TooLarge,
    /// Nothing came for too long.
    #[error("request body stalled")]
    Idle,
    /// Slower than allowed.
    #[error("request body is too slow")]
    TooSlow,
    /// Framing that can't be read.
    #[error("request body is malformed")]
    Malformed,
    /// The client went away.
    #[error("client closed the connection")]
    Aborted,
}

/// A client's body, bounded in size and patience. `B` is a [`ClientStream`] outside of tests.
#[derive(Debug)]
pub struct RequestBody<B> {
    inner: B,
    left: u64,
    idle: Deadline,
    pace: Pace,
    armed: bool,
    tap: Option<Box<Tapped>>,
}

/// Who looks on, and how many bytes are still to come if that is known.
#[derive(Debug)]
struct Tapped {
    tap: Box<dyn Tap>,
    left: Option<u64>,
    next: Option<Box<Self>>,
}

impl<B> RequestBody<B> {
    /// At most `max` bytes, and never more than `patience` between two of them.
    #[must_use]
    pub fn new(inner: B, max: u64, patience: Duration) -> Self {
        Self { inner, left: max, idle: Deadline::new(), pace: Pace::new(patience), armed: false, tap: None }
    }

    /// And on average at least `rate` bytes per second over any stretch that is longer than the patience.
    #[must_use]
    pub fn at_least(mut self, rate: Option<NonZeroU32>) -> Self {
        self.pace = self.pace.at_least(rate);
        self
    }

    /// Lets somebody look on. Who knows the body's `length` may stop reading behind its last byte.
    pub fn tap(&mut self, tap: Box<dyn Tap>, length: Option<u64>) {
        self.tap = Some(Box::new(Tapped { tap, left: length, next: self.tap.take() }));
    }

    /// From now on it may come as slowly as it likes.
    pub fn take_your_time(&mut self) {
        self.pace = Pace::new(Duration::MAX);
        self.armed = false;
    }

    /// Takes account of a piece of this length, and of how long it was waited for.
    fn came(&mut self, length: u64) {
        let waited = if self.armed { self.idle.elapsed(self.pace.wait().0) } else { Duration::ZERO };
        self.armed = false;
        self.pace.received(length, waited);
    }
}

impl<B> http_body::Body for RequestBody<B>
where
    B: http_body::Body<Data = Bytes, Error = RequestBodyError> + Unpin,
{
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            let (wait, fault) = this.pace.wait();
            if !this.armed {
                this.idle.arm(wait);
                this.armed = true;
            }
            ready!(this.idle.poll_due(cx));
            return Poll::Ready(Some(Err(fault)));
        };
        Poll::Ready(match frame {
            None => {
                if let Some(tapped) = &mut this.tap {
                    tapped.ended();
                }
                None
            }
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
                this.came(length);
                match this.left.checked_sub(length) {
                    Some(left) => {
                        this.left = left;
                        if let Some(tapped) = &mut this.tap {
                            tapped.passed(&frame, length, this.inner.is_end_stream());
                        }
                        Some(Ok(frame))
                    }
                    None => Some(Err(RequestBodyError::TooLarge)),
                }
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Tapped {
    fn passed(&mut self, frame: &Frame<Bytes>, length: u64, was_last: bool) {
        if let Some(data) = frame.data_ref() {
            self.tap.passed(data);
        }
        self.left = self.left.map(|left| left.saturating_sub(length));
        if was_last || frame.is_trailers() || self.left == Some(0) {
            self.tap.ended();
        }
        if let Some(next) = &mut self.next {
            next.passed(frame, length, was_last);
        }
    }

    fn ended(&mut self) {
        self.tap.ended();
        if let Some(next) = &mut self.next {
            next.ended();
        }
    }
}

/// How a response's body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// To the last byte.
    Complete,
    /// Its source failed.
    Failed,
    /// The client left before.
    Aborted,
}

/// Travels with a body, is told how it ended, and is dropped then.
pub trait EndOfBody {
    /// Called with every piece that passes.
    fn passed(&mut self, data: &Bytes);

    /// Called with the trailers, if there are any.
    fn trailed(&mut self, trailers: &HeaderMap);

    /// Called exactly once, just before the drop.
    fn ended(&mut self, end: End);
}

impl<G: EndOfBody> EndOfBody for Box<G> {
    fn passed(&mut self, data: &Bytes) {
        (**self).passed(data);
    }

    fn trailed(&mut self, trailers: &HeaderMap) {
        (**self).trailed(trailers);
    }

    fn ended(&mut self, end: End) {
        (**self).ended(end);
    }
}

/// Nobody waits for the end of a body whose end means nothing: that of an answer behind which the connection goes on as something else.
impl<G: EndOfBody> EndOfBody for Option<G> {
    fn passed(&mut self, data: &Bytes) {
        if let Some(guard) = self {
            guard.passed(data);
        }
    }

    fn trailed(&mut self, trailers: &HeaderMap) {
        if let Some(guard) = self {
            guard.trailed(trailers);
        }
    }

    fn ended(&mut self, end: End) {
        if let Some(guard) = self {
            guard.ended(end);
        }
    }
}

/// A response's body: bytes at hand, or a stream `S`. Dropping it, which is done at its end or when the client has
/// left, ends the guard `G`.
#[derive(Debug)]
pub struct Body<S: http_body::Body, G: EndOfBody> {
    source: Source<S>,
    failed: bool,
    guard: G,
}

#[derive(Debug)]
enum Source<S> {
    Full(Bytes),
    Stream(S),
}

impl<S: http_body::Body, G: EndOfBody> Body<S, G> {
    /// Bytes at hand; may be empty.
    pub fn full(bytes: Bytes, guard: G) -> Self {
        Self { source: Source::Full(bytes), failed: false, guard }
    }

    /// A stream.
    pub fn stream(stream: S, guard: G) -> Self {
        Self { source: Source::Stream(stream), failed: false, guard }
    }

    fn at_end(&self) -> bool {
        match &self.source {
            Source::Full(bytes) => bytes.is_empty(),
            Source::Stream(stream) => stream.is_end_stream(),
        }
    }
}

impl<S, G> http_body::Body for Body<S, G>
where
    S: http_body::Body<Data = Bytes> + Unpin,
    G: EndOfBody + Unpin,
{
    type Data = Bytes;
    type Error = S::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, S::Error>>> {
        let this = self.get_mut();
        match &mut this.source {
            Source::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Full(bytes) => {
                this.guard.passed(bytes);
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
            Source::Stream(stream) => {
                let frame = ready!(Pin::new(stream).poll_frame(cx));
                match &frame {
                    Some(Ok(frame)) => {
                        if let Some(data) = frame.data_ref() {
                            this.guard.passed(data);
                        } else if let Some(trailers) = frame.trailers_ref() {
                            this.guard.trailed(trailers);
                        }
                    }
                    Some(Err(_)) => this.failed = true,
                    None => {}
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.at_end()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Full(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            Source::Stream(stream) => stream.size_hint(),
        }
    }
}

impl<S: http_body::Body, G: EndOfBody> Drop for Body<S, G> {
    fn drop(&mut self) {
        let end = match (self.failed, self.at_end()) {
            (true, _) => End::Failed,
            (false, true) => End::Complete,
            (false, false) => End::Aborted,
        };
        self.guard.ended(end);
    }
}
