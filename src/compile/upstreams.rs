//! Upstreams: sets of interchangeable servers, in clear text or over TLS.

use std::sync::Arc;
use std::time::Duration;

use super::Compiler;
use super::origins::origin;
use crate::config::{self, diagnostic::Path};
use crate::snapshot::{EndpointSet, Origin, Upstream, UpstreamKind, UpstreamProtocol};
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
            let kind = self.kind(upstream, &path);
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
                max_age: upstream.timeouts.max_age.map(|age| self.positive(age, &timeouts.key("max_age"))),
                min_connections: self.min_connections(upstream, &path),
                proxy_protocol: self.proxy_protocol_out(upstream, &path),
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

    fn kind(&mut self, upstream: &config::Upstream, path: &Path) -> UpstreamKind {
        let (listed, discover) = (upstream.endpoints.0.as_slice(), &upstream.discover);
        match upstream.builtin {
            Some(config::Builtin::Echo) => {
                if !listed.is_empty() || discover.is_some() {
                    self.problem(path, "an upstream has endpoints or is built in, not both");
                }
                UpstreamKind::Echo
            }
            None => {
                if listed.is_empty() && discover.is_none() && !(self.is_incomplete)("upstreams") {
                    self.problem(path, "an upstream needs at least one endpoint, or `builtin: echo`");
                }
                let file = discover.as_ref().map(|discover| discover.file.as_str());
                if file.is_some_and(str::is_empty) {
                    self.problem(&path.key("discover").key("file"), "write the path of a file");
                }
                let file = file.map(|file| std::path::Path::new(file).into());
                UpstreamKind::Endpoints(EndpointSet::new(self.endpoints(listed, &path.key("endpoints")), file))
            }
        }
    }

    fn endpoints(&mut self, endpoints: &[config::Endpoint], path: &Path) -> Vec<Origin> {
        let mut compiled: Vec<Origin> = Vec::new();
        for (i, endpoint) in endpoints.iter().enumerate() {
            let at = path.index(i);
            if endpoint.weight == 0 {
                self.problem(&at.key("weight"), "must be at least 1; take the endpoint out to give it nothing");
            }
            match origin(endpoint) {
                Err(problem) => self.problem(&at, problem),
                Ok(origin) if compiled.iter().any(|other| other.place == origin.place) => {
                    self.problem(&at, format!("{} is there already; use `weight` to give it more", endpoint.url));
                }
                Ok(origin) => compiled.push(origin),
            }
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
        let (origins, has_file) = match &mut kind {
            UpstreamKind::Endpoints(set) => (&mut set.listed, set.file.is_some()),
            UpstreamKind::Echo => (none, false),
        };
        // What a file has is not known yet, and it may change.
        if !has_file && !origins.iter().any(|origin| origin.tls.is_some()) {
            if settings.is_some() && !(self.is_incomplete)("upstreams") {
                self.problem(path, "this is about https:// endpoints, and there are none");
            }
            return (kind, None);
        }
        let tls = self.upstream_tls(settings.unwrap_or(&config::UpstreamTls::default()), protocol(upstream.protocol), path);
        if let Some(name) = tls.as_ref().and_then(|tls| tls.settings().server_name.as_ref()) {
            origins.iter_mut().filter_map(|origin| origin.tls.as_mut()).for_each(|own| *own = name.clone());
        }
        (kind, tls)
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
