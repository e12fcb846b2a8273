//! Where secrets stand in a file, or may stand by mistake: what is told of a file must not repeat them.
//!
//! Separate from what the keys mean, because mistakes are the point: a key in plain where a digest belongs, a secret under a misspelt
//! name or a level too high. So where secrets are at home only what is known to be harmless is shown, and elsewhere a name that sounds
//! like a secret's is enough to hide its value.

use super::diagnostic::{Path, Segment, did_you_mean};

/// A place in a file, by what may be shown of it. A list is the same place as its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The whole of the main file.
    Configuration,
    /// A map with these keys. What stands below any other, or in the map's stead, is hidden.
    Known(Table),
    /// Likewise; and any other key may itself be the secret, unless it is nearly one of these.
    Sealed(Table),
    /// A map from names that mean nothing here.
    Names,
    /// Shown, but for what is below a key that sounds like a secret's.
    Open,
    /// Shown.
    Shown,
}

/// Keys and what they lead to.
pub(super) type Table = &'static [(&'static str, Place)];

impl Place {
    /// Where a clients' file begins.
    pub(super) const CLIENTS: Self = Self::Sealed(CLIENT);
    const SECRET: Self = Self::Sealed(&[]);

    /// The place below a key.
    pub(super) fn below(self, key: &str) -> Self {
        let found = |table: Table| table.iter().find(|(name, _)| *name == key).map(|(_, place)| *place);
        match self {
            Self::Configuration => found(CONFIGURATION).unwrap_or_else(|| Self::Open.below(key)),
            Self::Known(table) | Self::Sealed(table) => found(table).unwrap_or(Self::SECRET),
            Self::Names => Self::Open,
            Self::Open if sounds_secret(key) => Self::SECRET,
            Self::Open if key == "rate" => Self::Names,
            Self::Open => Self::Open,
            Self::Shown => Self::Shown,
        }
    }

    /// The place at a path.
    fn at(self, path: &Path) -> Self {
        path.0.iter().fold(self, |place, segment| match segment {
            Segment::Key(key) => place.below(key),
            Segment::Index(_) => place,
        })
    }

    /// Whether a scalar here is not shown.
    pub(super) fn hides(self, text: &str) -> bool {
        match self {
            // Digests too: that of a short key is soon tried out, and where it stands is said anyway.
            Self::Configuration | Self::Known(_) | Self::Sealed(_) => true,
            Self::Names | Self::Open | Self::Shown => may_carry_a_secret(text),
        }
    }

    /// Whether a key here is not shown.
    pub(super) fn hides_key(self, key: &str) -> bool {
        let Self::Sealed(table) = self else { return false };
        let is_nearly_known = did_you_mean(key, table.iter().map(|(name, _)| *name)).is_some();
        !is_nearly_known && !SOUNDS.contains(&key)
    }

    /// Whether a message about what stands at a path may repeat it. Stricter than what is shown of a line, because what a message is
    /// about is wrong, and so may be a secret that was put there.
    pub(super) fn may_be_quoted(self, path: &Path) -> bool {
        let is_guarded = self == Self::CLIENTS || matches!(path.0.first(), Some(Segment::Key(key)) if is_guarded(key));
        match self.at(path) {
            Self::Shown => true,
            Self::Open | Self::Names => !is_guarded,
            Self::Configuration | Self::Known(_) | Self::Sealed(_) => false,
        }
    }

    /// Whether a key below a path is not shown.
    pub(super) fn hides_key_below(self, path: &Path, key: &str) -> bool {
        self.at(path).hides_key(key)
    }

    /// A path as it may be told: without keys that may be secrets.
    pub(super) fn told(self, path: &Path) -> String {
        let mut place = self;
        let told = path.0.iter().map(|segment| match segment {
            Segment::Key(key) => {
                let told = if place.hides_key(key) { HIDDEN } else { key };
                place = place.below(key);
                Segment::Key(told.to_owned())
            }
            Segment::Index(index) => Segment::Index(*index),
        });
        Path(told.collect()).to_string()
    }
}

/// Whether secrets are at home below this key of the main file.
pub(super) fn is_guarded(key: &str) -> bool {
    matches!(key, "identity" | "clients" | "admin")
}

/// Whether a key is called as secrets are, or nearly so.
pub(super) fn sounds_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    let is_near = |name: &&str| strsim::damerau_levenshtein(&key, name) <= 1;
    !HARMLESS.contains(&key.as_str()) && (SOUNDS.iter().any(|sound| key.contains(sound)) || NAMES.iter().any(is_near))
}

/// URLs with a user's name or a query, also such as lack their scheme.
fn may_carry_a_secret(text: &str) -> bool {
    text.split_once("://").is_some_and(|(_, rest)| rest.contains(['@', '?']))
        || text.split_once(':').is_some_and(|(before, rest)| rest.contains('@') || (before == "unix" && rest.contains('?')))
}

/// What is shown in a secret's stead.
pub(super) const HIDDEN: &str = "*****";

const CONFIGURATION: Table = &[
    ("identity", Place::Known(IDENTITY)),
    ("clients", Place::CLIENTS),
    ("clients_file", Place::Open),
    ("admin", Place::Known(ADMIN)),
    ("store", Place::Known(STORE)),
    ("upstreams", Place::Names),
    ("schedules", Place::Names),
];
const ADMIN: Table = &[("address", Place::Open), ("mode", Place::Open), ("token", Place::SECRET)];
const STORE: Table = &[("memory", Place::Shown), ("redis", Place::Known(REDIS))];
const REDIS: Table = &[
    ("topology", Place::Open),
    ("urls", Place::Open),
    ("sentinel_master", Place::Open),
    ("username", Place::Open),
    ("password", Place::SECRET),
    ("sentinel_username", Place::Open),
    ("sentinel_password", Place::SECRET),
    ("key_prefix", Place::Shown),
    ("key_secret", Place::SECRET),
    ("timeout", Place::Shown),
    ("consistency", Place::Shown),
    ("on_failure", Place::Shown),
    ("connections", Place::Shown),
    ("max_in_flight", Place::Shown),
    ("tls", Place::Open),
];
const IDENTITY: Table = &[
    ("order", Place::Open),
    ("api_key", Place::Known(API_KEY)),
    ("user", Place::Known(USER)),
    ("ip", Place::Shown),
    ("forward", Place::Open),
];
const API_KEY: Table = &[("sources", Place::Open), ("unknown", Place::Open), ("strip", Place::Open)];
const USER: Table = &[("jwt", Place::Known(JWT)), ("header", Place::Open), ("tier_header", Place::Open)];
const JWT: Table = &[
    ("sources", Place::Open),
    ("keys", Place::Sealed(KEYS)),
    ("algorithms", Place::Open),
    ("issuer", Place::Open),
    ("audience", Place::Open),
    ("claims", Place::Open),
    ("leeway", Place::Shown),
    ("invalid", Place::Open),
    ("strip", Place::Open),
];
const KEYS: Table = &[
    ("jwks_url", Place::Open),
    ("jwks_file", Place::Open),
    ("public_key_file", Place::Open),
    ("secret", Place::SECRET),
    ("refresh", Place::Shown),
    ("timeout", Place::Shown),
    ("ca", Place::Open),
];
const CLIENT: Table = &[
    ("id", Place::Open),
    ("api_keys", Place::Sealed(CLIENT_KEY)),
    ("users", Place::Open),
    ("tier", Place::Open),
    ("tenant", Place::Open),
    ("limits", Place::Shown),
    ("exempt", Place::Open),
];
const CLIENT_KEY: Table = &[("key", Place::SECRET), ("expires", Place::SECRET)];
/// Parts of names of secrets.
const SOUNDS: &[&str] = &["key", "secret", "token", "passw", "credential", "authorization"];
/// Names that are looked for misspelt too.
const NAMES: &[&str] = &["secret", "token", "api_keys", "password"];
/// Keys that sound like a secret's and are none.
const HARMLESS: &[&str] = &["max_keys", "key_hash"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_tables_have_the_keys_that_the_file_has() {
        let schema = schemars::schema_for!(Config).to_value();
        let keys = |definition: &str| {
            let map = schema["$defs"][definition]["properties"].as_object().unwrap_or_else(|| panic!("{definition}: {schema}"));
            map.keys().cloned().collect::<Vec<_>>()
        };
        for (definition, table) in [
            ("Admin", ADMIN),
            ("Store", STORE),
            ("Redis", REDIS),
            ("Identity", IDENTITY),
            ("ApiKey", API_KEY),
            ("User", USER),
            ("Jwt", JWT),
            ("TokenKeys", KEYS),
            ("Client", CLIENT),
        ] {
            let mut names: Vec<_> = table.iter().map(|(name, _)| (*name).to_owned()).collect();
            names.sort();
            let mut known = keys(definition);
            known.sort();
            assert_eq!(names, known, "{definition}");
        }
        let top = schema["properties"].as_object().map(serde_json::Map::keys).unwrap();
        assert!(CONFIGURATION.iter().all(|(name, _)| top.clone().any(|key| key == name)));
    }

    #[test]
    fn names_sound_like_a_secrets_or_not() {
        for name in [
            "key",
            "Token",
            "tokenn",
            "tokn",
            "api_key",
            "apikeys",
            "X-Api-Key",
            "secrett",
            "scret",
            "hash_key",
            "password",
            "key_prefix",
        ] {
            assert!(sounds_secret(name), "{name}");
        }
        for name in ["max_keys", "key_hash", "id", "tier", "rate", "keep_alive", "type", "ticket", "hosts"] {
            assert!(!sounds_secret(name), "{name}");
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not_quoted() {
        let path = |keys: &str| Path(keys.split('.').map(|key| Segment::Key(key.to_owned())).collect());
        for (keys, may) in [
            ("limits.rate", true),
            ("listeners.address", true),
            ("upstreams.token-service.endpoints", true),
            ("clients.limits.plan", true),
            ("identity.ip.ipv4_prefix", true),
            ("identity.order", false),
            ("identity.user.jwt.keys", false),
            ("clients.api_keys", false),
            ("clients.id", false),
            ("admin.token", false),
            ("admin.x", false),
            ("routes.request_headers.set.x-api-key", false),
        ] {
            assert_eq!(Place::Configuration.may_be_quoted(&path(keys)), may, "{keys}");
        }
        assert_eq!(Place::Configuration.told(&path("clients.api_keys.canary")), "clients.api_keys.*****");
        assert_eq!(Place::CLIENTS.told(&path("api_keys.key.canary")), "api_keys.key.*****");
    }
}
