//! Which route a request takes: the most specific pattern wins, the file's order breaks ties.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};

use super::matcher::Matcher;
use super::pattern::{HostPattern, Pattern};
use super::split::{Mirror, Split};
use crate::headers::HeaderEdits;
use crate::request::Facts;
use crate::websocket::Limits;

/// A route's place in [`Routes`], in the file's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteId(pub u16);

/// An upstream's place in the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UpstreamId(pub u16);

/// Where requests go, and how.
#[derive(Debug)]
pub struct Route {
    /// Its place.
    pub id: RouteId,
    /// Its name.
    pub name: Box<str>,
    /// Hosts, methods and headers it wants; its paths are in [`Routes`].
    pub matcher: Matcher,
    /// Whether something is forwarded.
    pub action: Action,
    /// Cells per request in every limit that does not set its own.
    pub cost: u64,
    /// Copies for another upstream.
    pub mirror: Option<Box<Mirror>>,
    /// What upstream sees as the path.
    pub rewrite: Option<Rewrite>,
    /// Changes on the way to upstream.
    pub request_edits: HeaderEdits,
    /// Changes on the way back.
    pub response_edits: HeaderEdits,
    /// Largest request body in bytes.
    pub max_body: u64,
    /// Until the response's head; the upstream's own otherwise.
    pub response_timeout: Option<Duration>,
    /// The whole exchange.
    pub total_timeout: Option<Duration>,
    /// What connections may become.
    pub upgrades: Upgrades,
}

/// What a route's connections may become, and what holds for them then.
#[derive(Debug, Clone, Default)]
pub struct Upgrades {
    /// Protocols, in lower case.
    pub protocols: Vec<Box<str>>,
    /// How long they may be silent in both directions.
    pub idle: Duration,
    /// What a client may send over a WebSocket; none if it may send anything.
    pub websocket: Option<Limits>,
}

/// What a route does.
#[derive(Debug)]
pub enum Action {
    /// Forwards.
    Forward(UpstreamId),
    /// Forwards to one of several.
    Split(Split),
    /// Answers itself.
    Respond {
        /// The status.
        status: StatusCode,
        /// The body's type.
        content_type: HeaderValue,
        /// The body.
        body: Bytes,
    },
}

impl Action {
    /// Whether something is forwarded at all.
    #[must_use]
    pub fn forwards(&self) -> bool {
        !matches!(self, Self::Respond { .. })
    }
}

/// What upstream sees as the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewrite {
    /// Without this prefix of whole segments.
    StripPrefix(Box<str>),
    /// Literal text and parameters of the route's pattern.
    Template(Vec<Piece>),
}

/// A piece of a rewritten path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text.
    Text(Box<str>),
    /// The value of a parameter.
    Param(Box<str>),
}

/// All routes, ready to be searched.
#[derive(Debug, Default)]
pub struct Routes {
    list: Vec<Route>,
    /// Every (host, path) of every route, most specific first.
    entries: Vec<Entry>,
    /// Whether paths ignore the case of letters.
    ignore_case: bool,
}

#[derive(Debug)]
struct Entry {
    host: Option<HostPattern>,
    path: Option<Pattern>,
    route: usize,
}

/// What a search found.
#[derive(Debug)]
pub enum Found<'s> {
    /// This route, by this pattern.
    Route(&'s Route, Option<&'s Pattern>),
    /// Only routes for other methods.
    OtherMethods(Vec<&'s Method>),
    /// Nothing.
    Nothing,
}

impl Routes {
    /// From routes in the file's order.
    #[must_use]
    pub fn new(mut list: Vec<Route>, ignore_case: bool) -> Self {
        let mut entries = Vec::new();
        for (route, compiled) in list.iter_mut().enumerate() {
            let hosts = some_or_none(compiled.matcher.hosts.take());
            let paths = some_or_none(compiled.matcher.paths.take());
            for host in &hosts {
                entries.extend(paths.iter().map(|path| Entry { host: host.clone(), path: path.clone(), route }));
            }
        }
        let narrowness = |entry: &Entry| {
            let route = list.get(entry.route);
            route.map_or((0, 0), |r| (r.matcher.headers.len(), usize::from(r.matcher.methods.is_some())))
        };
        // The sort is stable, so the file's order breaks ties.
        entries.sort_by(|a, b| {
            let host = b.host.as_ref().map(HostPattern::specificity).cmp(&a.host.as_ref().map(HostPattern::specificity));
            let path = match (&a.path, &b.path) {
                (Some(a), Some(b)) => b.specificity(a),
                (a, b) => b.is_some().cmp(&a.is_some()),
            };
            host.then(path).then_with(|| narrowness(b).cmp(&narrowness(a)))
        });
        Self { list, entries, ignore_case }
    }

    /// In the file's order.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.list.iter()
    }

    /// The name of a route.
    #[must_use]
    pub fn named(&self, id: RouteId) -> Option<&str> {
        self.list.get(usize::from(id.0)).map(|route| &*route.name)
    }

    /// The route of a request.
    #[must_use]
    pub fn find(&self, facts: &Facts<'_>) -> Found<'_> {
        let mut other_methods = Vec::new();
        for entry in &self.entries {
            let host = entry.host.as_ref().is_none_or(|host| host.matches(&facts.authority.host));
            let path = entry.path.as_ref().is_none_or(|path| path.matches(&facts.path, self.ignore_case));
            let Some(route) = self.list.get(entry.route).filter(|_| host && path) else { continue };
            if !route.matcher.headers_match(facts) {
                continue;
            }
            if route.matcher.method_matches(facts.method) {
                return Found::Route(route, entry.path.as_ref());
            }
            for method in route.matcher.methods.iter().flatten() {
                let with_head = (*method == Method::GET).then_some(&Method::HEAD);
                other_methods.extend(std::iter::once(method).chain(with_head));
            }
        }
        other_methods.sort_unstable_by_key(|method| method.as_str());
        other_methods.dedup();
        if other_methods.is_empty() { Found::Nothing } else { Found::OtherMethods(other_methods) }
    }
}

impl Rewrite {
    /// The path upstream sees: from the client's own bytes where possible, otherwise from the normal form, encoded.
    #[must_use]
    pub fn apply(&self, facts: &Facts<'_>, pattern: Option<&Pattern>) -> String {
        let written = &*facts.written_path;
        match self {
            Self::StripPrefix(prefix) => {
                let whole = |path: &str| strip(path, prefix).map(str::to_owned);
                whole(written)
                    .or_else(|| whole(&facts.path).map(|path| crate::request::path::percent_encode(&path)))
                    .unwrap_or_else(|| written.to_owned())
            }
            Self::Template(pieces) => {
                // A limit may match without regard to case and so may a route; parameters are taken the same way.
                let captures = pattern.and_then(|pattern| pattern.captures(&facts.path, true)).unwrap_or_default();
                let value = |name: &str| captures.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value);
                let path: String = pieces
                    .iter()
                    .map(|piece| match piece {
                        Piece::Text(text) => text.to_string(),
                        Piece::Param(name) => crate::request::path::percent_encode(value(name)),
                    })
                    .collect();
                path
            }
        }
    }
}

fn strip<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    match path.strip_prefix(prefix.trim_end_matches('/'))? {
        "" => Some("/"),
        // One slash in front: `//x` would read as a host to some.
        rest if rest.starts_with('/') => rest.get(rest.len() - rest.trim_start_matches('/').len() - 1..),
        _ => None,
    }
}

fn some_or_none<T>(list: Option<Vec<T>>) -> Vec<Option<T>> {
    match list {
        Some(list) => list.into_iter().map(Some).collect(),
        None => vec![None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_stripped_in_whole_segments() {
        assert_eq!(strip("/v1/a", "/v1"), Some("/a"));
        assert_eq!(strip("/v1", "/v1/"), Some("/"));
        assert_eq!(strip("/v10/a", "/v1"), None);
        assert_eq!(strip("/v1//a//b", "/v1"), Some("/a//b"));
        assert_eq!(HostPattern::parse("a.com").map(|h| h.specificity()).cmp(&None), std::cmp::Ordering::Greater);
    }
}
