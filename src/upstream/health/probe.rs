//! One question to one endpoint, on a connection of its own: a kept one could go on working where a new one is refused, and
//! requests need new ones. The caller sets the deadline.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{grpc, http2};
use crate::snapshot::{Endpoint, Probe, Upstream, UpstreamProtocol};
use crate::socket::Address;
use crate::tls::ClientTls;
use crate::upstream::announce::Announced;
use crate::upstream::connect::{Asked, Established, Spoken, connect, spoken};
use crate::upstream::transport::{ConnectError, Transport};

/// Why an endpoint is not well.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("took too long")]
    Timeout,
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("answered {0}")]
    Status(StatusCode),
    #[error("answered without what the body has to contain")]
    Body,
    #[error("gRPC: {0}")]
    Grpc(#[from] grpc::GrpcError),
}

impl From<ConnectError> for CheckError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Tcp(error) => Self::Connect(error),
            ConnectError::Tls(error) => Self::Tls(error),
        }
    }
}

impl CheckError {
    /// The value of a metric's label.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Connect(_) => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout => "timeout",
            Self::Http(_) => "http",
            Self::Status(_) => "status",
            Self::Body => "body",
            Self::Grpc(_) => "grpc",
        }
    }
}

/// An endpoint, and how it is spoken to.
#[derive(Debug, Clone)]
pub(super) struct Target {
    address: Address,
    host: Arc<str>,
    announced: Option<Announced>,
    protocol: UpstreamProtocol,
    tls: Option<(Arc<ClientTls>, ServerName<'static>)>,
}

impl Target {
    pub(super) fn new(upstream: &Upstream, endpoint: &Endpoint) -> Self {
        Self {
            address: endpoint.address.clone(),
            host: Arc::clone(&endpoint.host),
            announced: upstream.proxy_protocol.map(Announced::ourselves),
            protocol: upstream.protocol,
            tls: upstream.tls.clone().zip(endpoint.tls.clone()),
        }
    }

    /// As requests are: a connection that speaks for somebody is never shared, so they are HTTP/1.1.
    fn asked(&self) -> Asked {
        if self.announced.is_some() { Asked::Http1 } else { Asked::Configured }
    }

    fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// As requests are connected to it; but gRPC is HTTP/2, whatever else the upstream may speak.
    async fn connect_for_grpc(&self) -> Result<Transport, ConnectError> {
        let stream = Transport::plain(&self.address, self.announced.as_ref()).await?;
        let Some((tls, name)) = &self.tls else { return Ok(Transport::Plain(stream)) };
        let mut config = ClientConfig::clone(&tls.current());
        config.alpn_protocols = vec![b"h2".to_vec()];
        Transport::secure(stream, Arc::new(config), name, Asked::Configured).await
    }
}

/// Asks once.
pub(super) async fn ask(target: &Target, probe: &Probe) -> Result<(), CheckError> {
    let authority = &*target.host;
    match probe {
        // Without a handshake: it would be for a certificate that says nothing about the service.
        Probe::Tcp => {
            Transport::plain(&target.address, target.announced.as_ref()).await?;
            Ok(())
        }
        Probe::Http { path, host, status, body } => {
            let tls = target.tls.as_ref().map(|(tls, name)| (&**tls, name));
            let Established { stream, negotiated, scheme } =
                connect(&target.address, target.announced.as_ref(), tls, target.asked()).await?;
            let wanted = Wanted { status, body: body.as_deref() };
            match spoken(target.protocol, negotiated.as_deref()) {
                Spoken::Http1 => over_http1(stream, request(authority, path, host.as_ref()), &wanted).await,
                Spoken::Http2 => {
                    let authority = host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or(authority);
                    let request = http2_request(scheme, authority, path);
                    http2::exchange(stream, request, |response| wanted.check(response)).await
                }
            }
        }
        Probe::Grpc { service, host } => {
            let authority = host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or(authority);
            grpc::check(target.connect_for_grpc().await?, target.scheme(), authority, service).await
        }
    }
}

/// What a good answer has.
struct Wanted<'c> {
    status: &'c [(u16, u16)],
    body: Option<&'c [u8]>,
}

impl Wanted<'_> {
    async fn check(&self, response: Response<Incoming>) -> Result<(), CheckError> {
        let status = response.status();
        if !self.status.iter().any(|(from, to)| (*from..=*to).contains(&status.as_u16())) {
            return Err(CheckError::Status(status));
        }
        match self.body {
            Some(text) if !contains(response.into_body(), text).await? => Err(CheckError::Body),
            _ => Ok(()),
        }
    }
}

fn request(authority: &str, path: &PathAndQuery, host: Option<&HeaderValue>) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = path.clone().into();
    // An authority that was parsed when the configuration was compiled, so this is never the fall-back.
    let own = || HeaderValue::from_str(authority).unwrap_or(HeaderValue::from_static(""));
    let headers = request.headers_mut();
    headers.insert(HOST, host.cloned().unwrap_or_else(own));
    headers.insert(USER_AGENT, USER);
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    request
}

fn http2_request(scheme: Scheme, authority: &str, path: &PathAndQuery) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    // The fall-back is as impossible as above.
    *request.uri_mut() = http2::uri(scheme, authority, path.clone()).unwrap_or_default();
    request.headers_mut().insert(USER_AGENT, USER);
    request
}

async fn over_http1(stream: Transport, request: Request<Empty<Bytes>>, wanted: &Wanted<'_>) -> Result<(), CheckError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async { wanted.check(sender.send_request(request).await?).await };
    tokio::pin!(exchange);
    // The connection moves the bytes of the exchange; it may end first when the last of them are already here.
    tokio::select! {
        answer = &mut exchange => answer,
        _ended = connection => exchange.await,
    }
}

/// Whether the body's first bytes have this among them; what comes behind them is not read.
async fn contains(mut body: Incoming, text: &[u8]) -> Result<bool, hyper::Error> {
    let mut seen = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            let room = MAX_BODY.saturating_sub(seen.len()).min(data.len());
            seen.extend_from_slice(data.get(..room).unwrap_or_default());
            if memchr::memmem::find(&seen, text).is_some() {
                return Ok(true);
            }
            if seen.len() >= MAX_BODY {
                break;
            }
        }
    }
    Ok(false)
}

/// Who asks.
pub(super) const USER: HeaderValue = HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION"), " health-check"));
/// A health page is short.
const MAX_BODY: usize = 64 << 10;
