//! SIGTERM under load, and how connections spread over the workers.

use crate::harness::{Gateway, H2, Latch, Next, Origin, Reply, kind, together, until};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn requests_in_flight_are_finished_and_idle_connections_closed() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = Origin::new(move |call| {
        if call.target() == "/slow" {
            theirs.wait();
        }
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    });
    let mut gateway = Gateway::before(&origin, "shutdown: { delay: 0s, drain: 20s }");
    let (mut idle, mut fresh, mut busy) = (gateway.client(), gateway.client(), gateway.client());
    let (mut idle_h2, mut busy_h2) = (H2::connect(gateway.addr()), H2::connect(gateway.addr()));
    assert_eq!((idle.get("/").outcome().as_str(), idle_h2.get("/").status()), ("200", 200));
    busy.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    let stream = busy_h2.request(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/slow")], None);
    until("both slow requests are in flight", || origin.lines().iter().filter(|line| line.contains("/slow")).count() == 2);
    gateway.signal("TERM");
    assert!(idle.is_closed(), "an idle connection is closed");
    assert!(fresh.is_closed(), "a connection that never sent anything is closed");
    assert!(idle_h2.is_closed(), "an idle HTTP/2 connection is closed");
    assert!(idle_h2.frames.iter().any(|frame| frame.kind == kind::GOAWAY), "with GOAWAY");
    assert_eq!(gateway.exit_code(), None, "requests in flight are waited for");
    door.open();
    let response = busy.receive().response();
    assert_eq!((response.status, response.text().as_str(), response.cut), (200, "ok", false));
    assert!(busy.is_closed());
    assert_eq!(busy_h2.receive(stream).outcome(), "200");
    until("the process has ended", || gateway.exit_code().is_some());
    assert_eq!(gateway.exit_code(), Some(0));
}

#[test]
fn a_drain_that_takes_too_long_is_cut_short() {
    let origin = Origin::new(|call| call.stall());
    let mut gateway = Gateway::before(&origin, "shutdown: { delay: 0s, drain: 300ms }");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    gateway.signal("TERM");
    until("the process ends after its drain time", || gateway.exit_code().is_some());
    assert!(gateway.exit_code().is_some_and(|code| code > 0), "a request was lost, and the exit code says so");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let origin = Origin::new(|call| call.stall());
    let mut gateway = Gateway::before(&origin, "shutdown: { delay: 0s, drain: 600s }");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    gateway.signal("TERM");
    until("the listener is closed", || std::net::TcpStream::connect(gateway.addr()).is_err());
    assert_eq!(gateway.exit_code(), None);
    gateway.signal("TERM");
    until("the process ends at the second signal", || gateway.exit_code().is_some());
}

#[test]
fn an_idle_gateway_ends_with_exit_code_0() {
    let origin = Origin::ok();
    Gateway::before(&origin, "").stop();
    let gateway = Gateway::before(&origin, "workers: 2");
    gateway.get("/");
    gateway.stop();
}

#[test]
fn a_drain_under_load_loses_no_request() {
    let origin = Origin::ok();
    let mut gateway = Gateway::before(&origin, "workers: 2\nshutdown: { delay: 0s, drain: 20s }");
    let (addr, served, ending) = (gateway.addr(), AtomicUsize::new(0), AtomicBool::new(false));
    let lost = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            together(6, |_| {
                let mut client = crate::harness::Client::connect(addr);
                loop {
                    let reply = client.get("/");
                    let draining = ending.load(Ordering::SeqCst);
                    match reply {
                        Reply::Response(response) if response.status == 200 && !response.cut => {
                            served.fetch_add(1, Ordering::Relaxed);
                            // Once told to go, a client must not be surprised by what follows.
                            if response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
                                return None;
                            }
                        }
                        // An idle connection may be closed between two requests: a race every client knows.
                        Reply::Closed | Reply::Reset if draining => return None,
                        other => return Some(other.outcome()),
                    }
                }
            })
        });
        until("load is on", || served.load(Ordering::Relaxed) > 300 || load.is_finished());
        ending.store(true, Ordering::SeqCst);
        gateway.signal("TERM");
        load.join().unwrap()
    });
    assert!(lost.iter().all(Option::is_none), "{lost:?}");
    until("the process has ended", || gateway.exit_code().is_some());
    assert_eq!(gateway.exit_code(), Some(0));
    // Whatever reached the upstream was answered in full.
    assert!(origin.seen().iter().all(crate::harness::Seen::complete));
}

#[test]
fn readiness_fails_before_connections_are_refused() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "shutdown: { delay: 2s, drain: 20s }");
    let probe = |path: &str| {
        crate::harness::exchange(gateway.admin(), format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
            .status()
    };
    assert_eq!((probe("/healthz"), probe("/readyz")), (200, 200));
    gateway.signal("TERM");
    until("readiness fails", || probe("/readyz") == 503);
    assert_eq!(probe("/healthz"), 200);
    assert_eq!(gateway.get("/").status, 200, "requests are still served during the delay");
}

#[test]
fn long_connections_spread_over_the_workers() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "workers: 2");
    let connections = |worker: &str| gateway.metric("tollgate_worker_connections", &[("worker", worker)]);
    // Whether luck or design: it must hold every time.
    for round in 0..5 {
        let mut clients: Vec<_> = (0..8).map(|_| gateway.client()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/").outcome(), "200");
        }
        until("all are counted", || connections("0") + connections("1") >= 8.0);
        let (zero, one) = (connections("0"), connections("1"));
        assert!(zero >= 2.0 && one >= 2.0, "round {round}: {zero} on worker 0, {one} on worker 1");
        drop(clients);
        until("all are gone", || connections("0") + connections("1") == 0.0);
    }
}

#[test]
fn connections_beyond_the_limit_are_refused_and_the_limit_recovers() {
    let origin = Origin::new(|call| {
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        Next::Keep
    });
    for limit in ["max_connections: 5", "max_connections_per_ip: 5"] {
        let gateway = Gateway::before(&origin, &format!("listeners: [{{ name: public, address: '127.0.0.1:0', {limit} }}]"));
        let mut clients: Vec<_> = (0..5).map(|_| gateway.client()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/").outcome(), "200", "{limit}");
        }
        let mut sixth = gateway.client();
        sixth.wait_at_most(std::time::Duration::from_millis(300));
        let outcome = sixth.get("/").outcome();
        assert!(["closed", "reset", "503", "silent"].contains(&outcome.as_str()), "{limit}: {outcome}");
        drop((clients, sixth));
        until("there is room again", || gateway.client().get("/").outcome() == "200");
    }
}
