//! Listening sockets of either kind, TCP or Unix: their addresses, binding and accepting, and the connections that come of it.
//!
//! Separate because clients and the admin listener come in by the same two doors. It knows nothing of what is spoken: bytes and
//! addresses only. The file of a Unix socket belongs to whoever holds its [`SocketFile`] and goes away with it.

mod address;
mod file;
mod stream;

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcp};
use std::os::unix::net::UnixListener as StdUnix;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

pub use address::{Address, AddressError};
pub use file::SocketFile;
pub use stream::{StdStream, Stream, reset_on_drop};

/// A bound socket on its way to the runtime that will accept from it.
#[derive(Debug)]
pub enum StdListener {
    /// TCP.
    Tcp(StdTcp),
    /// Unix.
    Unix(StdUnix),
}

/// A socket to accept from.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// Unix.
    Unix(UnixListener),
}

/// What an address was bound to.
#[derive(Debug)]
pub struct Bound {
    /// The address, with a port where 0 was asked for.
    pub address: Address,
    /// One socket for each worker, or a single one.
    pub sockets: Vec<StdListener>,
    /// The file of a Unix socket.
    pub file: Option<SocketFile>,
}

/// Who accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// This many workers, each from a socket of its own if it is TCP: the kernel spreads connections over them. A Unix socket can be
    /// bound only once.
    Workers(usize),
    /// One thread.
    Alone,
}

/// Binds and listens. `mode` is for the file of a Unix socket.
///
/// # Errors
/// When the address is taken, not ours or not allowed.
pub fn bind(address: &Address, mode: u32, sharing: Sharing) -> io::Result<Bound> {
    match address {
        Address::Unix(path) => {
            let (file, socket) = SocketFile::bind(path, mode)?;
            Ok(Bound { address: address.clone(), sockets: vec![socket], file: Some(file) })
        }
        Address::Tcp(address) => {
            let first = bind_tcp(*address, sharing)?;
            let bound = first.local_addr()?;
            let mut sockets = vec![StdListener::Tcp(first)];
            if let Sharing::Workers(workers) = sharing {
                for _ in 1..workers {
                    sockets.push(StdListener::Tcp(bind_tcp(bound, sharing)?));
                }
            }
            Ok(Bound { address: Address::Tcp(bound), sockets, file: None })
        }
    }
}

fn bind_tcp(address: SocketAddr, sharing: Sharing) -> io::Result<StdTcp> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if sharing != Sharing::Alone {
        socket.set_reuse_port(true)?;
        if address.is_ipv6() {
            // `[::]` and `0.0.0.0` are two listeners; the file says which are wanted.
            socket.set_only_v6(true)?;
        }
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

impl Listener {
    /// Takes a bound socket into this thread's runtime.
    ///
    /// # Errors
    /// When the runtime can't watch another socket.
    pub fn from_std(listener: StdListener) -> io::Result<Self> {
        match listener {
            StdListener::Tcp(listener) => TcpListener::from_std(listener).map(Self::Tcp),
            StdListener::Unix(listener) => UnixListener::from_std(listener).map(Self::Unix),
        }
    }

    /// The next connection and where it comes from: `None` for a Unix socket, whose peers have no address.
    ///
    /// # Errors
    /// The system's; most concern one connection, or pass.
    pub async fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// Likewise, without waiting.
    pub fn poll_accept(&self, cx: &mut std::task::Context<'_>) -> std::task::Poll<io::Result<(Stream, Option<SocketAddr>)>> {
        match self {
            Self::Tcp(listener) => {
                listener.poll_accept(cx).map(|accepted| accepted.map(|(stream, peer)| (Stream::Tcp(stream), Some(peer))))
            }
            Self::Unix(listener) => {
                listener.poll_accept(cx).map(|accepted| accepted.map(|(stream, _)| (Stream::Unix(stream), None)))
            }
        }
    }
}

/// The kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
