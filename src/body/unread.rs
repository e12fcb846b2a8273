//! What a client still sends when it has been answered.
//!
//! An HTTP/2 stream whose answer is complete is reset as soon as nobody holds its body any more, and many clients take the reset for the
//! outcome and never look at the answer. So the rest is read and forgotten for a moment, as it is on HTTP/1.1 connections
//! (RFC 9113 §8.1 allows the reset, and says that it must not make a client discard the answer; it does).

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::clock::deadline::Deadline;

/// A client's body, which is read for a moment longer than anybody wants it; or one that is here already.
#[derive(Debug)]
pub struct Unread<B: Body<Data = Bytes> + Unpin + 'static> {
    body: Source<B>,
    lingers: bool,
}

#[derive(Debug)]
enum Source<B> {
    Coming(B),
    /// Boxed: it is rare, and so makes nothing larger.
    Here(Box<Bytes>),
}

impl<B: Body<Data = Bytes> + Unpin + 'static> Unread<B> {
    /// `lingers` is for HTTP/2; an HTTP/1.1 connection sees to itself.
    #[must_use]
    pub fn new(body: B, lingers: bool) -> Self {
        Self { body: Source::Coming(body), lingers }
    }

    /// Bytes at hand, which nobody sends any more.
    #[must_use]
    pub fn here(bytes: Bytes) -> Self {
        Self { body: Source::Here(Box::new(bytes)), lingers: false }
    }
}

impl<B: Body<Data = Bytes> + Unpin + 'static> Body for Unread<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match &mut self.get_mut().body {
            Source::Coming(body) => Pin::new(body).poll_frame(cx),
            Source::Here(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Here(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut **bytes))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Source::Coming(body) => body.is_end_stream(),
            Source::Here(bytes) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Source::Coming(body) => body.size_hint(),
            Source::Here(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin + 'static> Drop for Unread<B> {
    fn drop(&mut self) {
        if !self.lingers {
            return;
        }
        if self.is_end_stream() {
            return;
        }
        let Source::Coming(mut body) = std::mem::replace(&mut self.body, Source::Here(Box::default())) else { return };
        // A client that has left is found out here, without a task; and there are none when a worker comes to its end.
        let next = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let goes_on = matches!(next, Poll::Pending | Poll::Ready(Some(Ok(_))));
        if goes_on && tokio::runtime::Handle::try_current().is_ok() {
            tokio::task::spawn_local(forget(body));
        }
    }
}

/// Reads and forgets, within bounds.
async fn forget<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let mut left = LINGER_BYTES;
    let rest = async {
        while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    let _ = Deadline::new().bound(LINGER, rest).await;
}

/// How long the rest of a refused upload is read, on a stream or a connection.
pub const LINGER: Duration = Duration::from_secs(1);
/// And how many bytes of it.
pub const LINGER_BYTES: usize = 1 << 20;
