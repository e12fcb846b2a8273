//! Fields that were sent twice, empty, or to whom they do not belong.

use crate::harness::{Gateway, Next, Origin, crlf, exchange, fields};

#[test]
fn x_forwarded_proto_that_a_route_sets_is_sent_once() {
    let origin = Origin::ok();
    let route =
        "routes: [{ name: r, match: { path: / }, upstream: origin, request_headers: { set: { x-forwarded-proto: https } } }]";
    for trusted in ["[]", "loopback"] {
        let gateway = Gateway::before(&origin, &format!("trusted_proxies: {trusted}\n{route}"));
        for sent in ["", "X-Forwarded-Proto: http\n"] {
            origin.forget();
            exchange(gateway.addr(), crlf(&format!("GET / HTTP/1.1\nHost: a\n{sent}\n")));
            assert_eq!(origin.wait(1).all("x-forwarded-proto"), ["https"], "{trusted}, {sent:?}");
        }
    }
}

#[test]
fn a_request_without_a_host_has_no_empty_x_forwarded_host() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    assert_eq!(exchange(gateway.addr(), "GET / HTTP/1.0\r\n\r\n").outcome(), "200");
    assert!(!origin.wait(1).all("x-forwarded-host").contains(&""), "{:?}", origin.wait(1).headers);
}

#[test]
fn an_answer_of_unknown_length_closes_a_1_0_keep_alive_connection_and_says_so() {
    for answer in ["HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nok\n0\n\n", "HTTP/1.1 200 OK\nConnection: close\n\nok"] {
        let origin = Origin::new(move |call| {
            call.answer(&crlf(answer));
            Next::Close
        });
        let gateway = Gateway::before(&origin, "");
        let mut client = gateway.client();
        let response = client.ask(crlf("GET / HTTP/1.0\nHost: a\nConnection: keep-alive\n\n")).response();
        let options = fields(&response.headers, "connection").join(",");
        assert!(options.split(',').any(|option| option.trim().eq_ignore_ascii_case("close")), "{answer}: {options}");
        assert_eq!(response.text(), "ok", "{answer}");
        assert!(client.is_closed(), "{answer}");
    }
}

#[test]
fn trailers_carry_no_identity_and_no_key() {
    let origin = Origin::ok();
    let config = "identity: { user: { header: x-user-id }, api_key: { sources: [{ header: x-api-key }] } }";
    for trusted in ["[]", "loopback"] {
        origin.forget();
        let gateway = Gateway::before(&origin, &format!("trusted_proxies: {trusted}\n{config}"));
        let trailers = "X-Sum: 1\nX-User-Id: u\nX_User_Id: u\nX-Real-IP: 9.9.9.9\nX-API-Key: k\n";
        let request = format!("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n1\nz\n0\n{trailers}\n");
        assert_eq!(exchange(gateway.addr(), crlf(&request)).outcome(), "200");
        let names: Vec<String> = origin.wait(1).trailers.iter().map(|(name, _)| name.to_lowercase()).collect();
        assert_eq!(names, ["x-sum"], "trusted: {trusted}");
    }
}

#[test]
fn the_admin_listener_takes_a_token_behind_a_scheme_in_any_case() {
    let gateway = Gateway::start(
        "admin: { address: '127.0.0.1:0', token: t0ken }\nroutes: [{ name: r, match: { path: / }, respond: {} }]\nupstreams: {}",
    );
    for (authorization, status) in [
        ("Bearer t0ken", 200),
        ("bearer t0ken", 200),
        ("BEARER  t0ken", 200),
        ("Bearer T0KEN", 401),
        ("Bearer t0ken x", 401),
        ("Bearert0ken", 401),
        ("Basic t0ken", 401),
        ("Bearer ", 401),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\r\n");
        assert_eq!(exchange(gateway.admin(), request).status(), status, "{authorization:?}");
    }
}
