//! `Forwarded` (RFC 7239), read from the right.
//!
//! Backwards, because the rightmost element is the nearest proxy's own and all that stands left of it may be anybody's: an open
//! quote that a client sends must not swallow what the proxy puts behind it. It can be told backwards where a value begins, since a
//! `"` inside a value that matters can only be the client's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;

/// The `for` addresses of all lines from the last to the first. `None` is an element that names no address: unknown, obfuscated,
/// without `for`, or no element at all. Nothing follows one that can't be read.
pub(super) fn addresses(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    headers.get_all(http::header::FORWARDED).iter().rev().flat_map(|line| Elements { rest: Some(line.as_bytes()) })
}

/// The elements of one line from the last to the first.
struct Elements<'l> {
    /// What is left of those that were taken.
    rest: Option<&'l [u8]>,
}

impl Iterator for Elements<'_> {
    type Item = Option<IpAddr>;

    fn next(&mut self) -> Option<Option<IpAddr>> {
        let line = self.rest.take()?;
        let Some((element, rest)) = last_element(line) else { return Some(None) };
        self.rest = rest;
        Some(element.client.flatten())
    }
}

/// What has been read of an element.
#[derive(Debug, Default)]
struct Element {
    /// `for`, and the address in it.
    client: Option<Option<IpAddr>>,
    by: bool,
    host: bool,
    proto: bool,
}

/// Takes the last element off a line; with what stands in front of its comma. `None` if that is no element.
fn last_element(line: &[u8]) -> Option<(Element, Option<&[u8]>)> {
    let mut element = Element::default();
    let mut rest = line.trim_ascii_end();
    loop {
        if !matches!(rest.last(), None | Some(b';' | b',')) {
            rest = element.take_pair(rest)?.trim_ascii_end();
        }
        match rest.split_last() {
            None => return Some((element, None)),
            Some((b',', before)) => return Some((element, Some(before))),
            Some((b';', before)) => rest = before.trim_ascii_end(),
            Some(_) => return None,
        }
    }
}

impl Element {
    /// Reads the `name=value` at the end; returns what stands in front of it. Each name at most once, and no others than RFC 7239's.
    fn take_pair<'l>(&mut self, text: &'l [u8]) -> Option<&'l [u8]> {
        let (value, before) = match text.split_last() {
            Some((b'"', inner)) => {
                let open = memchr::memrchr(b'"', inner)?;
                let (before, value) = inner.split_at_checked(open)?;
                (value.split_first()?.1, before)
            }
            _ => split_token(text)?,
        };
        let (name, before) = split_token(before.strip_suffix(b"=")?)?;
        let seen = if name.eq_ignore_ascii_case(b"for") {
            let node = node(value)?;
            return self.client.replace(node).is_none().then_some(before);
        } else if name.eq_ignore_ascii_case(b"by") {
            node(value)?;
            &mut self.by
        } else if name.eq_ignore_ascii_case(b"host") {
            // What is in `host` and `proto` is not read here, and may be the client's own words.
            &mut self.host
        } else if name.eq_ignore_ascii_case(b"proto") {
            &mut self.proto
        } else {
            return None;
        };
        (!std::mem::replace(seen, true)).then_some(before)
    }
}

/// The token at the end, at least one byte, and what stands in front of it.
fn split_token(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = text.iter().rposition(|b| !is_token(*b)).map_or(0, |at| at + 1);
    let (before, token) = text.split_at_checked(start)?;
    (!token.is_empty()).then_some((token, before))
}

/// RFC 9110 §5.6.2.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// RFC 7239 §6: an address, `unknown` or an obfuscated name, each with an optional port. `None` if it is none of them; inside, the
/// address if it is one.
fn node(value: &[u8]) -> Option<Option<IpAddr>> {
    let text = std::str::from_utf8(value).ok()?;
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        if !port.is_empty() {
            is_port(port.strip_prefix(':')?).then_some(())?;
        }
        return Some(Some(IpAddr::V6(address).to_canonical()));
    }
    let name = match text.split_once(':') {
        Some((name, port)) => is_port(port).then_some(name)?,
        None => text,
    };
    if name.eq_ignore_ascii_case("unknown") || is_obfuscated(name) {
        return Some(None);
    }
    name.parse().ok().map(|address: Ipv4Addr| Some(address.into()))
}

fn is_port(text: &str) -> bool {
    let number = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok();
    number || is_obfuscated(text)
}

fn is_obfuscated(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    text.strip_prefix('_').is_some_and(|name| !name.is_empty() && name.bytes().all(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    /// From right to left, `-` for what names no address.
    fn read(lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("forwarded", HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        let text = |address: Option<IpAddr>| address.map_or_else(|| "-".to_owned(), |address| address.to_string());
        addresses(&headers).map(text).collect::<Vec<_>>().join(" ")
    }

    fn is_valid(line: &str) -> bool {
        let mut rest = Some(line.as_bytes());
        while let Some(text) = rest {
            let Some((_, before)) = last_element(text) else { return false };
            rest = before;
        }
        true
    }

    #[test]
    fn the_grammar_of_rfc_7239() {
        for valid in [
            "for=\"unknown:132\";host=\"[::1]:65535\";by=\"_obfs:_port\";proto=https",
            "for=\"127.0.0.1\";host=v.test",
            "by=\"[::1]\"",
            "by=\"[::1]:3\"",
            "for=\"[::1]:_id\"",
            "For=192.0.2.43, FOR=\"[2001:db8:cafe::17]:4711\"",
            "for=192.0.2.60; proto=http; by=203.0.113.43",
            "for=_gazonk",
            "for=unknown",
            "for=a.b;",
            "host=\"a\\\\b\"",
        ] {
            // `for=a.b` is no node; the row shows that the separator behind it is not what is wrong.
            assert_eq!(is_valid(valid), !valid.contains("a.b;"), "{valid}");
        }
        for invalid in [
            "fore=\"127.0.0.1\"",
            "proto=http;proto=http",
            "for=1.2.3.4;For=1.2.3.4",
            "\"",
            "by=[::1]",
            "by=\"[::1]:\"",
            "for=[::1]",
            "for=1.2.3.4:80",
            "for=\"::1\"",
            "for=\"1.2.3.4:\"",
            "for=\"1.2.3.4:99999\"",
            "for=\"1.2.3.4:000080\"",
            "for=\"[fe80::1%eth0]\"",
            "for=001.002.003.004",
            "for=_",
            "for=\"_a b\"",
            "for=",
            "=1.2.3.4",
            "for",
            "for =1.2.3.4",
            "for= 1.2.3.4",
            "for=\"1.2.3.4",
            "for=1.2.3.4\"",
            "for=\"1.2.\\3.4\"",
            "for=1.2.3.4 by=1.2.3.4",
            "host=\"a\\\"b\"",
        ] {
            assert!(!is_valid(invalid), "{invalid}");
        }
    }

    #[test]
    fn what_a_client_sent_does_not_hide_what_the_proxy_appended() {
        for (lines, expected) in [
            (&["for=9.9.9.9, for=192.0.2.1"][..], "192.0.2.1 9.9.9.9"),
            (&["for=\", for=192.0.2.1"], "192.0.2.1 -"),
            (&["for=9.9.9.9;host=\", for=\"[2001:db8::1]\""], "2001:db8::1 -"),
            (&["for=9.9.9.9;host=\"\\, for=192.0.2.1;by=\"[::1]\""], "192.0.2.1 -"),
            (&["fore=1, for=192.0.2.1"], "192.0.2.1 -"),
            (&["for=9.9.9.9", "for=192.0.2.1"], "192.0.2.1 9.9.9.9"),
            (&["for=\"", "for=192.0.2.1"], "192.0.2.1 -"),
            (&["for=9.9.9.9;host=\"a,b;c\", for=192.0.2.1;host=\"x, for=8.8.8.8\""], "192.0.2.1 9.9.9.9"),
            (&["for=192.0.2.1;host=\"x\\\", for=8.8.8.8\""], "-"),
            (&["for=192.0.2.1,"], "- 192.0.2.1"),
            (&["proto=https"], "-"),
            (&[""], "-"),
            (&["for=\"[::ffff:192.0.2.1]\""], "192.0.2.1"),
            (&["for=\"_x\", for=\"unknown\""], "- -"),
        ] {
            assert_eq!(read(lines), expected, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_no_byte_is_read_twice(line in "[fory=\"\\\\,;:\\[\\]0-9. _a-z]{0,80}") {
            let mut rest = Some(line.as_bytes());
            let mut left = line.len() + 1;
            while let Some(text) = rest {
                prop_assert!(text.len() < left);
                left = text.len();
                rest = last_element(text).and_then(|(_, before)| before);
            }
        }

        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let mut headers = HeaderMap::new();
                headers.append("forwarded", value);
                prop_assert!(addresses(&headers).count() <= line.len() + 1);
            }
        }

        #[test]
        fn what_was_written_is_read_whatever_stands_before_it(junk in "[ -~]{0,40}", v4: [u8; 4], v6: [u8; 16], which: bool) {
            let address = if which { IpAddr::from(v4) } else { IpAddr::from(v6) };
            let own = if which { format!("for={address};host=\"a\"") } else { format!("proto=http;for=\"[{address}]:80\"") };
            let line = format!("{junk}, {own}");
            let mut headers = HeaderMap::new();
            headers.append("forwarded", HeaderValue::from_str(&line).unwrap());
            prop_assert_eq!(addresses(&headers).next(), Some(Some(address.to_canonical())));
        }
    }
}
