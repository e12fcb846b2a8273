//! PP-1, PP-4 and PP-5: where a PROXY protocol header is due, from whom, how it arrives, and what it changes.

use super::{ONE, get, v1, v2, v2_ipv4};
use crate::harness::{Client, Gateway, H2, Origin, Table, until};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

const REQUIRED: &str = "listeners: [{ name: public, address: '127.0.0.1:0', proxy_protocol: required }]";

fn send(addr: SocketAddr, from: &str, header: &[u8], fields: &str) -> String {
    let mut client = Client::connect_from(format!("{from}:0").parse().unwrap(), addr);
    client.send([header, &get(fields)].concat()).receive().outcome()
}

/// PP-1: required where it is configured, from trusted peers only, and nothing is served without it.
#[test]
fn it_is_due_where_it_is_configured_and_only_from_trusted_peers() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("{REQUIRED}\ntrusted_proxies: [127.0.0.9]"));
    let mut table = Table::new("PP-1");
    for (name, from, header, expected) in [
        ("a trusted peer, version 1", "127.0.0.9", v1("203.0.113.7"), "200"),
        ("a trusted peer, version 2", "127.0.0.9", v2(0x21, 0x11, &v2_ipv4([203, 0, 113, 7])), "200"),
        ("a trusted peer without", "127.0.0.9", Vec::new(), "closed|reset"),
        ("anybody with", "127.0.0.1", v1("203.0.113.7"), "closed|reset"),
        ("anybody without", "127.0.0.1", Vec::new(), "closed|reset"),
        ("anybody that names a trusted proxy", "127.0.0.1", v1("127.0.0.9"), "closed|reset"),
    ] {
        table.outcome(name, expected, &send(gateway.addr(), from, &header, ""));
    }
    assert_eq!(origin.seen().len(), 2, "nothing else reached the upstream");
    let refused = |reason| gateway.metric("tollgate_connections_refused_total", &[("listener", "public"), ("reason", reason)]);
    assert_eq!((refused("proxy_untrusted"), refused("proxy_header")), (3.0, 1.0));
}

/// PP-1: never detected on its own.
#[test]
fn elsewhere_it_is_no_http() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "trusted_proxies: loopback");
    for header in [v1("203.0.113.7"), v2(0x21, 0x11, &v2_ipv4([203, 0, 113, 7]))] {
        assert_eq!(send(gateway.addr(), "127.0.0.1", &header, ""), "400");
    }
    assert_eq!(origin.seen().len(), 0);
}

/// PP-4: it makes no difference how the header is cut.
#[test]
fn a_header_may_come_in_any_pieces() {
    let config = format!("{REQUIRED}\ntrusted_proxies: loopback\nblocked: [{{ ip: 203.0.113.7 }}]");
    let gateway = Gateway::start(&format!("{config}\nupstreams: {{ origin: {{ builtin: echo }} }}"));
    let mut table = Table::new("PP-4");
    for header in [v1("203.0.113.7"), v2(0x21, 0x11, &v2_ipv4([203, 0, 113, 7]))] {
        let whole = [header.as_slice(), &get("")].concat();
        for cut in 1..=header.len() + 1 {
            let mut client = gateway.client();
            client.send(&whole[..cut]);
            sleep(Duration::from_millis(2));
            table.outcome(&format!("cut at {cut}"), "403", &client.send(&whole[cut..]).receive().outcome());
        }
        let mut client = gateway.client();
        for byte in &whole {
            client.send([*byte]);
        }
        table.outcome("byte by byte", "403", &client.receive().outcome());
    }
}

/// PP-4: who stalls is closed, after the listener's `header` timeout and 5 s at most.
#[test]
fn a_stalled_header_times_out() {
    let origin = Origin::ok();
    let quick = "listeners: [{ name: public, address: '127.0.0.1:0', proxy_protocol: required, timeouts: { header: 300ms } }]\ntrusted_proxies: loopback";
    for (config, least, most) in [(quick.to_owned(), 250, 4000), (format!("{REQUIRED}\ntrusted_proxies: loopback"), 4500, 7500)] {
        let gateway = Gateway::before(&origin, &config);
        for part in ["", "PROXY TCP4 203.0"] {
            let begin = Instant::now();
            assert!(gateway.client().send(part).is_closed(), "{part:?}");
            let took = begin.elapsed();
            assert!((least..most).contains(&took.as_millis()), "{part:?} took {took:?}");
        }
    }
}

/// PP-5: the source is the client, and what it says in X-Forwarded-For is believed only if it is a trusted proxy itself.
#[test]
fn the_source_is_the_peer() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("{REQUIRED}\ntrusted_proxies: [loopback, 10.0.0.0/8]\n{ONE}"));
    let list = "X-Forwarded-For: 198.51.100.1\n";
    let mut table = Table::new("PP-5");
    for (name, header, fields, expected) in [
        ("a source", v1("203.0.113.1"), "", "200"),
        ("again", v1("203.0.113.1"), "", "429"),
        ("by version 2", v2(0x21, 0x11, &v2_ipv4([203, 0, 113, 1])), "", "429"),
        ("mapped to IPv6", v1("::ffff:203.0.113.1"), "", "429"),
        ("another source", v1("203.0.113.2"), "", "200"),
        ("whose list is not believed", v1("203.0.113.2"), list, "429"),
        ("a trusted source, whose list is", v1("10.0.0.1"), list, "200"),
        ("the same client by another", v1("10.0.0.2"), list, "429"),
        ("the balancer itself", v2(0x20, 0, &[]), "", "200"),
        ("likewise unknown", b"PROXY UNKNOWN\r\n".to_vec(), "", "429"),
        ("the balancer's own list is believed", b"PROXY UNKNOWN\r\n".to_vec(), "X-Forwarded-For: 198.51.100.2\n", "200"),
        ("two of a /64", v1("2001:db8::1"), "", "200"),
        ("are one", v1("2001:db8::2"), "", "429"),
    ] {
        table.outcome(name, expected, &send(gateway.addr(), "127.0.0.1", &header, fields));
    }
}

/// The header is one connection's: every request on it has that source, whatever is spoken.
#[test]
fn it_holds_for_all_requests_of_a_connection() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("{REQUIRED}\ntrusted_proxies: loopback"));
    let mut client = gateway.client();
    client.send(v1("203.0.113.1"));
    assert_eq!((client.get("/1").outcome(), client.get("/2").outcome()), ("200".into(), "200".into()));
    // A second header is no request.
    assert_eq!(client.send(v1("203.0.113.2")).send(get("")).receive().outcome(), "400");
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/3")];
    assert_eq!(H2::connect_behind(gateway.addr(), &v1("203.0.113.3")).ask(&fields, None).outcome(), "200");
    let seen = origin.seen();
    let sources: Vec<_> = seen.iter().flat_map(|seen| seen.all("x-forwarded-for")).collect();
    assert_eq!(sources, ["203.0.113.1", "203.0.113.1", "203.0.113.3"]);
}

/// A reload changes what is due on new connections, and on those only.
#[test]
fn a_reload_changes_it_for_new_connections() {
    let origin = Origin::ok();
    let config = |required: &str| {
        format!("listeners: [{{ name: public, address: '127.0.0.1:0', proxy_protocol: {required} }}]\ntrusted_proxies: loopback")
    };
    let gateway = Gateway::before(&origin, &config("off"));
    let mut before = gateway.client();
    assert_eq!(before.get("/").outcome(), "200");
    gateway.reload(&config("required"));
    until("it is due", || send(gateway.addr(), "127.0.0.1", &v1("203.0.113.1"), "") == "200");
    assert_eq!(before.get("/").outcome(), "200");
    gateway.stop();
}

/// Whoever is in the middle of a header when we end has a moment, and no more.
#[test]
fn a_drain_does_not_wait_for_a_header() {
    let origin = Origin::ok();
    let mut gateway = Gateway::before(&origin, &format!("{REQUIRED}\ntrusted_proxies: loopback"));
    let whole = v1("203.0.113.1");
    let half: Vec<Client> = [b"".as_slice(), &whole[..9], &whole, &[whole.as_slice(), b"PRI * HT"].concat()]
        .iter()
        .map(|bytes| {
            let mut client = gateway.client();
            client.send(bytes);
            client
        })
        .collect();
    until("all are open", || gateway.metric("tollgate_worker_connections", &[]) == 4.0);
    let begin = Instant::now();
    gateway.signal("TERM");
    until("it ends", || gateway.exit_code() == Some(0));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    drop(half);
}
