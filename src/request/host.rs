//! Host and authority: validated, and brought to one form so that `EXAMPLE.com.:80` and `example.com` are one host.

use std::borrow::Cow;

/// A validated host with its port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authority<'a> {
    /// Lower case, without a trailing dot or port; brackets kept on IPv6. Empty if the client named no host.
    pub host: Cow<'a, str>,
    /// The port, unless it is the scheme's own.
    pub port: Option<u16>,
}

/// Why a host is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostFault {
    /// Not `host` or `host:port`.
    #[error("the Host is not valid")]
    Invalid,
}

impl<'a> Authority<'a> {
    /// Reads `host[:port]` as RFC 9110 §4.2.3 and RFC 3986 §3.2 have it; userinfo is refused.
    ///
    /// # Errors
    /// [`HostFault::Invalid`] for anything else, an empty host included.
    pub fn parse(raw: &'a [u8], scheme: &str) -> Result<Self, HostFault> {
        let text = std::str::from_utf8(raw).map_err(|_| HostFault::Invalid)?.trim_matches([' ', '\t']);
        let (host, port) = split_port(text)?;
        let host = host.strip_suffix('.').filter(|host| !host.is_empty()).unwrap_or(host);
        if !valid_host(host) {
            return Err(HostFault::Invalid);
        }
        let host = if host.bytes().any(|b| b.is_ascii_uppercase()) {
            Cow::Owned(host.to_ascii_lowercase())
        } else {
            Cow::Borrowed(host)
        };
        let own_port = if scheme == "https" { 443 } else { 80 };
        Ok(Self { host, port: port.filter(|port| *port != own_port) })
    }
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), HostFault> {
    let end = match text.strip_prefix('[') {
        Some(rest) => rest.find(']').ok_or(HostFault::Invalid)? + 2,
        None => text.find(':').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at_checked(end).ok_or(HostFault::Invalid)?;
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => None,
        None => return Err(HostFault::Invalid),
        // An empty port is allowed and means the scheme's own.
        Some("") => None,
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => Some(port.parse().map_err(|_| HostFault::Invalid)?),
        Some(_) => return Err(HostFault::Invalid),
    };
    Ok((host, port))
}

fn valid_host(host: &str) -> bool {
    if let Some(literal) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return literal.parse::<std::net::Ipv6Addr>().is_ok();
    }
    // A registered name in practice: letters, digits, hyphens, dots, and the underscore that real services use.
    !host.is_empty()
        && host.len() <= 255
        && !host.starts_with('.')
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_host_are_one_host() {
        let expected = Authority { host: "example.com".into(), port: None };
        for raw in ["example.com", "EXAMPLE.com", "example.com.", "example.com:80", "example.com:080", "example.com:"] {
            assert_eq!(Authority::parse(raw.as_bytes(), "http").unwrap(), expected, "{raw}");
        }
        assert_eq!(Authority::parse(b"example.com:443", "http").unwrap().port, Some(443));
        assert_eq!(Authority::parse(b"example.com:0443", "https").unwrap().port, None);
        assert_eq!(Authority::parse(b"[::1]:8080", "http").unwrap().host, "[::1]");
    }

    #[test]
    fn what_is_not_a_host_is_refused() {
        for raw in ["", "a b", "u@a", "a:b", "a:99999", "[::1", "[::1]x", "[zz]", "a/b", "a,b", ":80", "a\u{e9}", "..", "a:80:80"]
        {
            assert_eq!(Authority::parse(raw.as_bytes(), "http"), Err(HostFault::Invalid), "{raw}");
        }
    }
}
