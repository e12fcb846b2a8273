//! The body of a request on its way into a stream: a piece is taken from the client when the one before has gone into upstream's window.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http::HeaderMap;
use http_body::Body as _;
use tokio::task::JoinHandle;

use super::super::chunked::may_be_trailer;
use super::super::http1::length_of;
use super::super::payload::Payload;
use crate::body::RequestBodyError;
use crate::clock::deadline::Deadline;
use crate::headers::{AllowedTrailers, Framing};

/// What is still to be sent.
#[derive(Debug)]
pub(super) struct Upload {
    stream: SendStream<Bytes>,
    /// Taken from the client, not yet within upstream's window.
    pending: Bytes,
    /// It is the last.
    ends: bool,
    source: Source,
    trailers: AllowedTrailers,
    /// Whether upstream has taken something since this was last looked at.
    pub(super) sent: bool,
}

#[derive(Debug)]
enum Source {
    /// Nothing more will come, or upstream takes nothing more.
    Done,
    /// The client's body, and how much of it is still to come, if that is known.
    Body(Payload, Option<u64>),
}

/// For whom an upload waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Client,
    Upstream,
}

impl Upload {
    /// `body` is `None` if the stream has ended with the head.
    pub(super) fn new(stream: SendStream<Bytes>, body: Option<Payload>, framing: Framing, trailers: AllowedTrailers) -> Self {
        let left = match framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::None => None,
        };
        let source = body.map_or(Source::Done, |body| Source::Body(body, left));
        Self { stream, pending: Bytes::new(), ends: false, source, trailers, sent: false }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.source, Source::Done) && self.pending.is_empty()
    }

    /// For whom it waits, while it is pending.
    pub(super) fn turn(&self) -> Turn {
        if self.pending.is_empty() { Turn::Client } else { Turn::Upstream }
    }

    /// Whatever the client has still to send, it may take its time with: upstream has answered, and both may talk for as long as they
    /// like.
    pub(super) fn is_unhurried(&mut self) {
        if let Source::Body(body, _) = &mut self.source {
            body.take_your_time();
        }
    }

    /// Moves as much as goes; ready when there is nothing left to do, or the client's body has failed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestBodyError>> {
        loop {
            if !self.pending.is_empty() {
                let Some(room) = ready!(self.poll_room(cx)) else {
                    self.give_up();
                    return Poll::Ready(Ok(()));
                };
                let piece = self.pending.split_to(room.min(self.pending.len()));
                self.send(piece, self.ends && self.pending.is_empty());
                continue;
            }
            if !ready!(self.poll_next(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// How much upstream takes now; `None` if it takes nothing more.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        self.stream.reserve_capacity(self.pending.len());
        loop {
            match self.stream.capacity() {
                0 => match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    // It may have answered before it stopped reading: what comes decides, not this.
                    Some(Err(_)) | None => return Poll::Ready(None),
                },
                room => return Poll::Ready(Some(room)),
            }
        }
    }

    fn send(&mut self, piece: Bytes, ends: bool) {
        self.sent = true;
        if ends {
            self.source = Source::Done;
        }
        if self.stream.send_data(piece, ends).is_err() {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.pending = Bytes::new();
        self.source = Source::Done;
    }

    /// Takes the next piece of the client's body; `false` when there is none left.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, RequestBodyError>> {
        let Source::Body(body, left) = &mut self.source else { return Poll::Ready(Ok(false)) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx)).transpose()?;
        match frame.map(http_body::Frame::into_data) {
            Some(Ok(data)) => {
                if let Some(left) = left {
                    *left = left.checked_sub(length_of(&data)).ok_or(RequestBodyError::Malformed)?;
                }
                self.ends = body.is_end_stream();
                // Fewer bytes than announced: upstream must not take this for the whole.
                if self.ends && left.is_some_and(|left| left > 0) {
                    return Poll::Ready(Err(RequestBodyError::Aborted));
                }
                if data.is_empty() && self.ends {
                    self.send(Bytes::new(), true);
                }
                self.pending = data;
            }
            _ if left.is_some_and(|left| left > 0) => return Poll::Ready(Err(RequestBodyError::Aborted)),
            Some(Err(frame)) => self.send_trailers(frame.into_trailers().unwrap_or_default()),
            None => self.send(Bytes::new(), true),
        }
        Poll::Ready(Ok(true))
    }

    fn send_trailers(&mut self, received: HeaderMap) {
        let mut trailers = HeaderMap::with_capacity(received.len());
        for (name, value) in &received {
            if may_be_trailer(name) && self.trailers.allow(name) {
                trailers.append(name, value.clone());
            }
        }
        if trailers.is_empty() {
            return self.send(Bytes::new(), true);
        }
        self.sent = true;
        self.source = Source::Done;
        let _ = self.stream.send_trailers(trailers);
    }

    /// The client's body, if nothing has been taken of it.
    pub(super) fn into_body(self) -> Option<Payload> {
        match self.source {
            Source::Body(body, _) if !self.sent && self.pending.is_empty() => Some(body),
            _ => None,
        }
    }
}

/// The rest of an upload while the response is already on its way: in a task of its own, because the response is only asked for more when
/// its client takes more, and both must be able to talk without waiting for each other.
#[derive(Debug)]
pub(super) struct Rest {
    task: JoinHandle<()>,
    shared: Rc<Shared>,
}

/// What the two directions tell each other.
#[derive(Debug)]
pub(super) struct Shared {
    /// Upstream's time.
    pub(super) deadline: Deadline,
    /// It is running.
    pub(super) waits: Cell<bool>,
    failed: Cell<Option<RequestBodyError>>,
}

impl Shared {
    pub(super) fn new(deadline: Deadline) -> Rc<Self> {
        Rc::new(Self { deadline, waits: Cell::new(false), failed: Cell::new(None) })
    }
}

impl Rest {
    pub(super) fn spawn(mut upload: Upload, shared: &Rc<Shared>, patience: Duration) -> Self {
        upload.is_unhurried();
        let theirs = Rc::clone(shared);
        let task = tokio::task::spawn_local(async move {
            let moved = std::future::poll_fn(|cx| {
                let polled = upload.poll(cx);
                // What the client says counts as a sign of life of the exchange.
                if std::mem::take(&mut upload.sent) && theirs.waits.get() {
                    theirs.deadline.arm(patience);
                }
                polled
            });
            if let Err(error) = moved.await {
                theirs.failed.set(Some(error));
                upload.stream.send_reset(Reason::CANCEL);
            }
        });
        Self { task, shared: Rc::clone(shared) }
    }

    /// How the client's body has failed, if it has.
    pub(super) fn failed(&self) -> Option<RequestBodyError> {
        self.shared.failed.get()
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.task.abort();
    }
}
