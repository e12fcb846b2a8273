//! Which route a request takes and what it is charged: [`plan`].
//!
//! Everything here is a pure function of the request, the identity and the compiled configuration, which says which schedules are
//! active. It reads no clock, and it never sees the store: it emits charges, admission answers them.

mod cost;
mod matcher;
mod pattern;
mod route;
mod schedule;
mod split;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use smallvec::SmallVec;

use crate::identity::jwt::ClaimId;
use crate::identity::{ClientId, Grouping, Identity, Network, Part, cookie_values, query_values};
use crate::limit::{Charge, Interned, Key, KeyParts, Sharing, SlotCharge, SpaceId, Warmup};
use crate::request::Facts;

pub use cost::{Cost, ResponseCost, Settlement, StatusSet, number};
pub use matcher::{Matcher, Sender, Subject, Value};
pub use pattern::{HostPattern, Pattern, PatternError};
pub use route::{Action, Found, Piece, Rewrite, Route, RouteId, Routes, Upgrades, UpstreamId};
pub use schedule::{ActiveSchedules, MAX_SCHEDULES, Schedule, ScheduleId, Schedules, Weekdays};
pub use split::{Mirror, Side, Split};

/// The compiled routes, limits, exemptions and blocks.
#[derive(Debug, Default)]
pub struct Policy {
    /// Routes.
    pub routes: Routes,
    /// Limits, narrow before broad: of equal waits the caller's own is reported.
    pub limits: Vec<Limit>,
    /// What nothing counts.
    pub exempt: Vec<Matcher>,
    /// What is refused at once.
    pub blocked: Vec<Matcher>,
    /// Named times.
    pub schedules: Schedules,
}

/// A named rule.
#[derive(Debug)]
pub struct Limit {
    /// Its place in [`Policy::limits`].
    pub id: u16,
    /// Its name.
    pub name: Box<str>,
    /// What gets a counter of its own.
    pub per: Vec<KeyPart>,
    /// The beginning of every key of this limit.
    pub key_start: KeyParts,
    /// The whole key, when no part depends on the request.
    pub constant_key: Option<Key>,
    /// By tier, whether its rates differ from the first tier's.
    pub differs: Vec<bool>,
    /// What happens when a part is missing.
    pub missing: Missing,
    /// Which requests.
    pub matcher: Matcher,
    /// Which of those not.
    pub unless: Option<Matcher>,
    /// How much.
    pub amount: Amount,
    /// Cells per request.
    pub cost: Cost,
    /// What the response decides.
    pub settlement: Option<Settlement>,
    /// Requests that may wait for their place at once, per counter.
    pub queue: u32,
    /// More for newcomers.
    pub warmup: Option<Warmup>,
    /// Whether it only watches.
    pub shadow: bool,
    /// Whether other gateways count with us; the entity is filled in for each request.
    pub sharing: Option<Sharing>,
    /// The beginning of every entity.
    pub entity_start: KeyParts,
}

/// What a limit allows.
#[derive(Debug)]
pub enum Amount {
    /// Cells over time.
    Rate {
        /// By tier.
        by_tier: Vec<Windows>,
        /// By client, instead.
        by_client: HashMap<ClientId, Windows>,
        /// By tier while a schedule is active, instead; the first that is decides.
        during: Vec<(ScheduleId, Vec<Windows>)>,
    },
    /// Requests in flight.
    Concurrency(u32),
}

/// The windows of a limit for somebody, longest first; none means unlimited.
pub type Windows = Vec<Window>;

/// One window.
#[derive(Debug, Clone)]
pub struct Window {
    /// Its numbers.
    pub quota: Interned,
    /// Where its counters are kept: apart from other windows', whose debts drain at another speed.
    pub space: SpaceId,
    /// The item of `RateLimit-Policy`, such as `"plan";q=100;w=60`.
    pub policy: HeaderValue,
    /// The name in it, with its quotes.
    pub policy_name: Arc<str>,
    /// The quota's burst, as a field's value.
    pub limit: HeaderValue,
    /// Whether the counter is the caller's own rather than shared by many.
    pub own: bool,
}

/// What happens when a part of a key is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The limit doesn't apply.
    Skip,
    /// All such requests share a counter.
    Shared,
}

/// A part of a counter's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPart {
    /// The first known of key, user, address.
    Client,
    /// The API key.
    ApiKey,
    /// The user.
    User,
    /// The tenant.
    Tenant,
    /// The tier.
    Tier,
    /// The address, grouped as everywhere or in a way of this limit's own.
    Ip(Option<Grouping>),
    /// The route.
    Route,
    /// Method and route.
    Endpoint,
    /// A header's value.
    Header(HeaderName),
    /// A query parameter's value.
    Query(Box<str>),
    /// A cookie's value.
    Cookie(Box<str>),
    /// What the token says.
    Claim(ClaimId),
    /// The client's certificate.
    Certificate,
}

/// What to do with a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is the common one; boxing it would cost an allocation per request")]
pub enum Plan<'s> {
    /// Refuse it with 403.
    Blocked,
    /// Nothing matches: 404.
    NoRoute,
    /// Only other methods match: 405.
    OtherMethods(Vec<&'s Method>),
    /// Charge it and send it on its way.
    Proceed(Proceed<'s>),
}

/// The way of a request and its price.
#[derive(Debug)]
pub struct Proceed<'s> {
    /// Its route.
    pub route: &'s Route,
    /// The pattern that matched.
    pub pattern: Option<&'s Pattern>,
    /// Rates that are enforced, narrow before broad.
    pub charges: SmallVec<[Charge<'s>; 4]>,
    /// The window behind each of `charges`.
    pub windows: SmallVec<[&'s Window; 4]>,
    /// Concurrency limits.
    pub slots: SmallVec<[SlotCharge; 1]>,
    /// Rates that only watch.
    pub shadow: SmallVec<[Charge<'s>; 1]>,
    /// Whether the response may change what something costs.
    pub settles: bool,
    /// Whether other gateways count some of it with us.
    pub shared: bool,
    /// Whether nothing counts it.
    pub exempt: bool,
}

/// Decides where a request goes and what it is charged.
#[must_use]
pub fn plan<'s>(policy: &'s Policy, facts: &Facts<'_>, identity: &Identity<'_>) -> Plan<'s> {
    let unrouted = Subject { facts, identity, route: None, active: policy.schedules.active() };
    if policy.blocked.iter().any(|rule| rule.matches(&unrouted)) {
        return Plan::Blocked;
    }
    let (route, pattern) = match policy.routes.find(facts) {
        Found::Route(route, pattern) => (route, pattern),
        Found::OtherMethods(methods) => return Plan::OtherMethods(methods),
        Found::Nothing => return Plan::NoRoute,
    };
    let mut proceed = Proceed {
        route,
        pattern,
        charges: SmallVec::new(),
        windows: SmallVec::new(),
        slots: SmallVec::new(),
        shadow: SmallVec::new(),
        settles: false,
        shared: false,
        exempt: identity.client.is_some_and(|(_, client)| client.exempt)
            || policy.exempt.iter().any(|rule| rule.matches(&unrouted)),
    };
    if !proceed.exempt {
        let subject = Subject { route: Some(route.id), ..unrouted };
        for limit in &policy.limits {
            if limit.applies(&subject) {
                limit.charge(&subject, route, &mut proceed);
            }
        }
    }
    Plan::Proceed(proceed)
}

impl Limit {
    /// Whether this limit counts the request.
    #[must_use]
    pub fn applies(&self, subject: &Subject<'_>) -> bool {
        self.matcher.matches(subject) && !self.unless.as_ref().is_some_and(|unless| unless.matches(subject))
    }

    /// Whether it counts every request of the route at this place, as far as that can be said without one.
    #[must_use]
    pub fn counts_all_of(&self, route: usize) -> bool {
        let named = |routes: &Vec<RouteId>| routes.iter().any(|id| usize::from(id.0) == route);
        !self.shadow
            && self.unless.is_none()
            && self.matcher.is_about_routes_only()
            && self.matcher.routes.as_ref().is_none_or(named)
    }

    fn charge<'s>(&'s self, subject: &Subject<'_>, route: &Route, proceed: &mut Proceed<'s>) {
        let Some(key) = self.key(subject, route) else { return };
        let sharing = self.sharing.map(|sharing| Sharing { entity: self.entity(subject, route), ..sharing });
        proceed.shared |= sharing.is_some();
        match &self.amount {
            Amount::Concurrency(max) => {
                proceed.slots.push(SlotCharge { key, max: *max, limit: self.id, shadow: self.shadow, sharing });
            }
            Amount::Rate { .. } => {
                let windows = self.windows(subject);
                let cost = self.cost.of(subject, route, windows);
                proceed.settles |= self.settlement.is_some();
                for (ordinal, window) in (0_u8..).zip(windows) {
                    let charge = Charge {
                        key: key.window(ordinal),
                        space: window.space,
                        quota: &window.quota,
                        cost,
                        limit: self.id,
                        queue: self.queue,
                        warmup: self.warmup.as_ref().map(|warmup| (warmup, key)),
                        sharing,
                    };
                    if self.shadow {
                        proceed.shadow.push(charge);
                    } else {
                        proceed.charges.push(charge);
                        proceed.windows.push(window);
                    }
                }
            }
        }
    }

    /// The windows that hold for somebody: the client's own, those of a schedule, or the tier's.
    #[must_use]
    pub fn windows(&self, subject: &Subject<'_>) -> &[Window] {
        let Amount::Rate { by_tier, during, .. } = &self.amount else { return &[] };
        let scheduled = during.iter().find(|(schedule, _)| subject.active.contains(*schedule)).map(|(_, by_tier)| by_tier);
        let tier = usize::from(subject.identity.tier.0);
        let windows = self.override_for(subject.identity).or_else(|| scheduled.unwrap_or(by_tier).get(tier));
        windows.map(Vec::as_slice).unwrap_or_default()
    }

    /// The rate that replaces the tier's for this client.
    fn override_for(&self, identity: &Identity<'_>) -> Option<&Windows> {
        let Amount::Rate { by_client, .. } = &self.amount else { return None };
        identity.client.filter(|_| !by_client.is_empty()).and_then(|(id, _)| by_client.get(&id))
    }

    /// The counter's key; `None` if a part is missing and the limit so doesn't apply.
    #[must_use]
    pub fn key(&self, subject: &Subject<'_>, route: &Route) -> Option<Key> {
        if let Some(key) = self.constant_key {
            return Some(key);
        }
        let mut key = self.key_start.clone();
        for part in &self.per {
            if !part.push(subject, route, &mut key) {
                match self.missing {
                    Missing::Skip => return None,
                    Missing::Shared => key.push(kind::MISSING, &[]),
                }
            }
        }
        self.set_apart(subject.identity, &mut key);
        Some(key.finish())
    }

    /// A digest of the values of `per` alone.
    fn entity(&self, subject: &Subject<'_>, route: &Route) -> u64 {
        let mut key = self.entity_start.clone();
        for part in &self.per {
            if !part.push(subject, route, &mut key) {
                key.push(kind::MISSING, &[]);
            }
        }
        let Key([entity, _]) = key.finish();
        entity
    }

    /// Callers with different rates must not share a counter: it would drain at the rate of whoever asked last. Whoever has the first tier's
    /// rates has the plain counter, so that giving somebody else another rate changes no counter but theirs.
    fn set_apart(&self, identity: &Identity<'_>, key: &mut KeyParts) {
        let overridden = self.override_for(identity).and(identity.client);
        let differs = self.differs.get(usize::from(identity.tier.0)).is_some_and(|differs| *differs);
        if (overridden.is_none() && !differs) || self.per.iter().any(|part| part.fixes_rate(identity)) {
            return;
        }
        match overridden {
            Some((_, client)) => key.push(kind::CLIENT, client.id.as_bytes()),
            None => key.push(kind::TIER, identity.tier_name.as_bytes()),
        }
    }
}

impl Amount {
    /// The least that any of its windows holds at once, or takes at once for a single cost.
    #[must_use]
    pub fn smallest_burst(&self) -> Option<u64> {
        let Self::Rate { by_tier, by_client, during } = self else { return None };
        let all = by_tier.iter().chain(by_client.values()).chain(during.iter().flat_map(|(_, by_tier)| by_tier));
        all.flatten().map(|window| window.quota.quota.largest_cost()).min()
    }
}

impl KeyPart {
    /// How many callers share a counter: greater is broader. Charges go narrow before broad.
    #[must_use]
    pub fn breadth(&self) -> u8 {
        match self {
            Self::Ip(None) | Self::Client | Self::ApiKey | Self::User | Self::Certificate => 0,
            Self::Header(_) | Self::Query(_) | Self::Cookie(_) => 0,
            // A grouping of its own is there to be wider than the usual one.
            Self::Tenant | Self::Claim(_) | Self::Ip(Some(_)) => 1,
            Self::Route | Self::Endpoint => 2,
            Self::Tier => 3,
        }
    }

    /// Whether everybody with the same value of this part has the same rates. A change of rate then goes on with the same counter.
    fn fixes_rate(&self, identity: &Identity<'_>) -> bool {
        match self {
            Self::ApiKey => identity.key.is_some(),
            // A user with a key has the rates of the key's client.
            Self::User => identity.key.is_none(),
            Self::Client => match identity.known_by {
                Part::ApiKey => true,
                Part::User => identity.key.is_none(),
                // A token that names no user may still name a tier.
                Part::Ip => identity.client.is_none() && identity.claims.is_none(),
            },
            _ => false,
        }
    }

    /// Adds the request's value to a key; `false` if it has none.
    fn push(&self, subject: &Subject<'_>, route: &Route, key: &mut KeyParts) -> bool {
        let Subject { facts, identity, .. } = subject;
        match self {
            Self::Client => push_client(identity, key),
            Self::ApiKey => {
                let Some(digest) = &identity.key else { return false };
                key.push(kind::API_KEY, digest.as_bytes());
            }
            Self::User => {
                let Some(user) = identity.user else { return false };
                key.push(kind::USER, user.as_bytes());
            }
            Self::Tenant => {
                let Some(tenant) = identity.tenant else { return false };
                key.push(kind::TENANT, tenant.as_bytes());
            }
            Self::Tier => key.push(kind::TIER, identity.tier_name.as_bytes()),
            Self::Ip(None) => push_network(identity.network, key),
            Self::Ip(Some(grouping)) => push_network(grouping.network_of(identity.address), key),
            Self::Route => key.push(kind::ROUTE, route.name.as_bytes()),
            Self::Endpoint => {
                key.push(kind::METHOD, known_method(facts.method).as_bytes());
                key.push(kind::ROUTE, route.name.as_bytes());
            }
            Self::Header(name) => {
                return push_one(
                    kind::HEADER,
                    facts.headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii()),
                    key,
                );
            }
            Self::Claim(id) => {
                let Some(value) = identity.claims.and_then(|claims| claims.counted(*id)) else { return false };
                key.push(kind::CLAIM, value.as_bytes());
            }
            Self::Certificate => {
                let Some(certificate) = identity.certificate else { return false };
                key.push(kind::CERTIFICATE, certificate.fingerprint());
            }
            Self::Query(name) => return push_one(kind::QUERY, query_values(facts.query, name), key),
            Self::Cookie(name) => return push_one(kind::COOKIE, cookie_values(facts.headers, name), key),
        }
        true
    }
}

/// Made-up methods share a counter; otherwise each would be a fresh one.
fn known_method(method: &Method) -> &str {
    const KNOWN: [Method; 7] =
        [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH];
    if KNOWN.contains(method) { method.as_str() } else { "other" }
}

fn push_client(identity: &Identity<'_>, key: &mut KeyParts) {
    match (identity.known_by, identity.client, identity.user) {
        (Part::ApiKey, Some((_, client)), _) => key.push(kind::CLIENT, client.id.as_bytes()),
        (Part::User, _, Some(user)) => match identity.user_client {
            Some(client) => key.push(kind::CLIENT, client.id.as_bytes()),
            None => key.push(kind::USER, user.as_bytes()),
        },
        _ => push_network(identity.network, key),
    }
}

/// The prefix goes in too: a /48 and its first /64 have the same address.
fn push_network(network: Network, key: &mut KeyParts) {
    match network.address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            key.push(kind::IPV4, &[a, b, c, d, network.prefix]);
        }
        IpAddr::V6(v6) => {
            key.push(kind::IPV6, &v6.octets());
            key.push(kind::PREFIX, &[network.prefix]);
        }
    }
}

/// Adds the one value of a field. An empty value is no value. Several values share a counter whatever they are: upstream may take any of them,
/// and a client could otherwise have a fresh counter for every second value it makes up.
fn push_one<V: AsRef<[u8]>>(kind: u8, values: impl Iterator<Item = V>, key: &mut KeyParts) -> bool {
    let mut values = values.filter(|value| !value.as_ref().is_empty());
    match (values.next(), values.next()) {
        (None, _) => false,
        (Some(only), None) => {
            key.push(kind, only.as_ref());
            true
        }
        (Some(_), Some(_)) => {
            key.push(kind::SEVERAL, &[kind]);
            true
        }
    }
}

/// Tags of key parts: the same bytes as a user and as a client are two keys.
mod kind {
    pub(super) const MISSING: u8 = 1;
    pub(super) const CLIENT: u8 = 2;
    pub(super) const API_KEY: u8 = 3;
    pub(super) const USER: u8 = 4;
    pub(super) const TENANT: u8 = 5;
    pub(super) const TIER: u8 = 6;
    pub(super) const IPV4: u8 = 7;
    pub(super) const IPV6: u8 = 8;
    pub(super) const ROUTE: u8 = 9;
    pub(super) const METHOD: u8 = 10;
    pub(super) const HEADER: u8 = 11;
    pub(super) const QUERY: u8 = 12;
    pub(super) const COOKIE: u8 = 13;
    pub(super) const SEVERAL: u8 = 14;
    pub(super) const PREFIX: u8 = 15;
    pub(super) const CLAIM: u8 = 16;
    pub(super) const CERTIFICATE: u8 = 17;
}
