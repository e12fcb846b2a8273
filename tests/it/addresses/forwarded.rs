//! `Forwarded` (RFC 7239) where it is the configured header: grammar, and CA-1 to CA-4 over again.

use super::{ONE, OTHER, Row, SAME, ask_from, compare};
use crate::harness::{Gateway, Origin};

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("the rightmost untrusted address", "Forwarded: for=9.9.9.9, for=198.51.100.1\n", "Forwarded: for=8.8.8.8,for=198.51.100.1\n", SAME),
    ("trusted hops are skipped", "Forwarded: for=198.51.100.2, for=10.0.0.1\n", "Forwarded: for=198.51.100.2;proto=https, for=\"10.0.0.2:80\"\n", SAME),
    ("lines are one list", "Forwarded: for=9.9.9.9\nForwarded: for=198.51.100.3\n", "Forwarded: for=198.51.100.3\n", SAME),
    ("all trusted: the leftmost", "Forwarded: for=10.1.0.1, for=10.1.0.2\n", "Forwarded: for=10.1.0.1, for=10.1.0.3\n", SAME),
    ("all trusted: another leftmost", "Forwarded: for=10.1.0.4, for=10.1.0.5\n", "Forwarded: for=10.1.0.6, for=10.1.0.5\n", OTHER),
    ("names in any case", "Forwarded: FOR=198.51.100.4;PROTO=http\n", "forwarded: For=198.51.100.4\n", SAME),
    ("a port", "Forwarded: for=\"198.51.100.5:4711\"\n", "Forwarded: for=198.51.100.5\n", SAME),
    ("an obfuscated port", "Forwarded: for=\"198.51.100.6:_id\"\n", "Forwarded: for=198.51.100.6\n", SAME),
    ("IPv6", "Forwarded: for=\"[2001:db8:0:1::1]\"\n", "Forwarded: for=\"[2001:DB8:0:1::2]:80\"\n", SAME),
    ("IPv4-mapped", "Forwarded: for=\"[::ffff:198.51.100.7]\"\n", "Forwarded: for=198.51.100.7\n", SAME),
    ("blanks around separators", "Forwarded:  for=9.9.9.9 ,\tfor=198.51.100.8 ; proto=http \n", "Forwarded: for=198.51.100.8\n", SAME),
    ("all parameters", "Forwarded: by=\"[::1]:3\";for=198.51.100.9;host=\"[::1]:65535\";proto=https\n", "Forwarded: for=198.51.100.9\n", SAME),
    ("`unknown` stops the walk", "Forwarded: for=198.51.100.10, for=unknown, for=10.2.0.1\n", "Forwarded: for=198.51.100.11, for=\"unknown:132\", for=10.2.0.1\n", SAME),
    ("so does an obfuscated name", "Forwarded: for=198.51.100.12, for=_a, for=10.2.0.2\n", "Forwarded: for=198.51.100.13, for=\"_b:_c\", for=10.2.0.2\n", SAME),
    ("and an element without `for`", "Forwarded: for=198.51.100.14, proto=http, for=10.2.0.3\n", "Forwarded: for=198.51.100.15, by=\"[::1]\", for=10.2.0.3\n", SAME),
    ("an unknown parameter", "Forwarded: for=198.51.100.16, fore=1.2.3.4, for=10.3.0.1\n", "Forwarded: for=198.51.100.17;x=y, for=10.3.0.1\n", SAME),
    ("a parameter twice", "Forwarded: for=198.51.100.18;for=198.51.100.18, for=10.3.0.2\n", "Forwarded: for=198.51.100.19;proto=http;proto=http, for=10.3.0.2\n", SAME),
    ("IPv6 without quotes", "Forwarded: for=[2001:db8:0:2::1], for=10.3.0.3\n", "Forwarded: for=2001:db8:0:3::1, for=10.3.0.3\n", SAME),
    ("IPv6 without brackets", "Forwarded: for=\"2001:db8:0:4::1\", for=10.3.0.4\n", "Forwarded: for=\"2001:db8:0:5::1\", for=10.3.0.4\n", SAME),
    ("an empty port", "Forwarded: for=198.51.100.20;by=\"[::1]:\", for=10.3.0.5\n", "Forwarded: for=\"198.51.100.21:\", for=10.3.0.5\n", SAME),
    ("no value", "Forwarded: for=198.51.100.22, for=, for=10.3.0.6\n", "Forwarded: for=198.51.100.23, for, for=10.3.0.6\n", SAME),
    ("blanks around `=`", "Forwarded: for =198.51.100.24, for=10.3.0.7\n", "Forwarded: for= 198.51.100.25, for=10.3.0.7\n", SAME),
    ("leading zeros", "Forwarded: for=198.51.100.026, for=10.3.0.8\n", "Forwarded: for=198.51.100.027, for=10.3.0.8\n", SAME),
    ("a lone quote", "Forwarded: \"\n", "Forwarded: for=198.51.100.28, \"\n", SAME),
    ("an open quote does not swallow what is behind it", "Forwarded: for=\", for=198.51.100.29\n", "Forwarded: for=198.51.100.29\n", SAME),
    ("nor with an escape", "Forwarded: host=\"\\, for=198.51.100.30;by=\"[::1]\"\n", "Forwarded: for=198.51.100.30\n", SAME),
    ("nor does any garbage", "Forwarded: ;;,=,\\, for=198.51.100.31\n", "Forwarded: for=198.51.100.31\n", SAME),
    ("a host with commas is one value", "Forwarded: for=198.51.100.32;host=\"a, for=9.9.9.9\"\n", "Forwarded: for=198.51.100.32\n", SAME),
    ("X-Forwarded-For is not read", "Forwarded: for=198.51.100.33\nX-Forwarded-For: 198.51.100.34\n", "Forwarded: for=198.51.100.35\nX-Forwarded-For: 198.51.100.34\n", OTHER),
    ("not even beside nothing", "X-Forwarded-For: 198.51.100.36\n", "X-Forwarded-For: 198.51.100.37\n", "429 429"),
];

#[test]
fn from_a_trusted_peer_the_list_is_read() {
    let origin = Origin::ok();
    let gateway =
        Gateway::before(&origin, &format!("trusted_proxies: [loopback, 10.0.0.0/8]\nforwarded_header: forwarded\n{ONE}"));
    compare("Forwarded", gateway.addr(), ROWS);
}

#[test]
fn from_anybody_else_nothing_is_read() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: [127.0.0.9]\nforwarded_header: forwarded\n{ONE}"));
    for (i, (name, first, second, _)) in ROWS.iter().enumerate() {
        let from = format!("127.0.1.{i}");
        let seen = format!("{} {}", ask_from(&from, gateway.addr(), first), ask_from(&from, gateway.addr(), second));
        assert_eq!(seen, SAME, "{name}");
    }
}
