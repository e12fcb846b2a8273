//! A connected socket towards an endpoint, in clear text or over TLS, as one type of stream.
//!
//! In clear text each call is the socket's own. Over TLS the end of a connection is told from its being cut: a read at the end without
//! a `close_notify` is an error, so that a body that ends with the connection can't be shortened by somebody in between.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::task::coop::unconstrained;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::announce::Announced;
use super::connect::Asked;
use crate::socket::{Address, Stream};
use crate::tls::ClientTls;

/// See the module.
#[derive(Debug)]
pub(super) enum Transport {
    Plain(Stream),
    Tls(Box<Secured>),
}

/// TLS, and how it will end.
#[derive(Debug)]
pub(super) struct Secured {
    stream: TlsStream<Stream>,
    /// Without a word.
    cut: bool,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    Tcp(io::Error),
    Tls(io::Error),
}

impl Transport {
    /// See [`connect`](super::connect::connect).
    pub(super) async fn connect(
        address: &Address,
        announced: Option<&Announced>,
        tls: Option<(&ClientTls, &ServerName<'static>)>,
        asked: Asked,
    ) -> Result<Self, ConnectError> {
        let stream = Self::plain(address, announced).await?;
        let Some((tls, name)) = tls else { return Ok(Self::Plain(stream)) };
        Self::secure(stream, tls.current(), name, asked).await
    }

    /// A socket on which nothing has been said but for whom it is, if that is wanted.
    pub(super) async fn plain(address: &Address, announced: Option<&Announced>) -> Result<Stream, ConnectError> {
        let mut stream = Stream::connect(address).await.map_err(ConnectError::Tcp)?;
        // Heads and bodies are written whole; waiting to fill segments only adds latency.
        stream.send_at_once();
        if let Some(announced) = announced {
            stream.write_all(&announced.header()).await.map_err(ConnectError::Tcp)?;
        }
        Ok(stream)
    }

    /// Shakes hands on it.
    pub(super) async fn secure(
        stream: Stream,
        config: Arc<ClientConfig>,
        name: &ServerName<'static>,
        asked: Asked,
    ) -> Result<Self, ConnectError> {
        let connector = TlsConnector::from(config);
        let connecting = match asked {
            Asked::Configured => connector.connect(name.clone(), stream),
            Asked::Http1 => connector.with_alpn(vec![b"http/1.1".to_vec()]).connect(name.clone(), stream),
        };
        // Boxed: the handshake's state is a kilobyte in every request's future otherwise.
        let stream = Box::pin(connecting).await.map_err(ConnectError::Tls)?;
        Ok(Self::Tls(Box::new(Secured { stream, cut: false })))
    }

    /// What ALPN came to; nothing in clear text, and with a server that doesn't know of it.
    pub(super) fn negotiated(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(tls) => tls.stream.get_ref().1.alpn_protocol(),
        }
    }

    /// Makes the drop that follows a reset rather than an end, without a `close_notify`.
    pub(super) fn reset_on_drop(&mut self) {
        match self {
            Self::Plain(stream) => stream.reset_on_drop(),
            Self::Tls(tls) => {
                tls.cut = true;
                tls.stream.get_ref().0.reset_on_drop();
            }
        }
    }

    /// Whether nothing has come since the last exchange: neither an end nor a byte nobody asked for. Costs no system call unless the
    /// kernel has reported something. Over TLS a session ticket or a new key is no such byte; it is taken in here.
    pub(super) fn is_quiet(&mut self) -> bool {
        let stream = match self {
            Self::Plain(stream) => {
                return matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
            }
            Self::Tls(tls) => &mut tls.stream,
        };
        let mut room = [0];
        let mut buffer = ReadBuf::new(&mut room);
        let read = std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buffer));
        // Nobody is to be woken, and a task that has used up its turn must not take that for silence.
        pin!(unconstrained(read)).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}

impl Drop for Transport {
    /// Takes leave as TLS wants it, if that goes at once.
    fn drop(&mut self) {
        if let Self::Tls(tls) = self
            && !tls.cut
        {
            let _ = Pin::new(&mut tls.stream).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// What TLS has taken may still be with us; a socket has nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut tls.stream).poll_shutdown(cx),
        }
    }
}
