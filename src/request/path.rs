//! The ONE normal form of a path. Route, limits, exemptions and the log all go by it; what is forwarded stays the client's bytes.
//!
//! Whatever an upstream is likely to treat as the same resource comes out the same: percent-encoding is undone once, dot
//! segments are resolved, empty segments, `;parameters`, trailing blanks and (by default) a trailing slash dropped. What can't be
//! decoded without a guess is refused, because two readers would guess differently.

use std::borrow::Cow;

/// The choices an operator has; the defaults are the safe ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathRules {
    /// Whether `/a/` and `/a` are different resources.
    pub distinct_trailing_slash: bool,
    /// Whether `%2F` and `%5C` are ordinary characters of a segment rather than refused.
    pub allow_encoded_slash: bool,
}

/// Why a path has no normal form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// Doesn't start with `/`, or has bytes that must be percent-encoded.
    #[error("the path has characters that must be percent-encoded")]
    RawBytes,
    /// `%` without two hexadecimal digits.
    #[error("the path has an invalid percent-encoding")]
    Encoding,
    /// Decodes to a control character.
    #[error("the path encodes a control character")]
    Control,
    /// Decodes to `/` or `\`.
    #[error("the path encodes a slash")]
    EncodedSlash,
    /// Doesn't decode to UTF-8.
    #[error("the path does not decode to UTF-8")]
    NotUtf8,
}

/// The normal form of `raw`; borrowed when `raw` already is in it.
///
/// # Errors
/// [`PathFault`] when there is none.
pub fn normalize<'a>(raw: &'a str, rules: &PathRules) -> Result<Cow<'a, str>, PathFault> {
    if !raw.starts_with('/') {
        return Err(PathFault::RawBytes);
    }
    if is_plain(raw.as_bytes()) {
        return Ok(Cow::Borrowed(raw));
    }
    let mut segments: Vec<Cow<'_, str>> = Vec::new();
    let mut ends_in_slash = false;
    for written in raw.split('/').skip(1) {
        let name = written.split_once(';').map_or(written, |(name, _)| name);
        let segment = decode(name, rules)?;
        // An encoded dot is a dot, so this comes after decoding.
        ends_in_slash = matches!(segment.as_ref(), "" | "." | "..");
        match segment.as_ref() {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
    }
    let mut path = String::with_capacity(raw.len());
    for segment in &segments {
        path.push('/');
        path.push_str(segment);
    }
    if path.is_empty() || (ends_in_slash && rules.distinct_trailing_slash) {
        path.push('/');
    }
    Ok(Cow::Owned(path))
}

/// Nothing to do: the common case, decided in one pass without allocation.
fn is_plain(raw: &[u8]) -> bool {
    let mut previous = b' ';
    for &byte in raw {
        let special = match byte {
            b'/' | b'.' => previous == b'/',
            b'%' | b';' | b'\\' => true,
            byte => !byte.is_ascii_graphic(),
        };
        if special {
            return false;
        }
        previous = byte;
    }
    previous != b'/' || raw.len() == 1
}

fn decode<'a>(written: &'a str, rules: &PathRules) -> Result<Cow<'a, str>, PathFault> {
    if written.bytes().any(|b| !b.is_ascii_graphic() || b == b'\\') {
        return Err(PathFault::RawBytes);
    }
    if !written.contains('%') {
        return Ok(Cow::Borrowed(written));
    }
    let mut decoded = Vec::with_capacity(written.len());
    let mut bytes = written.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (bytes.next().and_then(hex_digit), bytes.next().and_then(hex_digit)) else {
            return Err(PathFault::Encoding);
        };
        match high << 4 | low {
            byte if byte.is_ascii_control() => return Err(PathFault::Control),
            b'/' | b'\\' if !rules.allow_encoded_slash => return Err(PathFault::EncodedSlash),
            byte => decoded.push(byte),
        }
    }
    let mut decoded = String::from_utf8(decoded).map_err(|_| PathFault::NotUtf8)?;
    decoded.truncate(decoded.trim_end_matches(' ').len());
    Ok(Cow::Owned(decoded))
}

/// Undoes percent-encoding where it is valid and leaves the rest as it is: for values, where a guess does no harm.
#[must_use]
pub fn percent_decode(written: &str) -> Cow<'_, [u8]> {
    if !written.contains('%') {
        return Cow::Borrowed(written.as_bytes());
    }
    let mut decoded = Vec::with_capacity(written.len());
    let mut rest = written.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%'
            && let [high, low, after @ ..] = after
            && let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low))
        {
            decoded.push(high << 4 | low);
            rest = after;
        } else {
            decoded.push(byte);
        }
    }
    Cow::Owned(decoded)
}

/// Encodes what may not stand in a path as it is; `/` stays.
#[must_use]
pub fn percent_encode(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&byte);
        if plain {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: PathRules = PathRules { distinct_trailing_slash: false, allow_encoded_slash: false };

    #[test]
    fn variants_of_one_resource_are_one_resource() {
        for raw in [
            "/login",
            "/login/",
            "//login",
            "/./login",
            "/x/../login",
            "/login/.",
            "/%6cogin",
            "/%6Cogin",
            "/login;a=1",
            "/login;a=1/;b",
            "/%2e/login",
            "/x/%2E%2e/login",
            "/../login",
            "/login%20",
            "/login//",
            "/x/y/../../login",
        ] {
            assert_eq!(normalize(raw, &DEFAULT).unwrap(), "/login", "{raw}");
        }
        for (raw, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/..", "/"),
            ("/a.b/c..", "/a.b/c.."),
            ("/%25", "/%"),
            ("/%256cogin", "/%6cogin"),
            ("/caf%C3%A9", "/café"),
            ("/a%3Fb", "/a?b"),
            ("/a/...", "/a/..."),
            ("/a%3Bb", "/a;b"),
        ] {
            assert_eq!(normalize(raw, &DEFAULT).unwrap(), expected, "{raw}");
        }
    }

    #[test]
    fn what_readers_could_read_differently_is_refused() {
        for (raw, fault) in [
            ("", PathFault::RawBytes),
            ("a", PathFault::RawBytes),
            ("/a\\b", PathFault::RawBytes),
            ("/é", PathFault::RawBytes),
            ("/%", PathFault::Encoding),
            ("/%2", PathFault::Encoding),
            ("/%zz", PathFault::Encoding),
            ("/%00", PathFault::Control),
            ("/a%0d%0ab", PathFault::Control),
            ("/a%2fb", PathFault::EncodedSlash),
            ("/a%5Cb", PathFault::EncodedSlash),
            ("/%c0%ae", PathFault::NotUtf8),
        ] {
            assert_eq!(normalize(raw, &DEFAULT), Err(fault), "{raw}");
        }
    }

    #[test]
    fn the_options_do_what_they_say() {
        let rules = PathRules { distinct_trailing_slash: true, allow_encoded_slash: true };
        assert_eq!(normalize("/a/", &rules).unwrap(), "/a/");
        assert_eq!(normalize("/a", &rules).unwrap(), "/a");
        assert_eq!(normalize("/a%2Fb", &rules).unwrap(), "/a/b");
    }

    #[test]
    fn a_plain_path_is_not_copied() {
        assert!(matches!(normalize("/v1/items/42.json", &DEFAULT), Ok(Cow::Borrowed(_))));
    }
}
