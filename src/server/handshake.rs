//! The TLS handshake of a connection: bounded in time and in number, and counted however it ends.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{HandshakeKind, ServerConnection};
use tracing::debug;

use super::connection::linger;
use super::io::Protocol;
use super::opening::{Opened, Opening};
use super::transport::{Prefixed, Transport};
use crate::clock::deadline::Deadline;
use crate::proxy::Gateway;
use crate::request::ClientCertificate;
use crate::respond::NOT_TLS;
use crate::snapshot::{Listener, ListenerTls};
use crate::telemetry::metrics::{Counter, Lane};
use crate::tls::HandshakeFault;

impl Opening<'_> {
    /// Shakes hands; what is spoken then is what was agreed, HTTP/1.1 if nothing was. `None` if that fails: the client has been told, as
    /// far as it can be, and it has been counted.
    pub(super) async fn secure(self, listener: &Listener, tls: &ListenerTls, gateway: &Gateway, lane: Lane) -> Option<Opened> {
        match self.shake(listener, tls, gateway, lane).await {
            Ok(opened) => Some(opened),
            Err(Unsecured { fault, told }) => {
                if let Some(fault) = fault {
                    debug!(kind = fault.label(), listener = &*listener.name, "no TLS");
                    tls.metrics.failed(fault, lane);
                }
                if let Some(mut transport) = told {
                    // Whatever the client is still sending must not reset what it was told out of its hands.
                    let _ = Deadline::new().bound(FAREWELL, transport.shutdown()).await;
                    linger(transport).await;
                }
                None
            }
        }
    }

    async fn shake(mut self, listener: &Listener, tls: &ListenerTls, gateway: &Gateway, lane: Lane) -> Result<Opened, Unsecured> {
        self.patience.begin(listener.handshake_timeout);
        while self.seen.is_empty() {
            // Who leaves without a word only wanted to know whether somebody listens.
            self.more().await.map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => HandshakeFault::Timeout.into(),
                _ => Unsecured { fault: None, told: None },
            })?;
        }
        if self.seen.first() != Some(&HANDSHAKE_RECORD) {
            return Err(self.refuse_clear_text().await);
        }
        let timeout = |_| Unsecured::from(HandshakeFault::Timeout);
        // Its turn is waited for with the same patience. The semaphore is never closed.
        let _turn = self.patience.bound(tls.handshakes.acquire()).await.map_err(timeout)?;
        let _under_way = UnderWay::begin(&tls.metrics.under_way, lane);
        let Self { stream, seen, mut patience } = self;
        let accept = TlsAcceptor::from(tls.server.current()).accept(Prefixed::new(seen, stream)).into_fallible();
        // Boxed: its state is a kilobyte that every connection's future would have to have.
        let stream = match patience.bound(Box::pin(accept)).await.map_err(timeout)? {
            Ok(stream) => stream,
            // It has sent an alert if there was one to send.
            Err((error, io)) => {
                debug!(%error, listener = &*listener.name, "handshake failed");
                return Err(Unsecured::told(HandshakeFault::of(&error), io.into_stream().into()));
            }
        };
        let agreed = agreed(stream.get_ref().1, listener, gateway);
        let kind = match stream.get_ref().1.handshake_kind() {
            Some(HandshakeKind::Resumed) => &tls.metrics.resumed,
            _ => &tls.metrics.full,
        };
        let transport = Transport::Tls(Box::new(stream));
        match agreed {
            Ok((protocol, certificate)) => {
                kind.one(lane);
                Ok(Opened { transport, protocol, prefix: BytesMut::new(), certificate })
            }
            Err(fault) => Err(Unsecured::told(fault, transport)),
        }
    }

    /// A client that speaks HTTP in clear text can be told so; what other strangers understand is not known.
    async fn refuse_clear_text(self) -> Unsecured {
        let Self { mut stream, seen, mut patience } = self;
        if !seen.first().is_some_and(u8::is_ascii_uppercase) {
            return HandshakeFault::NotTls.into();
        }
        match patience.bound(stream.write_all(NOT_TLS)).await {
            Ok(Ok(())) => Unsecured::told(HandshakeFault::NotTls, stream.into()),
            _ => HandshakeFault::NotTls.into(),
        }
    }
}

/// Why there is no TLS.
struct Unsecured {
    /// `None` if the client left before it said anything, or we are ending.
    fault: Option<HandshakeFault>,
    /// The connection on which the client has been told.
    told: Option<Transport>,
}

impl Unsecured {
    fn told(fault: HandshakeFault, transport: Transport) -> Self {
        Self { fault: Some(fault), told: Some(transport) }
    }
}

impl From<HandshakeFault> for Unsecured {
    fn from(fault: HandshakeFault) -> Self {
        Self { fault: Some(fault), told: None }
    }
}

/// A handshake under way, until dropped.
struct UnderWay<'c>(&'c Counter, Lane);

impl<'c> UnderWay<'c> {
    fn begin(counter: &'c Counter, lane: Lane) -> Self {
        counter.one(lane);
        Self(counter, lane)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.less(self.1);
    }
}

/// What was agreed, and whom with.
fn agreed(
    connection: &ServerConnection,
    listener: &Listener,
    gateway: &Gateway,
) -> Result<(Protocol, Option<Box<ClientCertificate>>), HandshakeFault> {
    let protocol = match connection.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        Some(_) => Protocol::Http1,
        None if listener.http1 => Protocol::Http1,
        // HTTP/2 over TLS is never just assumed (RFC 9113 section 3.2).
        None => return Err(HandshakeFault::Alpn),
    };
    let leaf = connection.peer_certificates().and_then(<[_]>::first);
    let certificate = leaf.map(|leaf| Box::new(ClientCertificate::new(leaf)));
    if let Some(certificate) = &certificate
        && connection.handshake_kind() == Some(HandshakeKind::Resumed)
        && certificate.not_after().is_none_or(|end| end < gateway.unix_now())
    {
        // A session remembers that the certificate was good, and outlives that.
        return Err(HandshakeFault::Certificate);
    }
    Ok((protocol, certificate))
}

/// What the record of a `ClientHello` begins with (RFC 8446 section 5.1).
const HANDSHAKE_RECORD: u8 = 22;
/// How long a client that is refused may take to take note of it.
const FAREWELL: Duration = Duration::from_secs(2);
