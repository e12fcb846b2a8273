//! What was reserved is settled exactly once, whatever ends the request: by what the response had said until then.

use super::{ALGORITHMS, ask, remaining};
use crate::harness::{Client, Gateway, H2, Latch, Next, Origin, Table, crlf, exchange, kind, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const LIMIT: &str = "limits: [{ name: tokens, match: { path: '/x/{*rest}' }, per: { header: x-key }, rate: 1000/day,
  cost: { response_json: usage.total_tokens, reserve: 3, max: 50 } }]";

/// Path, the begin of an answer that never ends, what the client owes for it.
const BEGUN: &[(&str, &str, u64)] = &[
    (
        "/x/said",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"usage\":{\"total_tokens\":9},",
        9,
    ),
    ("/x/unsaid", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"usage\":{\"total", 3),
    (
        "/x/events",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"usage\":{\"total_tokens\":4}}\n\ndata: {\"usage\":",
        4,
    ),
    ("/x/silent", "", 3),
];

/// Begins its answers and then stalls; what has been sent whole is counted.
fn stalling_origin(sent: &Arc<AtomicUsize>) -> Origin {
    let sent = Arc::clone(sent);
    Origin::new(move |call| {
        let Some((_, begin, _)) = BEGUN.iter().find(|(path, _, _)| *path == call.target()) else {
            return call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        };
        call.body();
        call.send(begin);
        sent.fetch_add(1, Ordering::SeqCst);
        call.stall()
    })
}

fn settled(gateway: &Gateway) -> u64 {
    gateway.metric("tollgate_settled_cells_total", &[]) as u64
}

/// The ways in which a client can leave.
const WAYS: [&str; 4] = ["FIN", "RST", "RST_STREAM", "an HTTP/2 connection's end"];

/// Asks for `path`, waits until what there is of the answer has come, and leaves.
fn leave(gateway: &Gateway, way: &str, path: &str, begin: &str, is_sent: impl Fn() -> bool) {
    let body = begin.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    if way.contains("RST_STREAM") || way.contains("HTTP/2") {
        let mut client = H2::connect(gateway.addr());
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", path), ("x-key", "k")];
        let stream = client.request(&fields, None);
        until("upstream has sent all it will", &is_sent);
        until("it has come", || {
            client.get("/quick");
            let data = client.frames.iter().filter(|frame| frame.stream == stream && frame.kind == kind::DATA);
            data.map(|frame| frame.payload.len()).sum::<usize>() == body.len()
        });
        if way == "RST_STREAM" {
            client.cancel(stream);
            client.get("/quick");
        }
        return;
    }
    let mut client = gateway.client();
    client.send(crlf(&format!("GET {path} HTTP/1.1\nHost: a\nx-key: k\n\n")));
    until("upstream has sent all it will", &is_sent);
    if !begin.is_empty() {
        let tail = body.as_bytes();
        until("it has come", || client.grow().windows(tail.len()).any(|part| part == tail));
    }
    if way == "RST" { client.reset() } else { drop(client) }
}

#[test]
fn a_client_that_leaves_owes_what_was_said_until_then() {
    let sent = Arc::new(AtomicUsize::new(0));
    let origin = stalling_origin(&sent);
    let gateway = Gateway::before(&origin, LIMIT);
    let mut table = Table::new("clients that leave");
    let (mut n, mut sum) = (0, 0);
    for way in WAYS {
        for (path, begin, cost) in BEGUN {
            n += 1;
            leave(&gateway, way, path, begin, || sent.load(Ordering::SeqCst) >= n);
            let before = sum;
            until(&format!("{way} within {path} is settled"), || settled(&gateway) > before);
            sum = settled(&gateway);
            table.outcome(&format!("{way} within {path}"), &cost.to_string(), &(sum - before).to_string());
        }
    }
    // The next request shows what is left, and that nothing was settled twice.
    let expected: u64 = WAYS.len() as u64 * BEGUN.iter().map(|(_, _, cost)| cost).sum::<u64>();
    assert_eq!(remaining(&ask(&gateway, "/x/quick", "x-key: k\n")), Some(1000 - expected - 3));
    until("the last is settled", || settled(&gateway) == expected + 3);
    assert_eq!(gateway.metric("tollgate_reserved_cells_total", &[("limit", "tokens")]), (3 * n + 3) as f64);
}

#[test]
fn an_upstream_that_says_nothing_in_time_costs_what_was_reserved() {
    let sent = Arc::new(AtomicUsize::new(0));
    let origin = stalling_origin(&sent);
    let routes = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, timeouts: { response: 100ms } }]";
    let gateway = Gateway::before(&origin, &format!("{routes}\n{LIMIT}"));
    let late = ask(&gateway, "/x/silent", "x-key: k\n");
    assert_eq!((late.status, remaining(&late)), (504, Some(997)));
    until("it is settled", || settled(&gateway) == 3);
    assert_eq!(remaining(&ask(&gateway, "/x/quick", "x-key: k\n")), Some(994));
}

#[test]
fn an_upload_that_breaks_off_costs_what_was_reserved() {
    let sent = Arc::new(AtomicUsize::new(0));
    let origin = stalling_origin(&sent);
    let gateway = Gateway::before(&origin, LIMIT);
    for (n, way) in ["FIN", "RST"].into_iter().enumerate() {
        let mut client = gateway.client();
        client.send(crlf("POST /x/upload HTTP/1.1\nHost: a\nx-key: k\nContent-Length: 10\n\nhalf"));
        origin.wait_heads(n + 1);
        if way == "RST" {
            client.reset()
        } else {
            drop(client)
        }
        until(&format!("{way} mid-upload is settled"), || settled(&gateway) == 3 * (n as u64 + 1));
    }
    assert_eq!(remaining(&ask(&gateway, "/x/quick", "x-key: k\n")), Some(1000 - 9));
}

/// Answers behind a door with `{"usage":{"total_tokens":9}}`.
fn gated_origin(door: &Latch) -> Origin {
    let door = door.clone();
    Origin::new(move |call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 28\r\n\r\n");
        door.wait();
        call.send("{\"usage\":{\"total_tokens\":9}}");
        Next::Keep
    })
}

#[test]
fn a_reload_in_between_settles_in_cells_of_the_limit_of_that_name() {
    let rate = |name: &str, rest: &str| LIMIT.replace("tokens, match", &format!("{name}, match")).replace("1000/day", rest);
    #[rustfmt::skip]
    let rows = [
        ("another rate", rate("tokens", "20/hour"), Some(20 - 9 - 3)),
        ("another algorithm", rate("tokens", "20/day, algorithm: sliding_log"), Some(20 - 9 - 3)),
        ("off", rate("tokens", "1000/day, mode: off"), None),
        ("another name", rate("other", "20/day"), Some(20 - 3)),
        ("no limits", "limits: []".to_owned(), None),
    ];
    for (name, config, left) in rows {
        let door = Latch::default();
        let origin = gated_origin(&door);
        let gateway = Gateway::before(&origin, LIMIT);
        let mut client = gateway.client();
        client.send(crlf("GET /x/a HTTP/1.1\nHost: a\nx-key: k\n\n"));
        origin.wait_heads(1);
        gateway.reload(&config);
        assert_eq!(settled(&gateway), 0);
        door.open();
        assert_eq!(client.receive().outcome(), "200");
        until("it is settled", || settled(&gateway) == 9);
        assert_eq!(remaining(&ask(&gateway, "/x/a", "x-key: k\n")), left, "{name}");
    }
}

#[test]
fn a_reload_in_between_gives_back_what_the_status_does_not_count() {
    let mut table = Table::new("charged under gcra, given back under another algorithm");
    for algorithm in ALGORITHMS {
        let door = Latch::default();
        let behind = door.clone();
        let origin = Origin::new(move |call| {
            if call.target() == "/waits" {
                behind.wait();
            }
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        });
        let limit = |algorithm: &str| {
            format!("limits: [{{ name: x, per: ip, rate: 9/day, algorithm: {algorithm}, count: {{ status: 401 }} }}]")
        };
        let gateway = Gateway::before(&origin, &limit("gcra"));
        let mut client = gateway.client();
        client.send(crlf("GET /waits HTTP/1.1\nHost: a\n\n"));
        origin.wait_heads(1);
        gateway.reload(&format!("{}\ntiers: [free]", limit(algorithm)));
        table.outcome(&format!("{algorithm}, meanwhile"), "Some(8)", &format!("{:?}", remaining(&gateway.get("/"))));
        door.open();
        assert_eq!(client.receive().outcome(), "200");
        table.outcome(algorithm, "Some(9)", &format!("{:?}", remaining(&gateway.get("/"))));
    }
}

#[test]
fn every_limit_settles_for_itself_and_shadows_do_too() {
    let body = "{\"a\":4,\"b\":[{\"c\":7}]}";
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-cost: 2\r\n";
    let origin = Origin::answering(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
    let limit = |name: &str, rest: &str| format!("- {{ name: {name}, per: ip, rate: 100/day, {rest} }}\n");
    let config = [
        limit("a", "cost: { response_json: a, reserve: 10 }"),
        limit("b", "mode: shadow, cost: { response_json: b.0.c, reserve: 20 }"),
        limit("c", "cost: { response_header: x-cost, reserve: 30 }"),
        limit("d", "cost: { response_json: absent, reserve: 40 }"),
        limit("e", "count: { status: 404 }, cost: { response_json: a, reserve: 50 }"),
        limit("f", "refund: { status: 404 }, cost: { response_json: a, reserve: 60 }"),
        limit("g", "mode: shadow, refund: { status: 2xx }"),
        limit("h", "cost: 5"),
    ];
    let gateway = Gateway::before(&origin, &format!("limits:\n{}", config.concat()));
    assert_eq!(exchange(gateway.addr(), crlf("GET / HTTP/1.1\nHost: a\n\n")).outcome(), "200");
    let expected =
        [("a", 10, 4), ("b", 20, 7), ("c", 30, 2), ("d", 40, 40), ("e", 50, 0), ("f", 60, 4), ("g", 1, 0), ("h", 0, 0)];
    let total: u64 = expected.iter().map(|(_, _, cost)| cost).sum();
    until("all are settled", || settled(&gateway) == total);
    for (limit, reserved, cost) in expected {
        let metric = |name| gateway.metric(name, &[("limit", limit)]) as u64;
        assert_eq!(
            (metric("tollgate_reserved_cells_total"), metric("tollgate_settled_cells_total")),
            (reserved, cost),
            "{limit}"
        );
    }
}

#[test]
fn pipelined_and_reused_connections_settle_each_request() {
    let door = Latch::default();
    door.open();
    let origin = gated_origin(&door);
    let gateway = Gateway::before(&origin, LIMIT);
    let mut client = Client::connect(gateway.addr());
    let one = crlf("GET /x/a HTTP/1.1\nHost: a\nx-key: k\n\n");
    client.send(one.repeat(5));
    for _ in 0..5 {
        assert_eq!(client.receive().outcome(), "200");
    }
    until("all five are settled", || settled(&gateway) == 45);
    assert_eq!(gateway.metric("tollgate_reserved_cells_total", &[]), 15.0);
}

#[test]
fn what_the_gateway_answers_itself_is_read_as_well() {
    let origin = Origin::ok();
    let fixed = "respond: { status: 200, content_type: application/json, body: '{\"n\":7}' }";
    let config = format!(
        "routes: [{{ name: fixed, match: {{ path: '/{{*rest}}' }}, {fixed} }}]
limits: [{{ name: x, per: ip, rate: 50/day, cost: {{ response_json: n, reserve: 2 }} }}]"
    );
    let gateway = Gateway::before(&origin, &config);
    for left in [48, 41] {
        assert_eq!(remaining(&gateway.get("/")), Some(left));
        until("it is settled", || settled(&gateway) == if left == 48 { 7 } else { 14 });
    }
}

#[test]
fn a_request_that_is_sent_a_second_time_is_charged_and_settled_once() {
    // The second request on a connection finds it closed, and is sent again on another.
    let origin = Origin::new(|call| {
        if call.nth > 1 {
            return Next::Close;
        }
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"n\":4}")
    });
    let limit = "{ name: x, per: ip, rate: 100/day, cost: { response_json: n, reserve: 3 } }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    for n in 0..6 {
        let response = gateway.get("/");
        assert_eq!((response.status, remaining(&response)), (200, Some(97 - 4 * n)));
        until("it is settled", || settled(&gateway) == 4 * (n + 1));
    }
    assert!(origin.seen().len() > 6, "some were sent twice");
    assert_eq!(gateway.metric("tollgate_reserved_cells_total", &[]), 18.0);
}

#[test]
fn cells_are_counted_once_whatever_windows_the_limit_has() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nx-cost: 7\r\nContent-Length: 0\r\n\r\n");
    let limit = "{ name: x, per: ip, rate: [100/day, 50/hour], cost: { response_header: x-cost, reserve: 2 } }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    assert_eq!(remaining(&gateway.get("/")), Some(43));
    let metric = |name| gateway.metric(name, &[("limit", "x")]);
    assert_eq!([metric("tollgate_reserved_cells_total"), metric("tollgate_settled_cells_total")], [2.0, 7.0]);
}
