//! CA-1 to CA-4, CA-6 and CA-7: X-Forwarded-For is read from trusted peers only, from the right, and strictly.

use super::{ONE, OTHER, Row, SAME, ask, ask_from, compare};
use crate::harness::{Gateway, Origin};

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("CA-2 the rightmost untrusted address", "X-Forwarded-For: 9.9.9.9, 198.51.100.1\n", "X-Forwarded-For: 8.8.8.8, 198.51.100.1\n", SAME),
    ("CA-2 not the leftmost", "X-Forwarded-For: 9.9.9.9, 198.51.100.2\n", "X-Forwarded-For: 9.9.9.9, 198.51.100.3\n", OTHER),
    ("CA-2 trusted hops are skipped", "X-Forwarded-For: 198.51.100.4, 10.0.0.1\n", "X-Forwarded-For: 198.51.100.4, 10.0.0.2, 127.0.0.3\n", SAME),
    ("CA-2 lines are one list in order", "X-Forwarded-For: 9.9.9.9\nX-Forwarded-For: 198.51.100.5\nX-Forwarded-For: 10.0.0.1\n", "X-Forwarded-For: 198.51.100.5\n", SAME),
    ("CA-2 the first line is not the last", "X-Forwarded-For: 198.51.100.6\nX-Forwarded-For: 198.51.100.7\n", "X-Forwarded-For: 198.51.100.6\nX-Forwarded-For: 198.51.100.8\n", OTHER),
    ("CA-3 garbage stops the walk", "X-Forwarded-For: 198.51.100.9, bad, 10.1.0.1\n", "X-Forwarded-For: 198.51.100.10, bad, 10.1.0.1\n", SAME),
    ("CA-3 at the last trusted hop", "X-Forwarded-For: bad, 10.1.0.2\n", "X-Forwarded-For: bad, 10.1.0.3\n", OTHER),
    ("CA-3 `unknown`", "X-Forwarded-For: 198.51.100.11, unknown, 10.1.0.4\n", "X-Forwarded-For: 198.51.100.12, unknown, 10.1.0.4\n", SAME),
    ("CA-3 an obfuscated name", "X-Forwarded-For: 198.51.100.13, _hidden, 10.1.0.5\n", "X-Forwarded-For: 198.51.100.14, _x, 10.1.0.5\n", SAME),
    ("CA-3 an empty entry", "X-Forwarded-For: 198.51.100.15, , 10.1.0.6\n", "X-Forwarded-For: 198.51.100.16,,10.1.0.6\n", SAME),
    ("CA-3 bytes that are no text", "X-Forwarded-For: 198.51.100.17, \u{ff}\u{80}, 10.1.0.7\n", "X-Forwarded-For: 198.51.100.18, \u{ff}, 10.1.0.7\n", SAME),
    ("CA-3 garbage left of the client does not matter", "X-Forwarded-For: \", ;=, 198.51.100.19\n", "X-Forwarded-For: 198.51.100.19\n", SAME),
    ("CA-4 all trusted: the leftmost", "X-Forwarded-For: 10.2.0.1, 10.2.0.2\n", "X-Forwarded-For: 10.2.0.1, 10.2.0.3\n", SAME),
    ("CA-4 and not one key for all", "X-Forwarded-For: 10.2.0.4, 10.2.0.5\n", "X-Forwarded-For: 10.2.0.6, 10.2.0.5\n", OTHER),
    ("CA-6 a port", "X-Forwarded-For: 198.51.100.20:1\n", "X-Forwarded-For: 198.51.100.20:65535\n", SAME),
    ("CA-6 brackets", "X-Forwarded-For: [2001:db8:0:1::1]\n", "X-Forwarded-For: 2001:db8:0:1::1\n", SAME),
    ("CA-6 brackets and a port", "X-Forwarded-For: [2001:db8:0:2::1]:443\n", "X-Forwarded-For: 2001:db8:0:2::1\n", SAME),
    ("CA-6 quotes and blanks", "X-Forwarded-For: \t\"198.51.100.21\" \n", "X-Forwarded-For:198.51.100.21\n", SAME),
    ("CA-6 half a quote is garbage", "X-Forwarded-For: 198.51.100.22\", 10.3.0.1\n", "X-Forwarded-For: \"198.51.100.23, 10.3.0.1\n", SAME),
    ("CA-6 a zone is garbage", "X-Forwarded-For: fe80::1%eth0, 10.3.0.2\n", "X-Forwarded-For: fe80::2%eth1, 10.3.0.2\n", SAME),
    ("CA-6 leading zeros are garbage", "X-Forwarded-For: 001.002.003.004, 10.3.0.3\n", "X-Forwarded-For: 198.51.100.024, 10.3.0.3\n", SAME),
    ("CA-6 ports above 65535 are garbage", "X-Forwarded-For: 198.51.100.25:65536, 10.3.0.4\n", "X-Forwarded-For: 198.51.100.26:99999, 10.3.0.4\n", SAME),
    ("CA-6 so are other numbers", "X-Forwarded-For: 0x7f000001, 10.3.0.5\n", "X-Forwarded-For: 3325256815, 10.3.0.5\n", SAME),
    ("CA-7 mapped with dots", "X-Forwarded-For: ::ffff:198.51.100.30\n", "X-Forwarded-For: 198.51.100.30\n", SAME),
    ("CA-7 mapped in hex", "X-Forwarded-For: ::FFFF:c633:641f\n", "X-Forwarded-For: 198.51.100.31\n", SAME),
    ("CA-7 mapped in full", "X-Forwarded-For: [0:0:0:0:0:ffff:c633:6420]:80\n", "X-Forwarded-For: 198.51.100.32\n", SAME),
    ("CA-7 mapped addresses are not one /64", "X-Forwarded-For: ::ffff:198.51.100.33\n", "X-Forwarded-For: ::ffff:198.51.100.34\n", OTHER),
    ("CA-7 a mapped trusted hop is that hop", "X-Forwarded-For: 198.51.100.35, ::ffff:10.0.0.1\n", "X-Forwarded-For: 198.51.100.35\n", SAME),
    ("CA-7 dots at the end of plain IPv6", "X-Forwarded-For: 2001:db8:0:3::1.2.3.4\n", "X-Forwarded-For: 2001:db8:0:3::102:304\n", SAME),
    ("CA-7 NAT64 is IPv6", "X-Forwarded-For: 64:ff9b::198.51.100.36\n", "X-Forwarded-For: 198.51.100.36\n", OTHER),
    ("CA-8 two of a /64", "X-Forwarded-For: 2001:db8:0:4::1\n", "X-Forwarded-For: 2001:db8:0:4:ffff:ffff:ffff:ffff\n", SAME),
    ("CA-8 two /64", "X-Forwarded-For: 2001:db8:0:5::1\n", "X-Forwarded-For: 2001:db8:0:6::1\n", OTHER),
    ("CA-8 IPv4 is not masked by it", "X-Forwarded-For: 198.51.100.40\n", "X-Forwarded-For: 198.51.100.41\n", OTHER),
    ("CA-8 spellings", "X-Forwarded-For: 2001:DB8:0:7::1\n", "X-Forwarded-For: 2001:0db8:0000:0007:0:0:0:1\n", SAME),
    ("no other header is read", "X-Real-IP: 198.51.100.50\nForwarded: for=198.51.100.50\nX-Forwarded-For: 198.51.100.51\n", "X-Real-IP: 198.51.100.52\nX-Forwarded-For: 198.51.100.51\n", SAME),
];

#[test]
fn from_a_trusted_peer_the_list_is_read() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: [loopback, 10.0.0.0/8]\n{ONE}"));
    compare("X-Forwarded-For", gateway.addr(), ROWS);
}

/// CA-1: from anybody else nothing of it counts.
#[test]
fn from_anybody_else_nothing_is_read() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: [127.0.0.9, 10.0.0.0/8]\n{ONE}"));
    for (i, (name, first, second, _)) in ROWS.iter().enumerate() {
        let from = format!("127.0.1.{i}");
        let seen = format!("{} {}", ask_from(&from, gateway.addr(), first), ask_from(&from, gateway.addr(), second));
        assert_eq!(seen, SAME, "{name}");
    }
    let list = "X-Forwarded-For: 198.51.100.1\n";
    assert_eq!(ask_from("127.0.0.9", gateway.addr(), list), "200", "nobody has spent the quota of those that were named");
    assert_eq!(ask_from("127.0.0.9", gateway.addr(), list), "429");
}

/// CA-9: a long list is read once, and is no error. What makes it too long is the head's size.
#[test]
fn a_list_of_ten_thousand_is_read() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: [loopback, 10.0.0.0/8]\n{ONE}"));
    let list = |hop: &str| format!("X-Forwarded-For: 198.51.100.1, {}\n", vec![hop; 10_000].join(","));
    assert_eq!(ask(gateway.addr(), &list("10.0.0.1")), "200");
    assert_eq!(ask(gateway.addr(), &list("10.0.0.2")), "429");
    let lines = format!("X-Forwarded-For: 198.51.100.2\n{}", "X-Forwarded-For: 10.0.0.1\n".repeat(90));
    assert_eq!(ask(gateway.addr(), &lines), "200");
    assert_eq!(ask(gateway.addr(), "X-Forwarded-For: 198.51.100.2\n"), "429");
    assert_eq!(ask(gateway.addr(), &list("2001:db8:1234:5678:9abc:def0:1234:5678")), "431");
}

#[test]
fn names_stand_for_ranges() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: [loopback, link_local, unique_local, cgnat]\n{ONE}"));
    compare(
        "names of ranges",
        gateway.addr(),
        &[
            ("cgnat", "X-Forwarded-For: 198.51.100.1, 100.64.0.1\n", "X-Forwarded-For: 198.51.100.1, 100.127.0.1\n", SAME),
            ("past cgnat", "X-Forwarded-For: 198.51.100.2, 100.128.0.1\n", "X-Forwarded-For: 198.51.100.2\n", OTHER),
            ("link_local", "X-Forwarded-For: 198.51.100.3, fe80::1\n", "X-Forwarded-For: 198.51.100.3, 169.254.1.1\n", SAME),
            ("unique_local", "X-Forwarded-For: 198.51.100.4, fd00::1\n", "X-Forwarded-For: 198.51.100.4\n", SAME),
            ("not all of private", "X-Forwarded-For: 198.51.100.5, 10.0.0.1\n", "X-Forwarded-For: 198.51.100.5\n", OTHER),
        ],
    );
}
