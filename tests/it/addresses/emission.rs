//! CA-1, CA-9 and CA-10: what the upstream is told about where a request came from.

use super::{get, v1};
use crate::harness::{Client, Gateway, Origin, Seen, Table};

/// Everything that says where a request came from, for some client to forge.
const FORGED: &str = "X-Forwarded-For: 198.51.100.1\nX-Forwarded-For: 198.51.100.2\nX-Forwarded-Host: evil.example\nX-Forwarded-Proto: https\nX-Forwarded-Port: 444\nX-Forwarded-Prefix: /evil\nX-Forwarded-Server: evil\nX-Forwarded-Uri: /evil\nX-Forwarded-Method: EVIL\nX-Real-IP: 198.51.100.1\nTrue-Client-IP: 198.51.100.1\nCF-Connecting-IP: 198.51.100.1\nForwarded: for=198.51.100.1;host=evil.example\nClient-Cert: :ZXZpbA==:\nX_Forwarded_For: 198.51.100.1\nX-Forwarded_Proto: https\n";

fn seen(config: &str, from: &str, before: &[u8], fields: &str) -> Seen {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, config);
    let mut client = Client::connect_from(format!("{from}:0").parse().unwrap(), gateway.addr());
    let reply = client.send([before, &get(fields)].concat()).receive();
    assert_eq!(reply.outcome(), "200", "{config}");
    origin.wait(1)
}

/// Name, configuration, PROXY header's source if there is one, fields, and what must be seen: every line of each name as one list.
type Row = (&'static str, &'static str, Option<&'static str>, &'static str, &'static [(&'static str, &'static str)]);

const PROXIED: &str =
    "listeners: [{ name: public, address: '127.0.0.1:0', proxy_protocol: required }]\ntrusted_proxies: [loopback, 10.0.0.0/8]";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("CA-1 an untrusted peer is all there is", "trusted_proxies: []", None, FORGED, &[
        ("x-forwarded-for", "127.0.0.5"), ("x-forwarded-proto", "http"), ("x-forwarded-host", "a"), ("x-forwarded-port", ""), ("x-forwarded-prefix", ""), ("x-forwarded-server", ""), ("x-forwarded-uri", ""),
        ("x-forwarded-method", ""), ("x-real-ip", ""), ("true-client-ip", ""), ("cf-connecting-ip", ""), ("forwarded", ""), ("client-cert", ""), ("x_forwarded_for", ""), ("x-forwarded_proto", "")]),
    ("CA-1 and likewise where Forwarded is read", "trusted_proxies: []\nforwarded_header: forwarded", None, FORGED, &[
        ("x-forwarded-for", "127.0.0.5"), ("forwarded", "for=127.0.0.5;host=\"a\";proto=http"), ("x-forwarded-proto", "http"), ("x-forwarded-host", "a"), ("x-real-ip", "")]),
    ("CA-9 a trusted peer's list goes on as one", "trusted_proxies: loopback", None, "X-Forwarded-For: 9.9.9.9\nX-Forwarded-For: 198.51.100.1\n", &[
        ("x-forwarded-for", "9.9.9.9, 198.51.100.1, 127.0.0.5")]),
    ("CA-9 without a list it begins with the peer", "trusted_proxies: loopback", None, "", &[("x-forwarded-for", "127.0.0.5"), ("forwarded", "")]),
    ("CA-9 hops are continued too", "trusted_proxies: { hops: 2 }", None, "X-Forwarded-For: 198.51.100.1, 10.0.0.1\n", &[
        ("x-forwarded-for", "198.51.100.1, 10.0.0.1, 127.0.0.5")]),
    ("CA-7 what a trusted peer wrote stays as it wrote it", "trusted_proxies: loopback", None, "X-Forwarded-For: ::ffff:198.51.100.1\n", &[
        ("x-forwarded-for", "::ffff:198.51.100.1, 127.0.0.5")]),
    ("CA-10 what a trusted peer says of the client's side stays", "trusted_proxies: loopback", None, "X-Forwarded-Proto: https\nX-Forwarded-Host: shop.example\nX-Forwarded-Port: 8443\n", &[
        ("x-forwarded-proto", "https"), ("x-forwarded-host", "shop.example"), ("x-forwarded-port", "8443")]),
    ("CA-10 an upgrade to a WebSocket is http", "trusted_proxies: []", None, "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n", &[
        ("x-forwarded-proto", "http")]),
    ("one header is believed and continued: X-Forwarded-For", "trusted_proxies: loopback", None, "Forwarded: for=9.9.9.9\nX-Forwarded-For: 198.51.100.1\n", &[
        ("x-forwarded-for", "198.51.100.1, 127.0.0.5"), ("forwarded", "")]),
    ("one header is believed and continued: Forwarded", "trusted_proxies: loopback\nforwarded_header: forwarded", None, "Forwarded: for=9.9.9.9\nForwarded: for=198.51.100.1, for=127.0.0.7\nX-Forwarded-For: 8.8.8.8\n", &[
        ("forwarded", "for=9.9.9.9, for=198.51.100.1, for=127.0.0.7, for=127.0.0.5;host=\"a\";proto=http"), ("x-forwarded-for", "198.51.100.1, 127.0.0.5")]),
    ("CA-7 a mapped address is IPv4", "trusted_proxies: loopback\nforwarded_header: forwarded", None, "Forwarded: for=\"[::ffff:198.51.100.1]\"\n", &[("x-forwarded-for", "198.51.100.1, 127.0.0.5")]),
    ("PROXY: the source is the peer", PROXIED, Some("203.0.113.7"), FORGED, &[("x-forwarded-for", "203.0.113.7"), ("x-real-ip", ""), ("forwarded", "")]),
    ("PROXY: in IPv6", PROXIED, Some("2001:db8::7"), "", &[("x-forwarded-for", "2001:db8::7")]),
    ("PROXY: mapped", PROXIED, Some("::ffff:203.0.113.7"), "", &[("x-forwarded-for", "203.0.113.7")]),
    ("PROXY: a trusted source is continued", PROXIED, Some("10.0.0.1"), "X-Forwarded-For: 198.51.100.1\n", &[("x-forwarded-for", "198.51.100.1, 10.0.0.1")]),
    ("PROXY and Forwarded", "listeners: [{ name: public, address: '127.0.0.1:0', proxy_protocol: required }]\ntrusted_proxies: loopback\nforwarded_header: forwarded", Some("2001:db8::7"), "Forwarded: for=9.9.9.9\n", &[
        ("forwarded", "for=\"[2001:db8::7]\";host=\"a\";proto=http"), ("x-forwarded-for", "2001:db8::7")]),
];

#[test]
fn the_upstream_is_told_what_is_known() {
    let mut table = Table::new("what the upstream is told");
    for (name, config, source, fields, expected) in ROWS {
        let seen = seen(config, "127.0.0.5", &source.map(v1).unwrap_or_default(), fields);
        for (header, value) in *expected {
            let found = seen.all(header).join(" | ");
            table.row(name, if found == *value { String::new() } else { format!("{header}: {found:?}, not {value:?}") });
        }
    }
}
