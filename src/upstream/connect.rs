//! Making a connection to an endpoint, and what is spoken on it.
//!
//! What is spoken is known before connecting, or only after: ALPN tells. [`spoken`] decides, and nobody else.

use http::uri::Scheme;
use tokio_rustls::rustls::pki_types::ServerName;

use super::announce::Announced;
use super::transport::{ConnectError, Transport};
use crate::snapshot::UpstreamProtocol;
use crate::socket::Address;
use crate::tls::ClientTls;

/// A connection that nothing has been said on yet.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) stream: Transport,
    /// What ALPN came to; nothing in clear text.
    pub(super) negotiated: Option<Box<[u8]>>,
    /// What requests on it are called in HTTP/2.
    pub(super) scheme: Scheme,
}

/// What a server may choose from, where TLS lets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// All that the setting leaves open.
    Configured,
    /// HTTP/1.1 alone, whatever the setting leaves open.
    Http1,
}

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spoken {
    Http1,
    Http2,
}

/// What is spoken on a connection.
pub(super) fn spoken(configured: UpstreamProtocol, negotiated: Option<&[u8]>) -> Spoken {
    match (configured, negotiated) {
        // In clear text this is prior knowledge (RFC 9113 §3.3).
        (UpstreamProtocol::Http2, _) | (UpstreamProtocol::Auto, Some(b"h2")) => Spoken::Http2,
        (UpstreamProtocol::Http1 | UpstreamProtocol::Auto, _) => Spoken::Http1,
    }
}

/// Connects to an address, says for whom if that is wanted, and shakes hands if `tls` is there: our side of it and the name that the certificate
/// must be for. The caller bounds the time.
pub(super) async fn connect(
    address: &Address,
    announced: Option<&Announced>,
    tls: Option<(&ClientTls, &ServerName<'static>)>,
    asked: Asked,
) -> Result<Established, ConnectError> {
    let stream = Transport::connect(address, announced, tls, asked).await?;
    let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
    Ok(Established { negotiated: stream.negotiated().map(Into::into), stream, scheme })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_decides_and_alpn_where_it_leaves_that_open() {
        use Spoken::{Http1, Http2};
        for (configured, negotiated, expected) in [
            (UpstreamProtocol::Http1, None, Http1),
            (UpstreamProtocol::Http1, Some(&b"h2"[..]), Http1),
            (UpstreamProtocol::Http2, None, Http2),
            (UpstreamProtocol::Http2, Some(b"h2"), Http2),
            (UpstreamProtocol::Auto, None, Http1),
            (UpstreamProtocol::Auto, Some(b"http/1.1"), Http1),
            (UpstreamProtocol::Auto, Some(b"h2"), Http2),
        ] {
            assert_eq!(spoken(configured, negotiated), expected, "{configured:?} {negotiated:?}");
        }
    }
}
