//! Making a connection: socket, TLS, authentication. Every step is within the caller's deadline.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisError};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::settings::{Access, Address, Tls};

/// What moves a connection's bytes; the connection ends when this does.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("no TLS: {0}")]
    Tls(io::Error),
    #[error("TLS is wanted, but not set up")]
    NoTls,
    #[error("no certificate can be for this host")]
    Name,
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("not let in: {0}")]
    Refused(RedisError),
}

/// Who is dialled for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Decisions: RESP3.
    Decide,
    /// Asking a sentinel, which may be older than RESP3.
    Discover,
}

/// Connects within `limit`.
pub(super) async fn dial(
    address: &Address,
    access: &Access,
    tls: Option<&Tls>,
    purpose: Purpose,
    limit: Duration,
) -> Result<(MultiplexedConnection, Driver), DialError> {
    timeout(limit, connect(address, access, tls, purpose)).await.unwrap_or(Err(DialError::Timeout(limit)))
}

async fn connect(
    address: &Address,
    access: &Access,
    tls: Option<&Tls>,
    purpose: Purpose,
) -> Result<(MultiplexedConnection, Driver), DialError> {
    let (host, port) = match address {
        Address::Tcp { host, port } => (host, *port),
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(DialError::Connect)?;
            return enter(stream, access, purpose).await;
        }
    };
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(DialError::Connect)?;
    tune(&stream);
    if !access.tls {
        return enter(stream, access, purpose).await;
    }
    let config = tls.ok_or(DialError::NoTls)?.current();
    let name = ServerName::try_from(host.clone()).map_err(|_| DialError::Name)?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(DialError::Tls)?;
    enter(stream, access, purpose).await
}

/// Authenticates, chooses database and protocol. The client's own timeouts and limits stay off: the deadline of a decision is one
/// for all it does, and what is too much is refused rather than queued.
async fn enter<S>(stream: S, access: &Access, purpose: Purpose) -> Result<(MultiplexedConnection, Driver), DialError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(PIPELINE_BUFFER);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&entry(access, purpose), stream, config).await.map_err(DialError::Refused)?;
    Ok((connection, Box::pin(driver)))
}

fn entry(access: &Access, purpose: Purpose) -> RedisConnectionInfo {
    let mut entry = RedisConnectionInfo::default().set_db(i64::from(access.database));
    if let Some(credentials) = &access.credentials {
        entry = entry.set_password(&credentials.password);
        if let Some(user) = &credentials.user {
            entry = entry.set_username(user);
        }
    }
    match purpose {
        Purpose::Decide => {
            entry.set_protocol(ProtocolVersion::RESP3).set_lib_name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        }
        Purpose::Discover => entry.set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name(),
    }
}

/// A socket that can't be told so is only slower, or later to notice that its peer is gone.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keep_alive = TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE).with_retries(3);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keep_alive);
}

/// More than may be under way, so that sending never waits.
const PIPELINE_BUFFER: usize = 4096;
/// Probes of each connection are what finds a dead peer; this is for firewalls that forget idle connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
