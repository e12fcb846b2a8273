//! Users from JSON Web Tokens (RFC 7519): what a token must be to be believed, and what is taken from it.
//!
//! [`Verifier::verify`] is a pure function of token, keys and time. Keys come in a [`KeySet`] that somebody else fetched; [`KeyRing`] is
//! where the one in force hangs. Nothing here reads a clock, a file or a socket, and no token is kept: [`Cache`] knows them by digest.
//!
//! Which algorithms are believed is the configuration's word, and a key fits those of its own kind only. So a token's header
//! chooses among what is allowed and never what is allowed, and a public key is never taken for a shared secret.

pub mod base64;
mod cache;
mod claims;
mod key_set;
mod ring;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{DecodingKey, crypto, decode_header};
use serde_json::{Map, Value};

use super::KeyDigest;
use super::credential::{KeySource, in_source};
use crate::request::Facts;

pub use cache::{Cache, Checked};
pub use claims::{ClaimId, ClaimPaths, Claims};
pub use jsonwebtoken::Algorithm;
pub use key_set::{KeyError, KeySet};
pub use ring::{KeyRing, KeyRings, Newer, Remote};

/// The compiled `identity.user.jwt`.
#[derive(Debug)]
pub struct Verifier {
    /// Where tokens are looked for.
    pub sources: Vec<KeySource>,
    /// The keys.
    pub keys: Arc<KeyRing>,
    /// What is believed: all HMAC, or none.
    pub algorithms: Vec<Algorithm>,
    /// Of whom one must have issued the token; anybody if there are none.
    pub issuers: Vec<Box<str>>,
    /// For whom, one of these, the token must be; for anybody if there are none.
    pub audiences: Vec<Box<str>>,
    /// Seconds by which clocks may differ.
    pub leeway: u64,
    /// What is taken from a token.
    pub claims: ClaimPaths,
    /// Whether a token that is not believed is refused; otherwise it is as good as none.
    pub reject_invalid: bool,
    /// Whether tokens are taken out before a request is forwarded.
    pub strip: bool,
    /// Of no other verifier.
    pub id: Id,
}

/// A number that nothing else in the process has, so that what was verified by one thing is not taken for verified by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id(u64);

impl Default for Id {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A token that is believed.
#[derive(Debug, Clone)]
pub struct Verified {
    /// What it says.
    pub claims: Rc<Claims>,
    /// Unix seconds from which on it is not believed any more, leeway included.
    pub expires: u64,
}

/// Why a token is not believed. Clients learn whether time is the reason and nothing else; metrics and `explain` know more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// Not three parts of base64url, not JSON, a critical extension.
    #[error("the token is not valid")]
    Malformed,
    /// More than 8 KiB.
    #[error("the token is not valid")]
    TooLarge,
    /// An algorithm that is not allowed, or not the key's; `none` is malformed.
    #[error("the token is not valid")]
    Algorithm,
    /// It names a key that the issuer does not have.
    #[error("the token is not valid")]
    UnknownKey,
    /// It names a key that is not there, and the issuer has not been asked for it yet. Not necessarily the client's fault.
    #[error("tokens can't be checked at the moment")]
    KeyPending,
    /// The signature is not by the key.
    #[error("the token is not valid")]
    Signature,
    /// Another issuer, or none.
    #[error("the token is not valid")]
    Issuer,
    /// For another audience, or for none.
    #[error("the token is not valid")]
    Audience,
    /// `exp` is past.
    #[error("the token has expired")]
    Expired,
    /// `nbf` is to come.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// Several tokens in one place, or one with two readings: which one counts would be a guess.
    #[error("more than one token was sent, or one that can be read in two ways")]
    Ambiguous,
    /// No keys have been fetched yet. Not the client's fault.
    #[error("tokens can't be checked at the moment")]
    NoKeys,
}

impl TokenFault {
    /// Every fault, for a metric's labels.
    pub const ALL: [Self; 12] = [
        Self::Malformed,
        Self::TooLarge,
        Self::Algorithm,
        Self::UnknownKey,
        Self::KeyPending,
        Self::Signature,
        Self::Issuer,
        Self::Audience,
        Self::Expired,
        Self::NotYetValid,
        Self::Ambiguous,
        Self::NoKeys,
    ];

    /// For operators: the value of a metric's label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown_key",
            Self::KeyPending => "key_pending",
            Self::Signature => "signature",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Ambiguous => "ambiguous",
            Self::NoKeys => "no_keys",
        }
    }

    /// Whether newer keys might make the token one that is believed.
    #[must_use]
    pub fn is_for_want_of_keys(self) -> bool {
        matches!(self, Self::UnknownKey | Self::NoKeys)
    }
}

impl Verifier {
    /// The token that a request presents: the first source that has one. Where API keys are looked for too, what is not shaped like a
    /// token is a key.
    ///
    /// # Errors
    /// When a source has several.
    pub fn find<'r>(&self, facts: &Facts<'r>, key_sources: &[KeySource]) -> Result<Option<Cow<'r, [u8]>>, TokenFault> {
        for source in &self.sources {
            let found = in_source(facts, source).map_err(|_| TokenFault::Ambiguous)?;
            if let Some(value) = found.filter(|value| is_shaped_like_a_token(value) || !key_sources.contains(source)) {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// Whether a request with such a token goes on as if it had none. An ambiguous one never does: what upstream takes it for is a guess.
    #[must_use]
    pub fn ignores(&self, fault: TokenFault) -> bool {
        !self.reject_invalid && fault != TokenFault::Ambiguous
    }

    /// Says what a token says, if it is to be believed at `now`, in Unix seconds.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verify(&self, keys: &KeySet, token: &[u8], now: u64) -> Result<Verified, TokenFault> {
        if token.len() > MAX_TOKEN {
            return Err(TokenFault::TooLarge);
        }
        if !is_shaped_like_a_token(token) {
            return Err(TokenFault::Malformed);
        }
        let header = decode_header(token).map_err(|_| TokenFault::Malformed)?;
        check_extensions(token)?;
        if !self.algorithms.contains(&header.alg) {
            return Err(TokenFault::Algorithm);
        }
        let said = signed_by_one_of(keys, header.kid.as_deref(), header.alg, token)?;
        claims::check_parties(&said, &self.issuers, &self.audiences)?;
        let expires = claims::check_times(&said, now, self.leeway)?;
        Ok(Verified { claims: Rc::new(self.claims.of(&said)), expires })
    }
}

/// A critical extension must be understood (RFC 7515 section 4.1.11), and none is; nor is a payload that is not encoded (RFC 7797).
fn check_extensions(token: &[u8]) -> Result<(), TokenFault> {
    let header = part(token, 0).ok_or(TokenFault::Malformed)?;
    let is_encoded = header.get("b64").is_none_or(|encoded| *encoded == Value::Bool(true));
    if header.contains_key("crit") || !is_encoded { Err(TokenFault::Malformed) } else { Ok(()) }
}

/// The claims of a token whose signature is by a key that it may be by. The library's own way to them also judges some of them, by
/// rules that are not ours, and asks the system for the time.
fn signed_by_one_of(
    keys: &KeySet,
    kid: Option<&str>,
    algorithm: Algorithm,
    token: &[u8],
) -> Result<Map<String, Value>, TokenFault> {
    if !keys.knows(kid) {
        return Err(TokenFault::UnknownKey);
    }
    let mut fault = TokenFault::Algorithm;
    for key in keys.fitting(kid, algorithm).take(MAX_TRIES) {
        if is_signed_by(key, algorithm, token)? {
            return part(token, 1).ok_or(TokenFault::Malformed);
        }
        fault = TokenFault::Signature;
    }
    Err(fault)
}

fn is_signed_by(key: &DecodingKey, algorithm: Algorithm, token: &[u8]) -> Result<bool, TokenFault> {
    let at = memchr::memrchr(b'.', token).ok_or(TokenFault::Malformed)?;
    let (message, signature) = token.split_at_checked(at).ok_or(TokenFault::Malformed)?;
    let signature = signature.get(1..).and_then(|text| std::str::from_utf8(text).ok()).ok_or(TokenFault::Malformed)?;
    match crypto::verify(signature, message, key, algorithm) {
        Ok(is_signed) => Ok(is_signed),
        Err(error) if matches!(error.kind(), ErrorKind::Base64(_)) => Err(TokenFault::Malformed),
        Err(_) => Ok(false),
    }
}

/// A part of a token that is a JSON object in base64url: 0 is the header, 1 the claims.
fn part(token: &[u8], place: usize) -> Option<Map<String, Value>> {
    serde_json::from_slice(&base64::decode(token.split(|byte| *byte == b'.').nth(place)?)?).ok()
}

/// What tells apart the keys that tokens name: the digest of a token's `kid`, or of nothing if it has none.
#[must_use]
pub fn named_key(token: &[u8]) -> KeyDigest {
    let kid = decode_header(token).ok().and_then(|header| header.kid).unwrap_or_default();
    KeyDigest::of(kid.as_bytes())
}

/// Three parts of base64url; the signature of an unsecured token is empty, and such a token is to be refused rather than taken for a key.
#[must_use]
pub fn is_shaped_like_a_token(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| *byte == b'.');
    let is_base64url = |part: &[u8]| part.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(claims), Some(signature), None) => {
            !header.is_empty() && !claims.is_empty() && [header, claims, signature].into_iter().all(is_base64url)
        }
        _ => false,
    }
}

/// Twice what common servers take as a header line is no token.
const MAX_TOKEN: usize = 8 << 10;
/// Keys that a token without a key id is tried with: each costs up to 100 µs, and an issuer with more keys says which.
const MAX_TRIES: usize = 8;

#[cfg(test)]
mod tests;
