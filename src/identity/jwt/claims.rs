//! What tokens say: the registered claims that decide whether one is believed, and those that say who it is about.

use serde_json::{Map, Value};

use super::TokenFault;

/// Where in a token it stands who it is about. A path is a name, or names with dots between them that lead into objects; a name with
/// dots of its own is found too.
#[derive(Debug, Default)]
pub struct ClaimPaths {
    /// The user's name.
    pub user: Box<str>,
    /// The name of a tier.
    pub tier: Option<Box<str>>,
    /// The tenant.
    pub tenant: Option<Box<str>>,
    /// Those that limits count by, in the order of their [`ClaimId`].
    pub counted: Vec<Box<str>>,
}

/// The place in [`ClaimPaths::counted`] of a claim that a limit counts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimId(pub u16);

/// Who a token is about. Text, booleans and whole numbers of 64 bits are their JSON text. A claim that is absent, empty, `null`, a list,
/// an object or any other number is none: such numbers are rounded when they are read, and two users must not become one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The user's name.
    pub user: Option<Box<str>>,
    /// The name of a tier; there may be no tier of this name.
    pub tier: Option<Box<str>>,
    /// The tenant.
    pub tenant: Option<Box<str>>,
    counted: Vec<Option<Box<str>>>,
}

impl ClaimPaths {
    pub(super) fn of(&self, said: &Map<String, Value>) -> Claims {
        let text = |path: &str| find(said, path).and_then(text);
        Claims {
            user: text(&self.user),
            tier: self.tier.as_deref().and_then(text),
            tenant: self.tenant.as_deref().and_then(text),
            counted: self.counted.iter().map(|path| text(path)).collect(),
        }
    }
}

impl Claims {
    /// The claim that a limit counts by.
    #[must_use]
    pub fn counted(&self, ClaimId(id): ClaimId) -> Option<&str> {
        self.counted.get(usize::from(id))?.as_deref()
    }
}

/// The longest name first, so that `https://example.com/tenant` is a name before it is a path.
fn find<'v>(said: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    if let Some(value) = said.get(path) {
        return Some(value);
    }
    path.rmatch_indices('.').find_map(|(at, _)| {
        let (name, rest) = path.split_at_checked(at)?;
        find(said.get(name)?.as_object()?, rest.strip_prefix('.')?)
    })
}

fn text(value: &Value) -> Option<Box<str>> {
    match value {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) if number.is_u64() || number.is_i64() => Some(number.to_string().into()),
        Value::Bool(truth) => Some(truth.to_string().into()),
        Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// `iss` and `aud` (RFC 7519 sections 4.1.1 and 4.1.3), compared byte by byte.
pub(super) fn check_parties(said: &Map<String, Value>, issuers: &[Box<str>], audiences: &[Box<str>]) -> Result<(), TokenFault> {
    let is_among = |wanted: &[Box<str>], value: &Value| value.as_str().is_some_and(|text| wanted.iter().any(|w| **w == *text));
    if !issuers.is_empty() && !said.get("iss").is_some_and(|issuer| is_among(issuers, issuer)) {
        return Err(TokenFault::Issuer);
    }
    let is_for_us = match said.get("aud") {
        Some(Value::Array(several)) => several.iter().any(|one| is_among(audiences, one)),
        Some(one) => is_among(audiences, one),
        None => false,
    };
    if audiences.is_empty() || is_for_us { Ok(()) } else { Err(TokenFault::Audience) }
}

/// `exp`, which a token must have, and `nbf` (RFC 7519 sections 4.1.4 and 4.1.5). Returns from when on it has expired.
pub(super) fn check_times(said: &Map<String, Value>, now: u64, leeway: u64) -> Result<u64, TokenFault> {
    let seconds = |name: &str| said.get(name).map(|value| numeric_date(value).ok_or(TokenFault::Malformed)).transpose();
    let expires = seconds("exp")?.ok_or(TokenFault::Malformed)?.saturating_add(leeway);
    if now >= expires {
        return Err(TokenFault::Expired);
    }
    match seconds("nbf")? {
        Some(begins) if begins > now.saturating_add(leeway) => Err(TokenFault::NotYetValid),
        _ => Ok(expires),
    }
}

/// Seconds since the epoch, fractions of them cut off.
fn numeric_date(value: &Value) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates, and less than 0 is refused before"
    )]
    value.as_u64().or_else(|| value.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| seconds as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_path_leads_into_objects_and_a_name_may_have_dots() {
        let said = object(json!({
            "sub": "u-1", "realm_access": { "tenant": "acme", "n": 7, "list": ["a"] }, "a.b": { "c.d": true }, "empty": "", "nil": null,
            "most": u64::MAX, "least": i64::MIN, "more": 18_446_744_073_709_551_616_f64, "half": 0.5, "float": 7.0,
            "https://example.com/tenant": "dots", "a": { "b": "shadowed", "x.y": { "z": "deep" } }
        }));
        let text = |path: &str| find(&said, path).and_then(super::text);
        for (path, expected) in [
            ("sub", Some("u-1")),
            ("realm_access.tenant", Some("acme")),
            ("realm_access.n", Some("7")),
            ("realm_access.list", None),
            ("realm_access", None),
            ("a.b.c.d", Some("true")),
            ("a.b", None),
            ("a.x.y.z", Some("deep")),
            ("https://example.com/tenant", Some("dots")),
            ("most", Some("18446744073709551615")),
            ("least", Some("-9223372036854775808")),
            ("more", None),
            ("half", None),
            ("float", None),
            ("empty", None),
            ("nil", None),
            ("", None),
            (".", None),
            ("sub.x", None),
            ("sub.", None),
            (".sub", None),
        ] {
            assert_eq!(text(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn times_are_exact_to_the_second() {
        let check = |claims: Value, now| check_times(&object(claims), now, 30);
        assert_eq!(check(json!({ "exp": 100 }), 129), Ok(130));
        assert_eq!(check(json!({ "exp": 100 }), 130), Err(TokenFault::Expired));
        assert_eq!(check(json!({ "exp": 100.9 }), 129), Ok(130));
        assert_eq!(check(json!({ "exp": 1000, "nbf": 100 }), 70), Ok(1030));
        assert_eq!(check(json!({ "exp": 1000, "nbf": 100 }), 69), Err(TokenFault::NotYetValid));
        assert_eq!(check(json!({ "exp": u64::MAX }), 1), Ok(u64::MAX));
        assert_eq!(check(json!({ "exp": 1e300 }), 1), Ok(u64::MAX));
        for malformed in
            [json!({}), json!({ "exp": "100" }), json!({ "exp": -1 }), json!({ "exp": null }), json!({ "exp": 100, "nbf": "x" })]
        {
            assert_eq!(check(malformed.clone(), 1), Err(TokenFault::Malformed), "{malformed}");
        }
    }

    #[test]
    fn parties_are_compared_as_they_are_written() {
        let check = |claims: Value, issuers: &[&str], audiences: &[&str]| {
            let boxed = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect::<Vec<_>>();
            check_parties(&object(claims), &boxed(issuers), &boxed(audiences)).err()
        };
        assert_eq!(check(json!({}), &[], &[]), None);
        assert_eq!(check(json!({ "iss": "i", "aud": "a" }), &["i"], &["a"]), None);
        assert_eq!(check(json!({ "iss": "i", "aud": ["x", "a"] }), &["h", "i"], &["a", "b"]), None);
        for iss in [json!({}), json!({ "iss": "I" }), json!({ "iss": "i/" }), json!({ "iss": ["i"] }), json!({ "iss": 1 })] {
            assert_eq!(check(iss.clone(), &["i"], &[]), Some(TokenFault::Issuer), "{iss}");
        }
        for aud in
            [json!({}), json!({ "aud": "A" }), json!({ "aud": [] }), json!({ "aud": [1, ["a"]] }), json!({ "aud": { "a": "a" } })]
        {
            assert_eq!(check(aud.clone(), &[], &["a"]), Some(TokenFault::Audience), "{aud}");
        }
    }
}
