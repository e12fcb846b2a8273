//! Base64 and base64url (RFC 4648 sections 4 and 5), padded or not.

/// The bytes that a text stands for; `None` if it is not base64.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0_u32);
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    for byte in text.get(..end).unwrap_or_default() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    // Six bits left over are a digit that belongs to nothing.
    (count < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_either_alphabet_is_read() {
        for (text, bytes) in [
            ("", Some(&b""[..])),
            ("Zg==", Some(b"f")),
            ("Zm8", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("-_-_", Some(b"\xfb\xff\xbf")),
            ("+/+/", Some(b"\xfb\xff\xbf")),
            ("Z", None),
            ("Zm9vY", None),
            ("Zm 9v", None),
        ] {
            assert_eq!(decode(text.as_bytes()).as_deref(), bytes, "{text}");
        }
    }
}
