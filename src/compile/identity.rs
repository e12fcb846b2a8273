//! Who is who: tiers, clients, keys, trusted proxies.

use std::collections::HashSet;

use http::HeaderName;

use super::{Compiler, Names};
use crate::config::diagnostic::{Path, did_you_mean};
use crate::config::{self, ApiKeySource, NamedField};
use crate::headers::IdentityHeaders;
use crate::identity::address::parse_ranges;
use crate::identity::{Client, Clients, Grouping, IdentityRules, KeyDigest, KeySource, Part, TierId, TrustedProxies};

impl<'c> Compiler<'c> {
    /// Tier names; one without a name's worth of choice if there are none.
    pub(super) fn tiers(&mut self) -> Vec<&'c str> {
        let root = Path::root("tiers");
        let mut seen = HashSet::new();
        for (i, tier) in self.config.tiers.iter().enumerate() {
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
            if tier.is_empty() || tier == "default" || !tier.chars().all(word) {
                self.problem(&root.index(i), "a tier is named with a-z, 0-9, - and _, and not `default`");
            }
            if !seen.insert(tier) {
                self.problem(&root.index(i), format!("the tier `{tier}` is there already"));
            }
        }
        match self.config.tiers.as_slice() {
            [] => vec![ONLY_TIER],
            tiers => tiers.iter().map(String::as_str).collect(),
        }
    }

    pub(super) fn clients(&mut self, tiers: &[&str]) -> Clients {
        let root = Path::root("clients");
        let mut clients = Clients::default();
        let mut ids = HashSet::new();
        for (i, client) in self.config.clients.iter().enumerate() {
            let path = root.index(i);
            if client.id.is_empty() || client.id.chars().any(char::is_control) {
                self.problem(&path.key("id"), "an id has at least one character and no control characters");
            }
            if !ids.insert(client.id.as_str()) {
                self.problem(&path.key("id"), format!("the id `{}` is taken already", client.id));
            }
            let tier = client.tier.as_deref().map_or(Some(0), |name| {
                let found = tiers.iter().position(|tier| *tier == name);
                if found.is_none() {
                    self.unknown(&path.key("tier"), "tier", name, "tiers", tiers);
                }
                found
            });
            let id = clients.add(Client {
                id: client.id.as_str().into(),
                tier: TierId(tier.and_then(|tier| u16::try_from(tier).ok()).unwrap_or_default()),
                tenant: client.tenant.as_deref().map(Into::into),
                exempt: client.exempt,
            });
            for (k, key) in client.api_keys.0.iter().enumerate() {
                let at = path.key("api_keys").index(k);
                match key.parse::<KeyDigest>() {
                    Ok(digest) if clients.add_key(digest, id) => {}
                    Ok(_) => self.problem(&at, "this key belongs to a client already"),
                    Err(error) => self.problem(&at, error.to_string()),
                }
            }
            for (u, user) in client.users.0.iter().enumerate() {
                if !clients.add_user(user, id) {
                    self.problem(&path.key("users").index(u), format!("the user `{user}` belongs to a client already"));
                }
            }
            self.overrides_exist(client, &path.key("limits"));
        }
        clients
    }

    fn overrides_exist(&mut self, client: &config::Client, path: &Path) {
        let limits: Vec<_> = self.config.limits.iter().map(|limit| limit.name.as_str()).collect();
        for name in client.limits.keys() {
            match self.config.limits.iter().find(|limit| limit.name == *name) {
                None => self.unknown(&path.key(name), "limit", name, "limits", &limits),
                Some(limit) if limit.rate.is_none() => {
                    self.problem(&path.key(name), format!("limit `{name}` has no rate that could be replaced"));
                }
                Some(_) => {}
            }
        }
    }

    pub(super) fn identity(&mut self, names: Names<'c>) -> (IdentityRules, IdentityHeaders) {
        let config = &self.config.identity;
        let path = Path::root("identity");
        let order = self.order(config.order.as_deref(), &path.key("order"));
        let default_source = || vec![ApiKeySource::Field(NamedField::Header("x-api-key".to_owned()))];
        let sources = config.api_key.sources.as_ref().map_or_else(default_source, |sources| sources.0.clone());
        let at = path.key("api_key").key("sources");
        let key_sources: Vec<_> =
            sources.iter().enumerate().filter_map(|(i, source)| self.key_source(source, &at.index(i))).collect();
        let user = path.key("user");
        let user_header = config.user.header.as_ref().and_then(|name| self.header_name(name, &user.key("header")));
        let tier_header = config.user.tier_header.as_ref().and_then(|name| self.header_name(name, &user.key("tier_header")));
        for (name, key) in [(&user_header, "header"), (&tier_header, "tier_header")] {
            let Some(name) = name else { continue };
            if name.as_str().contains(['_', '.']) {
                self.problem(&user.key(key), "use a name without _ and .: servers fold such names onto others");
            }
        }
        let headers = IdentityHeaders {
            trusted_only: [&user_header, &tier_header].into_iter().flatten().cloned().collect(),
            keys: key_sources.iter().filter_map(key_header).collect(),
        };
        let rules = IdentityRules {
            order,
            key_sources,
            reject_unknown_keys: config.api_key.unknown == config::Unknown::Reject,
            user_header,
            tier_header,
            trusted: self.trusted_proxies(),
            grouping: self.grouping(),
            clients: names.clients,
            tiers: names.tiers.into_iter().map(Into::into).collect(),
        };
        (rules, headers)
    }

    fn order(&mut self, order: Option<&[config::IdentityPart]>, path: &Path) -> Vec<Part> {
        let Some(order) = order else { return vec![Part::ApiKey, Part::User, Part::Ip] };
        let parts: Vec<_> = order
            .iter()
            .map(|part| match part {
                config::IdentityPart::ApiKey => Part::ApiKey,
                config::IdentityPart::User => Part::User,
                config::IdentityPart::Ip => Part::Ip,
            })
            .collect();
        if let Some(i) =
            (1..parts.len()).find(|i| parts.get(..*i).is_some_and(|before| parts.get(*i).is_some_and(|p| before.contains(p))))
        {
            self.problem(&path.index(i), "each way to know a client stands here once");
        }
        parts
    }

    fn key_source(&mut self, source: &ApiKeySource, path: &Path) -> Option<KeySource> {
        match source {
            ApiKeySource::Bearer => Some(KeySource::Bearer),
            ApiKeySource::Field(NamedField::Header(name)) => self.header_name(name, &path.key("header")).map(KeySource::Header),
            ApiKeySource::Field(NamedField::Query(name)) => Some(KeySource::Query(name.as_str().into())),
            ApiKeySource::Field(NamedField::Cookie(name)) => Some(KeySource::Cookie(name.as_str().into())),
            ApiKeySource::Field(NamedField::Claim(_)) => {
                self.problem(path, "a key does not come in a claim");
                None
            }
        }
    }

    fn trusted_proxies(&mut self) -> TrustedProxies {
        let root = Path::root("trusted_proxies");
        let mut ranges = Vec::new();
        for (i, config::ProxyRange(text)) in self.config.trusted_proxies.0.iter().enumerate() {
            match parse_ranges(text) {
                Some(range) => ranges.extend(range),
                None => {
                    let hint = did_you_mean(text, ["loopback", "private"]);
                    self.problem(&root.index(i), format!("`{text}` is not a range; write 10.0.0.0/8, loopback or private"));
                    if let Some(problem) = self.problems.last_mut() {
                        problem.hint = hint;
                    }
                }
            }
        }
        TrustedProxies::new(ranges)
    }

    fn grouping(&mut self) -> Grouping {
        let config::IpGrouping { ipv4_prefix, ipv6_prefix } = self.config.identity.ip;
        let path = Path::root("identity").key("ip");
        if ipv4_prefix > 32 {
            self.problem(&path.key("ipv4_prefix"), "an IPv4 prefix has 0 to 32 bits");
        }
        if ipv6_prefix > 128 {
            self.problem(&path.key("ipv6_prefix"), "an IPv6 prefix has 0 to 128 bits");
        }
        Grouping { ipv4_prefix, ipv6_prefix }
    }
}

fn key_header(source: &KeySource) -> Option<HeaderName> {
    match source {
        KeySource::Header(name) => Some(name.clone()),
        KeySource::Bearer => Some(http::header::AUTHORIZATION),
        KeySource::Cookie(_) => Some(http::header::COOKIE),
        KeySource::Query(_) => None,
    }
}

/// The tier of everybody when none are configured.
pub(super) const ONLY_TIER: &str = "standard";
