//! What becomes of heads and trailers on their way between versions (RFC 9113 §8).

use super::{answer, fields, upload};
use crate::harness::{Gateway, H2, H2Origin, H2Seen, Origin, Table, crlf, exchange, field, fields as all};

/// Everything that HTTP/2 has no place for.
const NEVER: [&str; 9] =
    ["host", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "http2-settings", "expect", "x-hop"];

/// Name, request, what upstream must get.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

fn problem(seen: &H2Seen, expected: &[(&str, &str)]) -> String {
    let wrong = expected.iter().find(|(name, value)| all(&seen.headers, name) != [*value]);
    let unwanted = NEVER.iter().find(|name| seen.header(name).is_some());
    match (wrong, unwanted) {
        (Some((name, value)), _) => format!("{name} should be {value:?} in {:?}", seen.headers),
        (None, Some(name)) => format!("{name} in {:?}", seen.headers),
        (None, None) => String::new(),
    }
}

#[test]
fn requests_of_http1_become_requests_of_http2() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "");
    #[rustfmt::skip]
    let rows: &[Row] = &[
        ("the request line", "GET /a%20b//c;v=1?x=%3F&y HTTP/1.1\nHost: a\n\n",
            &[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/a%20b//c;v=1?x=%3F&y"), ("via", "1.1 tollgate")]),
        ("Host is the authority", "GET / HTTP/1.1\nHost: EXAMPLE.com:8080\n\n",
            &[(":authority", "example.com:8080"), ("x-forwarded-host", "example.com:8080")]),
        ("IPv6", "GET / HTTP/1.1\nHost: [::1]:81\n\n", &[(":authority", "[::1]:81")]),
        ("an absolute target", "GET http://a/x HTTP/1.1\nHost: a\n\n", &[(":authority", "a"), (":path", "/x")]),
        ("an unknown method", "PURGE /x HTTP/1.1\nHost: a\n\n", &[(":method", "PURGE")]),
        ("fields of the connection", "GET / HTTP/1.1\nHost: a\nConnection: keep-alive, X-Hop, Upgrade, HTTP2-Settings\nX-Hop: 1\nKeep-Alive: 5\nProxy-Connection: a\nUpgrade: h2c\nHTTP2-Settings: AA\n\n",
            &[(":path", "/"), ("x-forwarded-for", "127.0.0.1")]),
        ("TE", "GET / HTTP/1.1\nHost: a\nTE: gzip, trailers\nConnection: TE\n\n", &[("te", "trailers")]),
        ("an upload with a length", "POST / HTTP/1.1\nHost: a\nContent-Length: 2\n\nhi", &[("content-length", "2")]),
        ("an upload in chunks", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n2\nhi\n0\n\n", &[(":method", "POST")]),
        ("names and cookies", "GET / HTTP/1.1\nHost: a\nX-MiXed: V\nCookie: a=1; b=2\n\n", &[("x-mixed", "V"), ("cookie", "a=1; b=2")]),
    ];
    let mut table = Table::new("requests of HTTP/1.1");
    for (i, (name, request, expected)) in rows.iter().enumerate() {
        table.outcome(name, "200", &exchange(gateway.addr(), crlf(request)).outcome());
        table.row(name, problem(&origin.wait(i + 1), expected));
    }
    let http10 = exchange(gateway.addr(), "GET / HTTP/1.0\r\n\r\n");
    let authority = origin.addr().to_string();
    table.outcome("HTTP/1.0 without Host", "200", &http10.outcome());
    table.row("HTTP/1.0", problem(&origin.wait(rows.len() + 1), &[(":authority", &authority), ("via", "1.0 tollgate")]));
}

#[test]
fn requests_of_http2_stay_what_they_are() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let more = [("te", "trailers"), ("cookie", "a=1"), ("cookie", "b=2"), ("host", "a"), ("x-many", "1"), ("x-many", "2")];
    assert_eq!(client.ask(&[fields("GET", "/a?b"), more.to_vec()].concat(), None).status(), 200);
    let seen = origin.wait(1);
    let expected = [(":authority", "a"), (":path", "/a?b"), ("te", "trailers"), ("cookie", "a=1; b=2"), ("via", "2 tollgate")];
    assert_eq!(problem(&seen, &expected), "");
    assert_eq!(all(&seen.headers, "x-many"), ["1", "2"]);
    assert!(seen.body.is_empty() && seen.ended && seen.header("content-length").is_none());
    for refused in [vec![("host", "b")], vec![("connection", "close")], vec![("te", "gzip")]] {
        let outcome = H2::connect(gateway.addr()).ask(&[fields("GET", "/"), refused].concat(), None).outcome();
        assert!(["400", "rst", "goaway", "closed"].contains(&outcome.as_str()), "{outcome}");
    }
    let connect = H2::connect(gateway.addr()).ask(&[(":method", "CONNECT"), (":authority", "a:80")], None).outcome();
    assert!(["405", "rst"].contains(&connect.as_str()), "{connect}");
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn what_the_route_edits_and_rewrites_goes_to_http2_as_well() {
    let origin = H2Origin::ok();
    let routes = "routes: [{ name: all, match: { path: '/v1/{*rest}' }, upstream: origin, rewrite: { strip_prefix: /v1 }, \
                  request_headers: { set: { x-env: ' prod ' }, remove: [cookie] } }]";
    let gateway = Gateway::before_http2(&origin, routes);
    let request = "GET /v1/a HTTP/1.1\nHost: a\nX-Env: mine\nX_Env: mine\nCookie: a=1\nX-Real-IP: 1.2.3.4\n\n";
    assert_eq!(exchange(gateway.addr(), crlf(request)).outcome(), "200");
    let seen = origin.wait(1);
    assert_eq!(problem(&seen, &[(":path", "/a"), ("x-env", "prod")]), "");
    assert!(["x_env", "cookie", "x-real-ip"].iter().all(|name| seen.header(name).is_none()), "{:?}", seen.headers);
}

#[test]
fn responses_without_a_body_have_none() {
    let origin = H2Origin::new(|call| {
        let status = call.seen.path().trim_start_matches('/').split('/').next().unwrap();
        let length: &[(&str, &str)] = if call.seen.path().ends_with("/long") { &[("content-length", "42")] } else { &[] };
        call.headers(&[&[(":status", status)], length].concat(), true);
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut h1 = gateway.client();
    let mut table = Table::new("responses without a body");
    for (method, path, length) in [
        ("HEAD", "/200/long", Some("42")),
        ("HEAD", "/200", None),
        ("GET", "/204", None),
        ("GET", "/304/long", Some("42")),
        ("GET", "/304", None),
        ("GET", "/200", Some("0")),
        ("GET", "/404", Some("0")),
    ] {
        let name = format!("{method} {path}");
        h1.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let response = h1.receive_to(method).response();
        let right = response.body.is_empty() && response.header("transfer-encoding").is_none();
        // hyper says nothing of the length of a 304, and may say 0 of a HEAD whose length nobody knows.
        let said = response.header("content-length");
        let same = said == length || (method == "HEAD" && length.is_none()) || (path.starts_with("/304") && said.is_none());
        table.row(&name, if right && same { String::new() } else { format!("{response:?}") });
        let reply = H2::connect(gateway.addr()).ask(&fields(method, path), None);
        let right =
            reply.ended && reply.body.is_empty() && reply.header("content-length") == length.filter(|length| *length != "0");
        table.row(&name, if right { String::new() } else { format!("HTTP/2: {reply:?}") });
    }
    drop(table);
    assert_eq!(h1.get("/204").status(), 204, "the connection is still in step");
}

#[test]
fn a_body_where_none_may_be_is_dropped() {
    let origin = H2Origin::new(|call| {
        let status = if call.seen.path() == "/204" { "204" } else { "200" };
        call.headers(&[(":status", status)], false);
        call.data(b"body", true);
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = gateway.client();
    assert!(client.get("/204").response().body.is_empty());
    client.send("HEAD /200 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.receive_to("HEAD").response().body.is_empty());
    assert_eq!(client.get("/200").response().text(), "body");
}

#[test]
fn fields_of_responses_pass_in_order() {
    let origin = H2Origin::new(|call| {
        let fields = [(":status", "299"), ("set-cookie", "a=1"), ("x", "1"), ("set-cookie", "b=2"), ("content-length", "2")];
        call.headers(&fields, false);
        call.data(b"ok", true);
    });
    let gateway = Gateway::before_http2(&origin, "");
    let response = gateway.get("/");
    assert_eq!((response.status, all(&response.headers, "set-cookie")), (299, vec!["a=1", "b=2"]));
    assert_eq!((response.header("content-length"), response.header("transfer-encoding")), (Some("2"), None));
    assert!(response.header("date").is_some());
    let reply = H2::connect(gateway.addr()).get("/");
    assert_eq!((reply.status(), all(&reply.headers, "set-cookie")), (299, vec!["a=1", "b=2"]));
}

/// Answers with what it got as trailers: `x-up` and what it must never get.
fn trailing() -> H2Origin {
    H2Origin::new(|call| {
        call.body();
        call.headers(&[(":status", "200"), ("trailer", "x-sum")], false);
        call.data(b"ok", false);
        call.trailers(&[("x-sum", "1"), ("x-more", "a"), ("x-more", "b"), ("content-length", "9"), ("set-cookie", "c=3")]);
    })
}

#[test]
fn trailers_pass_between_versions() {
    let origin = trailing();
    let gateway = Gateway::before_http2(&origin, "trusted_proxies: []");
    let request = "POST /x HTTP/1.1\nHost: a\nTE: trailers\nConnection: TE\nTransfer-Encoding: chunked\n\n1\nz\n0\nX-Up: 7\nX-Up: 8\nContent-Length: 9\nX-Forwarded-For: 9.9.9.9\nX-Api-Key: k\n\n";
    let response = exchange(gateway.addr(), crlf(request)).response();
    let seen = origin.wait(1);
    assert_eq!(seen.trailers, [("x-up".into(), "7".into()), ("x-up".into(), "8".into())]);
    assert_eq!((response.text().as_str(), field(&response.trailers, "x-sum")), ("ok", Some("1")));
    assert!(field(&response.trailers, "content-length").is_none() && response.header("x-sum").is_none());
    let mut client = H2::connect(gateway.addr());
    for length in [None, Some("1")] {
        let length: Vec<_> = length.map(|length| ("content-length", length)).into_iter().collect();
        let stream = client.open(&[fields("POST", "/x"), vec![("te", "trailers")], length].concat(), false);
        client.data(stream, b"z", false);
        client.trailers(stream, &[("x-up", "9"), ("x-api-key", "k"), ("host", "b")]);
        let reply = client.receive(stream);
        assert_eq!(
            (reply.status(), field(&reply.trailers, "x-sum"), all(&reply.trailers, "x-more")),
            (200, Some("1"), vec!["a", "b"])
        );
        assert!(field(&reply.trailers, "set-cookie").is_none());
        assert_eq!(origin.seen().last().unwrap().trailers, [("x-up".into(), "9".into())]);
    }
    let stream = upload(&mut client, "/x");
    client.data(stream, b"z", false);
    client.trailers(stream, &[("content-length", "1")]);
    assert_eq!(client.receive(stream).outcome(), "200", "nothing is left of the trailers, and that is the end");
    assert!(origin.wait(4).ended && origin.wait(4).trailers.is_empty());
}

#[test]
fn trailers_of_http1_upstreams_pass_to_http2_clients_still() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n");
    let gateway = Gateway::before(&origin, "");
    let reply = H2::connect(gateway.addr()).get("/");
    assert_eq!((reply.outcome().as_str(), field(&reply.trailers, "x-sum")), ("200", Some("1")));
}

#[test]
fn a_client_that_did_not_ask_for_trailers_gets_a_clean_end() {
    let origin = trailing();
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = gateway.client();
    for _ in 0..3 {
        let response = client.get("/").response();
        assert!(response.text() == "ok" && !response.cut && response.trailers.is_empty());
    }
}

#[test]
fn hints_are_passed_on_and_a_flood_of_interim_responses_is_a_502() {
    let origin = H2Origin::new(|call| {
        let count = call.seen.path().trim_start_matches('/').parse().unwrap();
        for i in 0..count {
            call.headers(&[(":status", if i % 2 == 0 { "103" } else { "100" }), ("link", "</a>")], false);
        }
        answer(call, b"ok");
    });
    let gateway = Gateway::before_http2(&origin, "");
    for (count, status) in [(1_usize, 200), (32, 200), (33, 502), (1000, 502)] {
        let response = gateway.get(&format!("/{count}"));
        // A 100 is the gateway's own to say.
        assert_eq!((response.status, response.interim), (status, vec![103; count.div_ceil(2).min(16)]), "{count}");
        let reply = H2::connect(gateway.addr()).get(&format!("/{count}"));
        assert_eq!((reply.status(), reply.interim.len()), (status, count.div_ceil(2).min(16)), "{count}");
    }
}

#[test]
fn the_gateway_asks_for_the_body_itself() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert!(client.grow().starts_with(b"HTTP/1.1 100"));
    client.send("hi");
    let response = client.receive().response();
    assert_eq!((response.status, response.interim), (200, vec![100]));
    assert_eq!((origin.wait(1).body, origin.wait(1).header("expect")), (b"hi".to_vec(), None));
}
