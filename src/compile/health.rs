//! `balance`, `health`, `outlier` and `slow_start` of upstreams.

use std::time::Duration;

use http::HeaderValue;
use http::uri::PathAndQuery;

use super::Compiler;
use crate::config::diagnostic::Path;
use crate::config::{self, HealthType, List, StatusPattern};
use crate::snapshot::{Balance, HashBy, HealthCheck, Outlier, Probe, SuccessRate};

impl Compiler<'_> {
    pub(super) fn balance(&mut self, balance: &config::Balance, path: &Path) -> Balance {
        match balance {
            config::Balance::Word(config::BalanceWord::LeastRequests) => Balance::LeastRequests,
            config::Balance::Word(config::BalanceWord::RoundRobin) => Balance::RoundRobin,
            config::Balance::Word(config::BalanceWord::Random) => Balance::Random,
            config::Balance::Hash(hash) => {
                if !(hash.load_bound > 1.0 && hash.load_bound <= MAX_LOAD_BOUND) {
                    self.problem(&path.key("load_bound"), "must be more than 1, and at most 1000");
                }
                let by = self.hash_by(&hash.hash, &path.key("hash"));
                by.map_or(Balance::LeastRequests, |by| Balance::Hash { by, load_bound: hash.load_bound })
            }
        }
    }

    fn hash_by(&mut self, text: &str, path: &Path) -> Option<HashBy> {
        match (text, text.strip_prefix("header:")) {
            ("client", _) => Some(HashBy::Client),
            ("ip", _) => Some(HashBy::Ip),
            (_, Some(name)) => self.header_name(name.trim(), path).map(HashBy::Header),
            _ => {
                self.problem(path, format!("`{text}` is nothing to hash; write client, ip or header:NAME"));
                None
            }
        }
    }

    pub(super) fn only_endpoints_are_watched(&mut self, upstream: &config::Upstream, path: &Path) {
        if upstream.builtin.is_some() {
            for (key, is_there) in [("health", upstream.health.is_some()), ("outlier", upstream.outlier.is_some())] {
                if is_there {
                    self.problem(&path.key(key), "an upstream that is built in has no endpoints to watch");
                }
            }
        }
    }

    pub(super) fn health(&mut self, health: &config::Health, path: &Path) -> HealthCheck {
        for (key, count) in [("healthy_after", health.healthy_after), ("unhealthy_after", health.unhealthy_after)] {
            if count == 0 {
                self.problem(&path.key(key), "must be at least 1");
            }
        }
        self.only_where_it_means_something(health, path);
        HealthCheck {
            probe: self.probe(health, path),
            interval: self.positive(health.interval, &path.key("interval")),
            timeout: self.positive(health.timeout, &path.key("timeout")),
            healthy_after: health.healthy_after,
            unhealthy_after: health.unhealthy_after,
        }
    }

    /// A key that this type of check ignores would be a check that isn't made.
    fn only_where_it_means_something(&mut self, health: &config::Health, path: &Path) {
        let (http, grpc) = (health.kind == HealthType::Http, health.kind == HealthType::Grpc);
        for (key, is_there, belongs, to) in [
            ("path", health.path.is_some(), http, "type: http"),
            ("status", health.status.is_some(), http, "type: http"),
            ("body", health.body.is_some(), http, "type: http"),
            ("host", health.host.is_some(), http || grpc, "type: http and type: grpc"),
            ("service", health.service.is_some(), grpc, "type: grpc"),
        ] {
            if is_there && !belongs {
                self.problem(&path.key(key), format!("only {to} has a `{key}`"));
            }
        }
    }

    fn probe(&mut self, health: &config::Health, path: &Path) -> Probe {
        let host = health.host.as_ref().and_then(|host| self.host_value(host, &path.key("host")));
        match health.kind {
            HealthType::Tcp => Probe::Tcp,
            HealthType::Grpc => Probe::Grpc { service: health.service.as_deref().unwrap_or_default().into(), host },
            HealthType::Http => {
                let status = health.status.as_ref().map_or_else(
                    || vec![(200, 299)],
                    |List(patterns)| {
                        if patterns.is_empty() {
                            self.problem(&path.key("status"), "with no good status no endpoint would ever be well");
                        }
                        ranges(patterns)
                    },
                );
                let body = health.body.as_ref().map(|text| {
                    if text.is_empty() {
                        self.problem(&path.key("body"), "every body contains nothing; leave it out");
                    }
                    text.as_bytes().into()
                });
                Probe::Http { path: self.health_path(health.path.as_deref(), &path.key("path")), host, status, body }
            }
        }
    }

    fn health_path(&mut self, text: Option<&str>, path: &Path) -> PathAndQuery {
        let text = text.unwrap_or("/");
        let parsed = text.parse().ok().filter(|_| text.starts_with('/') && !text.contains('#'));
        parsed.unwrap_or_else(|| {
            self.problem(path, "a path starts with / and has no blanks");
            PathAndQuery::from_static("/")
        })
    }

    fn host_value(&mut self, text: &str, path: &Path) -> Option<HeaderValue> {
        let value =
            HeaderValue::from_str(text).ok().filter(|_| crate::request::Authority::parse(text.as_bytes(), "http").is_ok());
        if value.is_none() {
            self.problem(path, format!("`{text}` is not a host"));
        }
        value
    }

    pub(super) fn outlier(&mut self, outlier: &config::Outlier, path: &Path) -> Outlier {
        if outlier.consecutive_failures == 0 {
            self.problem(&path.key("consecutive_failures"), "must be at least 1");
        }
        let List(status) = &outlier.status;
        if status.iter().any(|pattern| pattern.from < 500) {
            self.problem(&path.key("status"), "only 5xx can be an endpoint's fault; lower ones are the client's or no fault");
        }
        let max_eject_for = outlier.max_eject_for.map_or(DEFAULT_MAX_EJECT_FOR.max(outlier.eject_for.0), |span| span.0);
        if max_eject_for < outlier.eject_for.0 {
            self.problem(&path.key("max_eject_for"), "must not be less than `eject_for`");
        }
        let success_rate = outlier.success_rate.map(|rate| {
            let path = path.key("success_rate");
            if rate.minimum_requests == 0 {
                self.problem(&path.key("minimum_requests"), "must be at least 1");
            }
            SuccessRate {
                minimum_requests: rate.minimum_requests,
                below: rate.below.0,
                window: self.positive(rate.window, &path.key("window")),
            }
        });
        Outlier {
            consecutive_failures: outlier.consecutive_failures,
            status: ranges(status),
            eject_for: self.positive(outlier.eject_for, &path.key("eject_for")),
            max_eject_for,
            max_ejected: outlier.max_ejected.0,
            success_rate,
        }
    }
}

fn ranges(patterns: &[StatusPattern]) -> Vec<(u16, u16)> {
    patterns.iter().map(|pattern| (pattern.from, pattern.to)).collect()
}

/// Long enough to leave a lasting fault alone, short enough to find out that it is over.
const DEFAULT_MAX_EJECT_FOR: Duration = Duration::from_secs(300);
/// Beyond this nothing is bounded any more.
const MAX_LOAD_BOUND: f64 = 1000.0;
