//! Upstreams: sets of interchangeable servers, in clear text or over TLS.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Compiler;
use crate::config::{self, diagnostic::Path};
use crate::snapshot::{Endpoint, Upstream, UpstreamKind, UpstreamProtocol};
use crate::tls::ClientTls;

impl Compiler<'_> {
    pub(super) fn upstreams(&mut self, tiers: usize) -> Vec<Upstream> {
        let root = Path::root("upstreams");
        let config = self.config;
        let mut upstreams = Vec::new();
        for (name, upstream) in &config.upstreams {
            let path = root.key(name);
            if upstream.max_connections == 0 {
                self.problem(&path.key("max_connections"), "must be at least 1");
            }
            let kind = match (upstream.endpoints.0.as_slice(), upstream.builtin) {
                ([], Some(config::Builtin::Echo)) => UpstreamKind::Echo,
                ([], None) => {
                    if !(self.is_incomplete)("upstreams") {
                        self.problem(&path, "an upstream needs at least one endpoint, or `builtin: echo`");
                    }
                    UpstreamKind::Endpoints(Vec::new())
                }
                (_, Some(_)) => {
                    self.problem(&path, "an upstream has endpoints or is built in, not both");
                    UpstreamKind::Echo
                }
                (endpoints, None) => UpstreamKind::Endpoints(self.endpoints(endpoints, &path.key("endpoints"))),
            };
            self.only_endpoints_are_watched(upstream, &path);
            self.bounds(upstream, &path);
            let (kind, tls) = self.secured(kind, upstream, &path.key("tls"));
            let timeouts = path.key("timeouts");
            upstreams.push(Upstream {
                name: name.as_str().into(),
                kind,
                protocol: protocol(upstream.protocol),
                connect_timeout: self.positive(upstream.timeouts.connect, &timeouts.key("connect")),
                response_timeout: self.positive(upstream.timeouts.response, &timeouts.key("response")),
                idle_timeout: self.positive(upstream.timeouts.idle, &timeouts.key("idle")).min(LONGEST_IDLE),
                max_connections: upstream.max_connections,
                tls,
                balance: self.balance(&upstream.balance, &path.key("balance")),
                slow_start: upstream.slow_start.0,
                panic_below: upstream.panic_below.0,
                health: upstream.health.as_ref().map(|health| self.health(health, &path.key("health"))),
                adaptive: self.adaptive(upstream, &path, tiers),
                outlier: upstream.outlier.as_ref().map(|outlier| self.outlier(outlier, &path.key("outlier"))),
                max_requests: upstream.max_requests,
                max_pending: upstream.max_pending,
                retry: self.retry(upstream, &path),
            });
        }
        upstreams
    }

    fn endpoints(&mut self, endpoints: &[config::Endpoint], path: &Path) -> Vec<Endpoint> {
        let mut compiled: Vec<Endpoint> = Vec::new();
        for (i, endpoint) in endpoints.iter().enumerate() {
            let at = path.index(i);
            if endpoint.weight == 0 {
                self.problem(&at.key("weight"), "must be at least 1; take the endpoint out to give it nothing");
            }
            let Some((authority, tls)) = self.authority(&endpoint.url, &at) else { continue };
            if compiled.iter().any(|other| other.authority == authority) {
                self.problem(&at, format!("{authority} is there already; use `weight` to give it more"));
            }
            compiled.push(Endpoint { authority, weight: endpoint.weight, tls });
        }
        compiled
    }

    /// How endpoints that want TLS get it. A name in the settings is every endpoint's.
    fn secured(
        &mut self,
        mut kind: UpstreamKind,
        upstream: &config::Upstream,
        path: &Path,
    ) -> (UpstreamKind, Option<Arc<ClientTls>>) {
        let settings = upstream.tls.as_ref();
        let none = &mut Vec::new();
        let endpoints = match &mut kind {
            UpstreamKind::Endpoints(endpoints) => endpoints,
            UpstreamKind::Echo => none,
        };
        if !endpoints.iter().any(|endpoint| endpoint.tls.is_some()) {
            if settings.is_some() && !(self.is_incomplete)("upstreams") {
                self.problem(path, "this is about https:// endpoints, and there are none");
            }
            return (kind, None);
        }
        let tls = self.upstream_tls(settings.unwrap_or(&config::UpstreamTls::default()), protocol(upstream.protocol), path);
        if let Some(name) = tls.as_ref().and_then(|tls| tls.settings().server_name.as_ref()) {
            endpoints.iter_mut().filter_map(|endpoint| endpoint.tls.as_mut()).for_each(|own| *own = name.clone());
        }
        (kind, tls)
    }

    /// `host:port`, and the name for TLS if that is wanted.
    fn authority(&mut self, url: &str, path: &Path) -> Option<(Arc<str>, Option<ServerName<'static>>)> {
        let wrong = "an endpoint is http://host:port or https://host:port without a path, such as http://10.0.0.7:8080";
        let uri: Option<Uri> = url.parse().ok();
        let scheme = uri.as_ref().and_then(Uri::scheme_str).filter(|scheme| matches!(*scheme, "http" | "https"));
        let (Some(uri), Some(scheme)) = (&uri, scheme) else {
            self.problem(path, wrong);
            return None;
        };
        let plain = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let authority = uri.authority().filter(|authority| plain && !authority.as_str().contains('@'));
        let host = authority.and_then(|authority| crate::request::Authority::parse(authority.as_str().as_bytes(), scheme).ok());
        let Some(host) = host else {
            self.problem(path, wrong);
            return None;
        };
        if scheme == "http" {
            return Some((format!("{}:{}", host.host, host.port.unwrap_or(80)).into(), None));
        }
        let name = self.server_name(&host.host, path)?;
        Some((format!("{}:{}", host.host, host.port.unwrap_or(443)).into(), Some(name)))
    }
}

fn protocol(configured: config::UpstreamProtocol) -> UpstreamProtocol {
    match configured {
        config::UpstreamProtocol::Auto => UpstreamProtocol::Auto,
        config::UpstreamProtocol::Http1 => UpstreamProtocol::Http1,
        config::UpstreamProtocol::Http2 => UpstreamProtocol::Http2,
    }
}

/// Beyond a day an idle connection is forgotten by every device in between.
const LONGEST_IDLE: Duration = Duration::from_secs(86_400);
