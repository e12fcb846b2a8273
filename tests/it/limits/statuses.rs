//! `count` and `refund`: charged first, and given back when the response's status says so.

use super::{ALGORITHMS, ask, number, remaining, reset, retry_after, status_origin};
use crate::harness::{Gateway, Latch, Next, Origin, Table, crlf, fits, together, until};

/// What stands in a list of statuses, and for some statuses whether they are in it.
type Set = (&'static str, &'static [(u16, bool)]);

#[rustfmt::skip]
const SETS: &[Set] = &[
    ("401", &[(200, false), (401, true), (403, false)]),
    ("[401, 403]", &[(200, false), (401, true), (402, false), (403, true)]),
    ("5xx", &[(200, false), (499, false), (500, true), (503, true), (599, true)]),
    ("[401, \"5xx\"]", &[(200, false), (301, false), (400, false), (401, true), (404, false), (500, true), (503, true), (599, true)]),
    ("[2xx, 3xx, 404]", &[(200, true), (204, true), (304, true), (399, true), (404, true), (410, false), (500, false)]),
];

#[test]
fn the_status_decides_and_that_very_response_says_so() {
    let origin = status_origin();
    for algorithm in ALGORITHMS {
        for (key, counted) in [("count", true), ("refund", false)] {
            let mut table = Table::new("charged by status");
            let limit = |(i, (set, _)): (usize, &Set)| {
                let matcher = format!("match: {{ headers: {{ x-set: '{i}' }} }}");
                let settings = format!("algorithm: {algorithm}, cost: 2, {key}: {{ status: {set} }}");
                format!("- {{ name: set-{i}, {matcher}, per: ip, rate: 40/day, {settings} }}\n")
            };
            let limits: String = SETS.iter().enumerate().map(limit).collect();
            let gateway = Gateway::before(&origin, &format!("limits:\n{limits}"));
            for (i, (set, statuses)) in SETS.iter().enumerate() {
                let mut left = 40;
                for (status, is_in) in *statuses {
                    left -= if *is_in == counted { 2 } else { 0 };
                    let response = ask(&gateway, &format!("/{status}"), &format!("x-set: {i}\n"));
                    let seen = format!("{} {:?}", response.status, remaining(&response));
                    let name = format!("{algorithm}, {key} {set}: {status}");
                    table.outcome(&name, &format!("{status} {:?}", Some(left)), &seen);
                    table.row(&name, if (left == 40) == (reset(&response) == 0) { "" } else { "reset" });
                }
            }
        }
    }
}

#[test]
fn failed_logins_are_counted_and_successful_ones_are_not() {
    let origin = status_origin();
    let limit = "{ name: login-failures, per: ip, rate: 5/day, count: { status: [401, 403] } }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    let statuses =
        ["/401", "/200", "/403", "/204", "/401", "/500", "/401", "/401", "/200", "/401"].map(|path| gateway.get(path).status);
    assert_eq!(statuses, [401, 200, 403, 204, 401, 500, 401, 401, 429, 429]);
    let refused = gateway.get("/200");
    assert!(retry_after(&refused).is_some() && refused.json()["limit"] == "login-failures");
    assert_eq!(gateway.metric("tollgate_settled_cells_total", &[]), 5.0);
    assert_eq!(gateway.metric("tollgate_reserved_cells_total", &[]), 8.0);
}

#[test]
fn the_gateways_own_answers_have_a_status_too() {
    let routes = "routes:
- { name: fixed, match: { path: /fixed }, respond: { status: 503, body: no } }
- { name: slow, match: { path: /slow }, upstream: origin, timeouts: { response: 100ms } }
- { name: all, match: { path: '/{*rest}' }, upstream: origin, max_body: 10B }";
    let origin = Origin::new(|call| if call.target() == "/slow" { call.stall() } else { Next::Close });
    for (key, counted) in [("count", true), ("refund", false)] {
        let limit = format!("limits: [{{ name: errors, per: ip, rate: 9/day, {key}: {{ status: 5xx }} }}]");
        let gateway = Gateway::before(&origin, &format!("{routes}\n{limit}"));
        let mut left = 9;
        for (path, status) in [("/fixed", 503), ("/slow", 504), ("/dead", 502)] {
            left -= u64::from(counted);
            let response = gateway.get(path);
            assert_eq!((response.status, remaining(&response)), (status, Some(left)), "{key}: {path}");
        }
        // What is refused before it is admitted is not charged, and says nothing.
        let large = gateway.client().ask("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n").response();
        assert_eq!((large.status, remaining(&large)), (413, None));
        assert_eq!(remaining(&gateway.get("/fixed")), Some(left - u64::from(counted)), "{key}");
    }
}

#[test]
fn a_body_that_turns_out_too_large_is_settled_as_the_413_that_it_gets() {
    let routes = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, max_body: 4B }]";
    let origin = status_origin();
    let limit = "limits: [{ name: x, per: ip, rate: 9/day, count: { status: 4xx } }]";
    let gateway = Gateway::before(&origin, &format!("{routes}\n{limit}"));
    let chunks = "POST /200 HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n8\n12345678\n0\n\n";
    let response = gateway.client().ask(crlf(chunks)).response();
    assert_eq!((response.status, remaining(&response)), (413, Some(8)));
    assert_eq!(remaining(&gateway.get("/200")), Some(8));
}

#[test]
fn who_leaves_before_the_status_is_known_stays_charged() {
    for key in ["count: { status: 401 }", "refund: { status: [2xx, 4xx, 5xx] }"] {
        let origin = Origin::new(|call| match call.target() {
            "/stall" => call.stall(),
            _ => call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        });
        let gateway = Gateway::before(&origin, &format!("limits: [{{ name: x, per: ip, rate: 9/day, {key} }}]"));
        for n in 1..=3 {
            let mut client = gateway.client();
            client.send("GET /stall HTTP/1.1\r\nHost: a\r\n\r\n");
            origin.wait_heads(n);
            client.reset();
            until("the request has ended", || gateway.metric("tollgate_client_aborts_total", &[]) == n as f64);
        }
        assert_eq!(remaining(&gateway.get("/200")), Some(6), "{key}");
    }
}

#[test]
fn parallel_tries_do_not_slip_through() {
    for algorithm in ALGORITHMS {
        for (answer, left_afterwards) in [("401", 0), ("200", 4)] {
            let door = Latch::default();
            let behind = door.clone();
            let origin = Origin::new(move |call| {
                behind.wait();
                call.answer(format!("HTTP/1.1 {answer} Said\r\nContent-Length: 0\r\n\r\n").as_bytes())
            });
            let limit = format!("{{ name: x, per: ip, rate: 4/day, algorithm: {algorithm}, count: {{ status: 401 }} }}");
            let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
            let statuses = std::thread::scope(|scope| {
                let tries = scope.spawn(|| together(20, |_| gateway.get("/").status));
                until("all others are refused", || gateway.metric("tollgate_limited_total", &[]) == 16.0);
                door.open();
                tries.join().unwrap()
            });
            let through = statuses.iter().filter(|status| fits(answer, &status.to_string())).count();
            assert_eq!((through, origin.seen().len()), (4, 4), "{algorithm}, {answer}: {statuses:?}");
            let next = gateway.get("/");
            let expected = if left_afterwards == 0 { 429 } else { 200 };
            assert_eq!((next.status, remaining(&next)), (expected, Some(left_afterwards)), "{algorithm}, {answer}");
        }
    }
}

#[test]
fn what_is_given_back_to_one_limit_stays_charged_to_another() {
    let origin = status_origin();
    let config = "limits:
- { name: plain, match: { headers: { x-see: plain } }, per: ip, rate: 9/day }
- { name: refunded, match: { headers: { x-see: refunded } }, per: ip, rate: 9/day, refund: { status: 5xx } }
- { name: both, per: ip, rate: 100/day, refund: { status: [500] }, count: { status: [5xx] } }";
    let gateway = Gateway::before(&origin, config);
    for (see, path, left) in [("plain", "/503", 8), ("refunded", "/503", 9), ("refunded", "/200", 8), ("plain", "/500", 7)] {
        let response = ask(&gateway, path, &format!("x-see: {see}\n"));
        assert_eq!((number(&response, "x-ratelimit-limit"), remaining(&response)), (Some(9), Some(left)), "{see} {path}");
    }
    let both = ask(&gateway, "/404", "");
    assert_eq!(remaining(&both), Some(98), "counted are 5xx but 500");
}
