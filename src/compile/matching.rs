//! Conditions: patterns, names and ranges of `match`, `unless`, `exempt` and `blocked`.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Method};
use ipnetwork::IpNetwork;

use super::{Compiler, Names};
use crate::config::diagnostic::{Path, Problem, did_you_mean};
use crate::config::{self, IgnoreCase, List};
use crate::identity::{RANGE_NAMES, TierId, parse_ranges};
use crate::policy::{HostPattern, Matcher, Pattern, ScheduleId, Sender, Value};

impl Compiler<'_> {
    pub(super) fn matcher(&mut self, conditions: &config::Match, path: &Path, names: &Names<'_>) -> Matcher {
        let tiers = |compiler: &mut Self, tier: &str, at: &Path| compiler.tier(tier, at, names);
        let clients = |compiler: &mut Self, client: &str, at: &Path| compiler.client(client, at, &names.known);
        let routes = |compiler: &mut Self, route: &str, at: &Path| {
            let found = names.routes.get(route).copied();
            if found.is_none() {
                let known: Vec<_> = names.routes.keys().copied().collect();
                compiler.unknown(at, "route", route, "routes", &known);
            }
            found
        };
        Matcher {
            paths: self.list(&conditions.path, &path.key("path"), Self::pattern),
            ignore_case: self.config.paths.ignore_case != IgnoreCase::Never,
            methods: self.list(&conditions.methods, &path.key("methods"), Self::method),
            hosts: self.list(&conditions.hosts, &path.key("hosts"), Self::host),
            headers: self.header_values(&conditions.headers, &path.key("headers")),
            headers_from: Sender::Anybody,
            query: values(&conditions.query).map(|(name, value)| (name.into(), value)).collect(),
            routes: self.list(&conditions.routes, &path.key("routes"), routes),
            tiers: self.list(&conditions.tiers, &path.key("tiers"), tiers),
            clients: self.list(&conditions.clients, &path.key("clients"), clients),
            ips: self.ranges(&conditions.ips, &path.key("ips")),
            authenticated: conditions.authenticated,
            key_prefixes: self.prefixes(&conditions.key_prefix, &path.key("key_prefix"), names),
            schedules: self.list(&conditions.schedule, &path.key("schedule"), |compiler, schedule, at| {
                compiler.schedule_id(schedule, at, names)
            }),
        }
    }

    pub(super) fn route_matcher(&mut self, conditions: &config::RouteMatch, path: &Path) -> Matcher {
        Matcher {
            paths: self.list(&conditions.path, &path.key("path"), Self::pattern),
            methods: self.list(&conditions.methods, &path.key("methods"), Self::method),
            hosts: self.list(&conditions.hosts, &path.key("hosts"), Self::host),
            headers: self.header_values(&conditions.headers, &path.key("headers")),
            ..Matcher::default()
        }
    }

    /// `exempt` and `blocked`. An exemption must not be looser than what it names, a block must not be stricter: so letter
    /// case is ignored from `ignored_from` on.
    pub(super) fn exceptions(
        &mut self,
        exceptions: &[config::Exception],
        root: &Path,
        names: &Names<'_>,
        ignored_from: IgnoreCase,
        headers_from: Sender,
    ) -> Vec<Matcher> {
        let setting = self.config.paths.ignore_case;
        let ignore_case = setting == IgnoreCase::Always || setting == ignored_from;
        let mut matchers = Vec::new();
        for (i, exception) in exceptions.iter().enumerate() {
            let path = root.index(i);
            let config::Exception { ip, path: paths, client, key_prefix, header } = exception;
            let lists = [ip, paths, client, key_prefix];
            if lists.iter().all(|list| list.is_none()) && header.as_ref().is_none_or(BTreeMap::is_empty) {
                self.problem(&path, "say whom or what: ip, path, client, key_prefix or header");
            }
            let clients = |compiler: &mut Self, client: &str, at: &Path| compiler.client(client, at, &names.known);
            matchers.push(Matcher {
                paths: self.list(&exception.path, &path.key("path"), Self::pattern),
                ignore_case,
                clients: self.list(&exception.client, &path.key("client"), clients),
                ips: self.ranges(&exception.ip, &path.key("ip")),
                key_prefixes: self.prefixes(&exception.key_prefix, &path.key("key_prefix"), names),
                headers: self.header_values(&exception.header, &path.key("header")),
                headers_from,
                ..Matcher::default()
            });
        }
        matchers
    }

    pub(super) fn list<T>(
        &mut self,
        list: &Option<List<String>>,
        path: &Path,
        mut read: impl FnMut(&mut Self, &str, &Path) -> Option<T>,
    ) -> Option<Vec<T>> {
        let List(items) = list.as_ref()?;
        if items.is_empty() {
            self.problem(path, "an empty list matches nothing; leave the key out to match everything");
        }
        Some(items.iter().enumerate().filter_map(|(i, item)| read(self, item, &path.index(i))).collect())
    }

    fn pattern(&mut self, text: &str, path: &Path) -> Option<Pattern> {
        match Pattern::parse(text) {
            Ok(pattern) if self.config.paths.trailing_slash == config::TrailingSlash::Same => {
                Some(pattern.without_trailing_slash())
            }
            Ok(pattern) => Some(pattern),
            Err(error) => {
                self.problem(path, error.to_string());
                None
            }
        }
    }

    fn method(&mut self, text: &str, path: &Path) -> Option<Method> {
        let upper = text.to_ascii_uppercase();
        match Method::from_bytes(text.as_bytes()) {
            Ok(method) if text == upper => return Some(method),
            Ok(_) => {
                let problem = Problem::new(path.clone(), format!("methods are case-sensitive and `{text}` is not one"));
                self.problems.push(problem.hint(format!("did you mean `{upper}`?")));
            }
            Err(_) => self.problem(path, format!("`{text}` is not a method")),
        }
        None
    }

    fn host(&mut self, text: &str, path: &Path) -> Option<HostPattern> {
        let host = HostPattern::parse(text);
        if host.is_none() {
            self.problem(path, format!("`{text}` is not a host; write a name without port, or *.name"));
        }
        host
    }

    pub(super) fn header_name(&mut self, text: &str, path: &Path) -> Option<HeaderName> {
        let name = HeaderName::from_bytes(text.as_bytes()).ok();
        if name.is_none() {
            self.problem(path, format!("`{text}` is not a header's name"));
        }
        name
    }

    pub(super) fn header_value(&mut self, text: &str, path: &Path) -> Option<HeaderValue> {
        let value = HeaderValue::from_str(text).ok();
        if value.is_none() {
            self.problem(path, "this is not a header's value");
        }
        value
    }

    fn header_values(&mut self, wanted: &Option<BTreeMap<String, String>>, path: &Path) -> Vec<(HeaderName, Value)> {
        values(wanted).filter_map(|(name, value)| Some((self.header_name(name, &path.key(name))?, value))).collect()
    }

    pub(super) fn ranges(&mut self, list: &Option<List<String>>, path: &Path) -> Option<Vec<IpNetwork>> {
        let ranges = self.list(list, path, Self::range);
        ranges.map(|ranges| ranges.into_iter().flatten().collect())
    }

    /// A range, a single address or a name that stands for ranges.
    pub(super) fn range(&mut self, text: &str, path: &Path) -> Option<Vec<IpNetwork>> {
        let ranges = parse_ranges(text);
        if ranges.is_none() {
            let message = format!("`{text}` is not an address or range; write 10.0.0.0/8, ::1, loopback or private");
            let mut problem = Problem::new(path.clone(), message);
            problem.hint = did_you_mean(text, RANGE_NAMES.iter().copied());
            self.problems.push(problem);
        }
        ranges
    }

    pub(super) fn tier(&mut self, name: &str, path: &Path, names: &Names<'_>) -> Option<TierId> {
        let found = names.tiers.iter().position(|tier| *tier == name).and_then(|i| u16::try_from(i).ok()).map(TierId);
        if found.is_none() {
            self.unknown(path, "tier", name, "tiers", &names.tiers);
        }
        found
    }

    pub(super) fn schedule_id(&mut self, name: &str, path: &Path, names: &Names<'_>) -> Option<ScheduleId> {
        let found = names.schedules.get(name).copied();
        if found.is_none() {
            let known: Vec<_> = names.schedules.keys().copied().collect();
            self.unknown(path, "schedule", name, "schedules", &known);
        }
        found
    }
}

fn values(wanted: &Option<BTreeMap<String, String>>) -> impl Iterator<Item = (&str, Value)> {
    let value = |text: &str| if text == "*" { Value::Any } else { Value::Is(text.into()) };
    wanted.iter().flatten().map(move |(name, text)| (name.as_str(), value(text)))
}
