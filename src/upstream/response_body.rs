//! A response's body as hyper takes it: reads from upstream as the client reads from us, and returns the connection at the end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::ExchangeError;
use super::download::{Download, Piece};
use super::http1::Exchange;
use super::pool::Lease;
use crate::telemetry::metrics::Lane;

/// The body of an upstream's response.
#[derive(Debug)]
pub struct ResponseBody {
    /// Boxed: it moves through hyper several times, and most responses don't need it.
    inner: Option<Box<Inner>>,
    download: Download,
    lane: Lane,
}

#[derive(Debug)]
struct Inner {
    exchange: Exchange,
    lease: Lease,
    keep_alive: bool,
}

impl ResponseBody {
    pub(super) fn new(download: Download, exchange: Exchange, lease: Lease, keep_alive: bool, lane: Lane) -> Self {
        Self { inner: Some(Box::new(Inner { exchange, lease, keep_alive })), download, lane }
    }

    fn finish(&mut self) {
        if let Some(inner) = self.inner.take() {
            let Inner { exchange, lease, keep_alive } = *inner;
            if keep_alive && self.download.leaves_clean(&exchange) {
                lease.give_back(exchange.connection);
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        let this = self.get_mut();
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let piece = ready!(this.download.poll_piece(&mut inner.exchange, cx));
        let frame = match piece {
            Ok(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Piece::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(Piece::End) => None,
            Err(error) => {
                inner.lease.cluster().count_error(&error, this.lane);
                this.inner = None;
                return Poll::Ready(Some(Err(error)));
            }
        };
        if this.download.is_done() {
            this.finish();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.download.is_done()
    }

    fn size_hint(&self) -> SizeHint {
        self.download.size_hint()
    }
}
