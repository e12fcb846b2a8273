//! Who is calling: address, API key, user, tier; tried in the configured order.
//!
//! [`identify`] looks at nothing but [`Facts`] and the compiled [`IdentityRules`]. It knows no limits and no routes: it
//! only says who somebody is, and that a presented key is nobody's.

pub mod address;
mod api_key;

use std::collections::HashMap;

use http::HeaderName;

use crate::request::Facts;
pub use address::{Grouping, Network, TrustedProxies};
pub use api_key::{KeyDigest, KeyDigestError, KeySource, cookie_values, query_values};

/// The compiled `identity:`, `clients:` and `trusted_proxies:`.
#[derive(Debug, Default)]
pub struct IdentityRules {
    /// What makes a client, most telling first.
    pub order: Vec<Part>,
    /// Where keys are looked for.
    pub key_sources: Vec<KeySource>,
    /// Whether a key that nobody has is refused; otherwise it is as good as none.
    pub reject_unknown_keys: bool,
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

/// A client's place in [`Clients`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientId(pub u32);

/// A tier's place in [`IdentityRules::tiers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct TierId(pub u16);

/// A known client.
#[derive(Debug)]
pub struct Client {
    /// Its name.
    pub id: Box<str>,
    /// Its tier.
    pub tier: TierId,
    /// Its tenant.
    pub tenant: Option<Box<str>>,
    /// Whether nothing is counted for it.
    pub exempt: bool,
}

/// Known clients, by key and by user.
#[derive(Debug, Default)]
pub struct Clients {
    list: Vec<Client>,
    by_key: HashMap<KeyDigest, ClientId>,
    by_user: HashMap<Box<str>, ClientId>,
}

impl Clients {
    /// Adds a client.
    pub fn add(&mut self, client: Client) -> ClientId {
        let id = ClientId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.list.push(client);
        id
    }

    /// Gives a client a key; `false` if somebody has it already.
    pub fn add_key(&mut self, key: KeyDigest, client: ClientId) -> bool {
        self.by_key.insert(key, client).is_none()
    }

    /// Gives a client a user; `false` if somebody has it already.
    pub fn add_user(&mut self, user: &str, client: ClientId) -> bool {
        self.by_user.insert(user.into(), client).is_none()
    }

    /// The client of this id.
    #[must_use]
    pub fn get(&self, id: ClientId) -> Option<&Client> {
        self.list.get(usize::try_from(id.0).ok()?)
    }

    /// The client of this name, by looking at all of them: for `compile` and tests.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<ClientId> {
        let index = self.list.iter().position(|client| &*client.id == name)?;
        u32::try_from(index).ok().map(ClientId)
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
    /// The user a trusted proxy named.
    pub user: Option<&'r str>,
    /// The known client that this user belongs to.
    pub user_client: Option<&'r Client>,
    /// The client's address, after trusted hops are peeled off.
    pub address: std::net::IpAddr,
    /// The address as limits count it.
    pub network: Network,
    /// The tier.
    pub tier: TierId,
    /// The tier's name.
    pub tier_name: &'r str,
    /// Whether the socket's peer is a trusted proxy.
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
    /// Several keys in one place: which one counts would be a guess.
    #[error("more than one API key was sent")]
    AmbiguousKey,
}

/// Says who a request is from.
///
/// # Errors
/// When a key was presented that must not be ignored.
pub fn identify<'r>(facts: &Facts<'r>, rules: &'r IdentityRules) -> Result<Identity<'r>, IdentityFault> {
    let peer = facts.conn.peer.ip();
    let via_trusted_proxy = rules.trusted.contains(peer);
    let address = if via_trusted_proxy { rules.trusted.client_of(peer, facts.headers) } else { peer };
    let by_key = client_by_key(facts, rules)?;
    let from_proxy = |name: &Option<HeaderName>| name.as_ref().filter(|_| via_trusted_proxy).and_then(|name| facts.single(name));
    let user = from_proxy(&rules.user_header);
    let by_user = user.and_then(|user| rules.clients.by_user.get(user).copied());
    let client_id = by_key.map(|(_, client)| client).or(by_user);
    let client = client_id.and_then(|id| rules.clients.get(id).map(|client| (id, client)));
    let tier = match client {
        Some((_, client)) => client.tier,
        None => from_proxy(&rules.tier_header).and_then(|name| tier_named(rules, name)).unwrap_or_default(),
    };
    let has = |part: &Part| match part {
        Part::ApiKey => by_key.is_some(),
        Part::User => user.is_some(),
        Part::Ip => true,
    };
    Ok(Identity {
        client,
        known_by: rules.order.iter().copied().find(has).unwrap_or(Part::Ip),
        key: by_key.map(|(key, _)| key),
        user,
        user_client: by_user.and_then(|id| rules.clients.get(id)),
        address,
        network: rules.grouping.network_of(address),
        tier,
        tier_name: rules.tiers.get(usize::from(tier.0)).map_or("", |name| name),
        via_trusted_proxy,
    })
}

fn client_by_key(facts: &Facts<'_>, rules: &IdentityRules) -> Result<Option<(KeyDigest, ClientId)>, IdentityFault> {
    let Some(key) = api_key::find(facts, &rules.key_sources)? else { return Ok(None) };
    let digest = KeyDigest::of(key.as_ref());
    match rules.clients.by_key.get(&digest) {
        Some(client) => Ok(Some((digest, *client))),
        None if rules.reject_unknown_keys => Err(IdentityFault::UnknownKey),
        None => Ok(None),
    }
}

/// The tier of this name.
fn tier_named(rules: &IdentityRules, name: &str) -> Option<TierId> {
    let index = rules.tiers.iter().position(|tier| &**tier == name)?;
    u16::try_from(index).ok().map(TierId)
}
