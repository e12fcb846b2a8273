//! Health checks of endpoints that speak TLS: with the upstream's settings, in what the upstream speaks.

use super::admin;
use crate::harness::{Authority, Gateway, H2Origin, Leaf, Next, Origin, Serve, exchange, until};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const OFTEN: &str = "interval: 20ms, timeout: 2s, unhealthy_after: 2, healthy_after: 2";

fn upstream(addrs: &[SocketAddr], authority: &Authority, keys: &str) -> String {
    let urls: Vec<_> = addrs.iter().map(|addr| format!("'https://{addr}'")).collect();
    let tls = format!("tls: {{ ca: '{}' }}", authority.ca().display());
    format!("upstreams: {{ origin: {{ endpoints: [{}], {tls}, {keys} }} }}", urls.join(", "))
}

fn healthy(gateway: &Gateway, addr: SocketAddr) -> bool {
    gateway.metric("tollgate_endpoint_healthy", &[("endpoint", &addr.to_string())]) == 1.0
}

fn checks(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("tollgate_health_checks_total", &[("result", result)])
}

#[test]
fn an_endpoint_goes_down_and_comes_back() {
    let authority = Authority::new("upstreams");
    let pair = authority.sign(&Leaf::of(&["127.0.0.1"]));
    let (well, hits) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU8::new(0)));
    let (theirs, counted) = (Arc::clone(&well), Arc::clone(&hits));
    let one = Origin::secure(Serve::showing(&pair, None), move |call| match call.target() {
        "/healthz" if !theirs.load(Ordering::SeqCst) => call.answer(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n"),
        "/healthz" => call.answer(OK),
        _ => {
            counted.fetch_add(1, Ordering::SeqCst);
            call.answer(OK)
        }
    });
    let two = Origin::secure(Serve::showing(&pair, None), |call| call.answer(OK));
    let keys = format!("protocol: http1, balance: round_robin, health: {{ path: /healthz, body: ok, {OFTEN} }}");
    let gateway = Gateway::start(&upstream(&[one.addr(), two.addr()], &authority, &keys));
    until("good checks of both", || checks(&gateway, "success") >= 4.0);
    assert_eq!(gateway.statuses(4, "/"), [200; 4]);
    assert_eq!(hits.load(Ordering::SeqCst), 2);
    well.store(false, Ordering::SeqCst);
    until("it is out", || !healthy(&gateway, one.addr()));
    assert_eq!(gateway.statuses(4, "/"), [200; 4]);
    assert_eq!(hits.load(Ordering::SeqCst), 2);
    assert!(checks(&gateway, "status") >= 2.0);
    well.store(true, Ordering::SeqCst);
    until("it is back", || healthy(&gateway, one.addr()));
    assert_eq!(gateway.statuses(4, "/"), [200; 4]);
    assert_eq!(hits.load(Ordering::SeqCst), 4);
}

#[test]
fn who_is_not_believed_is_not_well_until_he_is() {
    let (right, wrong) = (Authority::new("right"), Authority::new("wrong"));
    let pair = right.sign(&Leaf::of(&["127.0.0.1"]));
    let origin = Origin::secure(Serve::showing(&pair, None), |call| {
        call.answer(OK);
        Next::Keep
    });
    let keys = format!("protocol: http1, health: {{ {OFTEN} }}");
    let gateway = Gateway::start(&upstream(&[origin.addr()], &wrong, &keys));
    until("it is out", || !healthy(&gateway, origin.addr()));
    assert!(checks(&gateway, "tls") >= 2.0 && checks(&gateway, "success") == 0.0);
    assert_eq!(gateway.get("/").status, 503);
    // A check that goes on goes by the settings that are now in force, be they of a reload or of a file.
    gateway.reload(&upstream(&[origin.addr()], &right, &keys));
    until("it is back", || healthy(&gateway, origin.addr()));
    std::fs::copy(wrong.ca(), right.ca()).unwrap();
    until("it is out again", || !healthy(&gateway, origin.addr()));
}

#[test]
fn tcp_only_connects() {
    let (right, wrong) = (Authority::new("right"), Authority::new("wrong"));
    let pair = right.sign(&Leaf::of(&["127.0.0.1"]));
    let origin = Origin::secure(Serve::showing(&pair, None), |_| Next::Close);
    let gateway = Gateway::start(&upstream(&[origin.addr()], &wrong, &format!("health: {{ type: tcp, {OFTEN} }}")));
    until("good checks", || checks(&gateway, "success") >= 3.0);
    // Checks go on meanwhile, so what is read later may be more.
    let all = gateway.metric("tollgate_health_checks_total", &[]);
    assert!(checks(&gateway, "success") >= all);
}

#[test]
fn a_handshake_that_fails_and_a_new_connection_without_an_answer_count() {
    let (right, wrong) = (Authority::new("right"), Authority::new("wrong"));
    let of = |authority: &Authority| Serve::showing(&authority.sign(&Leaf::of(&["127.0.0.1"])), None);
    let unknown = Origin::secure(of(&wrong), |call| call.answer(OK));
    let mute = Origin::secure(of(&right), |call| {
        call.body();
        Next::Close
    });
    let good = Origin::secure(of(&right), |call| call.answer(OK));
    for protocol in ["http1", "auto"] {
        for bad in [&unknown, &mute] {
            let outlier = "outlier: { consecutive_failures: 3, eject_for: 1h }";
            let keys = format!("protocol: {protocol}, balance: round_robin, {outlier}");
            let gateway = Gateway::start(&upstream(&[bad.addr(), good.addr()], &right, &keys));
            // What the mute one gets is not tried again, as it is a POST.
            let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz";
            let outcomes: Vec<_> = (0..12).map(|_| exchange(gateway.addr(), post).outcome()).collect();
            let failed = outcomes.iter().filter(|outcome| *outcome == "502").count();
            let expected = if bad.addr() == mute.addr() { 3 } else { 0 };
            assert_eq!((failed, outcomes.iter().filter(|outcome| *outcome == "200").count()), (expected, 12 - expected));
            assert_eq!(gateway.metric("tollgate_endpoint_ejected", &[("endpoint", &bad.addr().to_string())]), 1.0, "{protocol}");
        }
    }
}

/// A gateway with TLS in front of a server of HTTP/2, which is also a gRPC health service with this status.
fn behind_tls(authority: &Authority, status: &Arc<AtomicU8>) -> (H2Origin, Gateway) {
    let status = Arc::clone(status);
    let origin = H2Origin::new(move |call| {
        call.body();
        let status = status.load(Ordering::SeqCst);
        if call.seen.path() == "/grpc.health.v1.Health/Check" {
            call.headers(&[(":status", "200"), ("content-type", "application/grpc")], false);
            call.data(&[0, 0, 0, 0, 2, 8, status], false);
            call.trailers(&[("grpc-status", "0")]);
        } else {
            call.headers(&[(":status", if status == 1 { "200" } else { "503" })], true);
        }
    });
    let pair = authority.issue("leaf", &Leaf::of(&["127.0.0.1"]));
    let listeners = format!("listeners: [{{ name: public, address: '127.0.0.1:0', tls: {{ certificates: {pair} }} }}]");
    let gateway = Gateway::before_http2(&origin, &listeners);
    (origin, gateway)
}

#[test]
fn grpc_and_http_are_asked_over_tls_whatever_requests_speak() {
    for (protocol, check) in [
        ("http2", "type: grpc"),
        ("auto", "type: grpc"),
        ("http1", "type: grpc"),
        ("http2", "path: /healthz"),
        ("auto", "path: /healthz"),
        ("http1", "path: /healthz"),
    ] {
        let authority = Authority::new("upstreams");
        let status = Arc::new(AtomicU8::new(1));
        let (origin, front) = behind_tls(&authority, &status);
        let keys = format!("protocol: {protocol}, health: {{ {check}, {OFTEN} }}");
        let gateway = Gateway::start(&upstream(&[front.addr()], &authority, &keys));
        until("good checks", || checks(&gateway, "success") >= 2.0);
        assert!(healthy(&gateway, front.addr()));
        status.store(2, Ordering::SeqCst);
        until(&format!("{protocol} {check}: it is out"), || !healthy(&gateway, front.addr()));
        let reason = if check == "type: grpc" { "grpc" } else { "status" };
        assert!(checks(&gateway, reason) >= 2.0);
        status.store(1, Ordering::SeqCst);
        until(&format!("{protocol} {check}: it is back"), || healthy(&gateway, front.addr()));
        assert_eq!(admin(&gateway, "GET /upstreams/origin").1["endpoints"][0]["used"], true);
        assert_eq!(gateway.get("/").status, 200, "{protocol}");
        let versions: Vec<_> = origin.seen().iter().map(|seen| seen.header("via").unwrap_or_default().to_owned()).collect();
        let spoken = if protocol == "http1" && reason == "status" { "1.1" } else { "2" };
        assert!(versions[0].starts_with(spoken), "{protocol} {check}: {}", versions[0]);
    }
}
