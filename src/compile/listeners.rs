//! Where connections come in: `listeners`, and the admin listener's address.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::Compiler;
use crate::config::diagnostic::{Path, Problem};
use crate::config::{self, FileMode, TrustedProxy};
use crate::snapshot::Listener;
use crate::socket::Address;
use crate::units::ByteRateOrOff;

impl Compiler<'_> {
    pub(super) fn listeners(&mut self) -> Vec<Arc<Listener>> {
        let root = Path::root("listeners");
        let config = self.config;
        if config.listeners.is_empty() && !(self.is_incomplete)("listeners") {
            self.problem(&root, "at least one listener is needed");
        }
        self.indexed(&root, config.listeners.iter().map(|listener| listener.name.as_str()), |i| i);
        let mut taken = HashSet::new();
        let mut listeners = Vec::new();
        for (i, listener) in config.listeners.iter().enumerate() {
            let path = root.index(i);
            let Some(address) = self.address(&listener.address, &path.key("address")) else { continue };
            // Port 0 is another one each time.
            let is_any_port = matches!(&address, Address::Tcp(address) if address.port() == 0);
            if !is_any_port && !taken.insert(address.clone()) {
                self.problem(&path.key("address"), format!("{address} is taken by another listener"));
            }
            let speaks = |protocol| listener.protocols.0.contains(&protocol);
            if listener.protocols.0.is_empty() {
                self.problem(&path.key("protocols"), "at least one of http1 and http2 is needed");
            }
            if listener.max_connections == 0 {
                self.problem(&path.key("max_connections"), "must be at least 1");
            }
            let proxy_protocol = listener.proxy_protocol == config::ProxyProtocol::Required;
            if proxy_protocol && matches!(address, Address::Tcp(_)) {
                self.somebody_sends_proxy_headers(&path.key("proxy_protocol"));
            }
            let mode = self.mode(listener.mode, &address, &path.key("mode"), LISTENER_MODE);
            let tls = listener.tls.as_ref().map(|tls| self.listener_tls(listener, tls, &path.key("tls")));
            let timeouts = &listener.timeouts;
            let path = path.key("timeouts");
            listeners.push(Arc::new(Listener {
                name: listener.name.as_str().into(),
                address,
                mode,
                proxy_protocol,
                tls: tls.flatten(),
                http1: speaks(config::Protocol::Http1),
                http2: speaks(config::Protocol::Http2),
                max_connections: listener.max_connections,
                max_connections_per_ip: listener.max_connections_per_ip,
                handshake_timeout: self.positive(timeouts.handshake, &path.key("handshake")),
                header_timeout: self.positive(timeouts.header, &path.key("header")),
                body_idle_timeout: self.positive(timeouts.body_idle, &path.key("body_idle")),
                min_body_rate: self.min_body_rate(timeouts.min_body_rate, &path.key("min_body_rate")),
                keep_alive_timeout: self.positive(timeouts.keep_alive, &path.key("keep_alive")),
                write_idle_timeout: self.positive(timeouts.write_idle, &path.key("write_idle")),
            }));
        }
        listeners
    }

    /// In bytes per second.
    fn min_body_rate(&mut self, rate: ByteRateOrOff, path: &Path) -> Option<NonZeroU32> {
        let ByteRateOrOff::Rate(rate) = rate else { return None };
        let per_second = u128::from(rate.count) * 1000 / rate.period.as_millis().max(1);
        let per_second = u32::try_from(per_second).ok().and_then(NonZeroU32::new);
        if per_second.is_none() {
            self.problem(path, "must be from 1 byte to 4 GiB per second; `off` is none");
        }
        per_second
    }

    /// The admin listener's address, and who may connect if that is a Unix socket.
    pub(super) fn admin_address(&mut self, path: &Path) -> (Option<Address>, u32) {
        let config = self.config;
        let address = self.address(&config.admin.address, &path.key("address"));
        let Some(found) = &address else { return (None, ADMIN_MODE) };
        if !found.is_local() && config.admin.token.0.is_empty() {
            self.problem(&path.key("address"), "an address that is not loopback needs `admin.token`");
        }
        let taken = config.listeners.iter().any(|listener| listener.address.parse().is_ok_and(|taken: Address| taken == *found));
        if taken && found.tcp().is_none_or(|address| address.port() != 0) {
            self.problem(&path.key("address"), "this address is a public listener's");
        }
        let mode = self.mode(config.admin.mode, found, &path.key("mode"), ADMIN_MODE);
        (address, mode)
    }

    fn address(&mut self, text: &str, path: &Path) -> Option<Address> {
        match text.parse() {
            Ok(address) => Some(address),
            Err(error) => {
                self.problem(path, format!("`{text}` {error}"));
                None
            }
        }
    }

    fn mode(&mut self, mode: Option<FileMode>, address: &Address, path: &Path, default: u32) -> u32 {
        if mode.is_some() && address.tcp().is_some() {
            self.problem(path, "only the file of a unix socket has a mode");
        }
        mode.map_or(default, |FileMode(mode)| mode)
    }

    /// A header that anybody may send would let anybody be anyone, and one that nobody may send closes every connection.
    fn somebody_sends_proxy_headers(&mut self, path: &Path) {
        let trusted = &self.config.trusted_proxies.0;
        if (self.is_incomplete)("trusted_proxies") || trusted.iter().any(|proxy| matches!(proxy, TrustedProxy::Range(_))) {
            return;
        }
        let message = "PROXY headers are taken from ranges in `trusted_proxies` only, and there are none";
        self.problems.push(Problem::new(path.clone(), message).hint("list the load balancer's address there"));
    }
}

/// The owner and the group: the web server in front usually is neither root nor us.
const LISTENER_MODE: u32 = 0o660;
/// The owner: without a token, whoever can connect may reload.
const ADMIN_MODE: u32 = 0o600;
