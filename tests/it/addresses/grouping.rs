//! CA-8: how many addresses are one client, everywhere and for one limit.

use super::{OTHER, Row, SAME, ask, compare};
use crate::harness::{Gateway, Origin};

#[rustfmt::skip]
const WIDER: &[Row] = &[
    ("IPv4 of one /24", "X-Forwarded-For: 198.51.100.1\n", "X-Forwarded-For: 198.51.100.200\n", SAME),
    ("IPv4 of two /24", "X-Forwarded-For: 198.51.101.1\n", "X-Forwarded-For: 198.51.102.1\n", OTHER),
    ("IPv6 of one /48", "X-Forwarded-For: 2001:db8:1:1::1\n", "X-Forwarded-For: 2001:db8:1:2::1\n", SAME),
    ("IPv6 of two /48", "X-Forwarded-For: 2001:db8:2::1\n", "X-Forwarded-For: 2001:db8:3::1\n", OTHER),
];

#[test]
fn everywhere() {
    let origin = Origin::ok();
    let identity = "identity: { ip: { ipv4_prefix: 24, ipv6_prefix: 48 } }\ntrusted_proxies: loopback";
    let gateway = Gateway::before(&origin, &format!("{identity}\n{}", super::ONE));
    compare("grouping", gateway.addr(), WIDER);
}

#[test]
fn for_one_limit() {
    let origin = Origin::ok();
    for per in ["{ ip: { ipv4_prefix: 24, ipv6_prefix: 48 } }", "[{ ip: { ipv4_prefix: 24, ipv6_prefix: 48 } }, route]"] {
        let config = format!("trusted_proxies: loopback\nlimits: [{{ name: one, per: {per}, rate: 1/hour }}]");
        let gateway = Gateway::before(&origin, &config);
        compare("a limit's own grouping", gateway.addr(), WIDER);
    }
}

/// What a limit does not say is as everywhere else.
#[test]
fn for_one_limit_and_one_family() {
    let origin = Origin::ok();
    let config = "identity: { ip: { ipv4_prefix: 24 } }\ntrusted_proxies: loopback\nlimits: [{ name: one, per: { ip: { ipv6_prefix: 56 } }, rate: 1/hour }]";
    let gateway = Gateway::before(&origin, config);
    #[rustfmt::skip]
    let rows: &[Row] = &[
        ("IPv4 as everywhere", "X-Forwarded-For: 198.51.100.1\n", "X-Forwarded-For: 198.51.100.200\n", SAME),
        ("IPv6 of one /56", "X-Forwarded-For: 2001:db8:1:100::1\n", "X-Forwarded-For: 2001:db8:1:1ff::1\n", SAME),
        ("IPv6 of two /56", "X-Forwarded-For: 2001:db8:1:200::1\n", "X-Forwarded-For: 2001:db8:1:300::1\n", OTHER),
    ];
    compare("half a grouping", gateway.addr(), rows);
}

/// BP-5: a second, wider limit catches who rotates over many /64.
#[test]
fn a_narrow_and_a_wide_limit_together() {
    let origin = Origin::ok();
    let config = "trusted_proxies: loopback\nlimits: [{ name: narrow, per: ip, rate: 2/hour }, { name: wide, per: { ip: { ipv6_prefix: 48 } }, rate: 4/hour }]";
    let gateway = Gateway::before(&origin, config);
    let outcomes: Vec<String> = (1..=6).map(|i| ask(gateway.addr(), &format!("X-Forwarded-For: 2001:db8:1:{i}::1\n"))).collect();
    assert_eq!(outcomes, ["200", "200", "200", "200", "429", "429"]);
    assert_eq!(ask(gateway.addr(), "X-Forwarded-For: 2001:db8:2:1::1\n"), "200");
}

/// A /48 and its first /64 have the same address, and are two counters.
#[test]
fn another_grouping_of_a_limit_is_another_counter() {
    let origin = Origin::ok();
    let config = |per: &str| format!("trusted_proxies: loopback\nlimits: [{{ name: one, per: {per}, rate: 1/hour }}]");
    let gateway = Gateway::before(&origin, &config("ip"));
    let (v4, v6) = ("X-Forwarded-For: 198.51.100.0\n", "X-Forwarded-For: 2001:db8:1::\n");
    for fields in [v4, v6] {
        assert_eq!(ask(gateway.addr(), fields), "200");
        assert_eq!(ask(gateway.addr(), fields), "429");
    }
    gateway.reload(&config("{ ip: { ipv4_prefix: 24, ipv6_prefix: 48 } }"));
    for fields in [v4, v6] {
        assert_eq!(ask(gateway.addr(), fields), "200", "{fields}");
        assert_eq!(ask(gateway.addr(), fields), "429", "{fields}");
    }
    gateway.reload(&config("ip"));
    for fields in [v4, v6] {
        assert_eq!(ask(gateway.addr(), fields), "429", "{fields}");
    }
}
