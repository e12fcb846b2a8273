//! Where API keys and tokens stand in a request, read as the most lenient server would.
//!
//! Separate from what the credentials are good for: keys and tokens are found by the same rules, and what is found here is what `strip`
//! takes out. A credential that the gateway overlooks and the upstream does not would pass limits, blocks and refusals; so whatever can
//! be read in two ways is [`Unclear`], which is refused and never as good as none.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderName};

use super::forwarded::is_token;
use crate::request::{Facts, cookie, path::percent_decode};

/// A place to look for a key or a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// `Authorization: Bearer KEY`.
    Bearer,
    /// A header.
    Header(HeaderName),
    /// A query parameter.
    Query(Box<str>),
    /// A cookie.
    Cookie(Box<str>),
}

/// There are several credentials in one source, even if they are equal, or one whose beginning or end is a matter of taste. The next
/// reader may take another one than we would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unclear;

/// The credential in a source, without blanks around it; an empty one is none.
pub(super) fn in_source<'r>(facts: &Facts<'r>, source: &KeySource) -> Result<Option<Cow<'r, [u8]>>, Unclear> {
    let (found, is_allowed): (_, fn(u8) -> bool) = match source {
        KeySource::Header(name) => (only(lines(facts.headers, name))?.map(Cow::Borrowed), is_text),
        KeySource::Bearer => (bearer(facts.headers)?.map(Cow::Borrowed), |byte| byte.is_ascii_graphic()),
        KeySource::Query(name) => (only(in_query(facts.query, name))?.map(trimmed), is_text),
        KeySource::Cookie(name) => (only(in_cookies(facts.headers, name))?.map(Cow::Borrowed), cookie::is_octet),
    };
    match found.filter(|credential| !credential.is_empty()) {
        Some(credential) if !credential.iter().copied().all(is_allowed) => Err(Unclear),
        found => Ok(found),
    }
}

/// Whether a part of a query between `&`, or `;` as some servers have it, is a parameter of this name. Neither blanks around a name nor
/// capitals make it another one.
#[must_use]
pub fn is_query_pair(pair: &str, name: &str) -> bool {
    let written = pair.split_once('=').map_or(pair, |(written, _)| written);
    let decoded = percent_decode(written);
    let is_blank = |byte: &u8| !byte.is_ascii_graphic() || *byte == b'+';
    let start = decoded.iter().position(|byte| !is_blank(byte)).unwrap_or(decoded.len());
    let end = decoded.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    decoded.get(start..end).is_some_and(|decoded| decoded.eq_ignore_ascii_case(name.as_bytes()))
}

/// The decoded values of a query parameter, as RFC 3986 and forms have it.
pub fn query_values<'r>(query: Option<&'r str>, name: &str) -> impl Iterator<Item = Cow<'r, [u8]>> {
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(move |(written, _)| percent_decode(written).as_ref() == name.as_bytes()).map(|(_, value)| percent_decode(value))
}

/// The values of a cookie, as RFC 6265 has it.
pub fn cookie_values<'r>(headers: &'r HeaderMap, name: &str) -> impl Iterator<Item = Cow<'r, [u8]>> {
    let lines = headers.get_all(COOKIE).iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';')).filter_map(move |pair| {
        let pair = pair.trim_ascii();
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (written, value) = pair.split_at_checked(at)?;
        (written == name.as_bytes()).then(|| Cow::Borrowed(value.get(1..).unwrap_or_default()))
    })
}

fn lines<'r>(headers: &'r HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'r [u8]> {
    headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii())
}

/// What stands behind the scheme `Bearer`. RFC 6750 has one blank there; a tab or several blanks are the same to most servers.
fn bearer(headers: &HeaderMap) -> Result<Option<&[u8]>, Unclear> {
    let Some(line) = only(lines(headers, &AUTHORIZATION))? else { return Ok(None) };
    let end = line.iter().position(|byte| !is_token(*byte)).unwrap_or(line.len());
    let Some((scheme, behind)) = line.split_at_checked(end) else { return Ok(None) };
    let is_apart = behind.first().is_none_or(|byte| matches!(byte, b' ' | b'\t'));
    match scheme.eq_ignore_ascii_case(BEARER) {
        true if is_apart => Ok(Some(behind.trim_ascii())),
        false if !names_bearer(line) => Ok(None),
        // `Bearer:`, a no-break space, or the word somewhere within: readers that search or split find a credential.
        _ => Err(Unclear),
    }
}

/// Whether `Bearer` and a byte that belongs to no word stand somewhere in a line.
fn names_bearer(line: &[u8]) -> bool {
    line.windows(BEARER.len() + 1)
        .any(|window| window.split_last().is_some_and(|(behind, word)| !is_token(*behind) && word.eq_ignore_ascii_case(BEARER)))
}

fn in_query<'r>(query: Option<&'r str>, name: &str) -> impl Iterator<Item = Cow<'r, [u8]>> {
    let pairs = query.unwrap_or_default().split(['&', ';']).filter(move |pair| is_query_pair(pair, name));
    pairs.map(|pair| percent_decode(pair.split_once('=').map_or("", |(_, value)| value)))
}

fn in_cookies<'r>(headers: &'r HeaderMap, name: &str) -> impl Iterator<Item = &'r [u8]> {
    headers.get_all(COOKIE).iter().flat_map(|line| cookie::values(line.as_bytes(), name.as_bytes()))
}

fn trimmed(value: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    match value {
        Cow::Borrowed(value) => Cow::Borrowed(value.trim_ascii()),
        Cow::Owned(value) => Cow::Owned(value.trim_ascii().to_vec()),
    }
}

fn only<T>(values: impl IntoIterator<Item = T>) -> Result<Option<T>, Unclear> {
    let mut values = values.into_iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        _ => Err(Unclear),
    }
}

/// Blanks may stand within, but nothing that some reader takes for a blank and another does not.
fn is_text(byte: u8) -> bool {
    byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t')
}

const BEARER: &[u8] = b"bearer";

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[&[u8]]) -> HeaderMap {
        lines.iter().map(|line| (AUTHORIZATION, HeaderValue::from_bytes(line).unwrap())).collect()
    }

    #[test]
    fn whatever_follows_the_scheme_is_a_credential_or_unclear() {
        for (line, expected) in [
            (&b"Bearer k1"[..], Ok(Some(&b"k1"[..]))),
            (b"bearer\tk1", Ok(Some(b"k1"))),
            (b"BEARER \t k1 ", Ok(Some(b"k1"))),
            (b"Bearer", Ok(Some(b""))),
            (b"Bearer k1 k2", Ok(Some(b"k1 k2"))),
            (b"Basic YTpi", Ok(None)),
            (b"Bearerk1", Ok(None)),
            (b"Digest username=\"bearers\"", Ok(None)),
            (b"", Ok(None)),
            (b"Bearer\xa0k1", Err(Unclear)),
            (b"\xa0Bearer k1", Err(Unclear)),
            (b"Bearer:k1", Err(Unclear)),
            (b"Bearer,k1", Err(Unclear)),
            (b"Bearer=k1", Err(Unclear)),
            (b"Basic YTpi, Bearer k1", Err(Unclear)),
            (b"xBearer k1", Err(Unclear)),
        ] {
            let shown = String::from_utf8_lossy(line);
            assert_eq!(bearer(&headers(&[line])), expected, "{shown}");
        }
        assert_eq!(bearer(&headers(&[b"Bearer k1", b"Basic YTpi"])), Err(Unclear));
    }

    #[test]
    fn names_of_parameters_are_compared_decoded_and_without_blanks() {
        for pair in ["key=1", "key", "k%65y=1", "+key=1", "%20key%09=1", "key%C2%A0=1", "Key=1"] {
            assert!(is_query_pair(pair, "key"), "{pair}");
        }
        for pair in ["keys=1", "a=key", "", "=key", "k+ey=1"] {
            assert!(!is_query_pair(pair, "key"), "{pair}");
        }
        let values: Vec<_> = in_query(Some("a=1;key=%20x&key"), "key").collect();
        assert_eq!(values, [&b" x"[..], b""]);
    }

    #[test]
    fn query_values_are_decoded() {
        let values: Vec<_> = query_values(Some("a=1&k=x%2By&%6b=2&k"), "k").collect();
        assert_eq!(values, [&b"x+y"[..], b"2", b""]);
    }
}
