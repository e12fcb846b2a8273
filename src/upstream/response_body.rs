//! A response's body as hyper takes it: reads from upstream as the client reads from us, and returns the connection at the end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::ExchangeError;
use super::download::{Download, Piece};
use super::http1::Exchange;
use super::http2;
use super::judge::Circumstances;
use super::pool::Lease;
use crate::telemetry::metrics::Lane;

/// The body of an upstream's response.
#[derive(Debug)]
pub struct ResponseBody(Kind);

#[derive(Debug)]
enum Kind {
    Http1(Http1Body),
    /// Boxed: as small as the other one.
    Http2(Box<http2::ResponseBody>),
    /// A fault that has yet to be told; nothing once it has.
    Broken(Option<ExchangeError>),
}

#[derive(Debug)]
struct Http1Body {
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
        Self(Kind::Http1(Http1Body { inner: Some(Box::new(Inner { exchange, lease, keep_alive })), download, lane }))
    }
}

impl ResponseBody {
    /// What the exchange holds at its endpoint, until its end.
    pub(super) fn lease(&self) -> Option<&Lease> {
        match &self.0 {
            Kind::Http1(body) => body.inner.as_ref().map(|inner| &inner.lease),
            Kind::Http2(body) => body.lease(),
            Kind::Broken(_) => None,
        }
    }
}

impl From<http2::ResponseBody> for ResponseBody {
    fn from(body: http2::ResponseBody) -> Self {
        Self(Kind::Http2(Box::new(body)))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        let this = self.get_mut();
        let polled = match &mut this.0 {
            Kind::Http1(body) => body.poll_frame(cx),
            Kind::Http2(body) => Pin::new(&mut **body).poll_frame(cx),
            Kind::Broken(fault) => return Poll::Ready(fault.take().map(Err)),
        };
        if let Poll::Ready(Some(Err(fault))) = polled {
            // Told a turn later: whoever takes it drops what it has not sent yet, and the client would not even see a status.
            this.0 = Kind::Broken(Some(fault));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Http1(body) => body.download.is_done(),
            Kind::Http2(body) => body.is_end_stream(),
            Kind::Broken(fault) => fault.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Http1(body) => body.download.size_hint(),
            Kind::Http2(body) => body.size_hint(),
            Kind::Broken(_) => SizeHint::default(),
        }
    }
}

impl Http1Body {
    fn finish(&mut self) {
        if let Some(inner) = self.inner.take() {
            let Inner { exchange, lease, keep_alive } = *inner;
            lease.completed();
            if keep_alive && self.download.leaves_clean(&exchange) {
                lease.give_back(exchange.connection);
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let piece = ready!(self.download.poll_piece(&mut inner.exchange, cx));
        let frame = match piece {
            Ok(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Piece::Trailers(trailers)) => Some(Ok(Frame::trailers(trailers))),
            Ok(Piece::End) => None,
            Err(error) => {
                inner.lease.cluster().count_error(&error, self.lane);
                // How long a body may take as a whole is also the client's doing, who reads it.
                let out_of_shared_time = inner.exchange.is_out_of_total();
                inner.lease.broke(&error, Circumstances { reused: false, out_of_shared_time });
                self.inner = None;
                return Poll::Ready(Some(Err(error)));
            }
        };
        if self.download.is_done() {
            self.finish();
        }
        Poll::Ready(frame)
    }
}
