//! Endpoints that are taken out for their answers, and come back.

use super::{CUT, RESET, SILENT, Server, hits, servers, state, until_used, upstream};
use crate::harness::{Gateway, Origin, Table, crlf, exchange, until};
use std::net::TcpListener;

/// Round robin, so that every endpoint has its turn of failures.
fn judged(keys: &str) -> String {
    format!("balance: round_robin, outlier: {{ {keys} }}")
}

fn ejections(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("tollgate_endpoint_ejections_total", &[("upstream", "origin"), ("reason", reason)])
}

/// Requests until an endpoint is out; how many that took.
fn ask_until_out(gateway: &Gateway, server: &Server) -> usize {
    let mut asked = 0;
    until(&format!("{} is ejected", server.address()), || {
        exchange(gateway.addr(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        asked += 1;
        state(gateway, server)["used"] == false
    });
    asked
}

#[test]
fn one_bad_of_three_is_ejected_and_returns() {
    let servers = servers(3);
    let gateway = Gateway::start(&upstream(&servers, &judged("consecutive_failures: 5, eject_for: 2s")));
    servers[1].set_status(503);
    ask_until_out(&gateway, &servers[1]);
    assert_eq!(servers[1].hits(), 5, "five failures in a row are enough");
    assert_eq!((ejections(&gateway, "consecutive_failures"), gateway.metric("tollgate_endpoint_ejected", &[])), (1.0, 1.0));
    let ejected = state(&gateway, &servers[1]);
    assert!(
        ejected["healthy"] == true && ejected["ejected_until"].as_str().is_some_and(|until| until.starts_with("20")),
        "{ejected}"
    );

    servers[1].set_status(200);
    until_used(&gateway, &servers[1], true);
    assert!(state(&gateway, &servers[1])["ejected_until"].is_null());
    assert_eq!(gateway.statuses(9, "/"), [200; 9]);
    assert_eq!(servers[1].hits(), 8);
    let log = gateway.log();
    let said = |words: &str| log.lines().filter(|line| line.contains(words) && line.contains(&servers[1].address())).count();
    assert_eq!((said("endpoint ejected"), said("ejection is over")), (1, 1), "{log}");
}

#[test]
fn an_ejected_endpoint_gets_nothing() {
    let servers = servers(3);
    let gateway = Gateway::start(&upstream(&servers, &judged("consecutive_failures: 2, eject_for: 1h")));
    servers[1].set_status(502);
    ask_until_out(&gateway, &servers[1]);
    assert_eq!(gateway.statuses(30, "/"), [200; 30]);
    assert_eq!(servers[1].hits(), 2);
}

#[test]
fn each_ejection_lasts_longer_up_to_the_cap() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(&servers, &judged("consecutive_failures: 1, eject_for: 1s, max_eject_for: 2s")));
    servers[0].set_status(503);
    let lengths = || -> Vec<String> {
        let log = gateway.log();
        let length = |line: &str| Some(line.split_once("length=")?.1.split_whitespace().next()?.to_owned());
        log.lines().filter_map(length).collect()
    };
    until("it has been ejected three times", || {
        gateway.get("/");
        lengths().len() >= 3
    });
    assert_eq!(lengths(), ["1s", "2s", "2s"]);
}

/// What an endpoint does, and that it counts.
#[test]
fn every_fault_of_an_endpoint_counts() {
    let mut table = Table::new("faults");
    for (name, status) in [("503", 503), ("reset", RESET), ("silence", SILENT), ("half a body", CUT)] {
        let servers = servers(2);
        // Patient with the other one, which may be slow on a busy machine.
        let keys = format!("timeouts: {{ response: 400ms }}, {}", judged("consecutive_failures: 4, eject_for: 1h"));
        let gateway = Gateway::start(&upstream(&servers, &keys));
        servers[0].set_status(status);
        ask_until_out(&gateway, &servers[0]);
        table.row(name, if servers[0].hits() == 4 { String::new() } else { format!("{} requests", servers[0].hits()) });
    }
}

#[test]
fn refused_connections_count_and_are_not_tried_for_ever() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let servers = servers(1);
    let yaml = upstream(&servers, &judged("consecutive_failures: 3, eject_for: 1h"));
    let gateway = Gateway::start(&yaml.replace("endpoints: [", &format!("endpoints: ['http://{nobody}', ")));
    assert_eq!(gateway.statuses(30, "/"), [200; 30]);
    assert_eq!((ejections(&gateway, "consecutive_failures"), gateway.metric("tollgate_upstream_retries_total", &[])), (1.0, 3.0));
}

#[test]
fn only_listed_statuses_count_and_a_good_answer_ends_a_row() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(&servers, &judged("consecutive_failures: 3, eject_for: 1h, status: [500]")));
    for status in [502, 503, 504, 501, 429, 404] {
        servers[0].set_status(status);
        gateway.statuses(10, "/");
    }
    for _ in 0..6 {
        servers[0].set_status(500);
        gateway.statuses(4, "/");
        servers[0].set_status(200);
        gateway.statuses(2, "/");
    }
    assert_eq!(state(&gateway, &servers[0])["used"], true, "two in a row are not three");
    servers[0].set_status(500);
    ask_until_out(&gateway, &servers[0]);
}

#[test]
fn what_clients_do_never_counts() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(
        &servers,
        &format!("{}, max_connections: 100", judged("consecutive_failures: 1, eject_for: 1h")),
    ));
    let reached = |n: usize| until("the request reaches an endpoint", || hits(&servers).iter().sum::<usize>() >= n);
    let mut sent = 0;
    for status in [400, 401, 404, 413, 422, 429, 499] {
        servers.iter().for_each(|server| server.set_status(status));
        assert_eq!(gateway.statuses(2, "/"), [status; 2]);
        sent += 2;
    }
    servers.iter().for_each(|server| server.set_status(SILENT));
    for _ in 0..4 {
        // It leaves while upstream is silent.
        let mut client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        sent += 1;
        reached(sent);
        client.reset();
        // It leaves within its body, and sends a body that is none.
        for body in ["Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\nzz\r\n"] {
            let mut client = gateway.client();
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{body}"));
            sent += 1;
            reached(sent);
            client.reset();
        }
    }
    let under_way = || gateway.metric("tollgate_endpoint_requests", &[]);
    until("all have ended", || under_way() == 0.0);
    servers.iter().for_each(|server| server.set_status(200));
    assert_eq!(gateway.statuses(4, "/"), [200; 4]);
    assert_eq!((ejections(&gateway, "consecutive_failures"), gateway.metric("tollgate_endpoint_ejected", &[])), (0.0, 0.0));
}

#[test]
fn a_client_that_leaves_within_a_response_does_not_count() {
    let body = "x".repeat(1 << 20);
    let origin = Origin::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len() * 64));
    let other = Origin::ok();
    let endpoints = format!("endpoints: ['http://ORIGIN', 'http://{}']", other.addr());
    let gateway = Gateway::before(
        &origin,
        &format!("upstreams: {{ origin: {{ {endpoints}, {} }} }}", judged("consecutive_failures: 1, eject_for: 1h")),
    );
    for n in 1..=3 {
        until("it is at the large one", || {
            let mut client = crate::harness::Client::connect_narrow(gateway.addr());
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let large = client.grow().windows(3).any(|bytes| bytes == b"xxx");
            client.reset();
            large && origin.seen().len() >= n
        });
    }
    until("all have ended", || gateway.metric("tollgate_endpoint_requests", &[]) == 0.0);
    assert_eq!(gateway.metric("tollgate_endpoint_ejections_total", &[]), 0.0);
}

#[test]
fn a_client_that_dawdles_over_its_body_until_the_time_is_up_does_not_count() {
    let servers = servers(2);
    let routes = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, timeouts: { total: 400ms } }]";
    let yaml = upstream(&servers, &judged("consecutive_failures: 1, eject_for: 1h"));
    let gateway = Gateway::start(&format!("{routes}\n{yaml}"));
    for _ in 0..4 {
        let slow = exchange(gateway.addr(), crlf("POST / HTTP/1.1\nHost: a\nContent-Length: 10\n\nhalf"));
        assert_eq!(slow.outcome(), "504");
    }
    assert_eq!(gateway.metric("tollgate_endpoint_ejections_total", &[]), 0.0);
    // But an endpoint that is silent for all of it does.
    servers[0].set_status(SILENT);
    ask_until_out(&gateway, &servers[0]);
}

#[test]
fn a_closed_idle_connection_is_not_a_failure() {
    // Answers the first request of a connection and closes when a second one arrives on it.
    let racing = || {
        Origin::new(|call| {
            if call.nth > 1 {
                return crate::harness::Next::Close;
            }
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        })
    };
    let (one, two) = (racing(), racing());
    let endpoints = format!("endpoints: ['http://ORIGIN', 'http://{}']", two.addr());
    let gateway = Gateway::before(
        &one,
        &format!("upstreams: {{ origin: {{ {endpoints}, {} }} }}", judged("consecutive_failures: 1, eject_for: 1h")),
    );
    assert_eq!(gateway.statuses(20, "/"), [200; 20]);
    assert!(gateway.metric("tollgate_upstream_retries_total", &[]) > 0.0, "the race was met");
    // What can't be sent again meets it too: on a new connection it succeeds, on a used one it does not.
    let post = || exchange(gateway.addr(), crlf("POST / HTTP/1.1\nHost: a\nContent-Length: 1\n\nz")).outcome();
    let outcomes: Vec<_> = (0..8).map(|_| post()).collect();
    assert!(outcomes.iter().any(|outcome| outcome == "502"), "{outcomes:?}");
    assert_eq!(gateway.metric("tollgate_endpoint_ejections_total", &[]), 0.0);
}

#[test]
fn no_more_than_the_share_is_ejected() {
    let servers = servers(3);
    let gateway = Gateway::start(&upstream(&servers, &judged("consecutive_failures: 2, eject_for: 1h, max_ejected: 50%")));
    servers.iter().for_each(|server| server.set_status(503));
    assert_eq!(gateway.statuses(40, "/"), [503; 40]);
    assert_eq!(gateway.metric("tollgate_endpoint_ejected", &[]), 1.0, "one of three");
    assert_eq!(hits(&servers).iter().sum::<usize>(), 40, "the others go on being asked");
}

#[test]
fn when_too_many_are_ejected_all_are_used() {
    let servers = servers(4);
    let gateway = Gateway::start(&upstream(
        &servers,
        &format!("panic_below: 50%, {}", judged("consecutive_failures: 2, eject_for: 1h, max_ejected: 100%")),
    ));
    servers.iter().for_each(|server| server.set_status(503));
    until("the gateway panics", || {
        gateway.get("/");
        gateway.metric("tollgate_upstream_panic", &[]) == 1.0
    });
    assert!(gateway.metric("tollgate_endpoint_ejected", &[]) >= 3.0);
    let before = hits(&servers);
    gateway.statuses(8, "/");
    let after = hits(&servers);
    assert!(before.iter().zip(&after).all(|(before, after)| after > before), "{before:?} {after:?}");
}

#[test]
fn too_few_good_answers_eject_too() {
    let servers = servers(2);
    let rate = "success_rate: { minimum_requests: 10, below: 80%, window: 1s }";
    let gateway = Gateway::start(&upstream(&servers, &judged(&format!("consecutive_failures: 1000, eject_for: 1h, {rate}"))));
    // Every other answer is a failure, so there is never a row.
    let mut bad = false;
    until("it is ejected", || {
        for _ in 0..10 {
            bad = !bad;
            servers[0].set_status(if bad { 503 } else { 200 });
            gateway.statuses(2, "/");
        }
        state(&gateway, &servers[0])["used"] == false
    });
    assert_eq!((ejections(&gateway, "success_rate"), ejections(&gateway, "consecutive_failures")), (1.0, 0.0));
    assert_eq!(state(&gateway, &servers[1])["used"], true);
}
