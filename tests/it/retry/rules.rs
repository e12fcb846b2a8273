//! Which outcomes are tried again, for which methods, how often and where.

use super::{BUSY, OK, ask, before, errors, failing, is_used, retries, retry, upstream, withheld};
use crate::harness::{Gateway, Next, Origin, Table, together, until};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port that nobody listens on.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn listed_statuses_are_tried_again_for_what_is_idempotent_and_for_nothing_else() {
    let mut table = Table::new("statuses");
    for (method, status, expected, requests) in [
        ("GET", 503, 200, 2),
        ("HEAD", 502, 200, 2),
        ("OPTIONS", 504, 200, 2),
        ("PUT", 503, 200, 2),
        ("DELETE", 503, 200, 2),
        ("POST", 503, 503, 1),
        ("PATCH", 503, 503, 1),
        ("QUERYISH", 503, 503, 1),
        ("GET", 500, 500, 1),
        ("GET", 429, 429, 1),
    ] {
        let origin = failing(1, move |call| call.answer(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes()));
        let gateway = before(&origin, "");
        let seen = (ask(&gateway, method, ""), origin.seen().len(), retries(&gateway, "status"));
        let fits = seen == (expected, requests, (requests - 1) as f64);
        table.row(&format!("{method} {status}"), if fits { String::new() } else { format!("{seen:?}") });
    }
}

#[test]
fn a_connection_that_breaks_is_tried_again_for_what_is_idempotent_and_for_nothing_else() {
    let mut table = Table::new("resets");
    for (method, fields, expected, requests) in [
        ("GET", "", 200, 2),
        ("PUT", "Content-Length: 0\r\n", 200, 2),
        ("DELETE", "", 200, 2),
        ("POST", "", 502, 1),
        ("POST", "Content-Length: 0\r\n", 502, 1),
        ("PATCH", "", 502, 1),
    ] {
        for resets in [true, false] {
            let origin = failing(1, move |call| if call.body() && resets { call.reset() } else { Next::Close });
            let gateway = before(&origin, "");
            let seen = (ask(&gateway, method, fields), origin.seen().len(), retries(&gateway, "reset"));
            let fits = seen == (expected, requests, (requests - 1) as f64);
            table.row(&format!("{method} {resets}"), if fits { String::new() } else { format!("{seen:?}") });
        }
    }
}

#[test]
fn a_response_that_has_begun_is_not_asked_for_again() {
    let origin = failing(1, |call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
        Next::Close
    });
    let gateway = before(&origin, "");
    assert_eq!((gateway.client().get("/").outcome().as_str(), origin.seen().len()), ("200 cut", 1));
}

#[test]
fn without_retry_nothing_of_this_is_tried_again() {
    for keys in ["max_requests: 9", "max_connections: 9"] {
        let origin = failing(1, |call| call.answer(BUSY));
        let gateway = Gateway::start(&upstream(&[origin.addr()], keys));
        assert_eq!((ask(&gateway, "GET", ""), origin.seen().len()), (503, 1));
        let origin = failing(1, |call| call.reset());
        let gateway = Gateway::start(&upstream(&[origin.addr()], keys));
        assert_eq!((ask(&gateway, "GET", ""), origin.seen().len()), (502, 1));
    }
}

#[test]
fn only_what_is_listed_is_tried_again() {
    for (on, fault, status) in [("[connect, 503]", false, 502), ("[reset]", true, 503), ("[connect]", true, 503)] {
        let origin = failing(1, move |call| if fault { call.answer(BUSY) } else { call.reset() });
        let gateway = before(&origin, &format!("on: {on}"));
        assert_eq!((ask(&gateway, "GET", ""), origin.seen().len()), (status, 1), "{on}");
    }
}

#[test]
fn an_endpoint_that_cannot_be_connected_to_is_passed_over_by_any_method() {
    let origin = Origin::ok();
    let gateway = Gateway::start(&upstream(&[nobody(), origin.addr()], &format!("balance: round_robin, {}", retry(""))));
    for _ in 0..10 {
        assert_eq!(ask(&gateway, "POST", "Content-Length: 0\r\n"), 200);
    }
    assert!(retries(&gateway, "connect") >= 4.0 && origin.seen().len() == 10);
}

#[test]
fn when_all_cannot_be_connected_to_they_are_tried_again_as_often_as_attempts_say() {
    for method in ["GET", "POST"] {
        let gateway = Gateway::start(&upstream(&[nobody()], &retry("attempts: 3")));
        assert_eq!(ask(&gateway, method, ""), 502);
        assert_eq!((retries(&gateway, "connect"), withheld(&gateway, "attempts"), errors(&gateway, "connect")), (3.0, 1.0, 4.0));
    }
}

#[test]
fn attempts_are_counted_behind_the_first_try_and_the_last_answer_is_passed_on() {
    let origin = Origin::answering(BUSY);
    let gateway = before(&origin, "attempts: 3");
    let response = gateway.get("/");
    assert_eq!((response.status, response.text().as_str(), origin.seen().len()), (503, "busy", 4));
    assert_eq!((retries(&gateway, "status"), withheld(&gateway, "attempts")), (3.0, 1.0));
}

#[test]
fn an_endpoint_that_has_been_tried_is_avoided() {
    for balance in ["round_robin", "random", "least_requests", "{ hash: ip, load_bound: 1000 }"] {
        let (bad, good) = (Origin::answering(BUSY), Origin::ok());
        let keys = format!("balance: {balance}, {}", retry("attempts: 1"));
        let gateway = Gateway::start(&upstream(&[bad.addr(), good.addr()], &keys));
        assert_eq!(gateway.statuses(20, "/"), [200; 20], "{balance}");
        assert_eq!(good.seen().len(), 20, "{balance}");
        assert_eq!(retries(&gateway, "status"), bad.seen().len() as f64, "{balance}");
    }
}

/// The second try finds nobody there, and so does without its preference.
#[test]
fn an_endpoint_that_has_been_tried_is_better_than_none() {
    let origin = failing(1, |call| call.answer(BUSY));
    let gateway = Gateway::start(&upstream(&[origin.addr(), nobody()], &retry("attempts: 1")));
    for _ in 0..5 {
        assert_eq!(ask(&gateway, "GET", ""), 200);
    }
}

#[test]
fn retries_stay_within_their_share_of_the_requests() {
    let origin = Origin::answering(BUSY);
    let keys = "retry: { backoff: 0s..1ms, attempts: 1, budget: 20%, min_per_second: 0 }";
    let gateway = Gateway::start(&format!("workers: 2\n{}", upstream(&[origin.addr()], keys)));
    let statuses: Vec<_> = together(10, |_| gateway.statuses(10, "/")).concat();
    let (seen, granted, refused) = (origin.seen().len(), retries(&gateway, "status"), withheld(&gateway, "budget"));
    assert_eq!(statuses, [503; 100]);
    assert!((105..=120).contains(&seen), "100 requests came to {seen}");
    assert_eq!((100.0 + granted, granted + refused), (seen as f64, 100.0));
}

#[test]
fn few_requests_have_the_minimum() {
    let origin = Origin::answering(BUSY);
    let gateway =
        Gateway::start(&upstream(&[origin.addr()], "retry: { attempts: 1, budget: 0%, min_per_second: 1, backoff: 0s }"));
    gateway.statuses(30, "/");
    // Ten in ten seconds, and a few more if the machine was so slow that there were more than that.
    let seen = origin.seen().len();
    assert!((40..50).contains(&seen), "30 requests came to {seen}");
}

#[test]
fn who_asks_for_a_longer_pause_than_there_may_be_is_not_asked_again() {
    let mut table = Table::new("Retry-After");
    for (value, keys, requests) in [
        ("0", "", 2),
        ("30", "", 1),
        ("2", "", 1),
        ("99999999999999999999", "", 1),
        ("Fri, 31 Dec 2100 23:59:59 GMT", "", 1),
        ("Sun, 06 Nov 1994 08:49:37 GMT", "", 2),
        ("nonsense", "", 2),
        ("1", "max_wait: 0s", 1),
    ] {
        let answer = format!("HTTP/1.1 503 X\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n");
        let origin = failing(1, move |call| call.answer(answer.as_bytes()));
        let gateway = before(&origin, keys);
        let response = gateway.get("/");
        let (seen, kept) = (origin.seen().len(), withheld(&gateway, "wait"));
        let passed_on = requests == 2 || response.header("retry-after") == Some(value);
        let fits = seen == requests && kept == (2 - requests) as f64 && passed_on;
        table.row(
            &format!("{value} {keys}"),
            if fits { String::new() } else { format!("{seen} requests, {kept} withheld, {response:?}") },
        );
    }
}

#[test]
fn a_pause_that_is_longer_than_the_time_left_is_not_made() {
    let origin = Origin::answering("HTTP/1.1 503 X\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n");
    let routes = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, timeouts: { total: 3s } }]";
    let gateway = Gateway::start(&format!("{routes}\n{}", upstream(&[origin.addr()], &retry("max_wait: 30s"))));
    assert_eq!((gateway.get("/").status, origin.seen().len(), withheld(&gateway, "wait")), (503, 1, 1.0));
}

#[test]
fn a_try_that_takes_too_long_is_the_endpoints_failure_and_is_made_elsewhere() {
    let (frozen, good) = (Origin::new(|call| call.stall()), Origin::ok());
    let keys = format!(
        "balance: round_robin, outlier: {{ consecutive_failures: 2, eject_for: 1h }}, {}",
        retry("per_try: 500ms, attempts: 1")
    );
    let gateway = Gateway::start(&upstream(&[frozen.addr(), good.addr()], &keys));
    assert_eq!(gateway.statuses(8, "/"), [200; 8]);
    assert_eq!((frozen.seen().len(), retries(&gateway, "timeout"), errors(&gateway, "timeout")), (2, 2.0, 2.0));
    assert!(!is_used(&gateway, frozen.addr()) && is_used(&gateway, good.addr()));
}

#[test]
fn a_try_that_takes_too_long_may_have_been_worked_on() {
    let origin = Origin::new(|call| if call.method() == "POST" { call.stall() } else { call.answer(OK) });
    let gateway = before(&origin, "per_try: 500ms");
    assert_eq!((ask(&gateway, "POST", ""), origin.seen().len()), (504, 1));
}

/// Only the head has to be there within `per_try`: what is slow behind it has `timeouts.response`.
#[test]
fn the_time_of_a_try_ends_with_the_head() {
    let origin = Origin::new(|call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n");
        for _ in 0..4 {
            // Longer than a try may take.
            std::thread::sleep(std::time::Duration::from_millis(600));
            call.send("x");
        }
        Next::Keep
    });
    let gateway = before(&origin, "per_try: 500ms");
    assert_eq!((gateway.get("/").text().as_str(), origin.seen().len()), ("xxxx", 1));
}

#[test]
fn a_client_that_leaves_ends_the_trying() {
    let status = Arc::new(AtomicU16::new(503));
    let theirs = Arc::clone(&status);
    let origin = Origin::new(move |call| {
        call.answer(format!("HTTP/1.1 {} X\r\nContent-Length: 0\r\n\r\n", theirs.load(Ordering::SeqCst)).as_bytes())
    });
    let yaml = upstream(&[origin.addr()], "max_requests: 1, retry: { backoff: 1m..1m, max_wait: 1m }");
    let gateway = Gateway::start(&format!("limits: [{{ name: one, per: global, concurrency: 1 }}]\n{yaml}"));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    until("it waits for its next try", || retries(&gateway, "status") == 1.0);
    assert_eq!(gateway.get("/").status, 429, "its slot is taken as long as it waits");
    client.reset();
    until("the client is seen to have left", || gateway.metric("tollgate_client_aborts_total", &[]) == 1.0);
    status.store(200, Ordering::SeqCst);
    assert_eq!((gateway.get("/").status, origin.seen().len()), (200, 2));
}

#[test]
fn quota_and_slot_are_taken_once() {
    let origin = failing(2, |call| call.answer(BUSY));
    let yaml = upstream(&[origin.addr()], &retry("attempts: 2"));
    let limits = "limits: [{ name: five, per: ip, rate: 5/day }, { name: one, per: ip, concurrency: 1 }]\nrejection: { headers: [x-ratelimit] }";
    let gateway = Gateway::start(&format!("access_log: {{ format: json }}\n{limits}\n{yaml}"));
    let response = gateway.get("/");
    assert_eq!((response.status, response.header("x-ratelimit-remaining"), origin.seen().len()), (200, Some("4"), 3));
    assert_eq!(gateway.get("/").header("x-ratelimit-remaining"), Some("3"));
    until("both are in the log", || gateway.access_log().lines().count() == 2);
    let tries: Vec<_> = gateway
        .access_log()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["tries"].clone())
        .collect();
    assert_eq!(tries, [3.into(), serde_json::Value::Null]);
}

#[test]
fn a_reused_connection_that_was_just_closed_costs_neither_attempts_nor_budget() {
    let origin = Origin::new(|call| if call.nth == 2 { Next::Close } else { call.answer(OK) });
    let gateway = Gateway::start(&upstream(&[origin.addr()], "retry: { on: [503], budget: 0%, min_per_second: 0 }"));
    let mut client = gateway.client();
    let statuses: Vec<_> = (0..6).map(|_| client.get("/").status()).collect();
    assert_eq!(statuses, [200; 6]);
    assert!(retries(&gateway, "closed") >= 1.0 && withheld(&gateway, "budget") == 0.0);
}
