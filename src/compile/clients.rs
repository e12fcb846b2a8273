//! Clients of both files: ids, keys, users, and whose rates they replace.
//!
//! There may be half a million, so nothing here looks at all of them for one of them, and a client without a mistake costs no path.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::Compiler;
use crate::config::diagnostic::Path;
use crate::config::{self, Place};
use crate::identity::{Client, ClientId, Clients, Expiry, KeyDigest, TierId};

/// What is known of clients while limits and conditions are compiled.
#[derive(Default)]
pub(super) struct KnownClients<'c> {
    /// What requests are looked up in.
    pub(super) clients: Clients,
    /// Ids by name.
    pub(super) ids: HashMap<&'c str, ClientId>,
    /// By the name of a limit, who has other rates.
    pub(super) overrides: HashMap<&'c str, Vec<Override<'c>>>,
}

/// A client's own rates for a limit.
pub(super) struct Override<'c> {
    pub(super) client: ClientId,
    pub(super) place: Place,
    pub(super) rates: &'c config::Windows,
}

impl<'c> Compiler<'c> {
    pub(super) fn clients(&mut self, tiers: &[&str]) -> KnownClients<'c> {
        let source = self.source;
        let has_rate: HashMap<&str, bool> =
            self.config.limits.iter().map(|limit| (limit.name.as_str(), limit.rate.is_some())).collect();
        let mut known = KnownClients::default();
        let mut taken = HashSet::new();
        for (place, client) in source.clients() {
            if client.id.is_empty() || client.id.chars().any(char::is_control) {
                self.problem(&place.path().key("id"), "an id has at least one character and no control characters");
            }
            if !taken.insert(client.id.as_str()) {
                self.problem(&place.path().key("id"), format!("the id `{}` is taken already", client.id));
            }
            let tier = client.tier.as_deref().map_or(Some(0), |name| {
                let found = tiers.iter().position(|tier| *tier == name);
                if found.is_none() {
                    self.unknown(&place.path().key("tier"), "tier", name, "tiers", tiers);
                }
                found
            });
            let id = known.clients.add(Client {
                id: client.id.as_str().into(),
                tier: TierId(tier.and_then(|tier| u16::try_from(tier).ok()).unwrap_or_default()),
                tenant: client.tenant.as_deref().map(Into::into),
                exempt: client.exempt,
            });
            known.ids.entry(client.id.as_str()).or_insert(id);
            self.keys_and_users(client, id, place, &mut known.clients);
            for (limit, rates) in &client.limits {
                let has_rate = has_rate.get(limit.as_str()).copied();
                if self.may_be_replaced(limit, has_rate, place) {
                    known.overrides.entry(limit).or_default().push(Override { client: id, place, rates });
                }
            }
        }
        known
    }

    /// Whether a client can have a rate of its own for a limit; `has_rate` is `None` if there is no such limit.
    fn may_be_replaced(&mut self, limit: &str, has_rate: Option<bool>, place: Place) -> bool {
        match has_rate {
            Some(true) => return true,
            Some(false) => {
                let message = format!("limit `{limit}` has no rate that could be replaced");
                self.problem(&place.path().key("limits").key(limit), message);
            }
            None => {
                let limits: Vec<_> = self.config.limits.iter().map(|limit| limit.name.as_str()).collect();
                self.unknown(&place.path().key("limits").key(limit), "limit", limit, "limits", &limits);
            }
        }
        false
    }

    fn keys_and_users(&mut self, client: &config::Client, id: ClientId, place: Place, clients: &mut Clients) {
        for (k, config::ClientKey { key, expires }) in client.api_keys.0.iter().enumerate() {
            let at = || place.path().key("api_keys").index(k);
            let expiry = match expires.as_deref().map(expiry) {
                None => Expiry::NEVER,
                Some(Some(expiry)) => expiry,
                Some(None) => {
                    let message = "write the day it is not valid any more, such as 2027-01-01 (UTC), or a time such as 2027-01-01T09:00:00Z";
                    self.problem(&at().key("expires"), message);
                    Expiry::NEVER
                }
            };
            match key.parse::<KeyDigest>() {
                Ok(digest) => {
                    if let Err(owner) = clients.add_key(digest, id, expiry) {
                        let owner = clients.get(owner).map_or("", |owner| &owner.id);
                        let message = format!("this key belongs to the client `{owner}` already");
                        self.problem(&at(), message);
                    }
                }
                Err(error) => self.problem(&at(), error.to_string()),
            }
        }
        for (u, user) in client.users.0.iter().enumerate() {
            if let Err(owner) = clients.add_user(user, id) {
                let owner = clients.get(owner).map_or("", |owner| &owner.id);
                let message = format!("the user `{user}` belongs to the client `{owner}` already");
                self.problem(&place.path().key("users").index(u), message);
            }
        }
    }

    /// A client by its id.
    pub(super) fn client(&mut self, name: &str, path: &Path, known: &KnownClients<'_>) -> Option<ClientId> {
        let found = known.ids.get(name).copied();
        if found.is_none() {
            let source = self.source;
            let ids: Vec<_> = source.clients().take(MAX_HINTS).map(|(_, client)| client.id.as_str()).collect();
            self.unknown(path, "client", name, "clients", &ids);
        }
        found
    }
}

/// The begin of a day in UTC, or a time with its offset. Fractions of a second are rounded up: a key is never refused early.
fn expiry(text: &str) -> Option<Expiry> {
    // The library reads more forms than we want to explain.
    let day = text.parse().ok().filter(|day: &Date| day.to_string() == text);
    let time = match day {
        Some(day) => TimeZone::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok()?,
        None => text.parse::<Timestamp>().ok().filter(|_| text.as_bytes().get(10) == Some(&b'T'))?,
    };
    let seconds = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
    Some(Expiry::at(u64::try_from(seconds).unwrap_or(0)))
}

/// Clients whose ids are compared with a misspelt one.
const MAX_HINTS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_or_a_time_is_an_expiry() {
        for (text, seconds) in [
            ("2027-01-01", Some(1_798_761_600)),
            ("2027-01-01T00:00:00Z", Some(1_798_761_600)),
            ("2027-01-01T09:00:00+09:00", Some(1_798_761_600)),
            ("2026-12-31T23:59:59.5Z", Some(1_798_761_600)),
            ("1970-01-01", Some(0)),
            ("1969-12-31", Some(0)),
            ("2027-02-30", None),
            ("2027-1-1", None),
            ("01.01.2027", None),
            ("2027-01-01T00:00:00", None),
            ("2027-01-01 00:00:00Z", None),
            ("20270101", None),
            ("tomorrow", None),
            ("", None),
        ] {
            assert_eq!(expiry(text), seconds.map(Expiry::at), "{text}");
        }
    }
}
