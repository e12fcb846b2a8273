//! One fetch: connect, TLS, one GET, at most 1 MiB of answer. Redirects are not followed, since keys come from where the file says.

use std::error::Error;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, USER_AGENT};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio_rustls::rustls::{self, ClientConfig};

use crate::identity::jwt::{KeyError, KeySet, Remote};
use crate::tls::{FileProblem, parse_roots, public_roots};

/// Why there are no new keys.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("no TLS: {0}")]
    Tls(io::Error),
    #[error("took too long")]
    Timeout,
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("answered {0}")]
    Status(StatusCode),
    #[error("answered with more than 1 MiB")]
    TooLarge,
    #[error("broke off: {0}")]
    Body(Box<dyn Error + Send + Sync>),
    #[error("answered with something else: {0}")]
    Keys(#[from] KeyError),
    /// A slip that would turn every token away; whoever means it takes the keys out of the configuration.
    #[error("answered with a key set without a key that can be used ({unusable} that can't)")]
    Empty { unusable: usize },
}

impl FetchError {
    /// The value of a metric's label.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout => "timeout",
            Self::Http(_) | Self::Body(_) => "http",
            Self::Status(_) => "status",
            Self::TooLarge => "too_large",
            Self::Keys(_) => "invalid",
            Self::Empty { .. } => "empty",
        }
    }
}

/// Why nobody could be trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// No certificates, or such as can't be used.
    #[error(transparent)]
    Roots(#[from] FileProblem),
    /// There is no TLS with them.
    #[error("no TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The URL's host can't be in a certificate.
    #[error("no certificate can be for this host: {0}")]
    Name(#[from] InvalidDnsNameError),
}

/// Whom https trusts: the certificates in a PEM file, or the public ones.
fn trust(ca: Option<&[u8]>) -> Result<Arc<ClientConfig>, TrustError> {
    let roots = match ca {
        None => public_roots(),
        Some(pem) => parse_roots(pem)?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions()?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Where to fetch from.
pub(super) struct Source<'r> {
    remote: &'r Remote,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl<'r> Source<'r> {
    pub(super) fn new(remote: &'r Remote) -> Result<Self, TrustError> {
        let tls = if remote.tls {
            let name = ServerName::try_from(remote.host.to_string())?;
            Some((TlsConnector::from(trust(remote.ca.as_deref())?), name))
        } else {
            None
        };
        Ok(Self { remote, tls })
    }

    /// Fetches once; the caller sets the deadline.
    pub(super) async fn fetch(&self) -> Result<KeySet, FetchError> {
        let stream = TcpStream::connect((&*self.remote.host, self.remote.port)).await.map_err(FetchError::Connect)?;
        let answer = match &self.tls {
            None => self.ask(stream).await?,
            Some((connector, name)) => self.ask(connector.connect(name.clone(), stream).await.map_err(FetchError::Tls)?).await?,
        };
        let keys = KeySet::from_jwks(&answer)?;
        if keys.is_empty() {
            return Err(FetchError::Empty { unusable: keys.unusable() });
        }
        Ok(keys)
    }

    async fn ask(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<Bytes, FetchError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::new(Empty::<Bytes>::new());
        // Parsed already when the configuration was compiled, so these are never the fall-backs.
        *request.uri_mut() = self.remote.target.parse().unwrap_or_default();
        let host = HeaderValue::from_str(&self.remote.authority).unwrap_or(HeaderValue::from_static(""));
        let headers = request.headers_mut();
        headers.insert(HOST, host);
        headers.insert(ACCEPT, HeaderValue::from_static("application/jwk-set+json, application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION"))));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let exchange = async {
            let response = sender.send_request(request).await?;
            if response.status() != StatusCode::OK {
                return Err(FetchError::Status(response.status()));
            }
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            body.map(http_body_util::Collected::to_bytes)
                .map_err(|error| if error.is::<LengthLimitError>() { FetchError::TooLarge } else { FetchError::Body(error) })
        };
        tokio::pin!(exchange);
        // The connection moves the bytes of the exchange; it may end first when the last of them are already here.
        tokio::select! {
            answer = &mut exchange => answer,
            _ended = connection => exchange.await,
        }
    }
}

const MAX_ANSWER: usize = 1 << 20;
