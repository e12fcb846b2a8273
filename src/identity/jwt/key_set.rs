//! The keys that tokens may be signed with: from a JSON Web Key Set (RFC 7517), a PEM file or a shared secret.

use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::Value;

use super::Id;
use crate::identity::KeyDigest;

/// Keys as of one moment; immutable.
pub struct KeySet {
    id: Id,
    digest: KeyDigest,
    keys: Vec<Key>,
    unusable: usize,
}

/// A key and what it is good for.
struct Key {
    /// Its name in tokens; a key without one may have signed any.
    kid: Option<Box<str>>,
    /// What its kind allows, and its own `alg` if it has one.
    algorithms: Vec<Algorithm>,
    decoding: DecodingKey,
}

/// Why something is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not a key set.
    #[error("not a JSON Web Key Set: a JSON object with a list `keys`")]
    NotAKeySet,
    /// More keys than anybody has.
    #[error("a key set has at most 100 keys")]
    TooMany,
    /// Not a public key.
    #[error("not a public key in PEM form of RSA (2048 bits or more), P-256, P-384 or Ed25519")]
    NotAPublicKey,
    /// More than one PEM block: which of them is meant would be a guess.
    #[error("more than one key or certificate; keep the one that tokens are signed with, or write a key set for `jwks_file`")]
    Several,
    /// The key that signs.
    #[error("this is a private key; the gateway needs the public one only")]
    Private,
    /// Nothing.
    #[error("an empty secret")]
    EmptySecret,
}

impl KeySet {
    /// Reads a key set. Keys for encryption, of other kinds, too weak or broken are left out.
    ///
    /// # Errors
    /// When it is no key set.
    pub fn from_jwks(json: &[u8]) -> Result<Self, KeyError> {
        #[derive(Deserialize)]
        struct Keys {
            keys: Vec<Value>,
        }
        let Keys { keys } = serde_json::from_slice(json).map_err(|_| KeyError::NotAKeySet)?;
        if keys.len() > MAX_KEYS {
            return Err(KeyError::TooMany);
        }
        let all = keys.len();
        let keys: Vec<_> = keys.into_iter().filter_map(|key| Key::from_jwk(&serde_json::from_value(key).ok()?)).collect();
        Ok(Self { id: Id::default(), digest: KeyDigest::of(json), unusable: all - keys.len(), keys })
    }

    /// Reads a public key or a certificate in PEM form.
    ///
    /// # Errors
    /// When it is none.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        if memchr::memmem::find(pem, b"PRIVATE KEY-----").is_some() {
            return Err(KeyError::Private);
        }
        if memchr::memmem::find_iter(pem, b"-----BEGIN ").count() > 1 {
            return Err(KeyError::Several);
        }
        let read =
            DecodingKey::from_ed_pem(pem).or_else(|_| DecodingKey::from_ec_pem(pem)).or_else(|_| DecodingKey::from_rsa_pem(pem));
        let decoding = read.map_err(|_| KeyError::NotAPublicKey)?;
        Self::of_one(decoding, pem).ok_or(KeyError::NotAPublicKey)
    }

    /// A shared secret.
    ///
    /// # Errors
    /// When it is empty.
    pub fn from_secret(secret: &[u8]) -> Result<Self, KeyError> {
        let decoding = DecodingKey::from_secret(secret).map_err(|_| KeyError::EmptySecret)?;
        Self::of_one(decoding, secret).ok_or(KeyError::EmptySecret)
    }

    fn of_one(decoding: DecodingKey, written: &[u8]) -> Option<Self> {
        let algorithms = algorithms_of(&decoding)?.to_vec();
        let keys = vec![Key { kid: None, algorithms, decoding }];
        Some(Self { id: Id::default(), digest: KeyDigest::of(written), keys, unusable: 0 })
    }

    /// Of no other key set.
    #[must_use]
    pub fn id(&self) -> Id {
        self.id
    }

    /// How many keys can be used.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key can be used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many were left out.
    #[must_use]
    pub fn unusable(&self) -> usize {
        self.unusable
    }

    /// Whether both were read from the same bytes.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.digest == other.digest
    }

    /// Whether some key is good for one of these.
    #[must_use]
    pub fn fits(&self, algorithms: &[Algorithm]) -> bool {
        self.keys.iter().any(|key| key.algorithms.iter().any(|algorithm| algorithms.contains(algorithm)))
    }

    /// Whether there is a key that a token with this key id may be signed with.
    pub(super) fn knows(&self, kid: Option<&str>) -> bool {
        self.keys.iter().any(|key| key.may_be(kid))
    }

    /// The keys that a token with this key id and algorithm may be signed with.
    pub(super) fn fitting(&self, kid: Option<&str>, algorithm: Algorithm) -> impl Iterator<Item = &DecodingKey> {
        let fits = move |key: &&Key| key.may_be(kid) && key.algorithms.contains(&algorithm);
        self.keys.iter().filter(fits).map(|key| &key.decoding)
    }
}

impl Key {
    fn from_jwk(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let is_for_signatures = common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        let decoding = DecodingKey::from_jwk(jwk).ok().filter(|_| is_for_signatures)?;
        let is_allowed = |algorithm: &Algorithm| {
            let by_its_curve = match &jwk.algorithm {
                AlgorithmParameters::OctetKeyPair(pair) => pair.curve == EllipticCurve::Ed25519,
                AlgorithmParameters::EllipticCurve(ec) => match algorithm {
                    Algorithm::ES256 => ec.curve == EllipticCurve::P256,
                    _ => ec.curve == EllipticCurve::P384,
                },
                _ => true,
            };
            by_its_curve && common.key_algorithm.is_none_or(|only| only == (*algorithm).into())
        };
        let algorithms: Vec<_> = algorithms_of(&decoding)?.iter().copied().filter(is_allowed).collect();
        let kid = common.key_id.as_deref().map(Into::into);
        (!algorithms.is_empty()).then_some(Self { kid, algorithms, decoding })
    }

    fn may_be(&self, kid: Option<&str>) -> bool {
        match (&self.kid, kid) {
            (Some(own), Some(named)) => **own == *named,
            _ => true,
        }
    }
}

/// What the kind of a key allows; `None` if it is too weak or of a size that its kind doesn't have.
fn algorithms_of(key: &DecodingKey) -> Option<&'static [Algorithm]> {
    use jsonwebtoken::AlgorithmFamily as Family;
    match (key.family(), key.kind()) {
        (Family::Hmac, _) => Some(&[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512]),
        (Family::Rsa, kind) => {
            let strong = match kind {
                DecodingKeyKind::RsaModulusExponent { n, .. } => n.iter().skip_while(|byte| **byte == 0).count() >= MIN_MODULUS,
                DecodingKeyKind::SecretOrDer(der) => der.len() >= MIN_MODULUS,
            };
            strong.then_some(&RSA)
        }
        (Family::Ec, DecodingKeyKind::SecretOrDer(point)) => match point.len() {
            65 => Some(&[Algorithm::ES256]),
            97 => Some(&[Algorithm::ES384]),
            _ => None,
        },
        (Family::Ed, DecodingKeyKind::SecretOrDer(point)) => (point.len() == 32).then_some(&[Algorithm::EdDSA]),
        _ => None,
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kids = self.keys.iter().map(|key| (&key.kid, &key.algorithms)).collect::<Vec<_>>();
        f.debug_struct("KeySet").field("id", &self.id).field("keys", &kids).finish_non_exhaustive()
    }
}

const RSA: [Algorithm; 6] =
    [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];
/// Bytes of a modulus of 2048 bits: what RFC 7518 section 3.3 asks for at least.
const MIN_MODULUS: usize = 256;
/// Issuers have two to five.
const MAX_KEYS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// RFC 7517 appendix A.1, the elliptic curve key.
    fn p256() -> Value {
        json!({ "kty": "EC", "crv": "P-256", "kid": "ec",
            "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM" })
    }

    fn set(keys: &[Value]) -> KeySet {
        KeySet::from_jwks(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    fn with(mut key: Value, name: &str, value: Value) -> Value {
        key.as_object_mut().unwrap().insert(name.to_owned(), value);
        key
    }

    #[test]
    fn a_key_is_good_for_what_its_kind_and_its_own_words_allow() {
        let rsa = |bytes: usize| json!({ "kty": "RSA", "n": "_".repeat(bytes * 4 / 3), "e": "AQAB" });
        let okp = json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
        let oct = json!({ "kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T" });
        for (name, key, fits) in [
            ("P-256", p256(), &[Algorithm::ES256][..]),
            ("P-256 for ES256", with(p256(), "alg", json!("ES256")), &[Algorithm::ES256]),
            ("P-256 for ES384", with(p256(), "alg", json!("ES384")), &[]),
            ("P-256 for ECDH", with(p256(), "alg", json!("ECDH-ES")), &[]),
            ("P-256 that says P-384", with(p256(), "crv", json!("P-384")), &[]),
            ("another curve", with(p256(), "crv", json!("secp256k1")), &[]),
            ("for encryption", with(p256(), "use", json!("enc")), &[]),
            ("for signatures", with(p256(), "use", json!("sig")), &[Algorithm::ES256]),
            ("to sign", with(p256(), "key_ops", json!(["sign"])), &[]),
            ("to verify", with(p256(), "key_ops", json!(["sign", "verify"])), &[Algorithm::ES256]),
            ("RSA", rsa(258), &RSA),
            ("RSA for PS256", with(rsa(258), "alg", json!("PS256")), &[Algorithm::PS256]),
            ("RSA that says HS256", with(rsa(258), "alg", json!("HS256")), &[]),
            ("RSA of 1024 bits", rsa(129), &[]),
            ("Ed25519", okp, &[Algorithm::EdDSA]),
            ("a secret", oct, &[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512]),
            ("an unknown kind", json!({ "kty": "AKP", "kid": "x" }), &[]),
            ("not an object", json!(7), &[]),
        ] {
            let set = set(&[key]);
            let found: Vec<_> = set.keys.iter().flat_map(|key| key.algorithms.iter().copied()).collect();
            assert_eq!(found, fits, "{name}");
            assert_eq!(set.unusable(), usize::from(fits.is_empty()), "{name}");
        }
    }

    #[test]
    fn a_key_id_chooses_the_key() {
        let named = set(&[p256(), with(p256(), "kid", json!("other"))]);
        let count = |set: &KeySet, kid| (set.knows(kid), set.fitting(kid, Algorithm::ES256).count());
        assert_eq!(count(&named, Some("ec")), (true, 1));
        assert_eq!(count(&named, Some("gone")), (false, 0));
        assert_eq!(count(&named, None), (true, 2));
        assert_eq!(named.fitting(Some("ec"), Algorithm::RS256).count(), 0);
        let mut nameless = p256();
        nameless.as_object_mut().unwrap().remove("kid");
        assert_eq!(count(&set(&[nameless]), Some("any")), (true, 1));
        assert_eq!(count(&set(&[]), None), (false, 0));
    }

    #[test]
    fn what_is_no_key_says_so() {
        let hundred_and_one = json!({ "keys": vec![json!({}); 101] }).to_string();
        for (json, error) in [
            ("", KeyError::NotAKeySet),
            ("[]", KeyError::NotAKeySet),
            ("{}", KeyError::NotAKeySet),
            ("{\"keys\":{}}", KeyError::NotAKeySet),
            (&hundred_and_one, KeyError::TooMany),
        ] {
            assert_eq!(KeySet::from_jwks(json.as_bytes()).err(), Some(error), "{json}");
        }
        assert_eq!(KeySet::from_pem(b"-----BEGIN PRIVATE KEY-----").err(), Some(KeyError::Private));
        assert_eq!(KeySet::from_pem(b"-----BEGIN EC PRIVATE KEY-----").err(), Some(KeyError::Private));
        assert_eq!(KeySet::from_pem(b"ssh-rsa AAAA").err(), Some(KeyError::NotAPublicKey));
        assert_eq!(KeySet::from_pem(b"-----BEGIN PUBLIC KEY-----\n-----BEGIN PUBLIC KEY-----").err(), Some(KeyError::Several));
        assert_eq!(KeySet::from_secret(b"").err(), Some(KeyError::EmptySecret));
    }
}
