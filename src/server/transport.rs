//! A client's connection as bytes: TCP, Unix, or either inside TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::proxy::ClientSocket;
use crate::socket::{self, Stream};

/// See the module. One enum rather than two in each other: a clear connection pays one branch per call, as it does without TLS.
#[derive(Debug)]
pub(super) enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<Prefixed>>),
}

impl From<Stream> for Transport {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Tcp(stream) => Self::Tcp(stream),
            Stream::Unix(stream) => Self::Unix(stream),
        }
    }
}

impl Transport {
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

impl ClientSocket for Transport {
    fn was_announced(&mut self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => true,
            // Has nothing left to process: it only says how things are.
            Self::Tls(stream) => stream.get_mut().1.process_new_packets().is_ok_and(|state| state.peer_has_closed()),
        }
    }

    /// Over TLS without a `close_notify`.
    fn reset_on_drop(&mut self) {
        match self {
            Self::Tcp(stream) => socket::reset_on_drop(stream),
            Self::Unix(stream) => socket::reset_on_drop(stream),
            Self::Tls(stream) => stream.get_ref().0.stream.reset_on_drop(),
        }
    }
}

/// Calls the same method on whichever it is.
macro_rules! each {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Transport::Tcp($stream) => $call,
            Transport::Unix($stream) => $call,
            Transport::Tls($stream) => {
                let $stream = &mut **$stream;
                $call
            }
        }
    };
}

impl AsyncRead for Transport {
    /// A client that leaves TLS without a word is one that has closed: requests say themselves how long they are, so a part is never
    /// taken for the whole (RFC 9112 section 9.8).
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => match Pin::new(&mut **stream).poll_read(cx, buffer) {
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                polled => polled,
            },
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// What TLS has taken may still be with us; a socket has nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    /// Over TLS with a `close_notify`.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// A connection some bytes of which have been read already.
#[derive(Debug)]
pub(super) struct Prefixed {
    seen: BytesMut,
    stream: Stream,
}

impl Prefixed {
    pub(super) fn new(seen: BytesMut, stream: Stream) -> Self {
        Self { seen, stream }
    }

    pub(super) fn into_stream(self) -> Stream {
        self.stream
    }
}

impl AsyncRead for Prefixed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.seen.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let taken = this.seen.len().min(buffer.remaining());
        buffer.put_slice(this.seen.get(..taken).unwrap_or_default());
        this.seen.advance(taken);
        if this.seen.is_empty() {
            this.seen = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prefixed {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
