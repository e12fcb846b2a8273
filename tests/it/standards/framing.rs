//! RFC 9112: where messages begin and end, and what happens to the connection.

use crate::harness::{Client, Gateway, Origin, Table, crlf};

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::echo();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    let requests: String = (0..20).map(|i| format!("GET /{i} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(requests);
    for i in 0..20 {
        let text = client.receive().response().text();
        assert!(text.starts_with(&format!("GET /{i} HTTP/1.1")), "{text}");
    }
}

#[test]
fn a_429_in_a_pipeline_does_not_desync_it() {
    let origin = Origin::echo();
    let gateway = Gateway::before(&origin, "limits: [{ name: two, match: { path: /limited }, per: ip, rate: 2/hour }]");
    let mut client = gateway.client();
    let mut pipeline = String::new();
    for i in 0..4 {
        pipeline += &format!("POST /limited?{i} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        pipeline += &format!("GET /free?{i} HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    client.send(pipeline);
    for i in 0..4 {
        let limited = client.receive();
        assert_eq!(limited.status(), if i < 2 { 200 } else { 429 }, "request {i}");
        match client.receive() {
            crate::harness::Reply::Response(free) => {
                assert!(free.text().starts_with(&format!("GET /free?{i}")), "{}", free.text())
            }
            // Closing instead of reading the refused body is allowed; going on with the wrong bytes is not.
            other => return assert!(i >= 2, "{other:?} behind request {i}"),
        }
    }
}

#[test]
fn nothing_is_read_behind_connection_close() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send(crlf("GET /1 HTTP/1.1\nHost: a\nConnection: close\n\nGET /2 HTTP/1.1\nHost: a\n\n"));
    assert_eq!(client.receive().outcome(), "200");
    assert!(client.is_closed());
    assert_eq!(origin.lines(), ["GET /1 HTTP/1.1"]);
}

#[test]
fn a_1_0_client_is_answered_once_unless_it_asks_to_keep_the_connection() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    assert_eq!(client.ask(crlf("GET / HTTP/1.0\nHost: a\n\n")).outcome(), "200");
    assert!(client.is_closed());
    let mut client = gateway.client();
    assert_eq!(client.ask(crlf("GET / HTTP/1.0\nHost: a\nConnection: keep-alive\n\n")).outcome(), "200");
    client.send(crlf("GET / HTTP/1.0\nHost: a\n\n"));
    let second = client.receive().outcome();
    assert!(["200", "closed", "reset"].contains(&second.as_str()), "{second}");
}

#[test]
fn an_upload_that_breaks_off_never_looks_complete_to_the_upstream() {
    let rows = [
        ("length", "POST /x HTTP/1.1\nHost: a\nContent-Length: 10\n\nhello"),
        ("chunked", "POST /x HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\nhello\n"),
        ("inside a chunk", "POST /x HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n9\nhello"),
    ];
    let mut table = Table::new("broken uploads");
    for (name, request) in rows {
        for reset in [false, true] {
            let origin = Origin::ok();
            let gateway = Gateway::before(&origin, "");
            let mut client = gateway.client();
            client.send(crlf(request));
            origin.wait_heads(1);
            if reset {
                client.reset()
            } else {
                drop(client)
            }
            let seen = origin.wait(1);
            table.row(name, if seen.complete() { "the upstream saw a complete request" } else { "" });
        }
    }
}

#[test]
fn heads_split_at_every_byte_are_the_same_request() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let request = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let mut client = gateway.client();
    for at in 1..request.len() {
        client.send(&request[..at]);
        client.send(&request[at..]);
        assert_eq!(client.receive().outcome(), "200", "split at {at}");
    }
    let mut slow = gateway.client();
    for byte in request {
        slow.send([*byte]);
    }
    assert_eq!(slow.receive().outcome(), "200");
    assert!(origin.seen().iter().all(|seen| seen.body == b"abc"));
}

#[test]
fn the_body_limit_is_told_to_a_client_that_is_still_uploading() {
    let origin = Origin::ok();
    let gateway =
        Gateway::before(&origin, "routes: [{ name: all, match: { path: '/{*rest}' }, max_body: 1KiB, upstream: origin }]");
    let mut client = Client::connect(gateway.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    client.send(vec![b'x'; 200_000]);
    let response = client.receive().response();
    assert_eq!((response.status, response.json()["error"].as_str()), (413, Some("payload_too_large")));
    assert!(origin.seen().is_empty());
}

#[test]
fn a_refusal_is_read_by_a_client_that_is_still_uploading() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: one, per: ip, rate: 1/hour }]");
    assert_eq!(gateway.get("/").status, 200);
    let mut client = Client::connect(gateway.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
    client.send(vec![b'x'; 10_000_000]);
    assert_eq!(client.receive().outcome(), "429");
}

#[test]
fn chunk_framing_of_the_client_is_not_forwarded() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send(crlf("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n0003;name=\"evil\";x\nabc\n00;last=1\n\n"));
    assert_eq!(client.receive().outcome(), "200");
    let seen = origin.wait(1);
    let wire = String::from_utf8_lossy(&seen.wire).into_owned();
    assert!(seen.complete() && seen.body == b"abc" && !wire.contains("evil") && !wire.contains("last"), "{wire}");
}
