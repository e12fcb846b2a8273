//! Users from tokens: keys are read here, all but those at a URL; algorithms must fit them.

use std::sync::Arc;

use http::Uri;
use jsonwebtoken::AlgorithmFamily;

use super::{Compiler, Names};
use crate::config::diagnostic::{Path, Problem};
use crate::config::{self, ApiKeySource, NamedField, PerPart, TokenAlgorithm};
use crate::identity::jwt::{Algorithm, ClaimId, ClaimPaths, Id, KeyError, KeyRing, KeySet, Remote, Verifier, base64};
use crate::issuer;
use crate::tls::read_small;

impl Compiler<'_> {
    /// The compiled `identity.user.jwt`.
    pub(super) fn verifier(&mut self, jwt: &config::Jwt, path: &Path, names: &Names<'_>) -> Option<Verifier> {
        let sources = jwt.sources.as_ref().map_or_else(|| vec![ApiKeySource::Bearer], |sources| sources.0.clone());
        let sources = self.key_sources(&sources, &path.key("sources"));
        let algorithms = self.algorithms(jwt, &path.key("algorithms"));
        let keys = self.token_keys(&jwt.keys, &algorithms, &path.key("keys"));
        let claims = self.claim_paths(&jwt.claims, &path.key("claims"), names);
        for (list, key) in [(&jwt.issuer, "issuer"), (&jwt.audience, "audience")] {
            if let Some(i) = list.0.iter().position(String::is_empty) {
                self.problem(&path.key(key).index(i), "empty text is nobody's name; leave the key out to believe anybody");
            }
        }
        let boxed = |list: &config::List<String>| list.0.iter().map(|name| name.as_str().into()).collect();
        Some(Verifier {
            sources,
            keys: keys?,
            algorithms,
            issuers: boxed(&jwt.issuer),
            audiences: boxed(&jwt.audience),
            leeway: jwt.leeway.0.as_secs(),
            claims,
            reject_invalid: jwt.invalid == config::Unknown::Reject,
            strip: jwt.strip,
            id: Id::default(),
        })
    }

    fn algorithms(&mut self, jwt: &config::Jwt, path: &Path) -> Vec<Algorithm> {
        let Some(config::List(written)) = &jwt.algorithms else {
            return if jwt.keys.secret.is_some() { vec![Algorithm::HS256] } else { vec![Algorithm::RS256, Algorithm::ES256] };
        };
        let algorithms: Vec<_> = written.iter().copied().map(algorithm).collect();
        if algorithms.is_empty() {
            self.problem(path, "without an algorithm no token is believed; leave the key out for the default");
        }
        let secret = algorithms.iter().filter(|algorithm| is_secret(**algorithm)).count();
        if secret > 0 && secret < algorithms.len() {
            self.problem(path, "HS algorithms are for secrets and the others for public keys; one key can't be both");
        }
        algorithms
    }

    fn claim_paths(&mut self, claims: &config::TokenClaims, path: &Path, names: &Names<'_>) -> ClaimPaths {
        let written = [("user", Some(&claims.user)), ("tier", claims.tier.as_ref()), ("tenant", claims.tenant.as_ref())];
        for (key, _) in written.into_iter().filter(|(_, written)| written.is_some_and(String::is_empty)) {
            self.problem(&path.key(key), "write the name of a claim, or a path such as realm_access.tenant");
        }
        let boxed = |text: &String| Box::from(text.as_str());
        ClaimPaths {
            user: boxed(&claims.user),
            tier: claims.tier.as_ref().map(boxed),
            tenant: claims.tenant.as_ref().map(boxed),
            counted: names.claims.iter().map(|name| (*name).into()).collect(),
        }
    }

    /// A claim that a limit counts by.
    pub(super) fn claim(&mut self, name: &str, path: &Path, names: &Names<'_>) -> Option<ClaimId> {
        if self.config.identity.user.jwt.is_none() && !(self.is_incomplete)("identity") {
            self.problem(path, "claims are in tokens, and without `identity.user.jwt` none is read");
        }
        if name.is_empty() {
            self.problem(path, "write the name of a claim, or a path such as realm_access.tenant");
        }
        let place = names.claims.iter().position(|known| *known == name)?;
        u16::try_from(place).ok().map(ClaimId)
    }

    fn token_keys(&mut self, keys: &config::TokenKeys, algorithms: &[Algorithm], path: &Path) -> Option<Arc<KeyRing>> {
        let config::TokenKeys { jwks_url, jwks_file, public_key_file, secret, .. } = keys;
        if jwks_url.is_none() && keys.ca.is_some() {
            self.problem(&path.key("ca"), "this is about `jwks_url`, which is not there");
        }
        let (key, set) = match (jwks_url, jwks_file, public_key_file, secret) {
            (Some(url), None, None, None) => return self.remote_keys(url, keys, algorithms, path),
            (None, Some(file), None, None) => ("jwks_file", self.key_file(file, KeySet::from_jwks, &path.key("jwks_file"))?),
            (None, None, Some(file), None) => {
                ("public_key_file", self.key_file(file, KeySet::from_pem, &path.key("public_key_file"))?)
            }
            (None, None, None, Some(secret)) => ("secret", self.secret(secret, algorithms, &path.key("secret"))?),
            _ => {
                self.problem(path, "write exactly one of jwks_url, jwks_file, public_key_file and secret");
                return None;
            }
        };
        if !set.fits(algorithms) {
            self.problem(&path.key(key), "no key here is good for any of `algorithms`");
        }
        Some(Arc::new(KeyRing::fixed(set)))
    }

    fn key_file(&mut self, file: &str, read: impl Fn(&[u8]) -> Result<KeySet, KeyError>, path: &Path) -> Option<KeySet> {
        let bytes = self.small_file(file, path)?;
        match read(&bytes) {
            Ok(set) => Some(set),
            Err(error) => {
                self.problem(path, format!("{file}: {error}"));
                None
            }
        }
    }

    fn small_file(&mut self, file: &str, path: &Path) -> Option<Vec<u8>> {
        read_small(std::path::Path::new(file)).map_err(|error| self.problem(path, format!("{file}: {error}"))).ok()
    }

    fn secret(&mut self, config::Secret(text): &config::Secret, algorithms: &[Algorithm], path: &Path) -> Option<KeySet> {
        let bytes = match text.strip_prefix("base64:").map(|text| base64::decode(text.as_bytes())) {
            None => text.clone().into_bytes(),
            Some(Some(bytes)) => bytes,
            Some(None) => {
                self.problem(path, "after base64: there must be base64");
                return None;
            }
        };
        // RFC 7518 section 3.2: a key of at least the size of the hash. Anybody with a token can try shorter ones offline.
        let needed = algorithms.iter().map(|algorithm| (hash_size(*algorithm), algorithm)).max_by_key(|(size, _)| *size);
        if let Some((size, algorithm)) = needed.filter(|(size, _)| bytes.len() < *size) {
            let mut problem = Problem::new(
                path.clone(),
                format!("{algorithm:?} needs a secret of {size} bytes or more; this has {}", bytes.len()),
            );
            problem.hint = Some(format!("`openssl rand -base64 {size}` makes one, to be written behind base64:"));
            self.problems.push(problem);
            return None;
        }
        KeySet::from_secret(&bytes).map_err(|error| self.problem(path, error.to_string())).ok()
    }

    fn remote_keys(
        &mut self,
        url: &str,
        keys: &config::TokenKeys,
        algorithms: &[Algorithm],
        path: &Path,
    ) -> Option<Arc<KeyRing>> {
        if algorithms.iter().any(|algorithm| is_secret(*algorithm)) {
            self.problem(&path.key("jwks_url"), "keys at a URL are public; HS algorithms need a `secret`");
        }
        let refresh = self.positive(keys.refresh, &path.key("refresh"));
        let timeout = self.positive(keys.timeout, &path.key("timeout"));
        if refresh.as_secs() == 0 && !refresh.is_zero() {
            self.problem(&path.key("refresh"), "must be at least a second");
        }
        let ca = match &keys.ca {
            Some(file) => Some(Arc::from(self.small_file(file, &path.key("ca"))?)),
            None => None,
        };
        let Some(remote) = parse_url(url) else {
            let message = "write http://host/path or https://host/path, without a user or a fragment";
            self.problem(&path.key("jwks_url"), message);
            return None;
        };
        let remote = Remote { ca, refresh, timeout, ..remote };
        match (issuer::check(&remote), &keys.ca) {
            (Ok(()), _) => return Some(self.ground.key_rings.ring(remote)),
            (Err(error), Some(file)) => self.problem(&path.key("ca"), format!("{file}: {error}")),
            (Err(error), None) => self.problem(&path.key("jwks_url"), error.to_string()),
        }
        None
    }
}

/// The claims that limits count by, each once.
pub(super) fn counted_claims(limits: &[config::Limit]) -> Vec<&str> {
    let mut claims = Vec::new();
    for part in limits.iter().flat_map(|limit| &limit.per.0.0) {
        if let PerPart::Field(NamedField::Claim(name)) = part
            && !claims.contains(&name.as_str())
        {
            claims.push(name.as_str());
        }
    }
    claims
}

fn parse_url(url: &str) -> Option<Remote> {
    let uri: Uri = url.parse().ok().filter(|_| !url.contains('#'))?;
    let tls = match uri.scheme_str()? {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = match (authority.port(), tls) {
        (Some(port), _) => port.as_u16(),
        (None, true) => 443,
        (None, false) => 80,
    };
    // A query may have a key in it; people don't need it to know the place.
    let shown = url.split('?').next().unwrap_or_default();
    Some(Remote {
        url: shown.into(),
        tls,
        host: Some(host).filter(|host| !host.is_empty())?.into(),
        port,
        authority: authority.as_str().into(),
        target: uri.path_and_query().map_or("/", |target| target.as_str()).into(),
        ca: None,
        refresh: std::time::Duration::ZERO,
        timeout: std::time::Duration::ZERO,
    })
}

fn is_secret(algorithm: Algorithm) -> bool {
    algorithm.family() == AlgorithmFamily::Hmac
}

/// In bytes.
fn hash_size(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::HS384 => 48,
        Algorithm::HS512 => 64,
        _ => 32,
    }
}

fn algorithm(written: TokenAlgorithm) -> Algorithm {
    match written {
        TokenAlgorithm::RS256 => Algorithm::RS256,
        TokenAlgorithm::RS384 => Algorithm::RS384,
        TokenAlgorithm::RS512 => Algorithm::RS512,
        TokenAlgorithm::PS256 => Algorithm::PS256,
        TokenAlgorithm::PS384 => Algorithm::PS384,
        TokenAlgorithm::PS512 => Algorithm::PS512,
        TokenAlgorithm::ES256 => Algorithm::ES256,
        TokenAlgorithm::ES384 => Algorithm::ES384,
        TokenAlgorithm::EdDsa => Algorithm::EdDSA,
        TokenAlgorithm::HS256 => Algorithm::HS256,
        TokenAlgorithm::HS384 => Algorithm::HS384,
        TokenAlgorithm::HS512 => Algorithm::HS512,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_to_connect() {
        let parts = |url: &str| {
            parse_url(url).map(|r| (r.tls, r.host.to_string(), r.port, r.authority.to_string(), r.target.to_string()))
        };
        let some = |tls, host: &str, port, authority: &str, target: &str| {
            Some((tls, host.to_owned(), port, authority.to_owned(), target.to_owned()))
        };
        assert_eq!(parts("https://idp.example/jwks.json"), some(true, "idp.example", 443, "idp.example", "/jwks.json"));
        assert_eq!(parts("http://[::1]:8080/a?b=c"), some(false, "::1", 8080, "[::1]:8080", "/a?b=c"));
        assert_eq!(parts("http://127.0.0.1"), some(false, "127.0.0.1", 80, "127.0.0.1", "/"));
        for bad in ["", "idp.example/jwks", "ftp://a/b", "https://u:p@a/b", "https:///b", "https://a/b#c", "https://a b/"] {
            assert_eq!(parts(bad), None, "{bad}");
        }
    }
}
