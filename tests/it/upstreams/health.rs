//! Active health checks over HTTP and TCP.

use super::{SILENT, Server, admin, hits, servers, state, until_used, upstream};
use crate::harness::{Gateway, Next, Origin, OriginExchange, Table, until};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Checks that come often, and this besides.
fn checked(keys: &str) -> String {
    format!("balance: round_robin, health: {{ path: /healthz, interval: 20ms, timeout: 2s, {keys} }}")
}

const OFTEN: &str = "healthy_after: 2, unhealthy_after: 3";

fn results(gateway: &Gateway, server: &Server, result: &str) -> f64 {
    gateway.metric("tollgate_health_checks_total", &[("upstream", "origin"), ("endpoint", &server.address()), ("result", result)])
}

fn healthy(gateway: &Gateway, server: &Server) -> f64 {
    gateway.metric("tollgate_endpoint_healthy", &[("upstream", "origin"), ("endpoint", &server.address())])
}

/// Waits until a server has answered so many more checks.
fn more_checks(server: &Server, n: usize) {
    let before = server.checks();
    until(&format!("{n} more checks"), || server.checks() >= before + n);
}

#[test]
fn an_unhealthy_endpoint_gets_no_request_until_it_is_healthy_again() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(&servers, &checked(OFTEN)));
    more_checks(&servers[0], 3);
    assert_eq!(gateway.statuses(10, "/"), [200; 10]);
    assert_eq!(hits(&servers), [5, 5]);
    assert_eq!((healthy(&gateway, &servers[0]), state(&gateway, &servers[0])["healthy"].as_bool()), (1.0, Some(true)));

    servers[0].set_health(500);
    until_used(&gateway, &servers[0], false);
    assert!(results(&gateway, &servers[0], "status") >= 3.0 && results(&gateway, &servers[0], "success") >= 3.0);
    assert_eq!((healthy(&gateway, &servers[0]), healthy(&gateway, &servers[1])), (0.0, 1.0));
    assert_eq!(gateway.statuses(10, "/"), [200; 10]);
    assert_eq!(hits(&servers), [5, 15]);

    servers[0].set_health(200);
    until_used(&gateway, &servers[0], true);
    assert_eq!(gateway.statuses(10, "/"), [200; 10]);
    assert_eq!(servers[0].hits(), 10);
    more_checks(&servers[0], 5);
    let said =
        |words: &str| gateway.log().lines().filter(|line| line.contains(words) && line.contains(&servers[0].address())).count();
    assert_eq!((said("endpoint is unhealthy"), said("endpoint is healthy again")), (1, 1), "{}", gateway.log());
    assert!(gateway.log().contains("answered 500"), "the reason is said");
}

#[test]
fn every_worker_knows() {
    let servers = servers(2);
    let gateway = Gateway::start(&format!("workers: 3\n{}", upstream(&servers, &checked(OFTEN))));
    // On connections of their own, which are spread over the workers.
    let ask = || {
        let mut clients: Vec<_> = (0..12).map(|_| gateway.client()).collect();
        clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status(), 200));
    };
    ask();
    assert!(servers[0].hits() > 0);
    servers[0].set_health(500);
    until_used(&gateway, &servers[0], false);
    let before = servers[0].hits();
    ask();
    assert_eq!(servers[0].hits(), before);
}

#[test]
fn thresholds_hold() {
    // Well for ever, bad for a while that the test controls by the count of checks: the change comes with the third, not before.
    let bad = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&bad);
    let origin = Origin::new(move |call| match theirs.load(Ordering::SeqCst) {
        true => call.answer(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"),
        false => call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    });
    let gateway = Gateway::before(
        &origin,
        &format!(
            "upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'], {} }} }}",
            checked("healthy_after: 4, unhealthy_after: 7")
        ),
    );
    let count = |result| gateway.metric("tollgate_health_checks_total", &[("result", result)]);
    until("a good check", || count("success") >= 1.0);
    bad.store(true, Ordering::SeqCst);
    let healthy = || gateway.metric("tollgate_endpoint_healthy", &[]) > 0.0;
    until("it is unhealthy", || !healthy());
    bad.store(false, Ordering::SeqCst);
    until("it is healthy", healthy);
    until("both are said", || gateway.log().contains("after=7") && gateway.log().contains("after=4"));
}

#[test]
fn an_endpoint_that_flaps_below_the_thresholds_stays() {
    let flapping = AtomicBool::new(false);
    let origin = Origin::new(move |call| {
        if call.target() != "/healthz" || flapping.fetch_xor(true, Ordering::SeqCst) {
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        } else {
            call.answer(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")
        }
    });
    let gateway = Gateway::before(
        &origin,
        &format!(
            "upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'], {} }} }}",
            checked("healthy_after: 2, unhealthy_after: 2")
        ),
    );
    until("twenty checks", || origin.lines().iter().filter(|line| line.contains("/healthz")).count() >= 20);
    assert_eq!(gateway.get("/").status, 200);
    assert!(!gateway.log().contains("unhealthy"), "{}", gateway.log());
    assert!(gateway.metric("tollgate_health_checks_total", &[("result", "status")]) >= 9.0);
}

/// What a server does with a request.
type Script = fn(&mut OriginExchange) -> Next;

/// Answers that are no good: keys of the check, and what the server does instead.
#[rustfmt::skip]
const BAD: &[(&str, &str, Script)] = &[
    ("status", "", |call| call.answer(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")),
    ("status", "", |call| call.answer(b"HTTP/1.1 302 X\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")),
    ("status", "status: [204], ", |call| call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")),
    ("body", "body: ready, ", |call| call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")),
    ("body", "body: ready, ", |call| call.answer(b"HTTP/1.1 204 X\r\n\r\n")),
    ("timeout", "", |call| call.stall()),
    ("timeout", "body: ready, ", |call| { call.send("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nrea"); call.stall() }),
    ("http", "", |_| Next::Close),
    ("http", "", |call| { call.send("SSH-2.0-x\r\n\r\n"); Next::Close }),
    ("http", "body: ready, ", |call| { call.send("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nrea"); Next::Close }),
];

#[test]
fn bad_answers_are_told_apart() {
    let mut table = Table::new("bad answers");
    for (n, (result, keys, script)) in BAD.iter().enumerate() {
        let origin = Origin::new(script);
        let patience = if *result == "timeout" { "timeout: 60ms" } else { "timeout: 4s" };
        let keys = checked(&format!("{keys} unhealthy_after: 2")).replace("timeout: 2s", patience);
        let gateway = Gateway::before(&origin, &format!("upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'], {keys} }} }}"));
        until(&format!("{n} is unhealthy"), || gateway.metric("tollgate_endpoint_healthy", &[]) == 0.0);
        let metrics = gateway.metrics();
        let counted: Vec<_> = metrics.lines().filter(|line| line.starts_with("tollgate_health_checks_total{")).collect();
        let such = counted.iter().all(|line| line.contains(&format!("result=\"{result}\"")));
        table.row(&format!("{n} {result}"), if such { String::new() } else { counted.join("\n") });
    }
}

/// Answers that are as good as wanted.
#[rustfmt::skip]
const GOOD: &[(&str, &str)] = &[
    ("", "HTTP/1.1 204 X\r\n\r\n"),
    ("status: [404, '5xx'], ", "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n"),
    ("status: 5xx, ", "HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"),
    ("body: ready, ", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nI'm r\r\n5\r\neady.\r\n0\r\n\r\n"),
    ("body: '\"up\"', status: 200, ", "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"state\": \"up\"}"),
];

#[test]
fn good_answers_are_what_the_file_says() {
    let mut table = Table::new("good answers");
    for (keys, answer) in GOOD {
        let origin = Origin::answering(*answer);
        let check = checked(&format!("{keys} unhealthy_after: 1"));
        let gateway = Gateway::before(&origin, &format!("upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'], {check} }} }}"));
        let count = |labels: &[(&str, &str)]| gateway.metric("tollgate_health_checks_total", labels);
        until("three checks", || count(&[]) >= 3.0);
        let good = count(&[("result", "success")]);
        table.row(keys, if good >= 3.0 { String::new() } else { gateway.log() });
    }
}

#[test]
fn a_check_says_what_the_file_says() {
    let origin = Origin::ok();
    let keys = "health: { path: '/up?deep=1', host: 'api.example:8080', interval: 20ms }";
    let gateway = Gateway::before(&origin, &format!("upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'], {keys} }} }}"));
    let seen = origin.wait(1);
    assert_eq!((seen.line.as_str(), seen.all("host")), ("GET /up?deep=1 HTTP/1.1", vec!["api.example:8080"]));
    assert!(seen.header("user-agent").unwrap().starts_with("tollgate/"));
    gateway.stop();
    let plain = Origin::ok();
    let _gateway = Gateway::before(&plain, "upstreams: { origin: { endpoints: ['http://ORIGIN'], health: { interval: 20ms } } }");
    let seen = plain.wait(1);
    assert_eq!((seen.line.as_str(), seen.all("host")), ("GET / HTTP/1.1", vec![plain.addr().to_string().as_str()]));
}

#[test]
fn with_nobody_in_use_the_answer_is_a_503_at_once() {
    let servers = servers(2);
    for server in &servers {
        server.set_health(503);
    }
    let gateway = Gateway::start(&upstream(&servers, &checked(OFTEN)));
    for server in &servers {
        until_used(&gateway, server, false);
    }
    let before = hits(&servers);
    let refused = gateway.get("/");
    assert_eq!((refused.status, refused.json()["error"].as_str()), (503, Some("service_unavailable")));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(hits(&servers), before, "nobody is asked");
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[("kind", "no_endpoint")]), 1.0);
}

#[test]
fn a_dead_endpoint_is_not_tried_once_its_checks_say_so() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let servers = servers(1);
    let yaml = upstream(&servers, "health: { type: tcp, interval: 20ms, unhealthy_after: 2, healthy_after: 2 }");
    let gateway = Gateway::start(&yaml.replace("endpoints: [", &format!("endpoints: ['http://{nobody}', ")));
    let connects = || gateway.metric("tollgate_health_checks_total", &[("endpoint", &nobody.to_string()), ("result", "connect")]);
    let used = || gateway.metric("tollgate_endpoint_healthy", &[("endpoint", &nobody.to_string())]) > 0.0;
    until("it is unhealthy", || !used());
    assert!(connects() >= 2.0);
    let retries = gateway.metric("tollgate_upstream_retries_total", &[]);
    assert_eq!(gateway.statuses(20, "/"), [200; 20]);
    assert_eq!(gateway.metric("tollgate_upstream_retries_total", &[]), retries, "nobody has tried it");

    // It comes back, and accepts connections is all that a TCP check wants.
    let _listener = TcpListener::bind(nobody).unwrap();
    until("it is healthy", used);
    assert!(gateway.metric("tollgate_health_checks_total", &[("endpoint", &nobody.to_string()), ("result", "success")]) >= 2.0);
}

#[test]
fn idle_connections_to_an_unhealthy_endpoint_are_closed() {
    let servers = servers(1);
    let gateway =
        Gateway::start(&upstream(&servers, "health: { path: /healthz, interval: 300ms, timeout: 2s, unhealthy_after: 1 }"));
    assert_eq!(gateway.get("/").status, 200);
    // One is kept for the next request; checks have their own, which they close.
    until("only the kept connection is open", || servers[0].origin.open() == 1 && servers[0].checks() > 0);
    servers[0].set_health(500);
    until_used(&gateway, &servers[0], false);
    until("it is closed", || servers[0].origin.open() == 0);
}

#[test]
fn a_slow_check_is_no_hindrance_to_others() {
    let servers = servers(3);
    servers[0].set_health(SILENT);
    let gateway = Gateway::start(&upstream(&servers, &checked("unhealthy_after: 1")));
    // The silent one's first check takes 2 s; the others have many meanwhile.
    until("others are checked", || servers[1].checks() >= 10 && servers[2].checks() >= 10);
    assert!(servers[0].checks() <= 2, "one check at a time");
    until_used(&gateway, &servers[0], false);
}

#[test]
fn with_too_few_in_order_all_are_used_again() {
    let servers = servers(4);
    let gateway = Gateway::start(&upstream(&servers, &format!("panic_below: 50%, {}", checked(OFTEN))));
    let panics = || gateway.metric("tollgate_upstream_panic", &[("upstream", "origin")]);
    servers[0].set_health(500);
    servers[1].set_health(500);
    until_used(&gateway, &servers[0], false);
    until_used(&gateway, &servers[1], false);
    assert_eq!((panics(), gateway.statuses(8, "/")), (0.0, vec![200; 8]));
    assert_eq!(hits(&servers), [0, 0, 4, 4]);

    servers[2].set_health(500);
    until("the gateway panics", || panics() == 1.0);
    assert_eq!(admin(&gateway, "GET /upstreams/origin").1["panic"], true);
    assert_eq!(gateway.statuses(8, "/"), [200; 8]);
    assert_eq!(hits(&servers), [2, 2, 6, 6]);
    until("it is said", || gateway.log().contains("too few endpoints are in order"));

    servers[0].set_health(200);
    until("it calms down", || panics() == 0.0);
    assert_eq!(gateway.statuses(8, "/"), [200; 8]);
    assert_eq!(hits(&servers), [6, 2, 6, 10]);
}
