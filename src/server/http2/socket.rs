//! A stream that has become a tunnel, as a socket: DATA and END_STREAM are what bytes and FIN are there, and `RST_STREAM` with `CANCEL` is a
//! reset (RFC 8441 §5).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::proxy::ClientSocket;

/// Reads and writes a stream. Dropping it resets what has not ended.
#[derive(Debug)]
pub(super) struct StreamSocket {
    send: SendStream<Bytes>,
    recv: RecvStream,
    /// Received, not yet read.
    ahead: Bytes,
    finished: bool,
}

impl StreamSocket {
    pub(super) fn new(send: SendStream<Bytes>, recv: RecvStream) -> Self {
        Self { send, recv, ahead: Bytes::new(), finished: false }
    }
}

impl ClientSocket for StreamSocket {
    /// An end of a stream is said by nobody but its client.
    fn was_announced(&mut self) -> bool {
        true
    }

    fn reset_on_drop(&mut self) {
        self.send.send_reset(Reason::CANCEL);
    }
}

impl AsyncRead for StreamSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.ahead.is_empty() {
            match ready!(this.recv.poll_data(cx)) {
                Some(Ok(data)) => this.ahead = data,
                Some(Err(_)) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                None => return Poll::Ready(Ok(())),
            }
            // An empty frame takes nothing of the window.
        }
        let taken = this.ahead.len().min(buffer.remaining());
        buffer.put_slice(this.ahead.get(..taken).unwrap_or_default());
        this.ahead.advance(taken);
        // Read, and so there is room for as much again.
        let _ = this.recv.flow_control().release_capacity(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StreamSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        this.send.reserve_capacity(bytes.len());
        while this.send.capacity() == 0 {
            match ready!(this.send.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let taken = this.send.capacity().min(bytes.len());
        let piece = Bytes::copy_from_slice(bytes.get(..taken).unwrap_or_default());
        let sent = this.send.send_data(piece, false);
        Poll::Ready(sent.map(|()| taken).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if std::mem::replace(&mut this.finished, true) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(this.send.send_data(Bytes::new(), true).map_err(io::Error::other))
    }
}
