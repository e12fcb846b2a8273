//! The client's address: the socket's peer or, behind trusted proxies only, the rightmost address in X-Forwarded-For
//! that is not a trusted proxy itself. And how addresses are grouped for counting: IPv6 by /64 unless told otherwise.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};

/// Proxies whose forwarding headers are believed.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<IpNetwork>);

impl TrustedProxies {
    /// These ranges.
    #[must_use]
    pub fn new(ranges: Vec<IpNetwork>) -> Self {
        Self(ranges)
    }

    /// Whether an address is a trusted proxy's.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }

    /// Walks X-Forwarded-For from the right, over trusted hops, to the first address that is not one. All lines count as
    /// one list. An entry that is not an address stops the walk at the last trusted hop: what stands left of it is hearsay.
    #[must_use]
    pub fn client_of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        let entries = lines.flat_map(|line| line.as_bytes().rsplit(|b| *b == b','));
        let mut client = peer;
        for entry in entries {
            let Some(address) = parse(entry) else { return client };
            client = address;
            if !self.contains(address) {
                return client;
            }
        }
        client
    }
}

/// Reads `ip`, `ip:port`, `[v6]` or `[v6]:port`, with blanks or quotes around it; zone ids are refused. An IPv4-mapped
/// address is that IPv4 address.
fn parse(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t', '"']);
    let address = if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        if !port.is_empty() {
            valid_port(port.strip_prefix(':')?)?;
        }
        IpAddr::V6(address.parse().ok()?)
    } else if let Some((address, port)) = text.split_once(':').filter(|(_, port)| !port.contains(':')) {
        valid_port(port)?;
        IpAddr::V4(address.parse().ok()?)
    } else {
        text.parse().ok()?
    };
    Some(address.to_canonical())
}

fn valid_port(port: &str) -> Option<u16> {
    port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse().ok())?
}

/// How many leading bits make a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouping {
    /// 0 to 32.
    pub ipv4_prefix: u8,
    /// 0 to 128.
    pub ipv6_prefix: u8,
}

impl Default for Grouping {
    fn default() -> Self {
        Self { ipv4_prefix: 32, ipv6_prefix: 64 }
    }
}

/// A grouped address: what an address limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// The address with the bits past the prefix cleared.
    pub address: IpAddr,
    /// The prefix's length.
    pub prefix: u8,
}

impl Grouping {
    /// The group of an address.
    #[must_use]
    pub fn network_of(&self, address: IpAddr) -> Network {
        match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.ipv4_prefix.min(32))).unwrap_or(0);
                Network { address: Ipv4Addr::from_bits(v4.to_bits() & mask).into(), prefix: self.ipv4_prefix }
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.ipv6_prefix.min(128))).unwrap_or(0);
                Network { address: Ipv6Addr::from_bits(v6.to_bits() & mask).into(), prefix: self.ipv6_prefix }
            }
        }
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.address, self.prefix) {
            (IpAddr::V4(_), 32) | (IpAddr::V6(_), 128) => write!(f, "{}", self.address),
            (address, prefix) => write!(f, "{address}/{prefix}"),
        }
    }
}

/// Reads a range of addresses, or the names `loopback` and `private`, or a single address.
#[must_use]
pub fn parse_ranges(text: &str) -> Option<Vec<IpNetwork>> {
    let v4 = |a, b, c, d, prefix| Ipv4Network::new(Ipv4Addr::new(a, b, c, d), prefix).ok().map(IpNetwork::V4);
    let v6 = |address: Ipv6Addr, prefix| Ipv6Network::new(address, prefix).ok().map(IpNetwork::V6);
    match text {
        "loopback" => Some(vec![v4(127, 0, 0, 0, 8)?, v6(Ipv6Addr::LOCALHOST, 128)?]),
        // RFC 1918 and RFC 4193.
        "private" => Some(vec![
            v4(10, 0, 0, 0, 8)?,
            v4(172, 16, 0, 0, 12)?,
            v4(192, 168, 0, 0, 16)?,
            v6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7)?,
        ]),
        _ => text.parse::<IpNetwork>().ok().map(|range| vec![canonical(range)]),
    }
}

/// A range of IPv4-mapped addresses is that range of IPv4: addresses are compared in that form.
fn canonical(range: IpNetwork) -> IpNetwork {
    let IpNetwork::V6(v6) = range else { return range };
    let v4 = v6.ip().to_ipv4_mapped().zip(v6.prefix().checked_sub(96));
    v4.and_then(|(ip, prefix)| Ipv4Network::new(ip, prefix).ok()).map_or(range, IpNetwork::V4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn client(peer: &str, lines: &[&str]) -> String {
        let trusted = TrustedProxies::new(
            ["loopback", "private", "2001:db8:ffff::/48"].iter().flat_map(|r| parse_ranges(r).unwrap()).collect(),
        );
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", HeaderValue::from_str(line).unwrap());
        }
        trusted.client_of(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_client() {
        for (lines, expected) in [
            (&["203.0.113.7"][..], "203.0.113.7"),
            (&["6.6.6.6, 203.0.113.7"], "203.0.113.7"),
            (&["6.6.6.6", "203.0.113.7, 10.1.2.3"], "203.0.113.7"),
            (&["203.0.113.7, 10.0.0.1, 127.0.0.1"], "203.0.113.7"),
            (&["10.0.0.2, 10.0.0.1"], "10.0.0.2"),
            (&[], "127.0.0.1"),
            (&[""], "127.0.0.1"),
            (&["6.6.6.6, unknown"], "127.0.0.1"),
            (&["6.6.6.6, unknown, 10.0.0.1"], "10.0.0.1"),
            (&["203.0.113.7:4711"], "203.0.113.7"),
            (&[" \"[2001:db8::1]:80\" "], "2001:db8::1"),
            (&["2001:DB8:0::1"], "2001:db8::1"),
            (&["::ffff:203.0.113.7"], "203.0.113.7"),
            (&["::ffff:cb00:7107"], "203.0.113.7"),
            (&["fe80::1%eth0"], "127.0.0.1"),
            (&["001.002.003.004"], "127.0.0.1"),
            (&["203.0.113.7:99999"], "127.0.0.1"),
            (&["203.0.113.7:+1"], "127.0.0.1"),
        ] {
            assert_eq!(client("127.0.0.1", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_long_list_is_walked_once() {
        let long = vec!["10.0.0.1"; 10_000].join(",");
        assert_eq!(client("127.0.0.1", &[&long]), "10.0.0.1");
    }

    #[test]
    fn a_mapped_range_is_the_ipv4_range() {
        let ranges = parse_ranges("::ffff:203.0.113.0/120").unwrap();
        assert!(ranges[0].contains("203.0.113.7".parse().unwrap()));
    }

    #[test]
    fn addresses_are_grouped() {
        let grouping = Grouping::default();
        let network = |address: &str| grouping.network_of(address.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(network("203.0.113.7"), "203.0.113.7");
        let wide = Grouping { ipv4_prefix: 24, ipv6_prefix: 0 };
        assert_eq!(wide.network_of("203.0.113.7".parse().unwrap()).to_string(), "203.0.113.0/24");
        assert_eq!(wide.network_of("2001:db8::1".parse().unwrap()).to_string(), "::/0");
    }
}
