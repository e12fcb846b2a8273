//! Who the client is behind trusted proxies: X-Forwarded-For read from the right, one key per address.

use crate::harness::{Gateway, Origin, Table, crlf, exchange};

/// Name, the fields of two requests, and whether both are the same client. Every row has addresses of its own.
type Row = (&'static str, &'static str, &'static str, bool);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("the same address", "X-Forwarded-For: 198.51.100.1\n", "X-Forwarded-For: 198.51.100.1\n", true),
    ("another address", "X-Forwarded-For: 198.51.100.2\n", "X-Forwarded-For: 198.51.100.3\n", false),
    ("forged on the left", "X-Forwarded-For: 9.9.9.9, 198.51.100.4\n", "X-Forwarded-For: 8.8.8.8, 198.51.100.4\n", true),
    ("trusted hops are skipped", "X-Forwarded-For: 198.51.100.5, 10.0.0.1\n", "X-Forwarded-For: 198.51.100.5, 10.0.0.2\n", true),
    ("lines are one list", "X-Forwarded-For: 9.9.9.9\nX-Forwarded-For: 198.51.100.6\n", "X-Forwarded-For: 198.51.100.6\n", true),
    ("with a port", "X-Forwarded-For: 198.51.100.7:1234\n", "X-Forwarded-For: 198.51.100.7\n", true),
    ("spaces", "X-Forwarded-For:   198.51.100.8  \n", "X-Forwarded-For: 9.9.9.9 ,198.51.100.8\n", true),
    ("quoted", "X-Forwarded-For: \"198.51.100.9\"\n", "X-Forwarded-For: 198.51.100.9\n", true),
    ("IPv4-mapped", "X-Forwarded-For: ::ffff:198.51.100.10\n", "X-Forwarded-For: 198.51.100.10\n", true),
    ("IPv4-mapped in hex", "X-Forwarded-For: 0:0:0:0:0:ffff:c633:640b\n", "X-Forwarded-For: 198.51.100.11\n", true),
    ("one /64", "X-Forwarded-For: 2001:db8:0:1::1\n", "X-Forwarded-For: 2001:db8:0:1:ffff::2\n", true),
    ("two /64", "X-Forwarded-For: 2001:db8:0:2::1\n", "X-Forwarded-For: 2001:db8:0:3::1\n", false),
    ("spellings of IPv6", "X-Forwarded-For: [2001:db8:0:4::1]:443\n", "X-Forwarded-For: 2001:DB8:0:4:0:0:0:1\n", true),
    ("IPv6 that ends like IPv4", "X-Forwarded-For: 2001:db8:0:5::1.2.3.4\n", "X-Forwarded-For: 2001:db8:0:5::102:304\n", true),
    ("`unknown` stops the walk", "X-Forwarded-For: 198.51.100.12, unknown, 10.0.0.3\n", "X-Forwarded-For: 198.51.100.13, unknown, 10.0.0.3\n", true),
    ("garbage stops the walk", "X-Forwarded-For: 198.51.100.14, bad, 10.0.0.4\n", "X-Forwarded-For: 198.51.100.15, bad, 10.0.0.4\n", true),
    ("an empty entry does not hide the client", "X-Forwarded-For: 198.51.100.16, , 10.0.0.5\n", "X-Forwarded-For: 198.51.100.16, , 10.0.0.5\n", true),
    ("leading zeros are no address", "X-Forwarded-For: 198.51.100.017, 10.0.0.6\n", "X-Forwarded-For: 198.51.100.018, 10.0.0.6\n", true),
    ("no such port", "X-Forwarded-For: 198.51.100.19:99999, 10.0.0.7\n", "X-Forwarded-For: 198.51.100.20:99999, 10.0.0.7\n", true),
    ("all trusted: the leftmost", "X-Forwarded-For: 10.0.0.8, 10.0.0.9\n", "X-Forwarded-For: 10.0.0.8, 10.0.0.10\n", true),
    ("all trusted: different leftmost", "X-Forwarded-For: 10.0.0.11, 10.0.0.12\n", "X-Forwarded-For: 10.0.0.13, 10.0.0.12\n", false),
];

const CONFIG: &str = "trusted_proxies: ['127.0.0.0/8', '10.0.0.0/8']\nlimits: [{ name: one, per: ip, rate: 1/hour }]";

#[test]
fn one_client_is_one_key_however_it_is_written() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, CONFIG);
    let mut table = Table::new("client addresses");
    let ask = |fields: &str| exchange(gateway.addr(), crlf(&format!("GET / HTTP/1.1\nHost: a\n{fields}\n"))).outcome();
    for (name, first, second, same) in ROWS {
        let seen = format!("{} {}", ask(first), ask(second));
        table.outcome(name, if *same { "200 429" } else { "200 200" }, &seen);
    }
}

#[test]
fn a_list_of_a_thousand_entries_is_read_or_refused_but_no_error() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, CONFIG);
    let list = vec!["10.0.0.1"; 1000].join(", ");
    let outcome =
        exchange(gateway.addr(), format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1, {list}\r\n\r\n")).outcome();
    assert!(["200", "431"].contains(&outcome.as_str()), "{outcome}");
}

#[test]
fn a_trusted_proxys_list_is_continued_and_its_view_of_the_client_kept() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "trusted_proxies: loopback");
    exchange(
        gateway.addr(),
        crlf(
            "GET / HTTP/1.1\nHost: a\nX-Forwarded-For: 9.9.9.9\nX-Forwarded-For: 198.51.100.1\nX-Forwarded-Proto: https\nX-Forwarded-Host: shop.example\n\n",
        ),
    );
    let seen = origin.wait(1);
    let list = seen.all("x-forwarded-for").join(", ");
    assert_eq!(list, "9.9.9.9, 198.51.100.1, 127.0.0.1");
    assert_eq!((seen.all("x-forwarded-proto"), seen.all("x-forwarded-host")), (vec!["https"], vec!["shop.example"]));
}

#[test]
fn the_users_name_is_believed_from_a_trusted_proxy_only() {
    let users = "identity: { user: { header: x-user-id } }\nlimits: [{ name: one, per: client, rate: 1/hour }]";
    for (trusted, expected) in [("loopback", [200, 200, 429]), ("[]", [200, 429, 429])] {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &format!("trusted_proxies: {trusted}\n{users}"));
        let statuses = ["ann", "bob", "bob"]
            .map(|user| exchange(gateway.addr(), crlf(&format!("GET / HTTP/1.1\nHost: a\nX-User-Id: {user}\n\n"))).status());
        assert_eq!(statuses, expected, "trusted_proxies: {trusted}");
    }
}
