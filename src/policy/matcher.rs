//! Conditions on a request: all that are given must hold, each is any-of.

use std::borrow::Cow;

use http::{HeaderName, Method};
use ipnetwork::IpNetwork;

use super::pattern::{HostPattern, Pattern};
use super::{ActiveSchedules, RouteId, ScheduleId};
use crate::identity::{ClientId, Identity, KeyPrefixes, TierId, query_values};
use crate::request::Facts;

/// The compiled form of `match`, `unless`, `exempt` and `blocked`.
#[derive(Debug, Default)]
pub struct Matcher {
    /// Path patterns.
    pub paths: Option<Vec<Pattern>>,
    /// Whether those ignore the case of letters.
    pub ignore_case: bool,
    /// Methods; GET includes HEAD, which is a GET without its body.
    pub methods: Option<Vec<Method>>,
    /// Hosts.
    pub hosts: Option<Vec<HostPattern>>,
    /// Headers and the value each must have.
    pub headers: Vec<(HeaderName, Value)>,
    /// Who may have set those.
    pub headers_from: Sender,
    /// Query parameters and the value each must have.
    pub query: Vec<(Box<str>, Value)>,
    /// Routes.
    pub routes: Option<Vec<RouteId>>,
    /// Tiers.
    pub tiers: Option<Vec<TierId>>,
    /// Clients.
    pub clients: Option<Vec<ClientId>>,
    /// Address ranges.
    pub ips: Option<Vec<IpNetwork>>,
    /// Whether a key or user is known.
    pub authenticated: Option<bool>,
    /// How the text of a known key begins.
    pub key_prefixes: Option<KeyPrefixes>,
    /// Schedules.
    pub schedules: Option<Vec<ScheduleId>>,
}

/// Whose headers a condition believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sender {
    /// Whoever sends the request.
    #[default]
    Anybody,
    /// A trusted proxy, and only one line of a name: a second may be the client's.
    TrustedProxy,
}

/// A required value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `*`: any.
    Any,
    /// This one.
    Is(Box<str>),
}

/// What conditions are tested on.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'s> {
    /// The request.
    pub facts: &'s Facts<'s>,
    /// Who it is from.
    pub identity: &'s Identity<'s>,
    /// The route it takes; `None` before that is known.
    pub route: Option<RouteId>,
    /// The schedules that are active.
    pub active: ActiveSchedules,
}

impl Matcher {
    /// Whether every condition holds.
    #[must_use]
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        let Subject { facts, identity, route, active } = subject;
        any_of(&self.paths, |pattern| pattern.matches(&facts.path, self.ignore_case))
            && self.method_matches(facts.method)
            && any_of(&self.hosts, |host| host.matches(&facts.authority.host))
            && any_of(&self.routes, |wanted| *route == Some(*wanted))
            && any_of(&self.tiers, |tier| *tier == identity.tier)
            && any_of(&self.clients, |wanted| identity.client.is_some_and(|(id, _)| id == *wanted))
            && any_of(&self.ips, |range| range.contains(identity.address))
            && self.authenticated.is_none_or(|wanted| wanted == identity.is_authenticated())
            && self.key_prefixes.is_none_or(|wanted| wanted.meet(identity.key_prefixes))
            && any_of(&self.schedules, |schedule| active.contains(*schedule))
            && (self.headers.is_empty() || self.headers_from == Sender::Anybody || identity.via_trusted_proxy)
            && self.headers_match(facts)
            && self.query.iter().all(|(name, value)| query_values(facts.query, name).any(|found| value.is(found)))
    }

    /// Whether nothing but routes is asked for.
    #[must_use]
    pub fn is_about_routes_only(&self) -> bool {
        let Self { paths, methods, hosts, headers, query, tiers, clients, ips, authenticated, schedules, key_prefixes, .. } =
            self;
        let lists = [
            paths.is_none(),
            methods.is_none(),
            hosts.is_none(),
            tiers.is_none(),
            clients.is_none(),
            ips.is_none(),
            schedules.is_none(),
        ];
        lists.into_iter().all(|absent| absent)
            && headers.is_empty()
            && query.is_empty()
            && authenticated.is_none()
            && key_prefixes.is_none()
    }

    /// Whether the method is among those wanted.
    #[must_use]
    pub fn method_matches(&self, method: &Method) -> bool {
        any_of(&self.methods, |wanted| wanted == method || (wanted == Method::GET && method == Method::HEAD))
    }

    /// Whether every wanted header has its value.
    #[must_use]
    pub fn headers_match(&self, facts: &Facts<'_>) -> bool {
        self.headers.iter().all(|(name, value)| {
            let lines = facts.headers.get_all(name);
            if self.headers_from == Sender::TrustedProxy && lines.iter().nth(1).is_some() {
                return false;
            }
            lines.iter().any(|found| value.is(Cow::Borrowed(found.as_bytes().trim_ascii())))
        })
    }
}

impl Value {
    fn is(&self, found: Cow<'_, [u8]>) -> bool {
        match self {
            Self::Any => true,
            Self::Is(wanted) => *found == *wanted.as_bytes(),
        }
    }
}

fn any_of<T>(wanted: &Option<Vec<T>>, test: impl Fn(&T) -> bool) -> bool {
    wanted.as_ref().is_none_or(|wanted| wanted.iter().any(test))
}
