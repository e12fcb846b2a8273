//! Version 2: a signature, a fixed head, addresses, and type-length-value items.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{HeaderFault, Progress};

pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The most that addresses and items together may take. What is in use (TLS details, names of endpoints) are a few hundred bytes.
const MAX_PAYLOAD: usize = 4096;

pub(super) fn parse(seen: &[u8]) -> Result<Progress, HeaderFault> {
    let fixed = seen.get(SIGNATURE.len()..).unwrap_or_default();
    let (version_command, family) = (fixed.first(), fixed.get(1));
    if version_command.is_some_and(|byte| !matches!(byte, 0x20 | 0x21)) || family.is_some_and(|byte| !is_family(*byte)) {
        return Err(HeaderFault::Binary);
    }
    let [version_command, family, high, low, payload @ ..] = fixed else { return Ok(Progress::Incomplete) };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length > MAX_PAYLOAD {
        return Err(HeaderFault::Binary);
    }
    let Some(payload) = payload.get(..length) else { return Ok(Progress::Incomplete) };
    let whole = SIGNATURE.len() + HEAD + length;
    let source = match version_command {
        // LOCAL: the balancer's own connection, a health check mostly. What else is there is skipped.
        0x20 => None,
        _ => announced(*family, payload, seen.get(..whole).unwrap_or_default())?,
    };
    Ok(Progress::Complete { source, length: whole })
}

/// UNSPEC, INET, INET6 or UNIX with UNSPEC, STREAM or DGRAM.
fn is_family(byte: u8) -> bool {
    byte >> 4 <= 3 && byte & 0xf <= 2
}

/// The source that a PROXY command names. Only TCP over IP has one; of the others the addresses are skipped.
fn announced(family: u8, payload: &[u8], header: &[u8]) -> Result<Option<SocketAddr>, HeaderFault> {
    let length = match family >> 4 {
        1 => 12,
        2 => 36,
        3 => 216,
        // Nothing is known of how long its addresses are, so nothing of where items begin.
        _ => return Ok(None),
    };
    let (addresses, items) = payload.split_at_checked(length).ok_or(HeaderFault::Binary)?;
    check_items(items, header)?;
    Ok(match family {
        0x11 => ipv4_source(addresses),
        0x21 => ipv6_source(addresses),
        _ => None,
    })
}

/// Source, destination, source port, destination port.
fn ipv4_source(addresses: &[u8]) -> Option<SocketAddr> {
    let (source, rest) = addresses.split_first_chunk::<4>()?;
    let port = rest.get(4..)?.first_chunk::<2>()?;
    Some((Ipv4Addr::from(*source), u16::from_be_bytes(*port)).into())
}

fn ipv6_source(addresses: &[u8]) -> Option<SocketAddr> {
    let (source, rest) = addresses.split_first_chunk::<16>()?;
    let port = rest.get(16..)?.first_chunk::<2>()?;
    Some((Ipv6Addr::from(*source), u16::from_be_bytes(*port)).into())
}

/// Skips the items, which must be whole, and verifies the checksum if one of them is one.
fn check_items(mut items: &[u8], header: &[u8]) -> Result<(), HeaderFault> {
    let mut checksum = None;
    while let Some((kind, rest)) = items.split_first() {
        let (length, rest) = rest.split_first_chunk::<2>().ok_or(HeaderFault::Binary)?;
        let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(HeaderFault::Binary)?;
        if *kind == TYPE_CRC32C {
            let value = <[u8; 4]>::try_from(value).map_err(|_| HeaderFault::Binary)?;
            let before = header.len().saturating_sub(rest.len() + value.len());
            if checksum.replace((u32::from_be_bytes(value), before)).is_some() {
                return Err(HeaderFault::Binary);
            }
        }
        items = rest;
    }
    let Some((expected, before)) = checksum else { return Ok(()) };
    // Computed with four zeros in its own place.
    let around = (header.get(..before).unwrap_or_default(), header.get(before + 4..).unwrap_or_default());
    let found = around.0.iter().chain(&[0; 4]).chain(around.1).fold(!0, |crc, byte| crc32c_step(crc, *byte));
    if !found == expected { Ok(()) } else { Err(HeaderFault::Checksum) }
}

/// Castagnoli's polynomial, reflected, bit by bit: a header is short and rare.
fn crc32c_step(crc: u32, byte: u8) -> u32 {
    (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 })
}

/// Version and command, family, length.
const HEAD: usize = 4;
const TYPE_CRC32C: u8 = 3;

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn header(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family], &length, payload].concat()
    }

    /// 203.0.113.7:256 to 127.0.0.1:2.
    const IPV4: [u8; 12] = [203, 0, 113, 7, 127, 0, 0, 1, 1, 0, 0, 2];

    fn ipv6() -> Vec<u8> {
        let source: Ipv6Addr = "2001:db8::7".parse().unwrap();
        [source.octets().as_slice(), &[0; 16], &[1, 0, 0, 2]].concat()
    }

    fn source(bytes: &[u8]) -> Result<Option<String>, HeaderFault> {
        let with_more = [bytes, b"GET / HTTP/1.1\r\n"].concat();
        match parse(&with_more)? {
            Progress::Complete { source, length } => {
                assert_eq!(length, bytes.len());
                Ok(source.map(|source| source.to_string()))
            }
            Progress::Incomplete => Ok(Some("incomplete".to_owned())),
        }
    }

    fn with_checksum(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
        bytes[at..at + 4].fill(0);
        let crc = !bytes.iter().fold(!0, |crc, byte| crc32c_step(crc, *byte));
        bytes[at..at + 4].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        // RFC 3720 appendix B.4.
        let crc = |bytes: &[u8]| !bytes.iter().fold(!0, |crc, byte| crc32c_step(crc, *byte));
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn what_is_announced() {
        let items = [IPV4.as_slice(), &[4, 0, 3, 9, 9, 9], &[0xea, 0, 0]].concat();
        for (name, bytes, expected) in [
            ("TCP over IPv4", header(0x21, 0x11, &IPV4), Some("203.0.113.7:256")),
            ("TCP over IPv6", header(0x21, 0x21, &ipv6()), Some("[2001:db8::7]:256")),
            ("items are skipped", header(0x21, 0x11, &items), Some("203.0.113.7:256")),
            ("LOCAL", header(0x20, 0, &[]), None),
            ("LOCAL with addresses", header(0x20, 0x11, &IPV4), None),
            ("LOCAL with anything", header(0x20, 0x21, &[1, 2, 3]), None),
            ("UNSPEC", header(0x21, 0, &[]), None),
            ("UNSPEC with anything", header(0x21, 0, &[1, 2, 3]), None),
            ("UDP over IPv4", header(0x21, 0x12, &IPV4), None),
            ("UNIX", header(0x21, 0x31, &[0; 216]), None),
            ("UNIX datagrams", header(0x21, 0x32, &[0; 216]), None),
        ] {
            assert_eq!(source(&bytes), Ok(expected.map(str::to_owned)), "{name}");
        }
    }

    #[test]
    fn what_is_refused() {
        let items = |items: &[u8]| header(0x21, 0x11, &[IPV4.as_slice(), items].concat());
        for (name, bytes) in [
            ("version 1", header(0x11, 0x11, &IPV4)),
            ("version 3", header(0x31, 0x11, &IPV4)),
            ("command 2", header(0x22, 0x11, &IPV4)),
            ("family 4", header(0x21, 0x41, &IPV4)),
            ("transport 3", header(0x21, 0x13, &IPV4)),
            ("family 4 with LOCAL", header(0x20, 0x41, &[])),
            ("short IPv4", header(0x21, 0x11, &IPV4[..11])),
            ("short IPv6", header(0x21, 0x21, &ipv6()[..35])),
            ("short UNIX", header(0x21, 0x31, &[0; 215])),
            ("half an item's head", items(&[4, 0])),
            ("half an item", items(&[4, 0, 2, 1])),
            ("an item beyond the end", items(&[4, 0xff, 0xff])),
            ("a short checksum", items(&[3, 0, 3, 1, 2, 3])),
            ("too long", header(0x21, 0x11, &[0; MAX_PAYLOAD + 1])),
            ("too long with LOCAL", header(0x20, 0, &[0; MAX_PAYLOAD + 1])),
        ] {
            assert_eq!(source(&bytes), Err(HeaderFault::Binary), "{name}");
        }
        let longest = [IPV4.as_slice(), &[4, 0x0f, 0xf1], &[7; 0xff1]].concat();
        assert_eq!(longest.len(), MAX_PAYLOAD);
        assert_eq!(source(&header(0x21, 0x11, &longest)), Ok(Some("203.0.113.7:256".to_owned())));
    }

    #[test]
    fn a_checksum_is_verified() {
        let plain = header(0x21, 0x11, &[IPV4.as_slice(), &[4, 0, 1, 7], &[3, 0, 4, 0, 0, 0, 0], &[4, 0, 1, 8]].concat());
        let at = plain.len() - 8;
        let good = with_checksum(plain, at);
        assert_eq!(source(&good), Ok(Some("203.0.113.7:256".to_owned())));
        for bit in 12 * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let lengths =
                [14, 15, 29, 30, 33, 34, 40, 41].contains(&(bit / 8)) || bit / 8 < 14 || [28, 32, 39].contains(&(bit / 8));
            if !lengths {
                assert_eq!(source(&bad), Err(HeaderFault::Checksum), "byte {}", bit / 8);
            }
        }
        let twice = header(0x21, 0x11, &[IPV4.as_slice(), &[3, 0, 4, 0, 0, 0, 0], &[3, 0, 4, 0, 0, 0, 0]].concat());
        assert_eq!(source(&twice), Err(HeaderFault::Binary));
    }
}
