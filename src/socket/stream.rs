//! An accepted connection of either kind.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream as StdTcp};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnix;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::Address;

/// A connection in this thread's runtime.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// Unix.
    Unix(UnixStream),
}

/// A connection on its way from one runtime to another.
#[derive(Debug)]
pub enum StdStream {
    /// TCP.
    Tcp(StdTcp),
    /// Unix.
    Unix(StdUnix),
}

impl Stream {
    /// Takes it out of this runtime.
    ///
    /// # Errors
    /// The system's.
    pub fn into_std(self) -> io::Result<StdStream> {
        match self {
            Self::Tcp(stream) => stream.into_std().map(StdStream::Tcp),
            Self::Unix(stream) => stream.into_std().map(StdStream::Unix),
        }
    }

    /// Takes it into this thread's runtime.
    ///
    /// # Errors
    /// When the runtime can't watch another socket.
    pub fn from_std(stream: StdStream) -> io::Result<Self> {
        match stream {
            StdStream::Tcp(stream) => TcpStream::from_std(stream).map(Self::Tcp),
            StdStream::Unix(stream) => UnixStream::from_std(stream).map(Self::Unix),
        }
    }

    /// Connects to an address, in this thread's runtime.
    ///
    /// # Errors
    /// The system's.
    pub async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpStream::connect(address).await.map(Self::Tcp),
            Address::Unix(path) => UnixStream::connect(path).await.map(Self::Unix),
        }
    }

    /// Reads what is there already, without waiting. Costs no system call unless the kernel has reported something.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; the system's.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    /// Where it came in, if that is an address.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Makes the drop that follows a reset rather than an end.
    pub fn reset_on_drop(&self) {
        match self {
            Self::Tcp(stream) => reset_on_drop(stream),
            Self::Unix(stream) => reset_on_drop(stream),
        }
    }

    /// What is written goes out at once instead of waiting to fill a segment.
    pub fn send_at_once(&self) {
        if let Self::Tcp(stream) = self {
            // A socket that can't is only slower.
            let _ = stream.set_nodelay(true);
        }
    }
}

/// Makes the drop of a socket a reset rather than an end.
pub fn reset_on_drop(socket: &impl AsFd) {
    // A connection that can't be told so has no peer any more.
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// Calls the same method on whichever it is.
macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
