//! `identity.user.jwt`: users from JSON Web Tokens.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ApiKeySource, List, Unknown};
use crate::units::Span;

/// Users from tokens.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    /// Places where a token is looked for, tried in order; `bearer` by default.
    pub sources: Option<List<ApiKeySource>>,
    /// What tokens are signed with.
    pub keys: TokenKeys,
    /// Algorithms that are believed; `HS256` for a secret and `RS256`, `ES256` for public keys by default.
    pub algorithms: Option<List<TokenAlgorithm>>,
    /// Who must have issued a token, one of these; anybody by default.
    #[serde(default)]
    pub issuer: List<String>,
    /// For whom a token must be, one of these; for anybody by default.
    #[serde(default)]
    pub audience: List<String>,
    /// What is taken from a token.
    #[serde(default)]
    pub claims: TokenClaims,
    /// By how much clocks may differ, for `exp` and `nbf`.
    #[serde(default = "thirty_seconds")]
    pub leeway: Span,
    /// What happens to a token that is not believed.
    #[serde(default)]
    pub invalid: Unknown,
    /// Whether tokens are taken out before a request is forwarded.
    #[serde(default)]
    pub strip: bool,
}

fn thirty_seconds() -> Span {
    super::seconds(30)
}

/// What tokens are signed with: exactly one of `jwks_url`, `jwks_file`, `public_key_file` and `secret`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenKeys {
    /// A key set at an `http://` or `https://` URL, fetched in the background.
    pub jwks_url: Option<String>,
    /// A key set in a file.
    pub jwks_file: Option<String>,
    /// A public key or a certificate in a PEM file.
    pub public_key_file: Option<String>,
    /// A shared secret: text, or `base64:` and base64.
    pub secret: Option<Secret>,
    /// How often `jwks_url` is fetched.
    pub refresh: Span,
    /// How long one fetch may take.
    pub timeout: Span,
    /// A PEM file with the certificates that `jwks_url` is trusted by, instead of the public ones.
    pub ca: Option<String>,
}

impl Default for TokenKeys {
    fn default() -> Self {
        Self {
            jwks_url: None,
            jwks_file: None,
            public_key_file: None,
            secret: None,
            refresh: super::seconds(5 * 60),
            timeout: super::seconds(5),
            ca: None,
        }
    }
}

/// Text that must not be shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// An algorithm of RFC 7518 or RFC 8037; there is no `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum TokenAlgorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    #[serde(rename = "EdDSA")]
    EdDsa,
    HS256,
    HS384,
    HS512,
}

/// Where in a token it stands who it is about: names, or names with dots between them that lead into objects.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenClaims {
    /// The user's name.
    pub user: String,
    /// The name of a tier.
    pub tier: Option<String>,
    /// The tenant.
    pub tenant: Option<String>,
}

impl Default for TokenClaims {
    fn default() -> Self {
        Self { user: "sub".to_owned(), tier: None, tenant: None }
    }
}
