//! Request smuggling: whatever the bytes, what reaches the upstream is exactly what the gateway framed.
//!
//! The oracle is a dumb upstream that frames strictly. `/smuggled` stands for the request an attacker hides in the
//! body of another one; it must never arrive as a request of its own. Whether anybody sees another's bytes is `isolation`'s. Attacks over HTTP/2 are rows of
//! `standards::h2_requests`, malformed chunks and lengths of `standards::refused_requests`.

use crate::harness::{Client, Gateway, Origin, Reply, Seen, Table, crlf, fits, hashed, reached};

const HIDDEN: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// What is wrong with what arrived for one request to `/te`.
fn leak(seen: &[Seen]) -> Option<String> {
    for seen in seen {
        if seen.line.contains("smuggled") {
            return Some("the hidden request reached the upstream".into());
        }
        let coded = seen.headers.iter().find(|(name, _)| fold(name).contains("transferencoding"));
        let plain = seen.all("transfer-encoding") == ["chunked"] && seen.all("content-length").is_empty();
        if let Some((name, value)) = coded.filter(|_| !plain) {
            return Some(format!("upstream sees {name:?}: {value:?} beside {:?}", seen.all("content-length")));
        }
    }
    crate::harness::Sees::AtMost(&[], &[]).problem(seen)
}

/// A name as a careless upstream may read it.
fn fold(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

fn attack(table: &mut Table, gateway: &Gateway, origin: &Origin, name: &str, request: &[u8]) {
    origin.forget();
    let mut client = Client::connect(gateway.addr());
    let mut outcomes = vec![client.ask(request).outcome()];
    // Whatever else comes belongs to bytes behind the first request.
    while let Some("200") = outcomes.last().map(String::as_str) {
        client.wait_at_most(std::time::Duration::from_millis(50));
        outcomes.push(client.receive().outcome());
    }
    let first = fits("200|4xx|501|closed|reset", &outcomes[0]);
    table.row(name, if first { String::new() } else { format!("the client got {outcomes:?}") });
    table.row(name, leak(&reached(gateway, origin)).unwrap_or_default());
}

/// SM-1, SM-2: both framings, in both orders and with either meaning.
#[test]
fn length_and_coding_together_smuggle_nothing() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("CL and TE");
    let ending = format!("0\r\n\r\n{HIDDEN}");
    let chunk = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
    for (name, length, body) in [("CL.TE", ending.len(), &ending), ("TE.CL", 4, &chunk), ("TE.CL of 0", 0, &chunk)] {
        for fields in [
            format!("Content-Length: {length}\r\nTransfer-Encoding: chunked"),
            format!("Transfer-Encoding: chunked\r\nContent-Length: {length}"),
        ] {
            let request = format!("POST /te HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}");
            attack(&mut table, &gateway, &origin, name, request.as_bytes());
        }
    }
}

/// SM-3, named: ways to write `Transfer-Encoding: chunked` that one side reads and the other does not.
#[rustfmt::skip]
const HIDING_PLACES: &[&[u8]] = &[
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:\tchunked",
    b"Transfer-Encoding:chunked",
    b"Transfer-Encoding:  chunked",
    b"Transfer-Encoding: chunked ",
    b"Transfer-Encoding: chunked\t",
    b" Transfer-Encoding: chunked",
    b"X: x\nTransfer-Encoding: chunked",
    b"X: x\rTransfer-Encoding: chunked",
    b"X: x\r\rTransfer-Encoding: chunked",
    b"Transfer-Encoding\n: chunked",
    b"Transfer-Encoding:\n chunked",
    b"Transfer-Encoding:\r\n chunked",
    b"Transfer-Encoding:\r\n\tchunked",
    b"Transfer-\r\nEncoding: chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunkedx",
    b"Transfer-Encoding: chunk",
    b"Transfer_Encoding: chunked",
    b"Transfer.Encoding: chunked",
    b"Transfer Encoding: chunked",
    b"TrAnSfEr-EnCoDiNg: cHuNkEd",
    b"Transfer-Encoding: chunked, cow",
    b"Transfer-Encoding: cow, chunked",
    b"Transfer-Encoding: chunked;q=1",
    b"Transfer-Encoding: \"chunked\"",
    b"Transfer-Encoding: 'chunked'",
    b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding: cow\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow",
    b"Transfer-Encoding:\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nConnection: transfer-encoding",
    b"Connection: transfer-encoding\r\nTransfer-Encoding: chunked",
    b"Content-Encoding: x\r\nTransfer-Encoding: chunked",
    b"Transfer%2dEncoding: chunked",
    b"Transfer-Encoding",
    b"Transfer-Encoding: ",
];

#[test]
fn no_spelling_of_transfer_encoding_smuggles() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("TE.TE");
    let mut lines: Vec<Vec<u8>> = HIDING_PLACES.iter().map(|line| line.to_vec()).collect();
    for byte in (0x01..=0x1f).chain(0x7f..=0xff_u8) {
        for (before, after) in [
            ("", "Transfer-Encoding: chunked"),
            ("Transfer-Encoding", ": chunked"),
            ("Transfer-Encoding: ", "chunked"),
            ("Transfer-Encoding: chunked", ""),
        ] {
            lines.push([before.as_bytes(), &[byte], after.as_bytes()].concat());
        }
    }
    let body = format!("0\r\n\r\n{HIDDEN}");
    for line in lines {
        let head = format!("POST /te HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n", body.len());
        let request = [head.as_bytes(), &line, b"\r\n\r\n", body.as_bytes()].concat();
        attack(&mut table, &gateway, &origin, &format!("{:?}", String::from_utf8_lossy(&line)), &request);
    }
}

/// SM-8, SM-9, SM-10: the same for `Content-Length`.
#[test]
fn no_spelling_of_content_length_smuggles() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("CL.CL");
    let lines = [
        "Content-Length : 35",
        "Content-Length\u{b}: 35",
        "Content-Length: 35\nContent-Length: 0",
        "Content-Length: 0\nContent-Length: 35",
        "Content_Length: 35",
        "Content-Length: 3\n 5",
        "Content-Length: 35\0",
        "\0Content-Length: 35",
        "Content-Length: 0035",
        "Content-Length: +35",
        "Content-Length: 35, 35",
        "Content-Length: 35,",
        "Content-Length:\nContent-Length: 35",
        "Content-Length",
        ": 35",
        "Content-Length: \u{a0}35",
        "Connection: content-length\nContent-Length: 35",
    ];
    for line in lines {
        let request = format!("POST /te HTTP/1.1\nHost: a\n{line}\n\n{}", HIDDEN.replace("\r\n", "\n"));
        let name = format!("{line:?}");
        // Ignoring a malformed length would make the hidden bytes a request: that is a leak here.
        if line == "Content_Length: 35" {
            continue; // Another field; its bytes are a pipelined request, by everyone's reading.
        }
        attack(&mut table, &gateway, &origin, &name, &crlf(&request));
    }
}

/// SM-4: answers the gateway makes from the head alone; the body behind it is a request.
#[test]
fn the_body_of_a_request_answered_from_its_head_is_never_the_next_request() {
    let key = hashed("k1");
    let config = format!(
        "limits: [{{ name: one, match: {{ path: /limited }}, per: global, rate: 1/day }}]
blocked: [{{ path: /blocked }}]
clients: [{{ id: c1, api_keys: ['{key}'] }}]
routes:
- {{ name: fixed, match: {{ path: /fixed }}, respond: {{ status: 200, body: fixed }} }}
- {{ name: small, match: {{ path: /small }}, max_body: 3B, upstream: origin }}
- {{ name: get, match: {{ path: /get, methods: [GET] }}, upstream: origin }}
- {{ name: all, match: {{ path: ['/limited', '/blocked', '/key', '/marker', '/smuggled', '/next'] }}, upstream: origin }}"
    );
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config);
    assert_eq!(gateway.get("/limited").status, 200);
    let mut table = Table::new("early answers");
    let chunked = format!("{:x}\r\n{HIDDEN}\r\n0\r\n\r\n", HIDDEN.len());
    let framings = [
        ("CL", format!("Content-Length: {}", HIDDEN.len()), HIDDEN),
        ("TE", "Transfer-Encoding: chunked".to_owned(), chunked.as_str()),
    ];
    for (path, extra, status) in [
        ("/limited", "", "429"),
        ("/blocked", "", "403"),
        ("/key", "X-API-Key: unknown\r\n", "401"),
        ("/nowhere", "", "404"),
        ("/fixed", "", "200"),
        ("/small", "", "413"),
        ("/get", "", "405"),
        ("/a%zz", "", "400"),
        ("/get", "Expect: x\r\n", "417|405"),
    ] {
        for (framing, field, body) in &framings {
            for parts in [vec![0], vec![0, 1]] {
                origin.forget();
                let name = format!("{path} {framing}, {} writes", parts.len());
                let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{extra}{field}\r\n\r\n");
                let mut client = gateway.client();
                let first = if parts.len() == 1 {
                    client.ask(format!("{head}{body}"))
                } else {
                    // The body arrives after the answer to the head, if that comes without it.
                    client.wait_at_most(std::time::Duration::from_millis(100));
                    match client.ask(&head) {
                        Reply::Silent => client.ask(body),
                        reply => {
                            client.send(body);
                            reply
                        }
                    }
                };
                client.wait_at_most(crate::harness::DEADLINE);
                table.outcome(&name, status, &first.outcome());
                let next = client.get("/next").outcome();
                table.outcome(&name, "200|closed|reset", &next);
                let smuggled = reached(&gateway, &origin).iter().any(|seen| seen.line.contains("smuggled"));
                table.row(&name, if smuggled { "the body was read as a request" } else { "" });
            }
        }
    }
}

/// SM-12: an upgrade nobody supports does not turn the connection into a tunnel.
#[test]
fn a_request_behind_an_upgrade_is_a_request_of_its_own_and_counted() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: two, per: ip, rate: 2/hour }]");
    let mut client = gateway.client();
    let upgrade = "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n";
    client.send(format!("{upgrade}GET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n"));
    let outcomes = [(); 3].map(|()| client.receive().outcome());
    assert!(
        outcomes[0] == "200" && fits("200|closed|reset", &outcomes[1]) && fits("429|closed|reset", &outcomes[2]),
        "{outcomes:?}"
    );
    assert!(origin.seen().len() <= 2, "{:?}", origin.lines());
}

/// SM-17: in order, and nothing behind a close.
#[test]
fn pipelines_stay_in_order_and_end_at_the_first_fault() {
    let origin = Origin::echo();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    let posts: String = (0..5).map(|i| format!("POST /{i} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")).collect();
    client.send(format!("{posts}GET /bad HTTP/1.1\r\nHost : a\r\n\r\nGET /behind HTTP/1.1\r\nHost: a\r\n\r\n"));
    for i in 0..5 {
        assert!(client.receive().response().text().starts_with(&format!("POST /{i} ")));
    }
    assert_eq!(client.receive().outcome(), "400");
    assert!(client.is_closed());
    let mut client = gateway.client();
    client.send("GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGARBAGE\0\r\n\r\n");
    assert!(client.receive().response().text().starts_with("GET /last "));
    assert!(client.is_closed());
    let lines = reached(&gateway, &origin).len();
    assert_eq!(lines, 6);
}

/// SM-13: a request has no body that ends with the connection, in HTTP/1.0 neither (RFC 9112 §6.3): what stands behind the head of one
/// without a length is no part of it.
#[test]
fn what_stands_behind_a_head_without_framing_is_no_body() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: two, match: { path: /counted }, per: ip, rate: 1/hour }]");
    for version in ["1.0", "1.1"] {
        origin.forget();
        let mut client = gateway.client();
        let close = if version == "1.1" { "Connection: close\r\n" } else { "" };
        client.send(format!("POST /first HTTP/{version}\r\nHost: a\r\n{close}\r\n{HIDDEN}"));
        assert_eq!(client.receive().outcome(), "200");
        assert!(client.is_closed(), "HTTP/{version}: and nothing else is answered");
        let seen = reached(&gateway, &origin);
        assert_eq!(seen.len(), 1, "HTTP/{version}: {seen:?}");
        assert!(seen[0].line == "POST /first HTTP/1.1" && seen[0].body.is_empty() && seen[0].complete(), "{seen:?}");
        assert!(seen[0].all("content-length").is_empty() && seen[0].all("transfer-encoding").is_empty());
    }
    // On a connection that stays it is a request of its own, and counted.
    origin.forget();
    let mut client = gateway.client();
    client.send("POST /counted HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\nGET /counted HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.receive().outcome(), "200");
    assert!(fits("429|closed", &client.receive().outcome()));
    assert_eq!(reached(&gateway, &origin).len(), 1);
}

/// SM-13: nor does a coding in HTTP/1.0, or one that is not `chunked` in the end, make one.
#[test]
fn a_coding_that_does_not_end_a_body_is_refused() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("bodies without an end");
    for (name, start, coding) in [
        ("chunked in HTTP/1.0", "POST /te HTTP/1.0", "chunked"),
        ("identity in HTTP/1.0", "POST /te HTTP/1.0", "identity"),
        ("gzip in HTTP/1.0", "POST /te HTTP/1.0", "gzip"),
        ("chunked and then gzip", "POST /te HTTP/1.1", "chunked, gzip"),
        ("gzip", "POST /te HTTP/1.1", "gzip"),
        ("identity", "POST /te HTTP/1.1", "identity"),
    ] {
        for close in ["", "Connection: close\r\n", "Connection: keep-alive\r\n"] {
            origin.forget();
            let mut client = gateway.client();
            client.send(format!("{start}\r\nHost: a\r\n{close}Transfer-Encoding: {coding}\r\n\r\n0\r\n\r\n{HIDDEN}"));
            table.outcome(name, "400|501", &client.receive().outcome());
            table.row(name, if client.is_closed() { "" } else { "the connection goes on" });
            table.row(name, if reached(&gateway, &origin).is_empty() { "" } else { "something reached upstream" });
        }
    }
}
