//! Answers the gateway makes itself: one JSON shape, honest headers, and a Retry-After that can be relied on.

use crate::harness::{Gateway, H2, Origin, Response, Table, crlf, exchange, happens};
use std::time::Duration;

const CONFIG: &str = "
limits:
- { name: one, match: { path: /limited }, per: ip, rate: 1/hour }
blocked: [{ path: /blocked }]
routes:
- { name: all, match: { path: ['/x', '/limited', '/blocked'], methods: [GET, POST] }, max_body: 10B, upstream: origin }
- { name: dead, match: { path: /dead }, upstream: dead }
- { name: slow, match: { path: /slow }, upstream: slow, timeouts: { response: 100ms } }
upstreams:
  origin: { endpoints: ['http://ORIGIN'] }
  dead: { endpoints: ['http://127.0.0.1:1'] }
  slow: { endpoints: ['http://SLOW'] }
";

/// Name, request, status, code.
#[rustfmt::skip]
const ROWS: &[(&str, &str, u16, &str)] = &[
    ("bad request", "GET /a%zz HTTP/1.1\nHost: a\n\n", 400, "bad_request"),
    ("unknown key", "GET /x HTTP/1.1\nHost: a\nX-API-Key: nobodys\n\n", 401, "unauthorized"),
    ("blocked", "GET /blocked HTTP/1.1\nHost: a\n\n", 403, "forbidden"),
    ("no route", "GET /nowhere HTTP/1.1\nHost: a\n\n", 404, "not_found"),
    ("a method no route has", "DELETE /x HTTP/1.1\nHost: a\n\n", 405, "method_not_allowed"),
    ("too large", "POST /x HTTP/1.1\nHost: a\nContent-Length: 11\n\n", 413, "payload_too_large"),
    ("expectation", "GET /x HTTP/1.1\nHost: a\nExpect: x\n\n", 417, "expectation_failed"),
    ("over the limit", "GET /limited HTTP/1.1\nHost: a\n\n", 429, "rate_limit_exceeded"),
    ("no upstream", "GET /dead HTTP/1.1\nHost: a\n\n", 502, "bad_gateway"),
    ("slow upstream", "GET /slow HTTP/1.1\nHost: a\n\n", 504, "gateway_timeout"),
];

fn gateway(origin: &Origin, slow: &Origin) -> Gateway {
    let gateway = Gateway::before(origin, &CONFIG.replace("SLOW", &slow.addr().to_string()));
    assert_eq!(gateway.get("/limited").status, 200);
    gateway
}

fn problem(response: &Response, status: u16, code: &str) -> String {
    if response.status != status {
        return format!("status {} and {}", response.status, response.text());
    }
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(&response.body) else {
        return format!("not JSON: {}", response.text());
    };
    let content_type = response.header("content-type").unwrap_or("missing");
    if json["error"] != code || !json["message"].is_string() || !content_type.starts_with("application/json") {
        return format!("{content_type} {json}");
    }
    let text = json.to_string();
    let internals = ["127.0.0.1", "os error", "hyper", "nobodys"].iter().find(|word| text.contains(**word));
    internals.map(|word| format!("names internals ({word}): {text}")).unwrap_or_default()
}

#[test]
fn errors_are_json_with_a_code_and_a_message() {
    let (origin, slow) = (Origin::ok(), Origin::new(|call| call.stall()));
    let gateway = gateway(&origin, &slow);
    let mut table = Table::new("own answers");
    for (name, request, status, code) in ROWS {
        let response = exchange(gateway.addr(), crlf(request)).response();
        table.row(name, problem(&response, *status, code));
    }
}

#[test]
fn a_405_names_the_methods_allowed() {
    let (origin, slow) = (Origin::ok(), Origin::ok());
    let gateway = gateway(&origin, &slow);
    let response = exchange(gateway.addr(), crlf("DELETE /x HTTP/1.1\nHost: a\n\n")).response();
    let allow = response.header("allow").expect("Allow is a MUST on 405");
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    let trace = exchange(gateway.addr(), crlf("TRACE /x HTTP/1.1\nHost: a\n\n")).response();
    assert!(trace.status != 405 || trace.header("allow").is_some(), "a 405 to TRACE without Allow");
}

#[test]
fn a_refusal_names_the_limit_and_when_to_come_back_and_is_not_cached() {
    let (origin, slow) = (Origin::ok(), Origin::ok());
    let gateway = gateway(&origin, &slow);
    let response = gateway.get("/limited");
    let json = response.json();
    let retry_after: u64 = response.header("retry-after").expect("Retry-After").parse().expect("whole seconds");
    assert_eq!(response.status, 429);
    assert!((1..=3600).contains(&retry_after), "{retry_after}");
    assert_eq!((json["retry_after"].as_u64(), json["limit"].as_str()), (Some(retry_after), Some("one")));
    assert!(response.header("cache-control").is_some_and(|value| value.contains("no-store")));
    assert_eq!((response.header("x-ratelimit-limit"), response.header("x-ratelimit-remaining")), (Some("1"), Some("0")));
    let (policy, state) = (response.header("ratelimit-policy").unwrap(), response.header("ratelimit").unwrap());
    assert!(policy.contains("\"one\";q=1;w=3600"), "{policy}");
    assert!(state.contains("\"one\";r=0;t="), "{state}");
}

#[test]
fn admitted_responses_say_what_is_left() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: five, per: ip, rate: 5/hour }]");
    for left in ["4", "3", "2", "1", "0"] {
        let response = gateway.get("/");
        assert_eq!((response.status, response.header("x-ratelimit-remaining")), (200, Some(left)));
        assert!(
            response.header("ratelimit").unwrap().contains(&format!("\"five\";r={left}")),
            "{:?}",
            response.header("ratelimit")
        );
    }
    assert_eq!(gateway.get("/").status, 429);
}

#[test]
fn waiting_exactly_retry_after_is_enough_and_less_is_not() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: slow, per: ip, rate: 1/2s }]");
    assert_eq!(gateway.get("/").status, 200);
    let start = std::time::Instant::now();
    let refused = gateway.get("/");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&wait), "{wait}");
    assert_eq!(gateway.get("/").status, 429);
    happens(Duration::from_secs(wait), || start.elapsed() >= Duration::from_secs(wait));
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn http2_clients_get_the_same_refusal() {
    let (origin, slow) = (Origin::ok(), Origin::ok());
    let gateway = gateway(&origin, &slow);
    let reply = H2::connect(gateway.addr()).get("/limited");
    let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!((reply.status(), json["error"].as_str(), json["limit"].as_str()), (429, Some("rate_limit_exceeded"), Some("one")));
    assert!(reply.header("retry-after").is_some());
}

#[test]
fn the_admin_interface_is_not_on_the_public_listener() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "routes: [{ name: x, match: { path: /x }, upstream: origin }]");
    let admin = gateway.admin();
    let mut table = Table::new("admin paths on the public port");
    for path in ["/metrics", "/healthz", "/readyz", "/reload", "/x/../metrics"] {
        for host in ["a".to_owned(), admin.to_string()] {
            let outcome = exchange(gateway.addr(), format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).outcome();
            table.outcome(path, "404|400", &outcome);
        }
    }
}

#[test]
fn shadow_limits_count_and_never_refuse() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: ghost, per: ip, rate: 1/hour, mode: shadow }]");
    assert_eq!(gateway.statuses(5, "/"), [200; 5]);
    let shadowed = gateway.metrics().lines().any(|line| line.contains("ghost") && line.contains("shadow"));
    assert!(shadowed, "no metric tells what the shadow limit would have done:\n{}", gateway.metrics());
}
