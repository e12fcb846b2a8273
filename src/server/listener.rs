//! Listening sockets, and the loop that accepts from one.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// Binds one socket per worker to the same address.
pub(super) fn bind(address: SocketAddr, workers: usize) -> io::Result<(SocketAddr, Vec<StdListener>)> {
    let first = bind_one(address)?;
    let bound = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(bind_one(bound)?);
    }
    Ok((bound, sockets))
}

fn bind_one(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` are two listeners; the file says which are wanted.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// What to do about a failed accept: nothing if it was the peer's, a growing pause if we are out of something, so that the loop
/// neither ends nor spins.
pub(super) fn pause_after(error: &io::Error, last: Duration) -> Duration {
    match error.kind() {
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => Duration::ZERO,
        _ => (last * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE),
    }
}

/// The kernel caps it at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
