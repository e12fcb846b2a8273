//! The client's address: the peer's or, behind trusted proxies only, the one that they say it is. And how addresses are grouped
//! for counting: IPv6 by /64 unless told otherwise.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::HeaderMap;
use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};

use super::forwarded;
use crate::request::ForwardedHeader;

/// Proxies whose forwarding headers are believed.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies {
    ranges: Vec<IpNetwork>,
    hops: Option<u8>,
    header: ForwardedHeader,
}

impl TrustedProxies {
    /// These ranges; or this many hops, from peers in these ranges or, if there are none, from anybody.
    #[must_use]
    pub fn new(ranges: Vec<IpNetwork>, hops: Option<u8>, header: ForwardedHeader) -> Self {
        Self { ranges, hops, header }
    }

    /// Whether a peer's headers are believed.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        if self.ranges.is_empty() { self.hops.is_some() } else { self.is_in_ranges(address) }
    }

    /// Whom a trusted peer says a request is from. All lines of the header count as one list, which is read from the right. An entry
    /// that is no address ends it at the last trusted hop: what stands left of that is hearsay.
    #[must_use]
    pub fn client_of(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        match self.header {
            ForwardedHeader::XForwardedFor => self.walk(peer, forwarded_for(headers)),
            ForwardedHeader::Forwarded => self.walk(peer, forwarded::addresses(headers)),
        }
    }

    fn walk(&self, peer: IpAddr, addresses: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        match self.hops {
            Some(hops) => nth_hop(peer, addresses, hops),
            None => self.first_untrusted(peer, addresses),
        }
    }

    /// Over trusted hops to the first address that is not one; the leftmost if all are.
    fn first_untrusted(&self, peer: IpAddr, addresses: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
        let mut client = peer;
        for address in addresses {
            let Some(address) = address else { return client };
            client = address;
            if !self.is_in_ranges(address) {
                return client;
            }
        }
        client
    }

    fn is_in_ranges(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }
}

/// The address that the last of so many hops has seen, the peer being the first. A list that is too short has not come through all of
/// them, so nothing in it is believed.
fn nth_hop(peer: IpAddr, mut addresses: impl Iterator<Item = Option<IpAddr>>, hops: u8) -> IpAddr {
    let mut client = peer;
    for _ in 0..hops {
        match addresses.next() {
            Some(Some(address)) => client = address,
            Some(None) => return client,
            None => return peer,
        }
    }
    client
}

/// The entries of all lines of X-Forwarded-For from the last to the first; `None` is what is no address.
fn forwarded_for(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    lines.flat_map(|line| line.as_bytes().rsplit(|b| *b == b',')).map(parse)
}

/// Reads `ip`, `ip:port`, `[v6]` or `[v6]:port`, with blanks or quotes around it; zone ids are refused. An IPv4-mapped
/// address is that IPv4 address.
fn parse(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let text = match text.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?.trim_matches([' ', '\t']),
        None => text,
    };
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

/// Reads a range of addresses, one of [`RANGE_NAMES`], or a single address.
#[must_use]
pub fn parse_ranges(text: &str) -> Option<Vec<IpNetwork>> {
    let v4 = |a, b, c, d, prefix| Ipv4Network::new(Ipv4Addr::new(a, b, c, d), prefix).ok().map(IpNetwork::V4);
    let v6 = |address: Ipv6Addr, prefix| Ipv6Network::new(address, prefix).ok().map(IpNetwork::V6);
    let unique_local = || v6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7);
    match text {
        "loopback" => Some(vec![v4(127, 0, 0, 0, 8)?, v6(Ipv6Addr::LOCALHOST, 128)?]),
        // RFC 1918 and RFC 4193.
        "private" => Some(vec![v4(10, 0, 0, 0, 8)?, v4(172, 16, 0, 0, 12)?, v4(192, 168, 0, 0, 16)?, unique_local()?]),
        // RFC 3927 and RFC 4291.
        "link_local" => Some(vec![v4(169, 254, 0, 0, 16)?, v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)?]),
        "unique_local" => Some(vec![unique_local()?]),
        // RFC 6598.
        "cgnat" => Some(vec![v4(100, 64, 0, 0, 10)?]),
        _ => text.parse::<IpNetwork>().ok().map(|range| vec![canonical(range)]),
    }
}

/// The names that stand for ranges.
pub const RANGE_NAMES: &[&str] = &["loopback", "private", "link_local", "unique_local", "cgnat"];

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
    use proptest::prelude::*;

    fn ranges() -> Vec<IpNetwork> {
        ["loopback", "private", "2001:db8:ffff::/48"].iter().flat_map(|r| parse_ranges(r).unwrap()).collect()
    }

    fn headers(name: &'static str, lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        headers
    }

    fn client(peer: &str, lines: &[&str]) -> String {
        let trusted = TrustedProxies::new(ranges(), None, ForwardedHeader::XForwardedFor);
        trusted.client_of(peer.parse().unwrap(), &headers("x-forwarded-for", lines)).to_string()
    }

    #[test]
    fn hops_are_counted_from_the_right_with_the_peer_as_the_first() {
        let client = |hops, lines: &[&str]| {
            let trusted = TrustedProxies::new(Vec::new(), Some(hops), ForwardedHeader::XForwardedFor);
            assert!(trusted.contains("203.0.113.1".parse().unwrap()));
            trusted.client_of("203.0.113.1".parse().unwrap(), &headers("x-forwarded-for", lines)).to_string()
        };
        for (hops, lines, expected) in [
            (1, &[][..], "203.0.113.1"),
            (1, &["1.1.1.1"], "1.1.1.1"),
            (1, &["2.2.2.2, 1.1.1.1"], "1.1.1.1"),
            (1, &["3.3.3.3", "2.2.2.2, 1.1.1.1"], "1.1.1.1"),
            (2, &[], "203.0.113.1"),
            (2, &["1.1.1.1"], "203.0.113.1"),
            (2, &["2.2.2.2", "1.1.1.1"], "2.2.2.2"),
            (2, &["3.3.3.3, 2.2.2.2, 1.1.1.1"], "2.2.2.2"),
            (32, &["3.3.3.3, 2.2.2.2, 1.1.1.1"], "203.0.113.1"),
            (1, &["1.1.1.1, bad"], "203.0.113.1"),
            (2, &["bad, 1.1.1.1"], "1.1.1.1"),
            (2, &["2.2.2.2, unknown"], "203.0.113.1"),
        ] {
            assert_eq!(client(hops, lines), expected, "{hops} hops, {lines:?}");
        }
    }

    #[test]
    fn ranges_beside_hops_say_whose_list_is_counted() {
        let trusted = TrustedProxies::new(ranges(), Some(2), ForwardedHeader::XForwardedFor);
        assert!(trusted.contains("10.0.0.1".parse().unwrap()) && !trusted.contains("203.0.113.1".parse().unwrap()));
        let list = headers("x-forwarded-for", &["3.3.3.3, 2.2.2.2, 1.1.1.1"]);
        assert_eq!(trusted.client_of("10.0.0.1".parse().unwrap(), &list).to_string(), "2.2.2.2");
    }

    #[test]
    fn only_the_configured_header_is_read() {
        let mut both = headers("x-forwarded-for", &["1.1.1.1"]);
        both.extend(headers("forwarded", &["for=9.9.9.9, for=2.2.2.2, for=10.0.0.1"]));
        for (header, expected) in [(ForwardedHeader::XForwardedFor, "1.1.1.1"), (ForwardedHeader::Forwarded, "2.2.2.2")] {
            let trusted = TrustedProxies::new(ranges(), None, header);
            assert_eq!(trusted.client_of("127.0.0.1".parse().unwrap(), &both).to_string(), expected);
        }
    }

    #[test]
    fn every_name_is_a_range_and_knows_its_own() {
        for (name, inside, outside) in [
            ("loopback", "127.1.2.3", "128.0.0.1"),
            ("loopback", "::1", "::2"),
            ("private", "172.31.0.1", "172.32.0.1"),
            ("private", "fd00::1", "fe80::1"),
            ("link_local", "169.254.1.1", "169.253.1.1"),
            ("link_local", "fe80::1", "fd00::1"),
            ("unique_local", "fd00::1", "10.0.0.1"),
            ("cgnat", "100.127.255.255", "100.128.0.0"),
        ] {
            let ranges = parse_ranges(name).unwrap();
            let contains = |address: &str| ranges.iter().any(|range| range.contains(address.parse().unwrap()));
            assert!(contains(inside) && !contains(outside), "{name}");
        }
        assert!(RANGE_NAMES.iter().all(|name| parse_ranges(name).is_some()));
    }

    /// What the walk must come to, said differently: of the addresses from the right up to the first that is none, the first that is
    /// not trusted, else the last.
    fn expected(trusted: &TrustedProxies, peer: IpAddr, entries: &[&str]) -> IpAddr {
        let known: Vec<IpAddr> = entries.iter().rev().map_while(|entry| parse(entry.as_bytes())).collect();
        known.iter().copied().find(|address| !trusted.is_in_ranges(*address)).or(known.last().copied()).unwrap_or(peer)
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..200), hops in proptest::option::of(1_u8..4)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let trusted = TrustedProxies::new(ranges(), hops, ForwardedHeader::XForwardedFor);
                let mut headers = HeaderMap::new();
                headers.append("x-forwarded-for", value);
                let _ = trusted.client_of(IpAddr::from([127, 0, 0, 1]), &headers);
            }
        }

        #[test]
        fn the_walk_ends_where_it_must(entries in proptest::collection::vec(
            prop_oneof!["10\\.0\\.0\\.[0-9]", "8\\.8\\.8\\.[0-9]", "::ffff:10\\.0\\.0\\.1", "\\[2001:db8:ffff::[0-9]\\]:80", "unknown", "[ -+.-~]{0,12}"],
            0..8,
        ), cut in 0_usize..8) {
            let trusted = TrustedProxies::new(ranges(), None, ForwardedHeader::XForwardedFor);
            let peer = IpAddr::from([127, 0, 0, 1]);
            let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
            // Cut into two lines anywhere: they are one list.
            let (first, second) = entries.split_at(cut.min(entries.len()));
            let lines: Vec<String> = [first, second].iter().filter(|part| !part.is_empty()).map(|part| part.join(",")).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let found = trusted.client_of(peer, &headers("x-forwarded-for", &lines));
            prop_assert_eq!(found, expected(&trusted, peer, &entries));
        }
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
            (&["\"203.0.113.7"], "127.0.0.1"),
            (&["203.0.113.7\""], "127.0.0.1"),
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
        let trusted = TrustedProxies::new(ranges(), None, ForwardedHeader::Forwarded);
        // A hundred thousand elements: were any read twice, this would take minutes.
        let long = format!("for=8.8.8.8,{}", vec!["for=10.0.0.1;host=\"a\""; 100_000].join(","));
        let found = trusted.client_of(IpAddr::from([127, 0, 0, 1]), &headers("forwarded", &[&long]));
        assert_eq!(found.to_string(), "8.8.8.8");
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
