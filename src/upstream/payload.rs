//! The body of a request on its way to upstream: the client's own, or one of which the beginning is kept, so that it can be sent again.
//!
//! Nothing waits for anything: a piece is handed on as it comes, and copied only where requests may be tried again. It is copied and not
//! shared, because a small piece may hold a large buffer. What is kept is bounded, for each request and for all of an upstream's together;
//! a body that is larger can simply not be sent a second time.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use super::group::Group;
use super::http1::ClientBody;
use crate::body::RequestBodyError;

/// See the module.
#[derive(Debug)]
pub enum Payload {
    /// As it comes.
    Client(ClientBody),
    /// With its beginning.
    Kept(Rc<Kept>),
}

/// A client's body, and what has been taken of it.
#[derive(Debug)]
pub struct Kept(RefCell<Inner>);

#[derive(Debug)]
struct Inner {
    body: ClientBody,
    /// The beginning of it, while it is kept, and how much of that has been handed on in this try.
    bytes: Vec<u8>,
    at: usize,
    keeping: Keeping,
    /// The client's body has ended, with trailers or without.
    end: Option<Option<HeaderMap>>,
    trailed: bool,
    max: usize,
    max_of_all: usize,
    group: Arc<Group>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeping {
    /// Nothing has been taken yet.
    Untouched,
    /// All that has been taken is here.
    All,
    /// It can't be sent again.
    No,
}

impl Payload {
    /// See [`RequestBody::take_your_time`](crate::body::RequestBody::take_your_time).
    pub(super) fn take_your_time(&mut self) {
        match self {
            Self::Client(body) => body.take_your_time(),
            Self::Kept(kept) => kept.0.borrow_mut().body.take_your_time(),
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match self.get_mut() {
            Self::Client(body) => Pin::new(body).poll_frame(cx),
            Self::Kept(kept) => kept.0.borrow_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Client(body) => body.is_end_stream(),
            Self::Kept(kept) => kept.0.borrow().is_at_end(),
        }
    }
}

impl Kept {
    /// Keeps up to `max` bytes, as long as all bodies on their way to the group have no more than `max_of_all`.
    pub(super) fn new(body: ClientBody, max: usize, max_of_all: usize, group: &Arc<Group>) -> Rc<Self> {
        Rc::new(Self(RefCell::new(Inner {
            body,
            bytes: Vec::new(),
            at: 0,
            keeping: Keeping::Untouched,
            end: None,
            trailed: false,
            max,
            max_of_all,
            group: Arc::clone(group),
        })))
    }

    /// Whether it can be sent from its beginning.
    pub(super) fn is_whole(&self) -> bool {
        self.0.borrow().keeping != Keeping::No
    }

    /// The next piece is the first one again.
    pub(super) fn rewind(&self) {
        let mut inner = self.0.borrow_mut();
        (inner.at, inner.trailed) = (0, false);
    }

    /// It will not be sent again: what is kept is needed no longer.
    pub(super) fn let_go(&self) {
        self.0.borrow_mut().let_go();
    }
}

impl Inner {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        if let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) {
            let piece = Bytes::copy_from_slice(rest.get(..PIECE).unwrap_or(rest));
            self.at += piece.len();
            if self.keeping == Keeping::No && self.at == self.bytes.len() {
                self.let_go();
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Some(end) = &self.end {
            let trailers = end.as_ref().filter(|_| !self.trailed).cloned();
            self.trailed = true;
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            None => self.end = Some(None),
            Some(Ok(frame)) => match (frame.data_ref(), frame.trailers_ref()) {
                (Some(data), _) => self.keep(data),
                (None, Some(trailers)) => (self.end, self.trailed) = (Some(Some(trailers.clone())), true),
                (None, None) => {}
            },
            Some(Err(_)) => self.let_go(),
        }
        Poll::Ready(frame)
    }

    fn is_at_end(&self) -> bool {
        let trailers = matches!(self.end, Some(Some(_))) && !self.trailed;
        self.at == self.bytes.len() && !trailers && (self.end.is_some() || self.body.is_end_stream())
    }

    /// All before this piece has been handed on.
    fn keep(&mut self, data: &Bytes) {
        if self.keeping == Keeping::No {
            return;
        }
        self.keeping = Keeping::All;
        if self.bytes.len() + data.len() > self.max || !self.group.traffic.keep(data.len(), self.max_of_all) {
            return self.let_go();
        }
        self.bytes.extend_from_slice(data);
        self.at = self.bytes.len();
    }

    /// What is still to be handed on in this try stays until it has been.
    fn let_go(&mut self) {
        self.keeping = Keeping::No;
        if self.at == self.bytes.len() {
            self.group.traffic.let_go(self.bytes.len());
            (self.bytes, self.at) = (Vec::new(), 0);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.group.traffic.let_go(self.bytes.len());
    }
}

/// What is handed on at once of what is kept.
const PIECE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::pool::Lease;

    /// Every request's future has them, whether it may be tried again or not.
    #[test]
    fn what_is_on_the_way_of_every_request_is_no_larger_for_it() {
        assert_eq!(size_of::<Option<Payload>>(), size_of::<Option<ClientBody>>());
        assert_eq!(size_of::<Lease>(), 3 * size_of::<usize>());
    }
}
