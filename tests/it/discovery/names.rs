//! Endpoints by name.

use super::{addresses, admin, answer, servers_at, shown, until_addresses};
use crate::harness::{Authority, Dns, Gateway, Latch, Leaf, Origin, Says, Serve, Table, run, until};
use std::time::Duration;

fn upstream(port: u16, keys: &str) -> String {
    format!("upstreams: {{ origin: {{ endpoints: ['http://api.internal:{port}'], {keys} }} }}")
}

#[test]
fn a_name_is_all_of_its_addresses() {
    let dns = Dns::start();
    let (port, servers) = servers_at(["127.0.0.1", "127.0.0.2"]);
    dns.say("api.internal", Says::Addresses(["127.0.0.2", "127.0.0.1"].map(|a| a.parse().unwrap()).to_vec(), 77));
    let gateway = Gateway::start(&format!("{}\n{}", dns.settings(), upstream(port, "balance: round_robin")));
    // Also of the first request: the gateway has waited for the answer.
    assert_eq!(gateway.statuses(10, "/"), [200; 10]);
    assert_eq!(servers.each_ref().map(|server| server.lines().len()), [5, 5]);
    assert_eq!(addresses(&gateway), [format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}")]);
    let shown = shown(&gateway);
    assert_eq!(shown["endpoints"][0]["resolved_from"], "api.internal");
    assert_eq!(shown["endpoints"][0]["from"], "configuration");
    let name = &shown["names"][0];
    assert_eq!((&name["addresses"], &name["ttl_seconds"], &name["last_result"]), (&2.into(), &77.into(), &"success".into()));
    assert!(name["resolved_at"].is_string());
    let labels = [("name", "api.internal")];
    for (metric, expected) in
        [("tollgate_dns_resolved", 1.0), ("tollgate_dns_ttl_seconds", 77.0), ("tollgate_dns_addresses", 2.0)]
    {
        assert_eq!(gateway.metric(metric, &labels), expected, "{metric}");
    }
    // Its TTL keeps it from being asked again.
    assert_eq!(dns.asked("api.internal"), 2, "for A and AAAA");
}

#[test]
fn a_name_that_does_not_resolve_is_a_503_until_it_does() {
    let dns = Dns::start();
    let (port, _servers) = servers_at(["127.0.0.1"]);
    let mut table = Table::new("at start");
    for (name, says) in
        [("silence", Says::Silence), ("no such name", Says::NoName), ("an error", Says::ServFail), ("nothing", Says::Empty)]
    {
        dns.say("api.internal", says);
        let gateway = Gateway::start(&format!("{}\n{}", dns.settings(), upstream(port, "")));
        table.outcome(name, "503", &gateway.client().get("/").outcome());
        assert_eq!(shown(&gateway)["endpoints"], serde_json::json!([]));
        dns.addresses("api.internal", &["127.0.0.1"]);
        until("it resolves", || gateway.get("/").status == 200);
    }
}

#[test]
fn checking_a_configuration_needs_no_network() {
    let dns = Dns::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    let yaml = "listeners: [{ name: a, address: '127.0.0.1:0' }]\nroutes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin }]";
    std::fs::write(file.path(), format!("{yaml}\n{}\n{}", dns.settings(), upstream(80, "discover: { file: nowhere.yaml }")))
        .unwrap();
    let output = run(&["check", file.path().to_str().unwrap()], b"", Duration::from_secs(8)).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(dns.asked("api.internal"), 0);
}

#[test]
fn the_last_good_answer_stays_when_there_is_none() {
    let dns = Dns::start();
    let (port, _servers) = servers_at(["127.0.0.1"]);
    dns.addresses("api.internal", &["127.0.0.1"]);
    let gateway = Gateway::start(&format!("{}\n{}", dns.settings(), upstream(port, "")));
    assert_eq!(gateway.get("/").status, 200);
    for (says, result) in
        [(Says::ServFail, "error"), (Says::Silence, "timeout"), (Says::NoName, "nxdomain"), (Says::Empty, "empty")]
    {
        dns.say("api.internal", says);
        let labels = [("name", "api.internal"), ("result", result)];
        until(&format!("{result} is counted twice"), || gateway.metric("tollgate_dns_lookups_total", &labels) >= 2.0);
        assert_eq!(gateway.metric("tollgate_dns_resolved", &labels[..1]), 0.0, "{result}");
        assert_eq!(gateway.get("/").status, 200, "{result}");
        assert_eq!(shown(&gateway)["names"][0]["last_result"], result);
    }
    let warned =
        |text: &str| gateway.log().lines().filter(|line| line.contains("name does not resolve") && line.contains(text)).count();
    assert_eq!((warned("no such name"), warned("no answer in time")), (1, 1), "once for each reason");
    dns.addresses("api.internal", &["127.0.0.1"]);
    until("it resolves again", || gateway.metric("tollgate_dns_resolved", &[("name", "api.internal")]) == 1.0);
    assert!(gateway.log().contains("name resolves again"));
}

#[test]
fn one_family_that_fails_does_not_take_the_other_along() {
    let dns = Dns::start();
    let (port, _servers) = servers_at(["127.0.0.1", "::1"]);
    dns.addresses("api.internal", &["::1", "127.0.0.1"]);
    let gateway = Gateway::start(&format!("{}\n{}", dns.settings(), upstream(port, "balance: round_robin")));
    let mut seen = [gateway.get("/").text(), gateway.get("/").text()];
    seen.sort();
    assert_eq!(seen, ["127.0.0.1", "::1"]);
    for (family, address) in [("ipv4", format!("127.0.0.1:{port}")), ("ipv6", format!("[::1]:{port}"))] {
        let settings = dns.settings().replace("timeout", &format!("family: {family}, timeout"));
        gateway.reload(&format!("{settings}\n{}", upstream(port, "")));
        until_addresses(&gateway, [address]);
    }
}

#[test]
fn addresses_that_go_are_drained_and_those_that_stay_keep_their_standing() {
    let dns = Dns::start();
    let door = Latch::default();
    let waits = door.clone();
    let going = Origin::new(move |call| {
        if call.target() == "/wait" {
            waits.wait();
        }
        answer(call, "going")
    });
    let port = going.addr().port();
    let [staying, coming] = ["127.0.0.2", "127.0.0.3"]
        .map(|address| Origin::at(std::net::SocketAddr::new(address.parse().unwrap(), port), move |call| answer(call, address)));
    dns.addresses("api.internal", &["127.0.0.1", "127.0.0.2"]);
    let gateway = Gateway::start(&format!("{}\n{}", dns.settings(), upstream(port, "balance: round_robin")));
    assert_eq!(gateway.statuses(4, "/"), [200; 4]);
    let drained = admin(&gateway, &format!("POST /upstreams/origin/127.0.0.2:{port}/drain"));
    assert_eq!(drained.0, 200);
    let mut client = gateway.client();
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    until("it is under way", || going.lines().iter().any(|line| line.contains("/wait")));
    let mut idle = gateway.client();
    assert_eq!(idle.get("/").response().text(), "going");
    until("an idle connection is there", || going.open() == 2);

    dns.addresses("api.internal", &["127.0.0.2", "127.0.0.3"]);
    until_addresses(&gateway, [format!("127.0.0.2:{port}"), format!("127.0.0.3:{port}")]);
    until("the idle one is closed", || going.open() == 1);
    assert_eq!(idle.get("/").response().text(), "127.0.0.3", "the one that stays is drained as it was");
    assert_eq!(shown(&gateway)["endpoints"][0]["drained"], true);
    let connections = staying.connections();
    door.open();
    assert_eq!(client.receive().response().text(), "going", "the request under way ends as it would have");
    until("its connection is closed too", || going.open() == 0);
    assert_eq!((staying.connections(), coming.connections()), (connections, 1));
}

#[test]
fn the_name_stays_what_certificates_and_checks_are_for() {
    let (dns, authority) = (Dns::start(), Authority::new("names"));
    let serve = |name: &str| Serve::showing(&authority.sign(&Leaf::of(&[name])), None);
    let [right, wrong] =
        ["api.internal", "other.internal"].map(|name| Origin::secure(serve(name), |call| answer(call, "secure")));
    dns.addresses("api.internal", &["127.0.0.1"]);
    let mut table = Table::new("a certificate for");
    for (name, origin, expected) in [("the name", &right, "200"), ("another one", &wrong, "502")] {
        let yaml = format!(
            "upstreams: {{ origin: {{ endpoints: ['https://api.internal:{}'], tls: {{ ca: '{}' }}, health: {{ path: /healthz, interval: 50ms }} }} }}",
            origin.addr().port(),
            authority.ca().display()
        );
        let gateway = Gateway::start(&format!("{}\n{yaml}", dns.settings()));
        table.outcome(name, expected, &gateway.client().get("/").outcome());
        if expected == "200" {
            until("a check has come", || origin.lines().iter().any(|line| line.contains("/healthz")));
            let check = origin.seen().into_iter().find(|seen| seen.line.contains("/healthz")).unwrap();
            let host = check.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host")).unwrap().1.clone();
            assert_eq!(host, format!("api.internal:{}", origin.addr().port()));
        }
    }
}

#[test]
fn weights_are_inherited_and_aliases_are_followed() {
    let dns = Dns::start();
    let (port, servers) = servers_at(["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    dns.addresses("heavy.internal", &["127.0.0.1", "127.0.0.2"]);
    dns.say("api.internal", Says::Alias("heavy.internal".to_owned(), 0));
    let endpoints = format!("[{{ url: 'http://api.internal:{port}', weight: 3 }}, 'http://127.0.0.3:{port}']");
    let yaml = format!("upstreams: {{ origin: {{ endpoints: {endpoints}, balance: round_robin }} }}");
    let gateway = Gateway::start(&format!("{}\n{yaml}", dns.settings()));
    assert_eq!(gateway.statuses(14, "/"), [200; 14]);
    assert_eq!(servers.each_ref().map(|server| server.lines().len()), [6, 6, 2]);
}

#[test]
fn the_number_of_addresses_has_an_end() {
    let dns = Dns::start();
    let all = (0..300_u32).map(|n| std::net::Ipv4Addr::from(0x7f00_0001 + n).into()).collect();
    dns.say("api.internal", Says::Addresses(all, 0));
    let gateway = Gateway::start(&format!("{}\n{}", dns.settings(), upstream(9, "")));
    until("256 of 300 are used", || addresses(&gateway).len() == 256);
    assert!(dns.was_asked_over_tcp(), "so many don't fit into a datagram");
    assert_eq!(gateway.metric("tollgate_dns_addresses", &[("name", "api.internal")]), 256.0);
}

#[test]
fn a_reload_keeps_what_names_stand_for_and_forgets_names_that_go() {
    let dns = Dns::start();
    let (port, _servers) = servers_at(["127.0.0.1"]);
    dns.addresses("api.internal", &["127.0.0.1"]);
    let gateway = Gateway::start(&format!("{}\n{}", dns.settings(), upstream(port, "")));
    assert_eq!(gateway.get("/").status, 200);
    dns.say("api.internal", Says::ServFail);
    gateway.reload(&format!("{}\n{}", dns.settings(), upstream(port, "balance: random")));
    assert_eq!(gateway.get("/").status, 200, "known from before");
    dns.addresses("other.internal", &["127.0.0.1"]);
    let other = upstream(port, "balance: random").replace("api.internal", "other.internal");
    gateway.reload(&format!("{}\n{other}", dns.settings()));
    assert_eq!(gateway.get("/").status, 200, "a reload waits for the answer as a start does");
    gateway.reload(&format!("{}\nupstreams: {{ origin: {{ endpoints: ['http://127.0.0.1:{port}'] }} }}", dns.settings()));
    assert_eq!(gateway.get("/").status, 200);
    let metrics = gateway.metrics();
    assert!(!metrics.contains("api.internal") && !metrics.contains("other.internal"), "{metrics}");
}
