//! RFC 9110: what a gateway owes in meaning. Via, expectations, Max-Forwards, HEAD, dates, order and bytes kept.

use crate::harness::{Gateway, H2, Latch, Origin, Table, crlf, exchange, until};

#[test]
fn via_names_the_protocol_as_received_and_is_appended() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let rows = [
        ("GET / HTTP/1.1\nHost: a\n\n", "1.1 tollgate"),
        ("GET / HTTP/1.0\nHost: a\n\n", "1.0 tollgate"),
        ("GET / HTTP/1.1\nHost: a\nVia: 1.0 fred, 1.1 p.example\n\n", "1.0 fred, 1.1 p.example, 1.1 tollgate"),
        ("GET / HTTP/1.1\nHost: a\nVia: 1.0 fred\nVia: 1.1 p.example\n\n", "1.0 fred, 1.1 p.example, 1.1 tollgate"),
    ];
    let mut table = Table::new("Via");
    for (request, expected) in rows {
        origin.forget();
        exchange(gateway.addr(), crlf(request));
        let seen = origin.wait(1).all("via").join(", ");
        table.row(request, if seen == expected { String::new() } else { format!("upstream sees {seen:?}") });
    }
    origin.forget();
    H2::connect(gateway.addr()).get("/");
    assert_eq!(origin.wait(1).all("via"), ["2 tollgate"]);
}

#[test]
fn a_gateway_that_is_its_own_upstream_says_508() {
    let upstream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = upstream.local_addr().unwrap();
    drop(upstream);
    let gateway = Gateway::start(&format!(
        "listeners: [{{ name: public, address: '{addr}' }}]\nupstreams: {{ origin: {{ endpoints: ['http://{addr}'] }} }}"
    ));
    let response = gateway.get("/");
    assert_eq!((response.status, response.json()["error"].as_str()), (508, Some("loop_detected")));
}

#[test]
fn gateways_in_a_row_are_no_loop() {
    let origin = Origin::ok();
    let inner = Gateway::before(&origin, "trusted_proxies: loopback");
    let outer = Gateway::start(&format!("upstreams: {{ origin: {{ endpoints: ['http://{}'] }} }}", inner.addr()));
    assert_eq!(outer.get("/").status, 200);
    let seen = origin.wait(1);
    assert_eq!(seen.all("via").join(", "), "1.1 tollgate, 1.1 tollgate");
    assert_eq!((seen.all("x-forwarded-for").join(", ").as_str(), seen.header("host")), ("127.0.0.1, 127.0.0.1", Some("a")));
}

#[test]
fn order_and_repetition_of_fields_survive() {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-R: 1\r\nX-R: 2\r\nContent-Length: 2\r\n\r\nok",
    );
    let gateway = Gateway::before(&origin, "");
    let response = exchange(gateway.addr(), crlf("GET / HTTP/1.1\nHost: a\nX-Q: 1\nX-Q: 2\nX-Q: 3\n\n")).response();
    assert_eq!(origin.wait(1).all("x-q"), ["1", "2", "3"]);
    assert_eq!(crate::harness::fields(&response.headers, "set-cookie"), ["a=1", "b=2"]);
    assert_eq!(crate::harness::fields(&response.headers, "x-r"), ["1", "2"]);
    let reply = H2::connect(gateway.addr()).get("/");
    assert_eq!(crate::harness::fields(&reply.headers, "set-cookie"), ["a=1", "b=2"]);
}

#[test]
fn path_and_query_arrive_byte_for_byte() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("targets");
    let targets = [
        "/",
        "/a",
        "/a/",
        "/a?x=%20&y=%2F",
        "/a%20b",
        "/a//b",
        "//a",
        "/a;v=1",
        "/a?",
        "/a?x",
        "/a?x=1&x=2",
        "/%41",
        "/?a=b?c=/d",
        "/~a",
        "/a,b",
        "/a'b",
        "/a+b",
        "/a?b=a b",
    ];
    for target in targets.map(|target| target.replace(' ', "%20")) {
        origin.forget();
        let outcome = gateway.client().get(&target).outcome();
        let line = origin.lines().pop().unwrap_or_default();
        let same = line == format!("GET {target} HTTP/1.1");
        table.row(&target, if outcome == "200" && same { String::new() } else { format!("{outcome}, upstream sees {line:?}") });
    }
}

/// An upstream that does not resolve them would serve `/admin` for `/admin/../public`, which was routed and limited as `/public`.
#[test]
fn dot_segments_are_taken_out_of_what_is_forwarded() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("dot segments");
    for (target, expected) in [
        ("/a/./b", "/a/b"),
        ("/admin/../public", "/public"),
        ("/x/%2e%2E/a%20b;v=1//c/?q=../x", "/a%20b;v=1//c/?q=../x"),
        ("/..", "/"),
    ] {
        origin.forget();
        let outcome = gateway.client().get(target).outcome();
        let line = origin.lines().pop().unwrap_or_default();
        let good = outcome == "200" && line == format!("GET {expected} HTTP/1.1");
        table.row(target, if good { String::new() } else { format!("{outcome}, upstream sees {line:?}") });
    }
}

#[test]
fn api_keys_and_credentials_are_forwarded_unchanged() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "identity: { api_key: { unknown: anonymous } }");
    exchange(gateway.addr(), crlf("GET / HTTP/1.1\nHost: a\nX-API-Key: K1\nAuthorization: Basic eDp5\nCookie: a=1; b=2\n\n"));
    let seen = origin.wait(1);
    assert_eq!(
        (seen.header("x-api-key"), seen.header("authorization"), seen.header("cookie")),
        (Some("K1"), Some("Basic eDp5"), Some("a=1; b=2"))
    );
}

#[test]
fn te_is_never_forwarded_verbatim() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    exchange(gateway.addr(), crlf("GET / HTTP/1.1\nHost: a\nTE: trailers, deflate;q=0.5\nConnection: TE\n\n"));
    let seen = origin.wait(1);
    assert!(seen.all("te").iter().all(|te| *te == "trailers"), "{:?}", seen.all("te"));
}

#[test]
fn an_upload_that_waits_for_100_gets_it_and_goes_through() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send(crlf("POST / HTTP/1.1\nHost: a\nExpect: 100-continue\nContent-Length: 4\n\n"));
    let waiting = String::from_utf8_lossy(client.grow()).into_owned();
    assert!(waiting.starts_with("HTTP/1.1 100"), "{waiting:?}");
    let response = client.ask("body").response();
    assert_eq!((response.status, response.interim), (200, vec![100]));
    assert_eq!(origin.wait(1).body, b"body");
}

#[test]
fn a_refusal_comes_without_a_100_before_it() {
    let origin = Origin::ok();
    let gateway = Gateway::before(
        &origin,
        "limits: [{ name: one, match: { path: /limited }, per: ip, rate: 1/hour }]\nblocked: [{ path: /blocked }]\n\
         routes:\n- { name: all, match: { path: ['/limited', '/blocked'] }, upstream: origin }\n\
         - { name: small, match: { path: /small }, max_body: 3B, upstream: origin }",
    );
    assert_eq!(gateway.get("/limited").status, 200);
    let mut table = Table::new("refused uploads");
    for (path, expected) in [("/limited", 429), ("/blocked", 403), ("/small", 413), ("/nowhere", 404)] {
        let request = format!("POST {path} HTTP/1.1\nHost: a\nExpect: 100-continue\nContent-Length: 4\n\n");
        let reply = exchange(gateway.addr(), crlf(&request)).response();
        let right = reply.status == expected && reply.interim.is_empty();
        table.row(path, if right { String::new() } else { format!("{} after {:?}", reply.status, reply.interim) });
    }
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_1_0_client_never_gets_a_100_nor_chunks() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    let response = client.ask(crlf("POST / HTTP/1.0\nHost: a\nExpect: 100-continue\nContent-Length: 4\n\nbody")).response();
    assert_eq!((response.status, response.interim.as_slice(), response.text().as_str()), (200, &[][..], "ok"));
    assert_eq!(response.header("transfer-encoding"), None);
    assert!(client.is_closed());
}

#[test]
fn max_forwards_counts_down_and_ends_here_at_zero() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let ask = |method: &str, field: &str| exchange(gateway.addr(), crlf(&format!("{method} /x HTTP/1.1\nHost: a\n{field}\n")));
    let outcome = ask("OPTIONS", "Max-Forwards: 0\n").outcome();
    assert!(["200", "204"].contains(&outcome.as_str()), "{outcome}");
    assert!(origin.seen().is_empty(), "OPTIONS with Max-Forwards: 0 was forwarded");
    ask("OPTIONS", "Max-Forwards: 3\n");
    assert_eq!(origin.wait(1).header("max-forwards"), Some("2"));
    ask("OPTIONS", "");
    assert_eq!(origin.wait(2).header("max-forwards"), None);
    let trace = ask("TRACE", "Max-Forwards: 0\n").status();
    assert!([200, 405].contains(&trace), "{trace}");
    assert_eq!(origin.seen().len(), 2);
}

#[test]
fn answers_to_head_have_no_body_and_the_connection_stays_in_step() {
    let origin = Origin::new(|call| {
        let body = if call.method() == "HEAD" { "" } else { "ok" };
        call.answer(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}").as_bytes())
    });
    let gateway = Gateway::before(
        &origin,
        "limits: [{ name: one, match: { path: /limited }, per: ip, rate: 1/hour }]\nroutes:\n- { name: all, match: { path: ['/x', '/limited'] }, upstream: origin }\n- { name: dead, match: { path: /dead }, upstream: dead }\nupstreams: { origin: { endpoints: ['http://ORIGIN'] }, dead: { endpoints: ['http://127.0.0.1:1'] } }",
    );
    assert_eq!(gateway.get("/limited").status, 200);
    let mut client = gateway.client();
    for (path, expected) in [("/x", 200), ("/limited", 429), ("/nowhere", 404), ("/dead", 502), ("/x", 200)] {
        client.send(crlf(&format!("HEAD {path} HTTP/1.1\nHost: a\n\n")));
        assert_eq!(client.receive_to("HEAD").status(), expected, "{path}");
        assert_eq!(client.get("/x").response().text(), "ok", "behind HEAD {path}");
    }
}

#[test]
fn bodiless_statuses_have_no_framing_and_the_connection_stays_in_step() {
    for answer in ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"] {
        let origin = Origin::answering(answer);
        let gateway = Gateway::before(&origin, "");
        let mut client = gateway.client();
        for _ in 0..3 {
            let response = client.get("/").response();
            assert!([204, 304].contains(&response.status));
            assert_eq!(response.header("transfer-encoding"), None);
            assert!(response.status == 304 || response.header("content-length").is_none());
        }
        assert_eq!(origin.connections(), 1, "the upstream connection is reused behind {answer:?}");
    }
}

#[test]
fn a_missing_date_is_added_and_a_present_one_kept() {
    let dated = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 2\r\n\r\nok";
    let origin = Origin::new(move |call| {
        let answer = if call.target() == "/dated" { dated } else { "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" };
        call.answer(answer.as_bytes())
    });
    let gateway = Gateway::before(&origin, "routes: [{ name: r, match: { path: ['/dated', '/undated'] }, upstream: origin }]");
    assert_eq!(gateway.get("/dated").header("date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    for path in ["/undated", "/nowhere"] {
        let response = gateway.get(path);
        let date = response.header("date").unwrap_or_else(|| panic!("no Date on {path}"));
        assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
    }
}

#[test]
fn unknown_statuses_and_response_fields_pass() {
    let origin =
        Origin::answering("HTTP/1.1 599 Odd\r\nX-Odd_Name.x: 1\r\nRateLimit: \"theirs\";r=1;t=2\r\nContent-Length: 2\r\n\r\nok");
    let gateway = Gateway::before(&origin, "");
    let response = gateway.get("/");
    assert_eq!((response.status, response.header("x-odd_name.x")), (599, Some("1")));
    assert!(crate::harness::fields(&response.headers, "ratelimit").join(",").contains("theirs"));
}

/// FIN alone does not tell a client that has left from one that only has nothing more to send. The gateway may take it
/// either way, but not halfway.
#[test]
fn a_client_that_half_closes_behind_its_request_is_answered_in_full_or_the_call_is_cancelled() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = Origin::new(move |call| match call.target() {
        "/stall" => call.stall(),
        _ => {
            theirs.wait();
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        }
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    client.finish_sending();
    door.open();
    let outcome = client.receive().outcome();
    assert!(["200", "closed"].contains(&outcome.as_str()), "{outcome}");
    let mut client = gateway.client();
    client.send("GET /stall HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(2);
    drop(client);
    until("a call whose client has left is cancelled", || origin.open() <= 1);
}
