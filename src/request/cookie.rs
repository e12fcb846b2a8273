//! Where cookies stand in a `Cookie` line, for readers more lenient than RFC 6265.
//!
//! Servers differ: blanks around `=`, commas or blanks between cookies, quotes, names in any case. What any of them takes for a cookie is one here, so
//! that none is hidden from the gateway and shown to the upstream. Separate because identity reads credentials by it and `headers`
//! takes them out by it, and the two must never disagree.

/// What stands behind the name and `=` of each cookie of this name in a line: everything up to the next `;`, less blanks and one pair
/// of quotes around it. Not necessarily a cookie's value: see [`is_octet`].
pub fn values<'l>(line: &'l [u8], name: &[u8]) -> impl Iterator<Item = &'l [u8]> {
    // A cookie without a name is none; `windows` has none of length 0.
    let windows = line.windows(name.len().max(1)).enumerate();
    windows.filter(|(_, window)| window.eq_ignore_ascii_case(name)).filter_map(|(at, _)| {
        let (before, found) = line.split_at_checked(at)?;
        let behind = trim_start(found.get(name.len()..)?).strip_prefix(b"=")?;
        before.last().is_none_or(|byte| ends_a_word(*byte)).then(|| unquoted(behind))
    })
}

/// What a cookie's value consists of (`cookie-octet`, RFC 6265 §4.1.1). With anything else readers don't agree where it ends.
#[must_use]
pub fn is_octet(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\')
}

/// Behind this a name may begin.
fn ends_a_word(byte: u8) -> bool {
    !byte.is_ascii_graphic() || matches!(byte, b';' | b',' | b'"')
}

fn unquoted(behind: &[u8]) -> &[u8] {
    let value = behind.split(|byte| *byte == b';').next().unwrap_or_default();
    let value = trim_start(value).trim_ascii_end();
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// Whatever is not visible ASCII counts as a blank: some readers take U+00A0 for one.
fn trim_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(u8::is_ascii_graphic).unwrap_or(text.len());
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Vec<String> {
        let line: Vec<u8> = line.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        values(&line, b"key").map(|value| value.iter().map(|byte| char::from(*byte)).collect()).collect()
    }

    #[test]
    fn a_cookie_is_found_wherever_some_server_finds_it() {
        for (line, expected) in [
            ("key=T", &["T"][..]),
            (" key=T ", &["T"]),
            ("\tkey=T\t", &["T"]),
            ("key =T", &["T"]),
            ("key\t=T", &["T"]),
            ("key= T", &["T"]),
            ("key=\"T\"", &["T"]),
            ("key = \"T\" ; a=b", &["T"]),
            ("key\u{a0}=\u{a0}T", &["T"]),
            ("a=b; key=T", &["T"]),
            ("a=b;key=T", &["T"]),
            ("a=b, key=T", &["T"]),
            ("a=b,key=T", &["T"]),
            ("a=b key=T", &["T"]),
            ("a;key=T", &["T"]),
            ("a=\"; key=T\"", &["T\""]),
            ("key=T,a=b", &["T,a=b"]),
            ("key=T\u{a0}", &["T\u{a0}"]),
            ("key=T; key=U", &["T", "U"]),
            ("key=T, key=U", &["T, key=U", "U"]),
            ("key=", &[""]),
            ("key", &[]),
            ("keys=T", &[]),
            ("a-key=T", &[]),
            ("Key=T", &["T"]),
            ("a=key=T", &[]),
            ("a=/?key=T", &[]),
            ("", &[]),
        ] {
            assert_eq!(read(line), expected, "{line:?}");
        }
    }

    #[test]
    fn octets_are_those_that_nobody_reads_otherwise() {
        let others: Vec<u8> = (0..=u8::MAX).filter(|byte| !is_octet(*byte)).filter(u8::is_ascii_graphic).collect();
        assert_eq!(others, b"\",;\\");
        assert!([b' ', b'\t', 0, 0x7f, 0xa0].into_iter().all(|byte| !is_octet(byte)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
            let _ = values(&line, b"k").count();
        }
    }
}
