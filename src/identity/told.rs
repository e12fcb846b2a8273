//! What upstream is told of who a request is from, and which credentials must not go on to it.

use std::borrow::Cow;
use std::fmt::Write;

use smallvec::SmallVec;

use super::credential::{KeySource, Unclear, in_source};
use super::jwt::is_shaped_like_a_token;
use super::{Identity, IdentityRules};
use crate::request::Facts;

/// Something that upstream is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The known client's id.
    Client,
    /// The tier.
    Tier,
    /// The user.
    User,
    /// The tenant.
    Tenant,
    /// The short digest of the key.
    KeyHash,
    /// The client's certificate.
    Certificate,
    /// What is in the client's certificate.
    CertificateDetails,
}

impl Told {
    /// Its key in `identity.forward`.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Tier => "tier",
            Self::User => "user",
            Self::Tenant => "tenant",
            Self::KeyHash => "key_hash",
            Self::Certificate => "certificate",
            Self::CertificateDetails => "certificate_details",
        }
    }

    /// What there is to tell, as a header's value; nothing if it is not known.
    #[must_use]
    pub fn value<'r>(self, identity: &Identity<'r>) -> Option<Cow<'r, str>> {
        let text = match self {
            Self::Client => &*identity.client?.1.id,
            Self::Tier => identity.tier_name,
            Self::User => identity.user?,
            Self::Tenant => identity.tenant?,
            Self::KeyHash => return Some(Cow::Owned(identity.key?.short().as_str().to_owned())),
            // These two have a form of their own, in visible ASCII already.
            Self::Certificate => return Some(Cow::Borrowed(identity.certificate?.header())),
            Self::CertificateDetails => return Some(Cow::Borrowed(identity.certificate?.details())),
        };
        Some(visible(text))
    }
}

/// Text in visible ASCII. Everything else, and the percent sign, is percent-encoded, so that no two texts become one.
fn visible(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    Cow::Owned(encoded)
}

impl IdentityRules {
    /// The sources whose key or token must not go on to upstream. All that have one: what was not looked at is not vouched for. In a
    /// source that keys and tokens share, the shape says which of the two is there.
    #[must_use]
    pub fn withheld<'r>(&'r self, facts: &Facts<'_>) -> SmallVec<[&'r KeySource; 2]> {
        let mut withheld = SmallVec::new();
        if self.strip_keys {
            let token_sources = self.jwt.iter().flat_map(|verifier| &verifier.sources);
            let is_key = |source: &KeySource, value: &[u8]| {
                !(is_shaped_like_a_token(value) && token_sources.clone().any(|shared| shared == source))
            };
            withheld.extend(self.key_sources.iter().filter(|source| has(facts, source, is_key)));
        }
        if let Some(verifier) = self.jwt.as_ref().filter(|verifier| verifier.strip) {
            let is_token = |source: &KeySource, value: &[u8]| is_shaped_like_a_token(value) || !self.key_sources.contains(source);
            withheld.extend(verifier.sources.iter().filter(|source| has(facts, source, is_token)));
        }
        withheld
    }
}

fn has(facts: &Facts<'_>, source: &KeySource, is_it: impl Fn(&KeySource, &[u8]) -> bool) -> bool {
    match in_source(facts, source) {
        Ok(value) => value.is_some_and(|value| is_it(source, &value)),
        // Nobody looked which of them it would be.
        Err(Unclear) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_texts_become_the_same_value() {
        for (text, expected) in [
            ("acme", "acme"),
            ("", ""),
            ("a b", "a%20b"),
            ("a%20b", "a%2520b"),
            ("Zoë", "Zo%C3%AB"),
            ("a\r\nx: y", "a%0D%0Ax:%20y"),
            ("\u{7f}\0", "%7F%00"),
        ] {
            assert_eq!(visible(text), expected, "{text:?}");
        }
    }
}
