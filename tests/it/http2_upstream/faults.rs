//! Upstreams that reset, break off, break the rules or say nothing; clients that leave.

use super::{answer, fields, upload};
use crate::harness::{Gateway, H2, H2Origin, Latch, Piece, Table, flag, header_block, kind, until};

const CANCEL: u32 = 8;
const INTERNAL_ERROR: u32 = 2;

fn errors(gateway: &Gateway, kind: &str) -> f64 {
    gateway.metric("tollgate_upstream_errors_total", &[("kind", kind)])
}

#[test]
fn a_reset_within_the_body_is_never_a_complete_response() {
    let origin = H2Origin::new(|call| {
        let fields: &[(&str, &str)] = match call.seen.path() {
            "/length" => &[(":status", "200"), ("content-length", "10")],
            _ => &[(":status", "200")],
        };
        call.headers(fields, false);
        call.data(b"half", false);
        match call.seen.header("x-end") {
            Some("close") => call.close(),
            Some(code) => drop(call.reset(code.parse().unwrap())),
            None => {}
        }
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut table = Table::new("ends within the body");
    for path in ["/length", "/stream"] {
        // NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM.
        for end in ["0", "1", "7", "8", "11", "close"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-End: {end}\r\n\r\n");
            let outcome = gateway.client().ask(request).outcome();
            // What comes at once with the head may still be a 502, or overtake it.
            table.outcome(&format!("{path} {end} HTTP/1.1"), "200 cut|502|503|closed", &outcome);
            let mut h2 = H2::connect(gateway.addr());
            let reply = h2.ask(&[fields("GET", path), vec![("x-end", end)]].concat(), None);
            table.outcome(&format!("{path} {end} HTTP/2"), "200 cut|502|503|rst", &reply.outcome());
            let code =
                if reply.outcome() == "200 cut" && reply.reset != Some(INTERNAL_ERROR) { "not INTERNAL_ERROR" } else { "" };
            table.row(&format!("{path} {end} code {:?}", reply.reset), code);
        }
    }
    assert!(errors(&gateway, "reset") >= 8.0);
}

#[test]
fn a_reset_before_the_head_is_a_502_or_says_that_upstream_is_busy() {
    let origin = H2Origin::new(|call| {
        let code = call.seen.path().trim_start_matches('/').parse().unwrap();
        call.reset(code);
    });
    let gateway = Gateway::before_http2(&origin, "");
    for (code, status) in [(0, 502), (1, 502), (2, 502), (8, 502), (11, 503), (13, 502)] {
        assert_eq!(gateway.get(&format!("/{code}")).status, status, "{code}");
    }
    assert_eq!(errors(&gateway, "reset"), 6.0);
}

/// Name, head, body, whether it ends there. All of them must be a 502, or break off.
type Row = (&'static str, &'static [(&'static str, &'static str)], &'static [u8], bool);

#[rustfmt::skip]
const INVALID: &[Row] = &[
    ("upper-case name", &[(":status", "200"), ("X-Up", "1")], b"", true),
    ("connection", &[(":status", "200"), ("connection", "close")], b"", true),
    ("transfer-encoding", &[(":status", "200"), ("transfer-encoding", "chunked")], b"", true),
    ("keep-alive", &[(":status", "200"), ("keep-alive", "5")], b"", true),
    ("upgrade", &[(":status", "200"), ("upgrade", "h2c")], b"", true),
    ("proxy-connection", &[(":status", "200"), ("proxy-connection", "close")], b"", true),
    ("no status", &[("x", "y")], b"", true),
    ("a status that is no number", &[(":status", "abc")], b"", true),
    ("a status of 600", &[(":status", "600")], b"", true),
    ("101", &[(":status", "101")], b"", false),
    ("a blank before a value", &[(":status", "200"), ("x", " y")], b"", true),
    ("a line end in a value", &[(":status", "200"), ("x", "a\r\nSet-Cookie: b")], b"", true),
    ("more than announced", &[(":status", "200"), ("content-length", "2")], b"four", true),
    ("less than announced", &[(":status", "200"), ("content-length", "9")], b"four", true),
    ("nothing of what was announced", &[(":status", "200"), ("content-length", "9")], b"", true),
    ("two lengths", &[(":status", "200"), ("content-length", "4"), ("content-length", "5")], b"four", true),
    ("a length that is no number", &[(":status", "200"), ("content-length", "x")], b"four", true),
];

#[test]
fn what_breaks_the_rules_is_not_passed_on() {
    let origin = H2Origin::new(|call| {
        let index = call.seen.path().trim_start_matches('/').parse::<usize>();
        let Ok(index) = index else { return answer(call, b"ok") };
        let (_, head, body, ends) = INVALID[index];
        call.headers(head, ends && body.is_empty());
        call.data(body, ends);
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut table = Table::new("invalid responses");
    for (i, (name, ..)) in INVALID.iter().enumerate() {
        let outcome = gateway.client().get(&format!("/{i}")).outcome();
        table.outcome(&format!("{name}, HTTP/1.1"), "502|200 cut", &outcome);
        let outcome = H2::connect(gateway.addr()).get(&format!("/{i}")).outcome();
        table.outcome(&format!("{name}, HTTP/2"), "502|200 cut", &outcome);
        table.outcome(&format!("{name}, and then"), "200", &gateway.client().get("/good").outcome());
    }
    drop(table);
    assert_eq!(errors(&gateway, "invalid") as usize, 2 * INVALID.len());
}

#[test]
fn frames_that_make_no_sense_end_the_connection_and_not_the_gateway() {
    let origin = H2Origin::new(|call| match call.seen.path() {
        "/data-first" => drop(call.frame(kind::DATA, 0, b"x")),
        "/garbage" => drop(call.frame(kind::HEADERS, flag::END_HEADERS, &[0xff; 20])),
        "/continuation" => drop(call.frame(kind::CONTINUATION, flag::END_HEADERS, &[])),
        "/half" => call.close(),
        _ => answer(call, b"ok"),
    });
    let gateway = Gateway::before_http2(&origin, "");
    for path in ["/data-first", "/garbage", "/continuation", "/half"] {
        assert_eq!(gateway.get(path).status, 502, "{path}");
        assert_eq!(gateway.get("/good").status, 200, "after {path}");
    }
}

#[test]
fn a_head_that_is_too_large_is_a_502() {
    let origin = H2Origin::new(|call| {
        let value = "x".repeat(10_000);
        let mut fields = vec![(":status", "200")];
        fields.resize(9, ("x", &*value));
        call.long_headers(&fields);
    });
    let gateway = Gateway::before_http2(&origin, "");
    assert_eq!(gateway.get("/").status, 502);
}

#[test]
fn a_client_that_leaves_cancels_the_stream_and_is_no_upstream_failure() {
    let origin = H2Origin::new(|call| match call.seen.path() {
        "/warm-up" => answer(call, b"ok"),
        "/half" => {
            call.headers(&[(":status", "200"), ("content-length", "10")], false);
            call.data(b"half", false);
            call.await_reset();
        }
        _ => call.await_reset(),
    });
    let gateway = Gateway::before_http2(&origin, "");
    assert_eq!(gateway.get("/warm-up").status, 200);
    let mut count = 1;
    for target in ["/stall", "/half"] {
        let mut client = gateway.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        origin.wait_heads(count + 1);
        client.reset();
        assert_eq!(origin.wait_reset(count + 1), CANCEL, "{target}");
        let mut h2 = H2::connect(gateway.addr());
        let stream = h2.request(&fields("GET", target), None);
        origin.wait_heads(count + 2);
        h2.cancel(stream);
        assert_eq!(origin.wait_reset(count + 2), CANCEL, "{target}");
        count += 2;
    }
    let mut h2 = H2::connect(gateway.addr());
    let stream = upload(&mut h2, "/stall");
    h2.data(stream, b"half", false);
    origin.wait_heads(count + 1);
    h2.cancel(stream);
    assert_eq!(origin.wait_reset(count + 1), CANCEL);
    assert_eq!(gateway.get("/warm-up").status, 200);
    assert_eq!((origin.connections(), gateway.metric("tollgate_upstream_errors_total", &[])), (1, 0.0));
}

#[test]
fn silence_is_a_504_and_within_the_body_it_breaks_off() {
    let origin = H2Origin::new(|call| {
        if call.seen.path() == "/half" {
            call.headers(&[(":status", "200")], false);
            call.data(b"half", false);
        }
        call.await_reset();
    });
    let routes = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, timeouts: { response: 200ms } }]";
    let gateway = Gateway::before_http2(&origin, routes);
    assert_eq!(gateway.get("/").status, 504);
    assert_eq!(gateway.client().get("/half").outcome(), "200 cut");
    assert_eq!(H2::connect(gateway.addr()).get("/half").outcome(), "200 cut");
    for n in 1..=3 {
        assert_eq!(origin.wait_reset(n), CANCEL);
    }
    assert_eq!(errors(&gateway, "timeout"), 3.0);
    assert!(origin.connections() > 1, "a connection on which nothing was heard is not trusted any more");
}

#[test]
fn the_whole_exchange_has_its_time() {
    let origin = H2Origin::new(|call| {
        call.headers(&[(":status", "200")], false);
        while call.data(b"drip", false) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    let routes = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, timeouts: { total: 300ms } }]";
    let gateway = Gateway::before_http2(&origin, routes);
    assert_eq!(gateway.client().get("/").outcome(), "200 cut");
    assert_eq!(origin.wait_reset(1), CANCEL);
}

#[test]
fn an_upload_that_nobody_takes_times_out() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = H2Origin::new(move |_| theirs.wait());
    let routes = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, timeouts: { response: 200ms } }]";
    let gateway = Gateway::before_http2(&origin, routes);
    let mut client = gateway.client();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    client.send(vec![b'x'; 200_000]);
    assert_eq!(client.receive().status(), 504);
    door.open();
}

#[test]
fn a_client_that_takes_its_time_with_the_upload_is_not_upstreams_fault() {
    let origin = H2Origin::ok();
    let yaml = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, timeouts: { response: 150ms } }]\n\
                listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { body_idle: 400ms } }]";
    let gateway = Gateway::before_http2(&origin, yaml);
    let mut client = H2::connect(gateway.addr());
    let stream = upload(&mut client, "/");
    client.data(stream, b"half", false);
    assert_eq!(client.receive(stream).outcome(), "408", "the client's own timeout, which is longer");
}

#[test]
fn once_upstream_has_answered_a_silent_client_is_left_in_peace() {
    let origin = H2Origin::new(|call| {
        call.headers(&[(":status", "200")], false);
        while let Piece::Data(bytes) = call.next() {
            call.data(&bytes, false);
        }
        call.frame(kind::DATA, 1, &[]);
    });
    let listeners = "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { body_idle: 100ms } }]";
    let gateway = Gateway::before_http2(&origin, listeners);
    let mut client = H2::connect(gateway.addr());
    let stream = upload(&mut client, "/");
    assert_eq!(client.receive_until(stream, |reply| reply.status.is_some()).status(), 200);
    // Longer than `body_idle`: if that still counted, the stream would be gone.
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.data(stream, b"still here", true);
    assert_eq!(client.receive(stream).body, b"still here");
}

#[test]
fn one_stalled_stream_does_not_hold_up_the_others() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = H2Origin::new(move |call| {
        if call.seen.path() == "/slow" {
            theirs.wait();
        }
        answer(call, b"ok");
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut slow = gateway.client();
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    assert_eq!(gateway.statuses(20, "/fast"), [200; 20]);
    door.open();
    assert_eq!(slow.receive().status(), 200);
    assert_eq!(origin.connections(), 1);
}

#[test]
fn slots_come_back_when_streams_end_badly() {
    let origin = H2Origin::new(|call| match call.seen.path() {
        "/reset" => drop(call.reset(2)),
        "/stall" => call.await_reset(),
        _ => answer(call, b"ok"),
    });
    let gateway = Gateway::before_http2(&origin, "limits: [{ name: one, per: global, concurrency: 1 }]");
    assert_eq!(gateway.get("/reset").status, 502);
    let mut client = gateway.client();
    client.send("GET /stall HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(2);
    assert_eq!(gateway.get("/").status, 429);
    client.reset();
    until("the slot is free again", || gateway.get("/").status == 200);
}

/// The `h2` crate takes a head in seven pieces at most, which is enough for 64 KiB in frames as they are usual, and has no way to refuse one
/// stream for more: the connection ends. The gateway goes on with another.
#[test]
fn a_head_in_a_few_small_pieces_is_one_and_in_many_ends_the_connection() {
    let origin = H2Origin::new(|call| {
        let Ok(pieces) = call.seen.path().trim_start_matches('/').parse::<usize>() else { return answer(call, b"ok") };
        let mut fields = vec![(":status".to_owned(), "200".to_owned()), ("content-length".to_owned(), "0".to_owned())];
        fields.extend((0..20).map(|i| (format!("x-{i}"), "y".to_owned())));
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let block = header_block(&fields);
        let mut parts = block.chunks(block.len().div_ceil(pieces)).enumerate().peekable();
        while let Some((i, part)) = parts.next() {
            let kind = if i == 0 { kind::HEADERS } else { kind::CONTINUATION };
            let first = if i == 0 { flag::END_STREAM } else { 0 };
            let last = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
            call.frame(kind, first | last, part);
        }
    });
    let gateway = Gateway::before_http2(&origin, "");
    for (pieces, status) in [(1, 200), (2, 200), (7, 200), (12, 502)] {
        let response = gateway.get(&format!("/{pieces}"));
        assert_eq!(response.status, status, "{pieces} pieces");
        assert!(status != 200 || response.header("x-19") == Some("y"), "{pieces} pieces: {response:?}");
        assert_eq!(gateway.get("/good").status, 200, "after {pieces} pieces");
    }
    assert_eq!(origin.connections(), 2);
}
