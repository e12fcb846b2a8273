//! Who is who: tiers, clients, keys, trusted proxies.

use std::collections::HashSet;

use http::HeaderName;

use super::{Compiler, Names};
use crate::config::diagnostic::{Path, Problem};
use crate::config::{self, ApiKeySource, NamedField, TrustedProxy};
use crate::headers::{IdentityHeaders, is_foldable};
use crate::identity::{Grouping, IdentityRules, KeySource, Part, Told, TrustedProxies};
use crate::request::ForwardedHeader;

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

    pub(super) fn identity(&mut self, names: Names<'c>) -> (IdentityRules, IdentityHeaders) {
        let config = &self.config.identity;
        let path = Path::root("identity");
        let order = self.order(config.order.as_deref(), &path.key("order"));
        let default_source = || vec![ApiKeySource::Field(NamedField::Header("x-api-key".to_owned()))];
        let sources = config.api_key.sources.as_ref().map_or_else(default_source, |sources| sources.0.clone());
        let at = path.key("api_key").key("sources");
        let key_sources = self.key_sources(&sources, &at);
        let user = path.key("user");
        let jwt = config.user.jwt.as_ref().and_then(|jwt| self.verifier(jwt, &user.key("jwt"), &names));
        let token_sources = jwt.iter().flat_map(|verifier| &verifier.sources);
        let keys: Vec<_> = key_sources.iter().chain(token_sources).filter_map(key_header).collect();
        let (user_header, tier_header) = self.user_headers(&config.user, &keys, &user);
        let forward = self.forward(&config.forward, &keys, &path.key("forward"));
        let trusted_only = [&user_header, &tier_header].into_iter().flatten().cloned().collect();
        let told = forward.iter().map(|(_, name)| name.clone()).collect();
        let headers = IdentityHeaders::new(trusted_only, keys, told, forwarded_header(self.config.forwarded_header));
        let rules = IdentityRules {
            order,
            key_sources,
            reject_unknown_keys: config.api_key.unknown == config::Unknown::Reject,
            jwt,
            user_header,
            tier_header,
            trusted: self.trusted_proxies(),
            grouping: self.grouping(),
            clients: names.known.clients,
            strip_keys: config.api_key.strip,
            key_prefixes: names.key_prefixes.into_iter().map(Into::into).collect(),
            forward,
            tiers: names.tiers.into_iter().map(Into::into).collect(),
        };
        (rules, headers)
    }

    /// The headers in which a trusted proxy names users and tiers. Two things in one header would make each say the other: a key
    /// would be taken for a user's name, and passed on as one.
    fn user_headers(
        &mut self,
        user: &config::User,
        keys: &[HeaderName],
        path: &Path,
    ) -> (Option<HeaderName>, Option<HeaderName>) {
        let mut taken: Vec<HeaderName> = Vec::new();
        let [header, tier_header] = [("header", &user.header), ("tier_header", &user.tier_header)].map(|(key, written)| {
            let at = path.key(key);
            let name = self.editable(written.as_ref()?, &at)?;
            self.own_header(&name, keys, &taken, &at);
            taken.push(name.clone());
            Some(name)
        });
        (header, tier_header)
    }

    /// The headers in which upstream is told who somebody is.
    fn forward(&mut self, forward: &config::IdentityForward, keys: &[HeaderName], path: &Path) -> Vec<(Told, HeaderName)> {
        let config::IdentityForward { client, tier, user, tenant, key_hash, certificate, certificate_details } = forward;
        let written = [
            (Told::Client, client),
            (Told::Tier, tier),
            (Told::User, user),
            (Told::Tenant, tenant),
            (Told::KeyHash, key_hash),
            (Told::Certificate, certificate),
            (Told::CertificateDetails, certificate_details),
        ];
        let mut taken = Vec::new();
        let mut forward = Vec::new();
        for (told, name) in written {
            let at = path.key(told.key());
            let Some(name) = name.as_ref().and_then(|name| self.editable(name, &at)) else { continue };
            self.own_header(&name, keys, &taken, &at);
            taken.push(name.clone());
            if matches!(told, Told::Certificate | Told::CertificateDetails) {
                self.certificates_are_asked_for(&at);
            }
            forward.push((told, name));
        }
        forward
    }

    /// A header with a meaning that nothing else has: not in `keys`, not in `taken`, and no server takes another name for it.
    fn own_header(&mut self, name: &HeaderName, keys: &[HeaderName], taken: &[HeaderName], path: &Path) {
        if is_foldable(name.as_str()) {
            self.problem(path, "use a name of letters, digits and `-`: servers fold others onto such a name");
        }
        if keys.contains(name) {
            self.problem(path, "keys or tokens come in this header");
        } else if WRITTEN_ALWAYS.contains(&name.as_str()) {
            self.problem(path, format!("`{name}` has a meaning of its own"));
        }
        if taken.contains(name) {
            self.problem(path, format!("`{name}` is taken already"));
        }
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

    pub(super) fn key_sources(&mut self, sources: &[ApiKeySource], path: &Path) -> Vec<KeySource> {
        sources.iter().enumerate().filter_map(|(i, source)| self.key_source(source, &path.index(i))).collect()
    }

    fn key_source(&mut self, source: &ApiKeySource, path: &Path) -> Option<KeySource> {
        match source {
            ApiKeySource::Bearer => Some(KeySource::Bearer),
            ApiKeySource::Field(NamedField::Header(name)) => self.header_name(name, &path.key("header")).map(KeySource::Header),
            ApiKeySource::Field(NamedField::Query(name)) => {
                if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
                    self.problem(&path.key("query"), "write a parameter's name: visible ASCII characters, at least one");
                }
                Some(KeySource::Query(name.as_str().into()))
            }
            ApiKeySource::Field(NamedField::Cookie(name)) => {
                // A cookie's name and a header's are both tokens (RFC 6265 §4.1.1).
                if HeaderName::from_bytes(name.as_bytes()).is_err() {
                    self.problem(&path.key("cookie"), "this is not a cookie's name");
                }
                Some(KeySource::Cookie(name.as_str().into()))
            }
            ApiKeySource::Field(NamedField::Claim(_)) => {
                self.problem(path, "neither a key nor a token comes in a claim");
                None
            }
        }
    }

    fn trusted_proxies(&mut self) -> TrustedProxies {
        let root = Path::root("trusted_proxies");
        let (mut ranges, mut hops) = (Vec::new(), None);
        for (i, proxy) in self.config.trusted_proxies.0.iter().enumerate() {
            let at = root.index(i);
            match proxy {
                TrustedProxy::Range(text) => ranges.extend(self.range(text, &at).into_iter().flatten()),
                TrustedProxy::Hops(count @ 1..=MAX_HOPS) if hops.is_none() => hops = Some(*count),
                TrustedProxy::Hops(1..=MAX_HOPS) => self.problem(&at, "the number of hops stands here once"),
                TrustedProxy::Hops(_) => self.problem(&at.key("hops"), "from 1 to 32; the connection's peer is the first"),
            }
        }
        if hops.is_some() && !self.config.trusted_proxies.0.iter().any(|proxy| matches!(proxy, TrustedProxy::Range(_))) {
            self.nobody_is_vouched_for();
        }
        TrustedProxies::new(ranges, hops, forwarded_header(self.config.forwarded_header))
    }

    /// With a number of hops and no range every peer counts as a proxy, so whoever reaches the gateway could say who he is.
    fn nobody_is_vouched_for(&mut self) {
        let config = self.config;
        let user = Path::root("identity").key("user");
        let mut believed = vec![
            (user.key("header"), config.identity.user.header.is_some()),
            (user.key("tier_header"), config.identity.user.tier_header.is_some()),
        ];
        for (i, limit) in config.limits.iter().enumerate() {
            let is_header = matches!(limit.cost, Some(config::Cost::Header(_)));
            believed.push((Path::root("limits").index(i).key("cost"), is_header));
        }
        for (i, exception) in config.exempt.iter().enumerate() {
            believed.push((Path::root("exempt").index(i).key("header"), exception.header.is_some()));
        }
        for (path, _) in believed.into_iter().filter(|(_, given)| *given) {
            let message = "with nothing but `hops` in `trusted_proxies` anybody could set this header";
            self.problems.push(Problem::new(path, message).hint("add the proxies' ranges to `trusted_proxies`"));
        }
    }

    fn grouping(&mut self) -> Grouping {
        let config::IpGrouping { ipv4_prefix, ipv6_prefix } = self.config.identity.ip;
        let grouping = Grouping { ipv4_prefix, ipv6_prefix };
        self.check_grouping(grouping, &Path::root("identity").key("ip"));
        grouping
    }

    /// A limit's own grouping; what it doesn't say is as everywhere else.
    pub(super) fn own_grouping(&mut self, prefixes: config::IpPrefixes, path: &Path) -> Grouping {
        let config::IpGrouping { ipv4_prefix, ipv6_prefix } = self.config.identity.ip;
        if prefixes == config::IpPrefixes::default() {
            self.problem(path, "say ipv4_prefix, ipv6_prefix or both; `ip` alone is grouped as `identity.ip` says");
        }
        self.check_grouping(
            Grouping { ipv4_prefix: prefixes.ipv4_prefix.unwrap_or(0), ipv6_prefix: prefixes.ipv6_prefix.unwrap_or(0) },
            path,
        );
        Grouping {
            ipv4_prefix: prefixes.ipv4_prefix.unwrap_or(ipv4_prefix),
            ipv6_prefix: prefixes.ipv6_prefix.unwrap_or(ipv6_prefix),
        }
    }

    fn check_grouping(&mut self, grouping: Grouping, path: &Path) {
        if grouping.ipv4_prefix > 32 {
            self.problem(&path.key("ipv4_prefix"), "an IPv4 prefix has 0 to 32 bits");
        }
        if grouping.ipv6_prefix > 128 {
            self.problem(&path.key("ipv6_prefix"), "an IPv6 prefix has 0 to 128 bits");
        }
    }
}

fn forwarded_header(header: config::ForwardedHeader) -> ForwardedHeader {
    match header {
        config::ForwardedHeader::XForwardedFor => ForwardedHeader::XForwardedFor,
        config::ForwardedHeader::Forwarded => ForwardedHeader::Forwarded,
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

/// Besides those that can't be edited either.
const WRITTEN_ALWAYS: &[&str] =
    &["authorization", "cookie", "content-type", "forwarded", "max-forwards", "x-forwarded-host", "x-forwarded-proto"];
const MAX_HOPS: u8 = 32;
/// The tier of everybody when none are configured.
pub(super) const ONLY_TIER: &str = "standard";
