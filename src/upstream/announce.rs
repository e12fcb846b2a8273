//! The PROXY protocol towards upstreams: a header before a connection's first byte that says whose connection it carries.
//! Haproxy's `doc/proxy-protocol.txt` is the standard.
//!
//! It names a connection, not a request, so a connection that has begun with one is for the requests of that client's connection and for no others.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use crate::request::ConnInfo;
use crate::snapshot::ProxyVersion;

/// Whom a connection speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announced {
    version: ProxyVersion,
    /// From where to where the client is connected; nothing for ourselves, and for a client without an address.
    ends: Option<(SocketAddr, SocketAddr)>,
}

impl Announced {
    /// A client.
    pub(super) fn client(version: ProxyVersion, conn: &ConnInfo) -> Self {
        let ends = conn.local.filter(|_| !conn.is_local).map(|local| (conn.peer, local));
        Self { version, ends }
    }

    /// The gateway itself: health checks.
    pub(super) fn ourselves(version: ProxyVersion) -> Self {
        Self { version, ends: None }
    }

    /// The header.
    pub(super) fn header(&self) -> Vec<u8> {
        // One family for both: the other one's addresses have a form in IPv6.
        let ends = self.ends.map(|(from, to)| match (from.ip().to_canonical(), to.ip().to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (SocketAddr::new(a.into(), from.port()), SocketAddr::new(b.into(), to.port())),
            (a, b) => (SocketAddr::new(in_ipv6(a), from.port()), SocketAddr::new(in_ipv6(b), to.port())),
        });
        match self.version {
            ProxyVersion::V1 => line(ends).into_bytes(),
            ProxyVersion::V2 => binary(ends),
        }
    }
}

fn in_ipv6(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().into(),
        IpAddr::V6(_) => address,
    }
}

fn line(ends: Option<(SocketAddr, SocketAddr)>) -> String {
    let Some((from, to)) = ends else { return "PROXY UNKNOWN\r\n".to_owned() };
    let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
    let mut line = String::with_capacity(107);
    // Writing to a string never fails.
    let _ = write!(line, "PROXY {family} {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port());
    line
}

fn binary(ends: Option<(SocketAddr, SocketAddr)>) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    let Some((from, to)) = ends else {
        header.extend([LOCAL, 0, 0, 0]);
        return header;
    };
    let (family, addresses): (u8, Vec<u8>) = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (TCP_OVER_IPV4, [from.octets(), to.octets()].concat()),
        (from, to) => (TCP_OVER_IPV6, [from, to].into_iter().flat_map(octets).collect()),
    };
    header.extend([PROXY, family, 0]);
    header.push(u8::try_from(addresses.len()).unwrap_or_default() + PORTS);
    header.extend(addresses);
    header.extend(from.port().to_be_bytes());
    header.extend(to.port().to_be_bytes());
    header
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, and whom it speaks for.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;
/// How many bytes two of them take.
const PORTS: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: ProxyVersion, ends: Option<(&str, &str)>) -> Vec<u8> {
        let ends = ends.map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap()));
        Announced { version, ends }.header()
    }

    #[test]
    fn lines_name_both_ends_in_one_family() {
        for (ends, expected) in [
            (None, "PROXY UNKNOWN\r\n"),
            (Some(("192.0.2.1:5000", "192.0.2.9:80")), "PROXY TCP4 192.0.2.1 192.0.2.9 5000 80\r\n"),
            (Some(("[2001:db8::1]:5000", "[::1]:80")), "PROXY TCP6 2001:db8::1 ::1 5000 80\r\n"),
            (Some(("192.0.2.1:5000", "[::ffff:192.0.2.9]:80")), "PROXY TCP4 192.0.2.1 192.0.2.9 5000 80\r\n"),
            (Some(("192.0.2.1:5000", "[::1]:80")), "PROXY TCP6 ::ffff:192.0.2.1 ::1 5000 80\r\n"),
        ] {
            assert_eq!(String::from_utf8(header(ProxyVersion::V1, ends)).unwrap(), expected);
        }
    }

    #[test]
    fn binary_headers_have_the_length_they_say() {
        let ours = header(ProxyVersion::V2, None);
        assert_eq!(ours[12..], [0x20, 0, 0, 0]);
        let ipv4 = header(ProxyVersion::V2, Some(("192.0.2.1:258", "192.0.2.9:80")));
        assert_eq!(ipv4[12..], [0x21, 0x11, 0, 12, 192, 0, 2, 1, 192, 0, 2, 9, 1, 2, 0, 80]);
        let ipv6 = header(ProxyVersion::V2, Some(("[2001:db8::1]:258", "[::1]:80")));
        assert_eq!((&ipv6[12..16], ipv6.len()), (&[0x21, 0x21, 0, 36][..], 16 + 36));
    }
}
