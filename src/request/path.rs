//! The ONE normal form of a path. Route, limits, exemptions and the log all go by it; what is forwarded is the client's bytes.
//!
//! Whatever an upstream is likely to treat as the same resource comes out the same: percent-encoding is undone once, dot segments are
//! resolved, empty segments, `;parameters`, trailing blanks and (by default) a trailing slash are dropped. What can't be decoded or resolved
//! without a guess is refused, because two readers would guess differently.
//!
//! One thing is changed in what is forwarded: dot segments are taken out there too, the rest left byte for byte. Otherwise
//! `/admin/../public` would be `/public` here and `/admin` to an upstream that does not resolve it.

use std::borrow::Cow;

/// The choices an operator has; the defaults are the safe ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathRules {
    /// Whether `/a/` and `/a` are different resources.
    pub distinct_trailing_slash: bool,
    /// Whether `%2F` and `%5C` separate segments rather than being refused.
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
    /// A dot segment that not everybody would resolve in the same way.
    #[error("the path has a dot segment that can be read in two ways")]
    DotSegment,
    /// Decodes to `/` or `\`.
    #[error("the path encodes a slash")]
    EncodedSlash,
    /// Doesn't decode to UTF-8.
    #[error("the path does not decode to UTF-8")]
    NotUtf8,
}

/// A path in both its forms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths<'a> {
    /// The normal form, for matching; borrowed when the written form already is it.
    pub normal: Cow<'a, str>,
    /// The written form, for forwarding: the client's bytes, less dot segments.
    pub written: Cow<'a, str>,
}

/// The forms of `raw`.
///
/// # Errors
/// [`PathFault`] when it has no normal form.
pub fn normalize<'a>(raw: &'a str, rules: &PathRules) -> Result<Paths<'a>, PathFault> {
    if !raw.starts_with('/') {
        return Err(PathFault::RawBytes);
    }
    if is_plain(raw.as_bytes()) {
        return Ok(Paths { normal: Cow::Borrowed(raw), written: Cow::Borrowed(raw) });
    }
    let mut kept: Vec<(&str, Cow<'_, str>)> = Vec::new();
    let mut has_dots = false;
    let mut ends_in_slash = false;
    for written in raw.split('/').skip(1) {
        let segment = decode(written, rules)?;
        ends_in_slash = matches!(segment.as_ref(), "" | "." | "..");
        match segment.as_ref() {
            "." => has_dots = true,
            ".." => {
                has_dots = true;
                // `/a//../b` is `/a/b` to some and `/b` to others.
                if kept.pop().is_some_and(|(written, _)| written.is_empty()) {
                    return Err(PathFault::DotSegment);
                }
            }
            _ => kept.push((written, segment)),
        }
    }
    let mut normal = String::with_capacity(raw.len());
    // Where encoded slashes are allowed they separate segments like plain ones: whoever decodes them reads them so.
    for segment in kept.iter().flat_map(|(_, name)| name.split(['/', '\\'])).filter(|segment| !segment.is_empty()) {
        normal.push('/');
        normal.push_str(segment);
    }
    if normal.is_empty() || (ends_in_slash && rules.distinct_trailing_slash) {
        normal.push('/');
    }
    let written = if has_dots { Cow::Owned(without_dots(&kept, ends_in_slash)) } else { Cow::Borrowed(raw) };
    Ok(Paths { normal: Cow::Owned(normal), written })
}

fn without_dots(kept: &[(&str, Cow<'_, str>)], ends_in_slash: bool) -> String {
    let mut path: String = kept.iter().flat_map(|(written, _)| ["/", written]).collect();
    if ends_in_slash && !path.ends_with('/') {
        path.push('/');
    }
    path
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

/// What a written segment means.
fn decode<'a>(written: &'a str, rules: &PathRules) -> Result<Cow<'a, str>, PathFault> {
    if written.bytes().any(|b| !b.is_ascii_graphic() || b == b'\\') {
        return Err(PathFault::RawBytes);
    }
    let (name, has_parameters) = written.split_once(';').map_or((written, false), |(name, _)| (name, true));
    let decoded = if name.contains('%') { Cow::Owned(undo(name, rules)?) } else { Cow::Borrowed(name) };
    let trimmed = decoded.trim_end_matches(' ');
    let altered = has_parameters || trimmed.len() < decoded.len();
    let mut pieces = trimmed.split(['/', '\\']);
    let is_dots = |piece| matches!(piece, "." | "..");
    // A dot segment in disguise is a name to most servers and a dot segment to some.
    if (altered && is_dots(trimmed)) || (!is_dots(trimmed) && pieces.any(is_dots)) {
        return Err(PathFault::DotSegment);
    }
    let length = trimmed.len();
    Ok(match decoded {
        Cow::Owned(mut decoded) => {
            decoded.truncate(length);
            Cow::Owned(decoded)
        }
        borrowed => borrowed,
    })
}

/// Percent-encoding undone, strictly.
fn undo(name: &str, rules: &PathRules) -> Result<String, PathFault> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut bytes = name.bytes();
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
    String::from_utf8(decoded).map_err(|_| PathFault::NotUtf8)
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
        for raw in
            ["/login", "/login/", "//login", "/%6cogin", "/%6Cogin", "/login;a=1", "/login;a=1/;b", "/login%20", "/login//"]
        {
            assert_eq!(normalize(raw, &DEFAULT).unwrap().normal, "/login", "{raw}");
        }
        for (raw, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/a.b/c..", "/a.b/c.."),
            ("/%25", "/%"),
            ("/%256cogin", "/%6cogin"),
            ("/caf%C3%A9", "/café"),
            ("/a%3Fb", "/a?b"),
            ("/a/...", "/a/..."),
            ("/a%3Bb", "/a;b"),
        ] {
            assert_eq!(normalize(raw, &DEFAULT).unwrap().normal, expected, "{raw}");
        }
    }

    #[test]
    fn dot_segments_are_not_forwarded_and_everything_else_is_untouched() {
        for (raw, written) in [
            ("/admin/../public", "/public"),
            ("/a/./b", "/a/b"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/..", "/"),
            ("/x/%2e%2E/a%20b;v=1//c/", "/a%20b;v=1//c/"),
            ("/a%41;x//b/", "/a%41;x//b/"),
        ] {
            assert_eq!(normalize(raw, &DEFAULT).unwrap().written, written, "{raw}");
        }
    }

    #[test]
    fn what_readers_could_read_differently_is_refused() {
        for (raw, fault) in [
            ("", PathFault::RawBytes),
            ("a", PathFault::RawBytes),
            ("/a\\b", PathFault::RawBytes),
            ("/é", PathFault::RawBytes),
            ("/..;a/b", PathFault::DotSegment),
            ("/..%20/b", PathFault::DotSegment),
            ("/.;/b", PathFault::DotSegment),
            ("/a//../b", PathFault::DotSegment),
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
        assert_eq!(normalize("/a/", &rules).unwrap().normal, "/a/");
        assert_eq!(normalize("/a", &rules).unwrap().normal, "/a");
        assert_eq!(normalize("/a%2Fb%5cc", &rules).unwrap().normal, "/a/b/c");
        assert_eq!(normalize("/a%2F..%2Fb", &rules), Err(PathFault::DotSegment));
    }

    #[test]
    fn a_plain_path_is_not_copied() {
        assert!(matches!(
            normalize("/v1/items/42.json", &DEFAULT),
            Ok(Paths { normal: Cow::Borrowed(_), written: Cow::Borrowed(_) })
        ));
    }

    proptest::proptest! {
        #[test]
        fn a_normal_form_has_nothing_left_to_resolve(raw in "/[a/%2eEfF5cC.;\\\\ é0]{0,40}") {
            let Ok(Paths { normal, written }) = normalize(&raw, &DEFAULT) else { return Ok(()) };
            let mut segments = normal.split('/').skip(1);
            proptest::prop_assert!(normal == "/" || segments.all(|segment| !matches!(segment, "" | "." | "..")), "{normal}");
            proptest::prop_assert!(!normal.chars().any(char::is_control), "{normal:?}");
            // What is forwarded means the same as what came, and has nothing more to take out.
            let again = normalize(&written, &DEFAULT).unwrap();
            proptest::prop_assert_eq!((&again.normal, &again.written), (&normal, &written));
        }

        #[test]
        fn any_text_has_a_normal_form_or_a_fault(raw in "\\PC{0,60}") {
            let _ = normalize(&raw, &DEFAULT);
            let _ = normalize(&raw, &PathRules { distinct_trailing_slash: true, allow_encoded_slash: true });
        }
    }
}
