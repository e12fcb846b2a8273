//! What a client sends as a body, in either protocol.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::RequestBodyError;

/// A client's body as it comes.
#[derive(Debug)]
pub enum ClientStream {
    /// Over HTTP/1.1.
    Http1(Incoming),
    /// Over HTTP/2.
    Http2(RecvStream),
    /// There is none.
    Nothing,
}

impl From<Incoming> for ClientStream {
    fn from(body: Incoming) -> Self {
        Self::Http1(body)
    }
}

/// The next piece of a stream. A reset is no end, whatever its code: the body is not whole.
fn poll_stream(stream: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
    let gone = |_: h2::Error| RequestBodyError::Aborted;
    if let Some(data) = ready!(stream.poll_data(cx)).transpose().map_err(gone)? {
        // Whoever takes a piece has room for the next.
        let _ = stream.flow_control().release_capacity(data.len());
        return Poll::Ready(Some(Ok(Frame::data(data))));
    }
    let trailers = ready!(stream.poll_trailers(cx)).map_err(gone)?;
    Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
}

impl Body for ClientStream {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(|error| classify(&error)),
            Self::Http2(stream) => poll_stream(stream, cx),
            Self::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(stream) => stream.is_end_stream(),
            Self::Nothing => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(stream) if stream.is_end_stream() => SizeHint::with_exact(0),
            // What it has announced stands in its head; the `h2` crate holds it to that.
            Self::Http2(_) => SizeHint::default(),
            Self::Nothing => SizeHint::with_exact(0),
        }
    }
}

/// The client's fault or the client's absence? hyper says so in the error's source.
fn classify(error: &hyper::Error) -> RequestBodyError {
    let io = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput) => RequestBodyError::Malformed,
        _ => RequestBodyError::Aborted,
    }
}
