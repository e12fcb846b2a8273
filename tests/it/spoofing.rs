//! Limits that cannot be walked around: each variant of one client, path, host or key meets the same counter.
//!
//! The pattern: five requests are admitted, then a variant must be refused. A variant that is malformed may be
//! answered 400 instead, as long as it does not reach the upstream.

use crate::harness::{Client, Gateway, H2, Origin, Table, crlf, exchange, fits, hashed, together};
use std::net::SocketAddr;

/// Requests with `fields` (each ends in a newline) for `target`.
fn ask(addr: SocketAddr, target: &str, fields: &str) -> String {
    exchange(addr, crlf(&format!("GET {target} HTTP/1.1\nHost: a\n{fields}\n"))).outcome()
}

/// BP-1: no field of a client that is not a trusted proxy names another address.
#[test]
fn forged_addresses_do_not_change_the_client() {
    let names = [
        "X-Forwarded-For",
        "X-Real-IP",
        "X-Client-IP",
        "Client-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "X-Originating-IP",
        "X-Remote-IP",
        "X-Remote-Addr",
        "X-Cluster-Client-IP",
        "Fastly-Client-IP",
        "X_Forwarded_For",
        "X-Forwarded_For",
        "X.Forwarded.For",
    ];
    let mut rows: Vec<String> = names.iter().map(|name| format!("{name}: 198.51.100.IP\n")).collect();
    rows.extend([
        "Forwarded: for=198.51.100.IP\n".into(),
        "X-Forwarded-For: 127.0.0.1, 198.51.100.IP\nX-Forwarded-For: 198.51.101.IP\n".into(),
        "Connection: X-Forwarded-For\nX-Forwarded-For: 198.51.100.IP\n".into(),
    ]);
    let mut table = Table::new("forged addresses");
    for fields in rows {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, "trusted_proxies: []\nlimits: [{ name: five, per: ip, rate: 5/hour }]");
        let outcomes: Vec<String> = (1..=6).map(|i| ask(gateway.addr(), "/", &fields.replace("IP", &i.to_string()))).collect();
        let refused = outcomes[5] == "429" || outcomes.iter().all(|outcome| outcome == "400");
        table.row(&fields, if refused { String::new() } else { format!("{outcomes:?}") });
        table.row(&fields, if origin.seen().len() <= 5 { "" } else { "six requests reached the upstream" });
    }
}

/// BP-1, the other way round: naming a victim's address does not spend the victim's quota.
#[test]
fn a_victims_quota_cannot_be_spent_by_naming_its_address() {
    let origin = Origin::ok();
    let config = "listeners: [{ name: public, address: '127.0.0.1:0' }]\ntrusted_proxies: ['127.0.0.9/32']\nlimits: [{ name: five, per: ip, rate: 5/hour }]";
    let gateway = Gateway::before(&origin, config);
    for _ in 0..10 {
        ask(gateway.addr(), "/", "X-Forwarded-For: 198.51.100.7\nX-Real-IP: 198.51.100.7\n");
    }
    // The real victim comes through the trusted proxy at 127.0.0.9.
    let mut proxy = Client::connect_from("127.0.0.9:0".parse().unwrap(), gateway.addr());
    let victim = "GET / HTTP/1.1\nHost: a\nX-Forwarded-For: 198.51.100.7\n\n";
    for i in 0..5 {
        assert_eq!(proxy.ask(crlf(victim)).outcome(), "200", "request {i} of the victim");
    }
    assert_eq!(proxy.ask(crlf(victim)).outcome(), "429");
}

/// Targets that all mean `/login`, or nothing at all.
#[rustfmt::skip]
const LOGINS: &[&str] = &[
    "/login", "/login/", "//login", "///login//", "/./login", "/x/../login", "/login/.", "/login/x/..", "/../login", "/%6cogin", "/%6Cogin", "/LOGIN", "/Login", "/%4cogin", "/login;jsessionid=1", "/login;", "/;a/login", "/login?x", "/login?", "/login?a=/x",
    "/login%20", "/login%00", "/login%0a", "/login%2f", "/login%2F", "/login%2e", "/login/%2e", "/%2e/login", "/%2e%2e/login", "/x/%2e%2e/login", "/x%2f..%2flogin", "/login%23", "/login%3Fx", "/login#x", "\\login", "/\\login", "/login\\", "/x/..\\login",
    "/%256cogin", "/%c0%afx/../login", "/%c0%ae/login", "/login%5c", "/login%c0", "/login%", "/login%zz", "/login\t", "http://a/login", "http://a//login", "HTTP://A:80/login?x", "http:/login", "/login%09", "/log%69n/", "/a/b/../../login;x=1/?y",
];

/// BP-2: a path that is routed as `/login` is limited as `/login`.
#[test]
fn every_spelling_of_a_path_that_reaches_its_route_meets_its_limit() {
    let origin = Origin::ok();
    let config = "limits: [{ name: five, match: { path: /login }, per: ip, rate: 5/hour }]\nroutes: [{ name: login, match: { path: /login }, upstream: origin }]";
    let gateway = Gateway::before(&origin, config);
    for _ in 0..5 {
        assert_eq!(ask(gateway.addr(), "/login", ""), "200");
    }
    let mut table = Table::new("spellings of /login");
    for target in LOGINS {
        table.outcome(target, "429|400|404", &ask(gateway.addr(), target, ""));
    }
    assert_eq!(origin.seen().len(), 5);
}

/// BP-2, with a route for everything: only what is another resource for every reader passes.
#[test]
fn a_route_for_everything_does_not_open_a_way_around_a_limit() {
    let others = ["/login%2e", "/login%23", "/login%3Fx", "/%256cogin"];
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: five, match: { path: /login }, per: ip, rate: 5/hour }]");
    for _ in 0..5 {
        assert_eq!(ask(gateway.addr(), "/login", ""), "200");
    }
    let mut table = Table::new("spellings of /login behind a catch-all");
    for target in LOGINS {
        let expected = if others.contains(target) { "200|429|400" } else { "429|400" };
        table.outcome(target, expected, &ask(gateway.addr(), target, ""));
    }
}

/// BP-3: a limit on a path holds for every method, and no field overrides the method.
#[test]
fn methods_do_not_escape_a_limit_on_the_path() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: five, match: { path: /login }, per: ip, rate: 5/hour }]");
    let statuses: Vec<String> = ["GET", "HEAD", "POST", "PUT", "OPTIONS", "GETT", "get", "DELETE"]
        .iter()
        .map(|method| {
            let mut client = gateway.client();
            client.send(crlf(&format!(
                "{method} /login HTTP/1.1\nHost: a\nContent-Length: 0\nX-HTTP-Method-Override: GET\nX-Method-Override: GET\n\n"
            )));
            client.receive_to(method).outcome()
        })
        .collect();
    assert!(statuses[..5].iter().all(|status| status == "200"), "{statuses:?}");
    assert!(statuses[5..].iter().all(|status| fits("429|400|405|501", status)), "{statuses:?}");
}

#[test]
fn a_limit_on_post_is_not_escaped_by_overriding_the_method() {
    let origin = Origin::ok();
    let gateway =
        Gateway::before(&origin, "limits: [{ name: one, match: { path: /login, methods: [POST] }, per: ip, rate: 1/hour }]");
    let post = "POST /login?_method=GET HTTP/1.1\nHost: a\nX-HTTP-Method-Override: GET\nContent-Length: 0\n\n";
    assert_eq!(exchange(gateway.addr(), crlf(post)).outcome(), "200");
    assert_eq!(exchange(gateway.addr(), crlf(post)).outcome(), "429");
}

fn keys(unknown: &str) -> String {
    let (k1, k2) = (hashed("k1"), hashed("k2"));
    format!(
        "identity: {{ order: [api_key, ip], api_key: {{ sources: [{{ header: x-api-key }}], unknown: {unknown} }} }}
clients: [{{ id: c1, api_keys: ['{k1}'] }}, {{ id: c2, api_keys: ['{k2}'] }}]
limits: [{{ name: five, per: client, rate: 5/hour }}]"
    )
}

/// BP-4: one key is one counter however its field is written, and what is no key mints no quota.
#[test]
fn spellings_of_one_key_share_its_quota() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &keys("reject"));
    for _ in 0..5 {
        assert_eq!(ask(gateway.addr(), "/", "X-API-Key: k1\n"), "200");
    }
    let long = format!("X-API-Key: {}\n", "k".repeat(100_000));
    let rows = [
        ("name in lower case", "x-api-key: k1\n", "429"),
        ("spaces", "X-API-Key:   k1  \n", "429"),
        ("tab", "X-API-Key:\tk1\n", "429"),
        ("nominated by Connection", "Connection: X-API-Key\nX-API-Key: k1\n", "429|400"),
        ("value in upper case", "X-API-Key: K1\n", "401"),
        ("unknown", "X-API-Key: k3\n", "401"),
        ("two lines", "X-API-Key: k1\nX-API-Key: k2\n", "429|400|401"),
        ("two lines, the other way", "X-API-Key: k2\nX-API-Key: k1\n", "200|400|401"),
        ("a list", "X-API-Key: k1,k2\n", "401|400"),
        ("NUL", "X-API-Key: k1\0\n", "400"),
        ("100 kB", &long, "431|401|400"),
        ("quoted", "X-API-Key: \"k1\"\n", "401"),
        ("underscores", "X_API_Key: k2\n", "200|400"),
    ];
    let mut table = Table::new("spellings of a key");
    for (name, fields, expected) in rows {
        table.outcome(name, expected, &ask(gateway.addr(), "/", fields));
    }
}

#[test]
fn no_key_an_empty_key_and_unknown_keys_are_one_anonymous_client_per_address() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &keys("anonymous"));
    let variants = ["", "X-API-Key:\n", "X-API-Key: r1\n", "X-API-Key: r2\n", "X-API-Key: \u{b}\n", "X_API_Key: k1\n"];
    let outcomes: Vec<String> =
        variants.iter().map(|fields| ask(gateway.addr(), "/", fields)).filter(|outcome| outcome != "400").collect();
    assert_eq!(outcomes, ["200"; 5]);
    for fields in ["", "X-API-Key:\n", "X-API-Key: r3\n"] {
        assert_eq!(ask(gateway.addr(), "/", fields), "429", "{fields:?}");
    }
    // Another address has a quota of its own, and a known key is not affected.
    let mut elsewhere = Client::connect_from("127.0.0.2:0".parse().unwrap(), gateway.addr());
    assert_eq!(elsewhere.get("/").outcome(), "200");
    assert_eq!(ask(gateway.addr(), "/", "X-API-Key: k1\n"), "200");
}

/// BP-5: a whole /64 is one client.
#[test]
fn rotating_inside_an_ipv6_prefix_gains_nothing() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "trusted_proxies: loopback\nlimits: [{ name: five, per: ip, rate: 5/hour }]");
    let outcomes: Vec<String> =
        (1..=7).map(|i| ask(gateway.addr(), "/", &format!("X-Forwarded-For: 2001:db8:1:2:{i}::{i}\n"))).collect();
    assert_eq!(outcomes, ["200", "200", "200", "200", "200", "429", "429"]);
    assert_eq!(ask(gateway.addr(), "/", "X-Forwarded-For: 2001:db8:1:3::1\n"), "200");
}

/// BP-6: spellings of one host.
#[test]
fn every_spelling_of_a_host_that_reaches_its_route_meets_its_limit() {
    let config = "limits: [{ name: five, match: { hosts: api.test }, per: ip, rate: 5/hour }]\nroutes: [{ name: api, match: { hosts: api.test }, upstream: origin }]";
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, config);
    let host =
        |target: &str, host: &str| exchange(gateway.addr(), crlf(&format!("GET {target} HTTP/1.1\nHost: {host}\n\n"))).outcome();
    for _ in 0..5 {
        assert_eq!(host("/", "api.test"), "200");
    }
    let mut table = Table::new("spellings of a host");
    for spelling in [
        "API.TEST",
        "api.test.",
        "api.test:80",
        "api.test:080",
        "api.test:",
        "Api.Test.:80",
        "api.test:8080",
        "api.test..",
        "api%2etest",
    ] {
        table.outcome(spelling, "429|400|404", &host("/", spelling));
    }
    for (target, name) in [
        ("http://api.test/", "api.test"),
        ("http://API.test:80/", "api.test"),
        ("http://api.test/", "other.test"),
        ("http://other.test/", "api.test"),
    ] {
        table.outcome(target, "429|400|404", &host(target, name));
    }
    let fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "API.test.")];
    table.outcome("over HTTP/2", "429|400|404|rst", &H2::connect(gateway.addr()).ask(&fields, None).outcome());
    assert_eq!(origin.seen().len(), 5);
}

const PARALLEL: &str = "workers: 2\nlisteners: [{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 0 }]\nlimits: [{ name: forty, per: ip, rate: 40/hour, algorithm: ALGORITHM }]";

/// BP-7: however many ask at once, exactly the quota is admitted.
#[test]
fn two_hundred_at_once_admit_exactly_the_quota() {
    for algorithm in ["gcra", "fixed_window"] {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &PARALLEL.replace("ALGORITHM", algorithm));
        let outcomes = together(200, |_| gateway.client().get("/").outcome());
        let admitted = outcomes.iter().filter(|outcome| *outcome == "200").count();
        let refused = outcomes.iter().filter(|outcome| *outcome == "429").count();
        assert_eq!((admitted, refused), (40, 160), "{algorithm}");
    }
}

#[test]
fn two_hundred_streams_at_once_admit_exactly_the_quota() {
    for algorithm in ["gcra", "fixed_window"] {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &PARALLEL.replace("ALGORITHM", algorithm));
        let statuses = together(4, |_| {
            let mut client = H2::connect(gateway.addr());
            let streams: Vec<u32> = (0..50)
                .map(|_| client.request(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")], None))
                .collect();
            streams.into_iter().map(|stream| client.receive(stream).status()).collect::<Vec<_>>()
        });
        let admitted = statuses.concat().iter().filter(|status| **status == 200).count();
        assert_eq!(admitted, 40, "{algorithm}: {statuses:?}");
    }
}

#[test]
fn pipelining_admits_exactly_the_quota() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &PARALLEL.replace("ALGORITHM", "gcra"));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100));
    let statuses: Vec<u16> = (0..100).map(|_| client.receive().status()).collect();
    assert_eq!(statuses, [vec![200; 40], vec![429; 60]].concat());
}

/// BP-11: all or none.
#[test]
fn a_request_refused_by_one_limit_is_not_charged_to_another() {
    for order in ["[NARROW, WIDE]", "[WIDE, NARROW]"] {
        let limits = order
            .replace("NARROW", "{ name: narrow, match: { path: /narrow }, per: ip, rate: 3/hour }")
            .replace("WIDE", "{ name: wide, per: global, rate: 10/hour }");
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &format!("limits: {limits}"));
        assert_eq!(gateway.statuses(8, "/narrow"), [200, 200, 200, 429, 429, 429, 429, 429], "{order}");
        assert_eq!(gateway.statuses(9, "/other"), [200, 200, 200, 200, 200, 200, 200, 429, 429], "{order}");
    }
}

#[test]
fn of_several_windows_a_refusal_by_the_short_one_costs_nothing_in_the_long_one() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: both, per: ip, rate: [2/s, 4/day] }]");
    let mut statuses = Vec::new();
    crate::harness::until("four are admitted", || {
        statuses.push(gateway.get("/").status);
        statuses.iter().filter(|status| **status == 200).count() == 4
    });
    assert!(statuses.contains(&429), "{statuses:?}");
    let refused = gateway.get("/");
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() > 60, "the day's window now says when");
}

/// BP-12: what is exempt cannot be claimed.
#[test]
fn exemptions_cannot_be_claimed() {
    let config =
        "trusted_proxies: []\nexempt: [{ path: /healthz }, { ip: 10.0.0.0/8 }]\nlimits: [{ name: five, per: ip, rate: 5/hour }]";
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, config);
    for _ in 0..10 {
        assert_eq!(ask(gateway.addr(), "/healthz", ""), "200");
    }
    for _ in 0..5 {
        assert_eq!(ask(gateway.addr(), "/api", ""), "200");
    }
    let mut table = Table::new("claimed exemptions");
    for target in [
        "/healthz/../api",
        "/healthz/..%2fapi",
        "/healthz%2f..%2fapi",
        "/healthz/%2e%2e/api",
        "/healthz/../../api",
        "/healthz/x",
        "/healthz;/../api",
        "/HEALTHZ/../api",
        "/api?/healthz",
        "/api#/healthz",
        "//a/healthz",
        "/healthz%00",
        "http://a/healthz/../api",
    ] {
        table.outcome(target, "429|400", &ask(gateway.addr(), target, ""));
    }
    for fields in [
        "X-Forwarded-For: 10.0.0.1\n",
        "X-Real-IP: 10.0.0.1\n",
        "Forwarded: for=10.0.0.1\n",
        "X-Forwarded-For: 127.0.0.1\n",
        "X-Original-URL: /healthz\n",
        "X-Rewrite-URL: /healthz\n",
    ] {
        table.outcome(fields, "429|400", &ask(gateway.addr(), "/api", fields));
    }
}
