//! `dns`, and what is said of connections to upstreams beyond their number and patience.

use std::net::{IpAddr, SocketAddr};

use super::Compiler;
use crate::config::diagnostic::Path;
use crate::config::{self, ProxyProtocolOut};
use crate::snapshot::{Dns, Families, ProxyVersion};

impl Compiler<'_> {
    pub(super) fn dns(&mut self) -> Dns {
        let (dns, path) = (&self.config.dns, Path::root("dns"));
        let mut servers = Vec::new();
        for (i, text) in dns.servers.0.iter().enumerate() {
            let with_port = || text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DNS_PORT));
            match text.parse().ok().or_else(with_port) {
                Some(server) => servers.push(server),
                None => self.problem(
                    &path.key("servers").index(i),
                    format!("`{text}` is not the address of a server; write ip or ip:port, such as 10.0.0.53 or [fd00::53]:53"),
                ),
            }
        }
        let min_ttl = self.positive(dns.min_ttl, &path.key("min_ttl"));
        if dns.max_ttl.0 < min_ttl {
            self.problem(&path.key("max_ttl"), "must not be less than `min_ttl`");
        }
        Dns {
            servers,
            min_ttl,
            max_ttl: dns.max_ttl.0,
            timeout: self.positive(dns.timeout, &path.key("timeout")),
            families: match dns.family {
                config::Family::All => Families::All,
                config::Family::Ipv4 => Families::Ipv4,
                config::Family::Ipv6 => Families::Ipv6,
            },
        }
    }

    pub(super) fn min_connections(&mut self, upstream: &config::Upstream, path: &Path) -> u32 {
        let (least, at) = (upstream.min_connections, path.key("min_connections"));
        if least > upstream.max_connections {
            self.problem(&at, "must not be more than `max_connections`");
        }
        if least > MOST_READY {
            self.problem(&at, format!("must be at most {MOST_READY}: each worker keeps as many to each endpoint"));
        }
        if least > 0 && upstream.builtin.is_some() {
            self.problem(&at, "an upstream that is built in has no connections");
        }
        if least > 0 && upstream.proxy_protocol != ProxyProtocolOut::Off {
            self.problem(&at, "a connection that begins with `proxy_protocol` can't be made before its client is known");
        }
        least
    }

    pub(super) fn proxy_protocol_out(&mut self, upstream: &config::Upstream, path: &Path) -> Option<ProxyVersion> {
        let version = match upstream.proxy_protocol {
            ProxyProtocolOut::Off => return None,
            ProxyProtocolOut::V1 => ProxyVersion::V1,
            ProxyProtocolOut::V2 => ProxyVersion::V2,
        };
        let at = path.key("proxy_protocol");
        if upstream.builtin.is_some() {
            self.problem(&at, "an upstream that is built in has no connections");
        }
        if upstream.protocol == config::UpstreamProtocol::Http2 {
            self.problem(&at, "an HTTP/2 connection is shared by clients, and the header names one; use `protocol: http1`");
        }
        Some(version)
    }
}

const DNS_PORT: u16 = 53;
/// Beside what traffic keeps open anyway.
const MOST_READY: u32 = 256;
