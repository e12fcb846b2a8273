//! A connection to upstream that has switched protocols: bytes, and nothing we understand.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::http1::Connection;
use super::pool::Lease;

/// Reads begin with what upstream sent right behind its 101. Counts as load on its endpoint until dropped.
#[derive(Debug)]
pub struct Switched {
    connection: Connection,
    ahead: Bytes,
    lease: Lease,
}

impl Switched {
    pub(super) fn new(connection: Connection, ahead: Bytes, lease: Lease) -> Self {
        Self { connection, ahead, lease }
    }

    /// What the connection holds at its endpoint.
    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Makes the drop that follows a reset rather than an end.
    pub fn reset_on_drop(&mut self) {
        self.connection.stream.reset_on_drop();
    }
}

impl AsyncRead for Switched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            return Pin::new(&mut this.connection.stream).poll_read(cx, buffer);
        }
        let taken = this.ahead.len().min(buffer.remaining());
        buffer.put_slice(this.ahead.get(..taken).unwrap_or_default());
        this.ahead.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Switched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection.stream).poll_write_vectored(cx, parts)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection.stream).poll_shutdown(cx)
    }
}
