//! CA-5: a number of trusted hops instead of ranges.

use super::{ONE, OTHER, Row, SAME, ask_from, compare};
use crate::harness::{Gateway, Origin, Table, exchange};

/// By the number of hops: entries of the list from left to right, and which of them is the client; 0 is the peer.
#[rustfmt::skip]
const LISTS: &[(u8, &[&str], &str)] = &[
    (1, &[], "peer"),
    (1, &["A"], "A"),
    (1, &["A", "B"], "B"),
    (1, &["A", "B", "C"], "C"),
    (2, &[], "peer"),
    (2, &["A"], "peer"),
    (2, &["A", "B"], "A"),
    (2, &["A", "B", "C"], "B"),
    (3, &["A", "B"], "peer"),
    (3, &["A", "B", "C"], "A"),
    (32, &["A", "B", "C"], "peer"),
    (1, &["A", "bad"], "peer"),
    (2, &["A", "bad"], "peer"),
    (2, &["bad", "B"], "B"),
    (2, &["A", "B", ""], "peer"),
];

/// The client is found by blocking each candidate in turn: 403 is the one.
#[test]
fn entries_are_counted_from_the_right() {
    let mut table = Table::new("hops");
    let candidates = [("peer", "127.0.0.1"), ("A", "198.51.100.1"), ("B", "198.51.100.2"), ("C", "198.51.100.3")];
    for hops in [1, 2, 3, 32] {
        for (name, address) in candidates {
            let gateway = Gateway::start(&format!(
                "trusted_proxies: {{ hops: {hops} }}\nblocked: [{{ ip: {address} }}]\nupstreams: {{ origin: {{ builtin: echo }} }}"
            ));
            for (_, list, client) in LISTS.iter().filter(|(of, ..)| *of == hops) {
                let address_of = |entry: &str| candidates.iter().find(|(name, _)| *name == entry).map(|(_, address)| *address);
                let known = |entry: &&'static str| address_of(entry).unwrap_or(entry);
                let list = list.iter().map(known).collect::<Vec<_>>().join(", ");
                let fields = if list.is_empty() { String::new() } else { format!("X-Forwarded-For: {list}\n") };
                let expected = if *client == name { "403" } else { "200" };
                let row = format!("{hops} hops, {list:?}, {name}");
                table.outcome(&row, expected, &exchange(gateway.addr(), super::get(&fields)).outcome());
            }
        }
    }
}

#[test]
fn what_a_client_puts_in_front_does_not_matter() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: [{{ hops: 2 }}]\n{ONE}"));
    #[rustfmt::skip]
    let rows: &[Row] = &[
        ("forged on the left", "X-Forwarded-For: 9.9.9.9, 198.51.100.1, 10.0.0.1\n", "X-Forwarded-For: 8.8.8.8, 198.51.100.1, 10.0.0.1\n", SAME),
        ("over two lines", "X-Forwarded-For: 9.9.9.9, 198.51.100.2\nX-Forwarded-For: 10.0.0.1\n", "X-Forwarded-For: 198.51.100.2, 10.0.0.2\n", SAME),
        ("another client", "X-Forwarded-For: 198.51.100.3, 10.0.0.1\n", "X-Forwarded-For: 198.51.100.4, 10.0.0.1\n", OTHER),
        ("too short a list is the peer's", "X-Forwarded-For: 198.51.100.5\n", "X-Forwarded-For: 198.51.100.6\n", SAME),
    ];
    compare("two hops", gateway.addr(), rows);
}

/// Ranges beside the number say who the nearest proxy is.
#[test]
fn with_ranges_only_peers_in_them_are_believed() {
    let origin = Origin::ok();
    let config = "trusted_proxies: [{ hops: 1 }, 127.0.0.9]\nidentity: { user: { header: x-user-id } }\nlimits: [{ name: one, per: client, rate: 1/hour }]";
    let gateway = Gateway::before(&origin, config);
    let mut table = Table::new("hops with ranges");
    for (name, from, fields, expected) in [
        ("anybody", "127.0.0.2", "X-Forwarded-For: 198.51.100.1\n", "200"),
        ("anybody, naming another", "127.0.0.2", "X-Forwarded-For: 198.51.100.2\nX-User-Id: u1\n", "429"),
        ("the proxy", "127.0.0.9", "X-Forwarded-For: 198.51.100.2\n", "200"),
        ("the proxy again", "127.0.0.9", "X-Forwarded-For: 9.9.9.9, 198.51.100.2\n", "429"),
        ("the proxy, naming a user", "127.0.0.9", "X-User-Id: u1\n", "200"),
    ] {
        table.outcome(name, expected, &ask_from(from, gateway.addr(), fields));
    }
}

#[test]
fn forwarded_is_counted_likewise() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: {{ hops: 2 }}\nforwarded_header: forwarded\n{ONE}"));
    #[rustfmt::skip]
    let rows: &[Row] = &[
        ("the second from the right", "Forwarded: for=9.9.9.9, for=198.51.100.1, for=10.0.0.1\n", "Forwarded: for=198.51.100.1, for=10.0.0.2\n", SAME),
        ("too short", "Forwarded: for=198.51.100.2\n", "Forwarded: for=198.51.100.3\n", SAME),
        ("hidden: the last that is known", "Forwarded: for=_a, for=10.0.0.3\n", "Forwarded: for=unknown, for=10.0.0.3\n", SAME),
    ];
    compare("two hops in Forwarded", gateway.addr(), rows);
}
