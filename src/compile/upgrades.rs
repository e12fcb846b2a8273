//! `upgrade`, `websocket` and `timeouts.tunnel_idle` of a route: what connections may become.

use std::time::Duration;

use super::Compiler;
use crate::config::diagnostic::{Path, Problem};
use crate::config::{self, List};
use crate::limit::{Algorithm, Quota};
use crate::policy::Upgrades;
use crate::snapshot::UpgradeMetrics;
use crate::telemetry::metrics;
use crate::units::{Rate, RateOrUnlimited};
use crate::websocket::{Limits, Refusal};

impl Compiler<'_> {
    pub(super) fn upgrades(&mut self, route: &config::Route, path: &Path) -> Upgrades {
        if route.respond.is_some() {
            for (key, given) in [("upgrade", route.upgrade.is_some()), ("websocket", route.websocket.is_some())] {
                if given {
                    self.problem(&path.key(key), "only a route with an `upstream` has upgrades");
                }
            }
            return Upgrades::default();
        }
        if self.speaks_http2(route) {
            return self.no_upgrades(route, path);
        }
        let protocols = match &route.upgrade {
            None => vec![WEBSOCKET.into()],
            Some(List(protocols)) => self.protocols(protocols, &path.key("upgrade")),
        };
        let websocket = route.websocket.as_ref().and_then(|limits| {
            let path = path.key("websocket");
            if !protocols.iter().any(|protocol| **protocol == *WEBSOCKET) {
                self.problem(&path, "this route has no websockets: `websocket` is not in its `upgrade`");
            }
            self.websocket(limits, &path)
        });
        let idle = path.key("timeouts").key("tunnel_idle");
        let idle = route.timeouts.tunnel_idle.map_or(DEFAULT_IDLE, |span| self.positive(span, &idle));
        Upgrades { protocols, idle, websocket }
    }

    /// Only HTTP/1.1 has upgrades; with several upstreams all must speak it, since a client does not choose.
    fn speaks_http2(&self, route: &config::Route) -> bool {
        let mut upstreams = route.upstream.iter().flat_map(config::Destination::names);
        upstreams.any(|name| {
            self.config.upstreams.get(name).is_some_and(|upstream| upstream.protocol == config::UpstreamProtocol::Http2)
        })
    }

    fn no_upgrades(&mut self, route: &config::Route, path: &Path) -> Upgrades {
        let upgrades = route.upgrade.as_ref().is_some_and(|List(protocols)| !protocols.is_empty());
        for (key, given) in [("upgrade", upgrades), ("websocket", route.websocket.is_some())] {
            if given {
                let problem = Problem::new(path.key(key), "its upstream has `protocol: http2`, which has no upgrades");
                self.problems
                    .push(problem.hint("`auto` speaks HTTP/1.1 for upgrades, and HTTP/2 otherwise where it can over TLS"));
            }
        }
        Upgrades::default()
    }

    fn protocols(&mut self, words: &[String], path: &Path) -> Vec<Box<str>> {
        let mut protocols: Vec<Box<str>> = Vec::new();
        for (i, word) in words.iter().enumerate() {
            let at = path.index(i);
            let protocol: Box<str> = word.to_ascii_lowercase().into();
            let name = protocol.split('/').next().unwrap_or_default();
            if !is_protocol(&protocol) {
                self.problem(&at, format!("`{word}` is not a protocol; write a name or name/version, such as websocket"));
            } else if HTTP_WITHIN.contains(&name) {
                let problem = format!("requests inside of `{word}` would pass by every limit");
                self.problems.push(Problem::new(at, problem).hint("clients that know can speak HTTP/2 at once"));
            } else if protocols.contains(&protocol) {
                self.problem(&at, format!("`{word}` is there already"));
            } else {
                protocols.push(protocol);
            }
        }
        protocols
    }

    fn websocket(&mut self, limits: &config::WebSocket, path: &Path) -> Option<Limits> {
        if limits.messages.is_none() && limits.bytes.is_none() && limits.max_message.is_none() {
            self.problem(path, "write at least one of messages, bytes and max_message");
        }
        let messages = match limits.messages {
            Some(RateOrUnlimited::Rate(rate)) => self.quota_of(rate, &path.key("messages")),
            Some(RateOrUnlimited::Unlimited) | None => None,
        };
        let bytes = limits.bytes.and_then(|rate| self.quota_of(rate.0, &path.key("bytes")));
        let max_message = limits.max_message.map(|size| size.0);
        if max_message == Some(0) {
            self.problem(&path.key("max_message"), "must be at least 1 byte");
        }
        let limits = Limits { messages, bytes, max_message };
        (limits != Limits::default()).then_some(limits)
    }

    fn quota_of(&mut self, rate: Rate, path: &Path) -> Option<Quota> {
        let quota = Quota::new(rate.count, rate.period, rate.burst, Algorithm::Gcra);
        quota.map_err(|error| self.problem(path, error.to_string())).ok()
    }

    pub(super) fn upgrade_metrics(&self, route: &config::Route) -> Option<Box<UpgradeMetrics>> {
        let List(protocols) = route.upgrade.clone().unwrap_or_else(|| List(vec![WEBSOCKET.to_owned()]));
        if route.respond.is_some() || protocols.is_empty() {
            return None;
        }
        let registry = &self.ground.registry;
        let route = ("route", route.name.as_str());
        let bytes = |direction| registry.counter(metrics::UPGRADED_BYTES, &[route, ("direction", direction)]);
        let refused =
            |refusal: Refusal| (refusal, registry.counter(metrics::WEBSOCKET_REFUSED, &[route, ("reason", refusal.word())]));
        Some(Box::new(UpgradeMetrics {
            open: registry.counter(metrics::UPGRADED, &[route]),
            duration: registry.histogram(metrics::UPGRADED_DURATION, &[route]),
            received: bytes("received"),
            sent: bytes("sent"),
            refused: Refusal::ALL.map(refused).into(),
        }))
    }
}

/// A token, or two with a slash between them (RFC 9110 §7.8).
fn is_protocol(word: &str) -> bool {
    let is_token = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    word.split_once('/').map_or_else(|| is_token(word), |(name, version)| is_token(name) && is_token(version))
}

const WEBSOCKET: &str = "websocket";
/// Protocols that carry HTTP requests, which nobody would see.
const HTTP_WITHIN: &[&str] = &["h2c", "http", "tls"];
/// Long enough for a page that is left open; clients that are there all day send pings.
const DEFAULT_IDLE: Duration = Duration::from_secs(3600);
