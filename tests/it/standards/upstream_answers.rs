//! Answers an upstream may send, and what either kind of client may see of them.

use crate::harness::{Client, Gateway, H2, Next, Origin, Response, Table, fits, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Name, what the upstream answers and then closes (or not), outcome over HTTP/1, outcome over HTTP/2.
struct Row {
    name: &'static str,
    answer: &'static str,
    then: Next,
    h1: &'static str,
    h2: &'static str,
}

const fn row(name: &'static str, answer: &'static str, then: Next, h1: &'static str, h2: &'static str) -> Row {
    Row { name, answer, then, h1, h2 }
}

use Next::{Close, Keep};

/// Visibly incomplete: a part, or nothing at all when the fault came before the head had left.
const CUT: &str = "200 cut|502|closed|reset";

/// `\n` is sent as CRLF.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("both framings", "HTTP/1.1 200 OK\nContent-Length: 9\nTransfer-Encoding: chunked\n\n2\nok\n0\n\n", Keep, "200|502", "200|502"),
    row("length as a list of equals", "HTTP/1.1 200 OK\nContent-Length: 2, 2\n\nok", Keep, "200|502", "200|502"),
    row("equal lengths twice", "HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 2\n\nok", Keep, "200|502", "200|502"),
    row("different lengths", "HTTP/1.1 200 OK\nContent-Length: 2\nContent-Length: 3\n\nok", Close, "502", "502"),
    row("length list of different", "HTTP/1.1 200 OK\nContent-Length: 2, 3\n\nok", Close, "502", "502"),
    row("signed length", "HTTP/1.1 200 OK\nContent-Length: +2\n\nok", Close, "502", "502"),
    row("negative length", "HTTP/1.1 200 OK\nContent-Length: -2\n\nok", Close, "502", "502"),
    row("hex length", "HTTP/1.1 200 OK\nContent-Length: 0x2\n\nok", Close, "502", "502"),
    row("huge length", "HTTP/1.1 200 OK\nContent-Length: 99999999999999999999\n\nok", Close, "502", "502"),
    row("chunked twice", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked, chunked\n\n2\nok\n0\n\n", Keep, "502", "502"),
    row("two lines of chunked", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n2\nok\n0\n\n", Keep, "502", "502"),
    row("unknown coding", "HTTP/1.1 200 OK\nTransfer-Encoding: cow\n\nok", Close, "502", "502"),
    row("chunked in 1.0", "HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n2\nok\n0\n\n", Close, "502", "502"),
    row("101 nobody asked for", "HTTP/1.1 101 Switching Protocols\nConnection: upgrade\nUpgrade: foo\n\n", Keep, "502", "502"),
    row("obs-fold", "HTTP/1.1 200 OK\nX: 1\n 2\nContent-Length: 2\n\nok", Close, "502|200", "502|200"),
    row("space before the colon", "HTTP/1.1 200 OK\nContent-Length : 2\n\nok", Close, "502|200", "502|200"),
    row("no colon", "HTTP/1.1 200 OK\nX\nContent-Length: 2\n\nok", Close, "502", "502"),
    row("NUL in a value", "HTTP/1.1 200 OK\nX: \0\nContent-Length: 2\n\nok", Close, "502", "502"),
    row("garbage", "\u{1}garbage\n\n", Close, "502", "502"),
    row("another protocol", "SSH-2.0-x\n", Close, "502", "502"),
    row("nothing", "", Close, "502", "502"),
    row("half a head", "HTTP/1.1 200 OK\nContent-Len", Close, "502", "502"),
    row("status 99", "HTTP/1.1 099 X\nContent-Length: 0\n\n", Close, "502", "502"),
    row("status 999", "HTTP/1.1 999 X\nContent-Length: 0\n\n", Close, "502|999", "502|999"),
    row("status of four digits", "HTTP/1.1 2000 X\nContent-Length: 0\n\n", Close, "502", "502"),
    row("version 2.0", "HTTP/2.0 200 OK\nContent-Length: 0\n\n", Close, "502", "502"),
    row("obs-text reason", "HTTP/1.1 200 \u{e9}\nContent-Length: 2\n\nok", Keep, "200|502", "200|502"),
    row("no reason", "HTTP/1.1 200\nContent-Length: 2\n\nok", Keep, "200", "200"),
    row("unknown status", "HTTP/1.1 299 X\nContent-Length: 2\n\nok", Keep, "299", "299"),
    row("1.0, ends with the connection", "HTTP/1.0 200 OK\n\nok", Close, "200", "200"),
    row("ends with the connection", "HTTP/1.1 200 OK\n\nok", Close, "200", "200"),
    row("interim 100", "HTTP/1.1 100 Continue\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok", Keep, "200", "200"),
    row("interim 103", "HTTP/1.1 103 Early Hints\nLink: </x>\n\nHTTP/1.1 200 OK\nContent-Length: 2\n\nok", Keep, "200", "200"),
    row("truncated length", "HTTP/1.1 200 OK\nContent-Length: 9\n\nok", Close, CUT, "200 cut"),
    row("truncated chunk", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n9\nok", Close, CUT, "200 cut"),
    row("no last chunk", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nok\n", Close, CUT, "200 cut"),
    row("malformed chunk", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nok\nxyz\n", Close, CUT, "502"),
    row("chunk with a long size", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n10000000000000002\nok\n0\n\n", Close, CUT, "200 cut|502|rst"),
    row("length in 204", "HTTP/1.1 204 No Content\nContent-Length: 2\n\n", Close, "204|502", "204|502"),
    row("chunked in 204", "HTTP/1.1 204 No Content\nTransfer-Encoding: chunked\n\n0\n\n", Close, "204|502", "204|502"),
    row("304 with a length", "HTTP/1.1 304 Not Modified\nContent-Length: 2\n\n", Keep, "304", "304"),
    row("own 429", "HTTP/1.1 429 Too Many\nRetry-After: 7\nContent-Length: 2\n\nno", Keep, "429", "429"),
];

fn answering(answer: &'static str, then: Next) -> Origin {
    let bytes = crate::harness::crlf(answer);
    Origin::new(move |call| match call.answer(&bytes) {
        Keep => then,
        Close => Close,
    })
}

/// What must hold for any response, whatever the upstream did.
fn problem(response: &Response) -> String {
    let text = response.text().to_lowercase();
    let leak =
        ["hyper", "httparse", "tokio", "os error", "127.0.0.1", "src/", "unwrap"].iter().find(|word| text.contains(**word));
    if let Some(word) = leak {
        return format!("the body names internals ({word}): {text}");
    }
    if response.status == 502 && response.json()["error"] != "bad_gateway" {
        return format!("not the gateway's error body: {text}");
    }
    let lengths = crate::harness::fields(&response.headers, "content-length");
    let codings = crate::harness::fields(&response.headers, "transfer-encoding");
    if lengths.len() + codings.len() > 1 || lengths.iter().any(|length| length.parse::<u64>().is_err()) {
        return format!("framing {lengths:?} {codings:?}");
    }
    match response.status {
        200 if !response.cut && response.body != b"ok" => format!("body {:?}", response.text()),
        204 if !lengths.is_empty() || !codings.is_empty() => "204 with framing fields".into(),
        _ => String::new(),
    }
}

#[test]
fn http1_clients_see_a_clean_answer_or_a_visible_failure() {
    let mut table = Table::new("upstream answers, HTTP/1");
    for row in ROWS {
        let origin = answering(row.answer, row.then);
        let gateway = Gateway::before(&origin, "");
        let reply = gateway.client().get("/");
        table.outcome(row.name, row.h1, &reply.outcome());
        if let crate::harness::Reply::Response(response) = &reply {
            table.row(row.name, problem(response));
        }
    }
}

#[test]
fn http2_clients_see_a_clean_answer_or_a_reset_stream() {
    let mut table = Table::new("upstream answers, HTTP/2");
    for row in ROWS {
        let origin = answering(row.answer, row.then);
        let gateway = Gateway::before(&origin, "");
        let reply = H2::connect(gateway.addr()).get("/");
        let outcome = if reply.reset.is_some() && reply.status.is_none() && row.h2.contains("cut") {
            "200 cut".into()
        } else {
            reply.outcome()
        };
        table.outcome(row.name, row.h2, &outcome);
        table.row(row.name, if outcome == "closed" { "the whole connection was closed" } else { "" });
        if fits("502", &outcome) {
            let body = String::from_utf8_lossy(&reply.body).into_owned();
            table.row(row.name, if body.contains("bad_gateway") { String::new() } else { format!("body {body}") });
        }
    }
}

#[test]
fn hop_by_hop_fields_of_the_upstream_end_here_and_its_close_is_not_the_clients() {
    let origin = Origin::new(|call| {
        call.answer(b"HTTP/1.1 200 OK\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\nUpgrade: h2c\r\nX-End: 1\r\nContent-Length: 2\r\n\r\nok");
        Close
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    for _ in 0..3 {
        let response = client.get("/").response();
        for name in ["connection", "x-hop", "keep-alive", "proxy-connection", "upgrade"] {
            assert_eq!(response.header(name), None, "{name}");
        }
        assert_eq!((response.header("x-end"), response.text().as_str()), (Some("1"), "ok"));
    }
}

#[test]
fn a_second_answer_nobody_asked_for_reaches_no_one() {
    let origin = Origin::new(|call| {
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirstHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    for _ in 0..10 {
        assert_eq!(client.get("/").response().text(), "first");
        assert_eq!(Client::connect(gateway.addr()).get("/").response().text(), "first");
    }
}

#[test]
fn a_second_answer_that_comes_while_the_connection_rests_reaches_no_one() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let origin = Origin::new(move |call| {
        let next = call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst");
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
        counter.fetch_add(1, Ordering::SeqCst);
        next
    });
    let gateway = Gateway::before(&origin, "");
    for i in 1..=20 {
        assert_eq!(gateway.get("/").text(), "first");
        // Bytes that come while the next request is already under way are its answer by HTTP/1.1's own rules.
        until("the second answer has arrived", || sent.load(Ordering::SeqCst) == i);
    }
}

#[test]
fn an_answer_before_the_request_is_not_used() {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok).take(8) {
            let mut stream = stream;
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
            std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        }
    });
    let gateway = Gateway::start(&format!("upstreams: {{ origin: {{ endpoints: ['http://{addr}'] }} }}"));
    // The bytes belong to this very connection and request, so both outcomes are safe; they must not outlive it.
    let outcome = gateway.client().get("/").outcome();
    assert!(fits("200|502", &outcome), "{outcome}");
}

#[test]
fn ten_thousand_interim_answers_end_in_an_answer_and_cost_no_memory() {
    let origin = Origin::new(|call| {
        call.body();
        for _ in 0..10_000 {
            if !call.send("HTTP/1.1 100 Continue\r\n\r\n") {
                return Close;
            }
        }
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        Keep
    });
    let gateway = Gateway::before(&origin, "");
    gateway.get("/warm-up");
    let before = gateway.rss();
    for _ in 0..10 {
        assert!(fits("200|502", &gateway.client().get("/").outcome()));
    }
    assert!(gateway.rss() < before + (8 << 20), "memory grew by {} KiB", (gateway.rss() - before) >> 10);
}

#[test]
fn a_head_without_end_is_cut_off() {
    let origin = Origin::new(|call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\n");
        while call.send("X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n".repeat(100)) {}
        Close
    });
    let gateway = Gateway::before(&origin, "");
    let before = gateway.rss();
    assert_eq!(gateway.get("/").status, 502);
    assert!(gateway.rss() < before + (16 << 20), "memory grew by {} KiB", (gateway.rss() - before) >> 10);
}
