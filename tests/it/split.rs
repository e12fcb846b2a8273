//! Several upstreams that share a route by weight: shares, the same side for the same client, and what is said of it.

use crate::harness::{Client, DEADLINE, Gateway, Origin, hashed, run};
use std::fmt::Write as _;

fn origins() -> [Origin; 2] {
    let naming = |name: &str| Origin::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
    [naming("stable"), naming("canary")]
}

const CLIENTS: usize = 200;

fn configuration([stable, canary]: &[Origin; 2], stables: u32, canaries: u32) -> String {
    let client = |n: usize| format!("{{ id: c{n}, api_keys: ['{}', '{}'] }}", hashed(&format!("k{n}")), hashed(&format!("l{n}")));
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    format!(
        "workers: 2\nclients: [{}]\nupstreams:\n  stable: {{ endpoints: ['http://{}'] }}\n  canary: {{ endpoints: ['http://{}'] }}\n\
         routes:\n- {{ name: all, upstream: {{ stable: {stables}, canary: {canaries} }} }}\naccess_log: {{ format: json }}",
        clients.join(", "),
        stable.addr(),
        canary.addr()
    )
}

fn side(client: &mut Client, key: &str) -> String {
    let response = client.ask(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\n\r\n")).response();
    assert_eq!(response.status, 200);
    response.text()
}

/// Where each client goes.
fn sides(gateway: &Gateway, prefix: char) -> Vec<String> {
    let mut client = gateway.client();
    (0..CLIENTS).map(|n| side(&mut client, &format!("{prefix}{n}"))).collect()
}

fn canaries(sides: &[String]) -> usize {
    sides.iter().filter(|side| *side == "canary").count()
}

#[test]
fn a_client_stays_at_its_side_and_every_gateway_says_the_same() {
    let origins = origins();
    let yaml = configuration(&origins, 70, 30);
    let (one, two) = (Gateway::start(&yaml), Gateway::start(&yaml));
    let first = sides(&one, 'k');
    // Six standard deviations around 60 of 200.
    assert!((21..=99).contains(&canaries(&first)), "{} of {CLIENTS}", canaries(&first));
    assert_eq!(sides(&one, 'k'), first, "again");
    assert_eq!(sides(&one, 'l'), first, "by its other key");
    assert_eq!(sides(&two, 'k'), first, "in another process");
    for name in ["stable", "canary"] {
        let expected = first.iter().filter(|side| *side == name).count() * 3;
        let labels = [("route", "all"), ("upstream", name), ("code", "2xx")];
        assert_eq!(one.metric("tollgate_split_requests_total", &labels), expected as f64);
        assert_eq!(one.metric("tollgate_split_duration_seconds_count", &labels[..2]), expected as f64);
    }
    let named = |side: &str| format!("\"upstream\":\"{side}\"");
    crate::harness::until("every request is logged", || one.access_log().lines().count() == 3 * CLIENTS);
    let log = one.access_log();
    assert_eq!(log.matches(&named("canary")).count(), 3 * canaries(&first));
    assert_eq!(log.matches(&named("stable")).count(), 3 * (CLIENTS - canaries(&first)));
}

#[test]
fn a_reload_moves_only_who_has_to_move() {
    let origins = origins();
    let gateway = Gateway::start(&configuration(&origins, 95, 5));
    let mut before = sides(&gateway, 'k');
    for percent in [20, 60, 100] {
        gateway.reload(&configuration(&origins, 100 - percent, percent));
        let after = sides(&gateway, 'k');
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || after == "canary"), "{percent} %");
        assert!(canaries(&after) > canaries(&before), "{percent} %");
        before = after;
    }
    assert_eq!(canaries(&before), CLIENTS, "the other side is drained");
    gateway.reload(&configuration(&origins, 1, 0));
    assert_eq!(canaries(&sides(&gateway, 'k')), 0);
}

#[test]
fn addresses_are_clients_too() {
    let origins = origins();
    let gateway = Gateway::start(&configuration(&origins, 50, 50));
    let side = |host: u8| {
        let mut client = Client::connect_from(format!("127.0.0.{host}:0").parse().unwrap(), gateway.addr());
        let first = client.get("/").response().text();
        assert!((0..3).all(|_| client.get("/other").response().text() == first), "127.0.0.{host}");
        first
    };
    let sides: Vec<_> = (1..=60).map(side).collect();
    assert!(sides.iter().any(|side| side == "canary") && sides.iter().any(|side| side == "stable"));
}

#[test]
fn a_side_that_is_down_is_down_for_its_clients_and_nobody_elses() {
    // An address that nobody listens at: its listener is gone when the gateway starts.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let origins = origins();
    let up = Gateway::start(&configuration(&origins, 50, 50));
    let expected = sides(&up, 'k');
    let canary = format!("canary: {{ endpoints: ['http://{}'] }}", origins[1].addr());
    let yaml_down = configuration(&origins, 50, 50).replace(&canary, &format!("canary: {{ endpoints: ['http://{nobody}'] }}"));
    let down = Gateway::start(&yaml_down);
    for (n, side) in expected.iter().enumerate() {
        let status = down.client().ask(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: k{n}\r\n\r\n")).status();
        assert_eq!(status, if side == "canary" { 502 } else { 200 }, "client {n}");
    }
}

#[test]
fn explain_names_the_side() {
    let origins = origins();
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    let mut yaml = configuration(&origins, 70, 30);
    write!(yaml, "\nlisteners: [{{ name: public, address: '127.0.0.1:0' }}]\n").unwrap();
    std::fs::write(&file, &yaml).unwrap();
    let gateway = Gateway::start(&configuration(&origins, 70, 30));
    for n in 0..10 {
        let key = format!("x-api-key: k{n}");
        let output = run(&["explain", "-c", file.to_str().unwrap(), "--path", "/", "--header", &key], b"", DEADLINE).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let side = side(&mut gateway.client(), &format!("k{n}"));
        assert!(text.contains(&format!("route     all to upstream {side}, always for this client\n")), "{text}");
        assert!(text.contains("split     canary 30 %, stable 70 %\n"), "{text}");
    }
}

#[test]
fn mistakes_are_named() {
    let check = |upstream: &str, more: &str| {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("gateway.yaml");
        let yaml = format!(
            "listeners: [{{ name: a, address: '127.0.0.1:0' }}]\nroutes: [{{ name: r, upstream: {upstream}{more} }}]\n\
             upstreams: {{ one: {{ builtin: echo }}, two: {{ builtin: echo }}, h2: {{ endpoints: ['http://a:1'], protocol: http2 }} }}\n"
        );
        std::fs::write(&file, yaml).unwrap();
        let output = run(&["check", file.to_str().unwrap()], b"", DEADLINE).unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    for (upstream, more, expected) in [
        ("{ one: 1, tow: 1 }", "", "routes[0].upstream.tow: there is no upstream `tow`"),
        ("{ one: 0, two: 0 }", "", "routes[0].upstream: one of the upstreams needs a weight of more than 0"),
        ("{}", "", "routes[0].upstream: one of the upstreams needs a weight"),
        ("{ one: 1000001 }", "", "routes[0].upstream.one: a weight is from 0 to 1000000"),
        ("{ one: -1 }", "", "routes[0].upstream.one"),
        ("{ one: 1, one: 2 }", "", "one"),
        ("[one]", "", "the name of an upstream, or a map from names to weights"),
        ("{ one: 1, h2: 1 }", ", upgrade: websocket", "which has no upgrades"),
        ("one", ", mirror: { upstream: one }", "routes[0].mirror.upstream: `one` gets these requests anyway"),
        ("{ one: 1, two: 0 }", ", mirror: { upstream: two }", "routes[0].mirror.upstream: `two` gets these requests anyway"),
        ("one", ", mirror: { upstream: tow }", "routes[0].mirror.upstream: there is no upstream `tow`"),
        ("one", ", mirror: { upstream: two, sample: 101% }", "routes[0].mirror.sample"),
        ("one", ", mirror: { upstream: two, max_in_flight: 0 }", "routes[0].mirror.max_in_flight: must be at least 1"),
        ("one", ", mirror: { upstream: two, max_body: 17MiB }", "routes[0].mirror.max_body: at most 16MiB"),
        ("one", ", mirror: { upstream: two, smaple: 1 }", "smaple"),
    ] {
        let problems = check(upstream, more);
        assert!(problems.contains(expected), "{upstream}{more}\n{problems}");
    }
    assert_eq!(check("{ one: 1, two: 0 }", ", mirror: { upstream: h2, sample: 5% }"), "");
}
