//! The body of a response as hyper takes it. Upstream's window grows by what hyper has taken, so upstream sends as fast as the client
//! reads.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::exchange::Silence;
use super::fault;
use super::upload::{Rest, Shared};
use crate::clock::deadline::Deadline;
use crate::telemetry::metrics::Lane;
use crate::upstream::chunked::may_be_trailer;
use crate::upstream::http1::length_of;
use crate::upstream::judge::Circumstances;
use crate::upstream::pool::Lease;
use crate::upstream::{ExchangeError, is_out_of};

/// What is still to come of a response.
#[derive(Debug)]
pub(super) struct Download {
    /// `None` at the end.
    pub(super) stream: Option<RecvStream>,
    /// Came with the head; may be empty.
    pub(super) first: Bytes,
    /// Bytes to come, if their number was announced. Frames that contradict it are an error of the stream.
    left: Option<u64>,
}

/// A response that is under way.
#[derive(Debug)]
pub(in crate::upstream) struct ResponseBody {
    download: Download,
    shared: Rc<Shared>,
    /// What holds the stream open: gone when it has ended.
    held: Option<Held>,
    patience: Duration,
    total: Option<Rc<Deadline>>,
    lane: Lane,
}

#[derive(Debug)]
struct Held {
    rest: Option<Rest>,
    silence: Silence,
    lease: Lease,
}

impl Download {
    pub(super) fn new(stream: Option<RecvStream>, left: Option<u64>) -> Self {
        Self { stream, first: Bytes::new(), left }
    }

    pub(super) fn empty() -> Self {
        Self::new(None, Some(0))
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let data = match std::mem::take(&mut self.first) {
            first if !first.is_empty() => first,
            _ => match ready!(stream.poll_data(cx)) {
                Some(Ok(data)) => data,
                other => return Poll::Ready(other),
            },
        };
        let _ = stream.flow_control().release_capacity(data.len());
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(length_of(&data));
        }
        Poll::Ready(Some(Ok(data)))
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HeaderMap>, h2::Error>> {
        match &mut self.stream {
            Some(stream) => stream.poll_trailers(cx),
            None => Poll::Ready(Ok(None)),
        }
    }
}

impl ResponseBody {
    #[expect(clippy::too_many_arguments, reason = "the parts of an exchange, put together in one place")]
    pub(super) fn new(
        download: Download,
        shared: Rc<Shared>,
        rest: Option<Rest>,
        silence: Silence,
        lease: Lease,
        patience: Duration,
        total: Option<Rc<Deadline>>,
        lane: Lane,
    ) -> Self {
        Self { download, shared, held: Some(Held { rest, silence, lease }), patience, total, lane }
    }

    /// What the exchange holds at its endpoint, until its end.
    pub(in crate::upstream) fn lease(&self) -> Option<&Lease> {
        self.held.as_ref().map(|held| &held.lease)
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, ExchangeError>> {
        if self.total.as_ref().is_some_and(|total| total.poll_due(cx).is_ready()) {
            return Poll::Ready(Err(ExchangeError::Timeout));
        }
        match self.download.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => Poll::Ready(Ok(Some(Frame::data(data)))),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Err(fault(&error))),
            Poll::Ready(None) => match self.download.poll_trailers(cx) {
                Poll::Ready(Ok(trailers)) => Poll::Ready(Ok(trailers.and_then(end_to_end).map(Frame::trailers))),
                Poll::Ready(Err(error)) => Poll::Ready(Err(fault(&error))),
                Poll::Pending => self.poll_patience(cx),
            },
            Poll::Pending => self.poll_patience(cx),
        }
    }

    fn poll_patience(&self, cx: &Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, ExchangeError>> {
        if !self.shared.waits.replace(true) {
            self.shared.deadline.arm(self.patience);
        }
        ready!(self.shared.deadline.poll_due(cx));
        if let Some(held) = &self.held {
            held.silence.timed_out();
        }
        Poll::Ready(Err(ExchangeError::Timeout))
    }

    /// What ended the response, if it was the client's own body.
    fn blame(&self, error: ExchangeError) -> ExchangeError {
        let failed = self.held.as_ref().and_then(|held| held.rest.as_ref()).and_then(Rest::failed);
        failed.map_or(error, ExchangeError::RequestBody)
    }

    fn end(&mut self) {
        self.download = Download::empty();
        self.held = None;
    }
}

impl Drop for ResponseBody {
    /// Who knows the length may leave with the last byte of it, before the end of the stream has come.
    fn drop(&mut self) {
        if let Some(held) = &self.held
            && self.download.left == Some(0)
        {
            held.lease.completed();
        }
    }
}

/// Without what has no place behind a body; nothing if nothing is left.
fn end_to_end(trailers: HeaderMap) -> Option<HeaderMap> {
    let trailers = if trailers.keys().all(may_be_trailer) {
        trailers
    } else {
        let mut kept = HeaderMap::with_capacity(trailers.len());
        for (name, value) in trailers.iter().filter(|(name, _)| may_be_trailer(name)) {
            kept.append(name, value.clone());
        }
        kept
    };
    (!trailers.is_empty()).then_some(trailers)
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        let this = self.get_mut();
        if this.held.is_none() {
            return Poll::Ready(None);
        }
        let piece = ready!(this.poll_piece(cx));
        if this.shared.waits.replace(false) {
            this.shared.deadline.disarm();
        }
        match piece {
            Ok(frame) => {
                if let Some(held) = &mut this.held {
                    held.silence.broken();
                }
                let ended = this.download.stream.as_ref().is_none_or(RecvStream::is_end_stream);
                if ended || frame.as_ref().is_none_or(Frame::is_trailers) {
                    if let Some(held) = &this.held {
                        if let Some(trailers) = frame.as_ref().and_then(Frame::trailers_ref) {
                            held.lease.said(trailers);
                        }
                        held.lease.completed();
                    }
                    this.end();
                }
                Poll::Ready(frame.map(Ok))
            }
            Err(error) => {
                let error = this.blame(error);
                if let Some(held) = &this.held {
                    held.lease.cluster().count_error(&error, this.lane);
                    // How long a body may take as a whole is also the client's doing, who reads it.
                    let out_of_shared_time = is_out_of(this.total.as_ref());
                    held.lease.broke(&error, Circumstances { reused: false, out_of_shared_time });
                }
                this.end();
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.download.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
