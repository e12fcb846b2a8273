//! API keys: which of a request's credentials is one, and the digest it is compared by. The keys themselves are nowhere kept.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::credential::{Unclear, in_source};
use super::jwt::is_shaped_like_a_token;
use super::{IdentityFault, IdentityRules};
use crate::request::Facts;

/// SHA-256 of a key. Looked up in a hash table: what a client could learn from timing is about a digest it cannot choose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyDigest([u8; 32]);

/// Why text is not a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyDigestError {
    /// No `sha256:` in front.
    #[error("a key is written as sha256: and 64 hexadecimal digits, never in plain; `tollgate hash-key` prints it")]
    Plain,
    /// Not 64 hexadecimal digits.
    #[error("after sha256: there must be exactly 64 hexadecimal digits")]
    Digits,
}

impl KeyDigest {
    /// The digest's bytes, for a counter key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// What logs call it.
    #[must_use]
    pub fn short(&self) -> ShortDigest {
        let digit = |half: u8| char::from_digit(u32::from(half), 16).map_or(0, |digit| digit as u8);
        let mut digits = [0; 12];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        ShortDigest(digits)
    }

    /// The digest of a key as a client presents it.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }
}

/// The first 12 hexadecimal digits of a digest: enough to tell keys apart, and to find one in the configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShortDigest([u8; 12]);

impl ShortDigest {
    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for KeyDigest {
    type Err = KeyDigestError;

    fn from_str(text: &str) -> Result<Self, KeyDigestError> {
        let digits = text.strip_prefix("sha256:").ok_or(KeyDigestError::Plain)?;
        let mut digest = [0; 32];
        if digits.len() != 64 {
            return Err(KeyDigestError::Digits);
        }
        for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| KeyDigestError::Digits)?;
            if !pair.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(KeyDigestError::Digits);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| KeyDigestError::Digits)?;
        }
        Ok(Self(digest))
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

// Even a digest is better not spread through logs.
impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(…)")
    }
}

impl Hash for KeyDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Uniform already: eight bytes are plenty for a table.
        state.write(self.0.first_chunk::<8>().unwrap_or(&[0; 8]));
    }
}

/// The key a request presents: the first source that has one. Where tokens are looked for too, what is shaped like one is no key.
pub(super) fn find<'r>(facts: &Facts<'r>, rules: &IdentityRules) -> Result<Option<Cow<'r, [u8]>>, IdentityFault> {
    for source in &rules.key_sources {
        let is_a_tokens = rules.jwt.as_ref().is_some_and(|verifier| verifier.sources.contains(source));
        let found = in_source(facts, source).map_err(|Unclear| IdentityFault::AmbiguousKey)?;
        if let Some(key) = found.filter(|key| !(is_a_tokens && is_shaped_like_a_token(key))) {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_what_it_prints_and_nothing_else() {
        let digest = KeyDigest::of(b"password");
        let text = "sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
        assert_eq!(digest.to_string(), text);
        assert_eq!(digest.short().as_str(), "5e884898da28");
        assert_eq!(text.parse(), Ok(digest));
        assert_eq!(text.to_uppercase().replace("SHA256", "sha256").parse(), Ok(digest));
        assert_eq!("password".parse::<KeyDigest>(), Err(KeyDigestError::Plain));
        for bad in ["sha256:", "sha256:zz", text.split_at(70).0, &text.replace("5e", "+5"), &text.replace("5e", "é")] {
            assert_eq!(bad.parse::<KeyDigest>(), Err(KeyDigestError::Digits), "{bad}");
        }
    }
}
