//! PP-2 and PP-3: what a PROXY protocol header may be. Whether a header was understood shows in what is answered: `403` if the
//! connection is 203.0.113.7's, `200` if it is the balancer's own, and nothing at all if it was refused.

use super::{get, v2, v2_ipv4};
use crate::harness::{Client, Gateway, Table};

const CONFIG: &str = "listeners: [{ name: public, address: '127.0.0.1:0', proxy_protocol: required }]
trusted_proxies: loopback
blocked: [{ ip: [203.0.113.7, '2001:db8::7'] }]
upstreams: { origin: { builtin: echo } }";

const ANNOUNCED: &str = "403";
const OWN: &str = "200";
const REFUSED: &str = "closed|reset";

fn outcome(gateway: &Gateway, header: &[u8]) -> String {
    Client::connect(gateway.addr()).send([header, &get("")].concat()).receive().outcome()
}

#[rustfmt::skip]
const LINES: &[(&str, &str)] = &[
    ("PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n", ANNOUNCED),
    ("PROXY TCP4 203.0.113.7 192.0.2.1 0 65535\r\n", ANNOUNCED),
    ("PROXY TCP4 203.0.113.8 192.0.2.1 1 2\r\n", OWN),
    ("PROXY TCP6 2001:db8::7 ::1 1 2\r\n", ANNOUNCED),
    ("PROXY TCP6 2001:DB8:0:0::0007 ::1 1 2\r\n", ANNOUNCED),
    ("PROXY TCP6 ::ffff:203.0.113.7 ::1 1 2\r\n", ANNOUNCED),
    ("PROXY TCP6 ::ffff:cb00:7107 ::1 1 2\r\n", ANNOUNCED),
    ("PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", OWN),
    ("PROXY UNKNOWN\r\n", OWN),
    ("PROXY UNKNOWN 203.0.113.7 192.0.2.1 1 2\r\n", OWN),
    ("PROXY UNKNOWN and whatever it says\r\n", OWN),
    ("PROXY TCP4 203.0.113.7 192.0.2.1 056324 443\r\n", REFUSED),
    ("PROXY TCP4 203.0.113.7 192.0.2.1 65536 443\r\n", REFUSED),
    ("PROXY TCP4 203.0.113.7 192.0.2.1 +1 443\r\n", REFUSED),
    ("PROXY TCP4 203.0.113.7 192.0.2.1 1\r\n", REFUSED),
    ("PROXY TCP4 203.0.113.7 192.0.2.1 1 2 3\r\n", REFUSED),
    ("PROXY TCP4 203.0.113.7  192.0.2.1 1 2\r\n", REFUSED),
    ("PROXY TCP4 203.0.113.7\t192.0.2.1 1 2\r\n", REFUSED),
    ("PROXY TCP4 203.0.113.07 192.0.2.1 1 2\r\n", REFUSED),
    ("PROXY TCP4 2001:db8::7 ::1 1 2\r\n", REFUSED),
    ("PROXY TCP6 203.0.113.7 192.0.2.1 1 2\r\n", REFUSED),
    ("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", REFUSED),
    ("PROXY TCP9 203.0.113.7 192.0.2.1 1 2\r\n", REFUSED),
    ("PROXY tcp4 203.0.113.7 192.0.2.1 1 2\r\n", REFUSED),
    ("proxy TCP4 203.0.113.7 192.0.2.1 1 2\r\n", REFUSED),
    (" PROXY TCP4 203.0.113.7 192.0.2.1 1 2\r\n", REFUSED),
    ("\r\nPROXY TCP4 203.0.113.7 192.0.2.1 1 2\r\n", REFUSED),
    ("PROXY TCP4 203.0.113.7 192.0.2.1 1 2\n", REFUSED),
    ("PROXY TCP4 203.0.113.7 192.0.2.1 1 2\r", REFUSED),
    ("PROXY UNKNOWN\rX\r\n", REFUSED),
    ("PROXY UNKNOWN\nX\r\n", REFUSED),
    ("PROXY UNKNOWN 123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890X\r\n", OWN),
    ("PROXY UNKNOWN 1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901X\r\n", REFUSED),
    ("", REFUSED),
];

#[test]
fn lines_of_version_1() {
    let gateway = Gateway::start(CONFIG);
    assert_eq!((LINES[31].0.len(), LINES[32].0.len()), (107, 108), "the longest line and one byte more");
    let mut table = Table::new("PROXY protocol, version 1");
    for (line, expected) in LINES {
        table.outcome(&format!("{line:?}"), expected, &outcome(&gateway, line.as_bytes()));
    }
}

/// CRC32c by the book, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 })
    })
}

#[test]
fn headers_of_version_2() {
    let source = v2_ipv4([203, 0, 113, 7]);
    let v6 = |last: u8| [&[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], [0; 20].as_slice()].concat();
    let mapped = [&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 203, 0, 113, 7], [0; 20].as_slice()].concat();
    let with = |items: &[u8]| [source.as_slice(), items].concat();
    let mut good = v2(0x21, 0x11, &with(&[3, 0, 4, 0, 0, 0, 0, 4, 0, 1, 9]));
    let crc = crc32c(&good).to_be_bytes();
    good[31..35].copy_from_slice(&crc);
    let mut bad = good.clone();
    bad[34] ^= 1;
    let mut changed = good.clone();
    changed[19] ^= 1;
    let mut other_version = v2(0x21, 0x11, &source);
    other_version[12] = 0x11;
    let rows: &[(&str, Vec<u8>, &str)] = &[
        ("TCP over IPv4", v2(0x21, 0x11, &source), ANNOUNCED),
        ("TCP over IPv6", v2(0x21, 0x21, &v6(7)), ANNOUNCED),
        ("TCP over IPv6, another", v2(0x21, 0x21, &v6(8)), OWN),
        ("an IPv4-mapped source", v2(0x21, 0x21, &mapped), ANNOUNCED),
        ("items are skipped", v2(0x21, 0x11, &with(&[1, 0, 2, b'h', b'2', 0xee, 0, 0])), ANNOUNCED),
        ("a kilobyte of items", v2(0x21, 0x11, &with(&[[4, 4, 0].as_slice(), &[0; 1024]].concat())), ANNOUNCED),
        ("a right checksum", good, ANNOUNCED),
        ("a wrong checksum", bad, REFUSED),
        ("a right checksum of something else", changed, REFUSED),
        ("a short checksum", v2(0x21, 0x11, &with(&[3, 0, 2, 0, 0])), REFUSED),
        ("LOCAL", v2(0x20, 0, &[]), OWN),
        ("LOCAL with an address", v2(0x20, 0x11, &source), OWN),
        ("LOCAL with anything", v2(0x20, 0x11, &[1, 2, 3, 4, 5]), OWN),
        ("UNSPEC", v2(0x21, 0, &[]), OWN),
        ("UNSPEC with anything", v2(0x21, 0, &source), OWN),
        ("UDP", v2(0x21, 0x12, &source), OWN),
        ("UNIX", v2(0x21, 0x31, &[0; 216]), OWN),
        ("version 1", other_version, REFUSED),
        ("command 2", v2(0x22, 0x11, &source), REFUSED),
        ("command 15", v2(0x2f, 0x11, &source), REFUSED),
        ("family 4", v2(0x21, 0x41, &source), REFUSED),
        ("transport 3", v2(0x21, 0x13, &source), REFUSED),
        ("IPv4 too short", v2(0x21, 0x11, &source[..11]), REFUSED),
        ("IPv6 too short", v2(0x21, 0x21, &v6(7)[..35]), REFUSED),
        ("UNIX too short", v2(0x21, 0x31, &[0; 215]), REFUSED),
        ("half an item", v2(0x21, 0x11, &with(&[4, 0, 9, 1])), REFUSED),
        ("half an item's head", v2(0x21, 0x11, &with(&[4])), REFUSED),
        ("the most", v2(0x21, 0x11, &with(&[[4, 0x0f, 0xf1].as_slice(), &[0; 0xff1]].concat())), ANNOUNCED),
        ("more than that", v2(0x21, 0x11, &with(&[[4, 0x0f, 0xf2].as_slice(), &[0; 0xff2]].concat())), REFUSED),
        ("64 KiB with LOCAL", v2(0x20, 0, &[0; 0xffff]), REFUSED),
        ("a wrong signature", [b"\r\n\r\n\0\r\nQUIT\r".as_slice(), &[0x21, 0x11, 0, 12], &source].concat(), REFUSED),
    ];
    let gateway = Gateway::start(CONFIG);
    let mut table = Table::new("PROXY protocol, version 2");
    for (name, header, expected) in rows {
        table.outcome(name, expected, &outcome(&gateway, header));
    }
}
