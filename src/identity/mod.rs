//! Who is calling: address, API key, token, user, tier; tried in the configured order.
//!
//! [`identify`] looks at nothing but [`Facts`], the compiled [`IdentityRules`] and the claims of a token that [`jwt`] believed. It
//! knows no limits and no routes: it only says who somebody is, and that a presented key is nobody's.

mod address;
mod api_key;
mod clients;
mod credential;
mod forwarded;
pub mod jwt;
mod pseudonym;
mod sameness;
mod told;

use http::HeaderName;

use crate::request::{ClientCertificate, Facts};
pub use address::{Grouping, Network, RANGE_NAMES, TrustedProxies, parse_ranges};
pub use api_key::{KeyDigest, KeyDigestError, ShortDigest};
pub use clients::{Client, ClientId, Clients, Expiry, Owner};
pub use credential::{KeySource, cookie_values, is_query_pair, query_values};
use jwt::{Claims, TokenFault, Verifier};
pub use pseudonym::{LoggedAddress, Pseudonyms};
pub use told::Told;

/// The compiled `identity:`, `clients:` and `trusted_proxies:`.
#[derive(Debug, Default)]
pub struct IdentityRules {
    /// What makes a client, most telling first.
    pub order: Vec<Part>,
    /// Where keys are looked for.
    pub key_sources: Vec<KeySource>,
    /// Whether a key that nobody has is refused; otherwise it is as good as none.
    pub reject_unknown_keys: bool,
    /// Users by token.
    pub jwt: Option<Verifier>,
    /// The user's name, from a trusted proxy.
    pub user_header: Option<HeaderName>,
    /// The user's tier, from a trusted proxy.
    pub tier_header: Option<HeaderName>,
    /// Whose forwarding headers are believed.
    pub trusted: TrustedProxies,
    /// How addresses are grouped.
    pub grouping: Grouping,
    /// Known clients.
    pub clients: Clients,
    /// Tier names, least important first; never empty.
    pub tiers: Vec<Box<str>>,
    /// Whether keys are taken out before a request is forwarded.
    pub strip_keys: bool,
    /// What conditions ask whether keys begin with it; by the bit in [`KeyPrefixes`].
    pub key_prefixes: Vec<Box<str>>,
    /// The headers in which upstream is told who somebody is.
    pub forward: Vec<(Told, HeaderName)>,
}

/// A way to know a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// By API key.
    ApiKey,
    /// By user.
    User,
    /// By address.
    Ip,
}

/// A tier's place in [`IdentityRules::tiers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TierId(pub u16);

/// Which of the configured prefixes a key has, or a condition wants. A bit each: the key's text is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyPrefixes(u64);

/// As many as there are bits.
pub const MAX_KEY_PREFIXES: usize = 64;

impl KeyPrefixes {
    /// Whether the two have one in common.
    #[must_use]
    pub fn meet(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl FromIterator<usize> for KeyPrefixes {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        let bit = |place: usize| u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0);
        Self(places.into_iter().fold(0, |all, place| all | bit(place)))
    }
}

/// Who a request is from.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'r> {
    /// The known client, by key or else by user: its tier, tenant, exemption and overrides hold.
    pub client: Option<(ClientId, &'r Client)>,
    /// What the client is known by: the first of the configured order that the request has.
    pub known_by: Part,
    /// The client's API key, by its digest.
    pub key: Option<KeyDigest>,
    /// Which prefixes that key has.
    pub key_prefixes: KeyPrefixes,
    /// The user that the token or else a trusted proxy names.
    pub user: Option<&'r str>,
    /// The known client that this user belongs to.
    pub user_client: Option<&'r Client>,
    /// The client's address, after trusted hops are peeled off.
    pub address: std::net::IpAddr,
    /// The address as limits count it.
    pub network: Network,
    /// The tenant: the known client's, or else the token's.
    pub tenant: Option<&'r str>,
    /// What the token says.
    pub claims: Option<&'r Claims>,
    /// The certificate of the connection that the request came by.
    pub certificate: Option<&'r ClientCertificate>,
    /// The tier.
    pub tier: TierId,
    /// The tier's name.
    pub tier_name: &'r str,
    /// Whether the connection's peer is a trusted proxy.
    pub via_trusted_proxy: bool,
}

impl Identity<'_> {
    /// Whether a key or a user says who this is.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.key.is_some() || self.user.is_some()
    }
}

/// Why somebody can't be let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityFault {
    /// The key is nobody's.
    #[error("the API key is not valid")]
    UnknownKey,
    /// The key was somebody's.
    #[error("the API key is not valid any more: it has expired")]
    ExpiredKey,
    /// Several keys in one place, or one with two readings: which one counts would be a guess.
    #[error("more than one API key was sent, or one that can be read in two ways")]
    AmbiguousKey,
    /// The token is not believed.
    #[error(transparent)]
    Token(#[from] TokenFault),
}

/// Says who a request is from. `claims` are those of its token, if it has one that is believed.
///
/// # Errors
/// When a key was presented that must not be ignored.
pub fn identify<'r>(
    facts: &Facts<'r>,
    rules: &'r IdentityRules,
    claims: Option<&'r Claims>,
) -> Result<Identity<'r>, IdentityFault> {
    let peer = facts.conn.peer.ip();
    let via_trusted_proxy = facts.conn.is_local || rules.trusted.contains(peer);
    let address = if via_trusted_proxy { rules.trusted.client_of(peer, facts.headers) } else { peer };
    let by_key = client_by_key(facts, rules)?;
    let from_proxy = |name: &Option<HeaderName>| name.as_ref().filter(|_| via_trusted_proxy).and_then(|name| facts.single(name));
    let user = claims.and_then(|claims| claims.user.as_deref()).or_else(|| from_proxy(&rules.user_header));
    let by_user = user.and_then(|user| rules.clients.of_user(user));
    let client_id = by_key.map(|known| known.client).or(by_user);
    let client = client_id.and_then(|id| rules.clients.get(id).map(|client| (id, client)));
    let tier = match client {
        Some((_, client)) => client.tier,
        None => tier_name(rules, claims, from_proxy).and_then(|name| tier_named(rules, name)).unwrap_or_default(),
    };
    let has = |part: &Part| match part {
        Part::ApiKey => by_key.is_some(),
        Part::User => user.is_some(),
        Part::Ip => true,
    };
    Ok(Identity {
        client,
        known_by: rules.order.iter().copied().find(has).unwrap_or(Part::Ip),
        key: by_key.map(|known| known.digest),
        key_prefixes: by_key.map(|known| known.prefixes).unwrap_or_default(),
        user,
        user_client: by_user.and_then(|id| rules.clients.get(id)),
        address,
        network: rules.grouping.network_of(address),
        tenant: client.and_then(|(_, client)| client.tenant.as_deref()).or(claims.and_then(|claims| claims.tenant.as_deref())),
        claims,
        certificate: facts.conn.certificate.as_deref(),
        tier,
        tier_name: rules.tiers.get(usize::from(tier.0)).map_or("", |name| name),
        via_trusted_proxy,
    })
}

/// What there is to know of a key that somebody has.
#[derive(Clone, Copy)]
struct KnownKey {
    digest: KeyDigest,
    client: ClientId,
    prefixes: KeyPrefixes,
}

fn client_by_key(facts: &Facts<'_>, rules: &IdentityRules) -> Result<Option<KnownKey>, IdentityFault> {
    let Some(key) = api_key::find(facts, rules)? else { return Ok(None) };
    let digest = KeyDigest::of(key.as_ref());
    let fault = match rules.clients.owner(&digest) {
        Owner::Client(client) => {
            let begins = |prefix: &str| key.starts_with(prefix.as_bytes());
            let places = rules.key_prefixes.iter().enumerate().filter(|(_, prefix)| begins(prefix)).map(|(place, _)| place);
            return Ok(Some(KnownKey { digest, client, prefixes: places.collect() }));
        }
        Owner::Expired => IdentityFault::ExpiredKey,
        Owner::Nobody => IdentityFault::UnknownKey,
    };
    if rules.reject_unknown_keys { Err(fault) } else { Ok(None) }
}

/// Whoever has a token that could say so has the tier that it says, or none: what a proxy says is about somebody else then.
fn tier_name<'r>(
    rules: &IdentityRules,
    claims: Option<&'r Claims>,
    from_proxy: impl Fn(&Option<HeaderName>) -> Option<&'r str>,
) -> Option<&'r str> {
    let says_tiers = rules.jwt.as_ref().is_some_and(|verifier| verifier.claims.tier.is_some());
    match claims.filter(|_| says_tiers) {
        Some(claims) => claims.tier.as_deref(),
        None => from_proxy(&rules.tier_header),
    }
}

/// The tier of this name.
fn tier_named(rules: &IdentityRules, name: &str) -> Option<TierId> {
    let index = rules.tiers.iter().position(|tier| &**tier == name)?;
    u16::try_from(index).ok().map(TierId)
}
