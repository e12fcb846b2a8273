//! Routes: where requests go.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, StatusCode};

use super::{Compiler, Names};
use crate::config::diagnostic::Path;
use crate::config::{self, List};
use crate::headers::HeaderEdits;
use crate::policy::{Action, Matcher, Pattern, Piece, Rewrite, Route, RouteId};
use crate::snapshot::{RouteMetrics, UpgradeMetrics};
use crate::telemetry::metrics;

impl Compiler<'_> {
    pub(super) fn routes(&mut self, names: &Names<'_>) -> Vec<Route> {
        let root = Path::root("routes");
        let config = self.config;
        if config.routes.is_empty() && !(self.is_incomplete)("routes") {
            self.problem(&root, "at least one route is needed");
        }
        let mut routes = Vec::new();
        for (i, route) in config.routes.iter().enumerate() {
            let path = root.index(i);
            if let Some(first) = config.routes.iter().take(i).find(|other| other.matches == route.matches) {
                self.problem(&path.key("match"), format!("route `{}` already takes exactly these requests", first.name));
            }
            let matcher = self.route_matcher(&route.matches, &path.key("match"));
            let action = self.action(route, &path, names);
            let rewrite = route.rewrite.as_ref().and_then(|rewrite| self.rewrite(rewrite, &matcher, &path.key("rewrite")));
            let mut request_edits = self.header_edits(&route.request_headers, &path.key("request_headers"));
            let response_edits = self.header_edits(&route.response_headers, &path.key("response_headers"));
            let timeouts = path.key("timeouts");
            let response_timeout = route.timeouts.response.map(|span| self.positive(span, &timeouts.key("response")));
            let total_timeout = route.timeouts.total.map(|span| self.positive(span, &timeouts.key("total")));
            let upgrades = self.upgrades(route, &path);
            let mirror = self.mirror(route, &mut request_edits, &path, names);
            let Some(action) = action else { continue };
            routes.push(Route {
                id: RouteId(u16::try_from(i).unwrap_or(u16::MAX)),
                name: route.name.as_str().into(),
                matcher,
                action,
                mirror,
                cost: u64::from(route.cost.unwrap_or(1)),
                rewrite,
                request_edits,
                response_edits,
                max_body: route.max_body.map_or(DEFAULT_MAX_BODY, |size| size.0),
                response_timeout,
                total_timeout,
                upgrades,
            });
        }
        routes
    }

    fn action(&mut self, route: &config::Route, path: &Path, names: &Names<'_>) -> Option<Action> {
        match (&route.upstream, &route.respond) {
            (Some(upstream), None) => self.destination(upstream, &path.key("upstream"), names),
            (None, Some(respond)) => {
                let path = path.key("respond");
                let status = StatusCode::from_u16(respond.status).ok().filter(|status| (200..600).contains(&status.as_u16()));
                if status.is_none() {
                    self.problem(&path.key("status"), "a status is from 200 to 599");
                }
                let content_type = self.header_value(&respond.content_type, &path.key("content_type"));
                Some(Action::Respond { status: status?, content_type: content_type?, body: Bytes::from(respond.body.clone()) })
            }
            _ => {
                if !(self.is_incomplete)("routes") {
                    self.problem(path, "a route has either an `upstream` or a `respond`");
                }
                None
            }
        }
    }

    fn rewrite(&mut self, rewrite: &config::Rewrite, matcher: &Matcher, path: &Path) -> Option<Rewrite> {
        match (&rewrite.strip_prefix, &rewrite.path) {
            (Some(prefix), None) if prefix.starts_with('/') => Some(Rewrite::StripPrefix(prefix.as_str().into())),
            (Some(_), None) => {
                self.problem(&path.key("strip_prefix"), "a prefix starts with /");
                None
            }
            (None, Some(template)) => self.template(template, matcher, &path.key("path")),
            _ => {
                self.problem(path, "write either strip_prefix or path");
                None
            }
        }
    }

    fn template(&mut self, template: &str, matcher: &Matcher, path: &Path) -> Option<Rewrite> {
        let valid = template.starts_with('/') && template.bytes().all(|b| b.is_ascii_graphic() && !b"?#\\".contains(&b));
        // HTTP/2 has no form for some characters that HTTP/1.1 would let through.
        if !valid || template.parse::<PathAndQuery>().is_err() {
            self.problem(path, "a path starts with / and has no blanks, ?, #, \\, <, > or `");
            return None;
        }
        let mut pieces = Vec::new();
        let mut rest = template;
        while let Some((text, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                self.problem(path, "`{` without `}`");
                return None;
            };
            let patterns = matcher.paths.as_deref().unwrap_or_default();
            let has_it = |pattern: &Pattern| pattern.names().any(|known| known == name);
            if patterns.is_empty() || !patterns.iter().all(has_it) {
                self.problem(path, format!("`{{{name}}}` is not a parameter of every path of this route"));
            }
            pieces.push(Piece::Text(text.into()));
            pieces.push(Piece::Param(name.into()));
            rest = after;
        }
        pieces.push(Piece::Text(rest.into()));
        Some(Rewrite::Template(pieces))
    }

    fn header_edits(&mut self, edits: &config::HeaderEdits, path: &Path) -> HeaderEdits {
        let List(remove) = &edits.remove;
        let remove = remove.iter().enumerate();
        HeaderEdits {
            remove: remove.filter_map(|(i, name)| self.editable(name, &path.key("remove").index(i))).collect(),
            set: self.header_lines(&edits.set, &path.key("set")),
            add: self.header_lines(&edits.add, &path.key("add")),
        }
    }

    fn header_lines(
        &mut self,
        lines: &std::collections::BTreeMap<String, String>,
        path: &Path,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let line = |(name, value): (&String, &String)| {
            let at = path.key(name);
            Some((self.editable(name, &at)?, self.header_value(value, &at)?))
        };
        lines.iter().filter_map(line).collect()
    }

    pub(super) fn editable(&mut self, name: &str, path: &Path) -> Option<HeaderName> {
        let name = self.header_name(name, path)?;
        if NOT_EDITABLE.contains(&name.as_str()) {
            self.problem(path, format!("`{name}` belongs to the connection and is the gateway's to set"));
            return None;
        }
        Some(name)
    }

    pub(super) fn metrics_of(&self, route: &config::Route) -> RouteMetrics {
        RouteMetrics {
            sides: self.side_metrics(route),
            mirror: self.mirror_metrics(route),
            ..self.route_metrics(&route.name, self.upgrade_metrics(route))
        }
    }

    pub(super) fn route_metrics(&self, route: &str, upgrades: Option<Box<UpgradeMetrics>>) -> RouteMetrics {
        let registry = &self.ground.registry;
        let class = |code| registry.counter(metrics::REQUESTS, &[("route", route), ("code", code)]);
        RouteMetrics {
            by_class: ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().map(class).collect(),
            duration: registry.histogram(metrics::DURATION, &[("route", route)]),
            upgrades,
            sides: Vec::new(),
            mirror: None,
        }
    }
}

/// Framing, connection and forwarding fields: editing them would undo what the gateway owes both sides.
const NOT_EDITABLE: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "sec-websocket-accept",
    "sec-websocket-key",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
];
/// Generous for an API, and finite.
const DEFAULT_MAX_BODY: u64 = 100 << 20;
