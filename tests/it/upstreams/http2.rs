//! The same over HTTP/2: what counts against an endpoint and what does not, draining, health checks.

use super::admin;
use crate::harness::{Call, Gateway, H2, H2Origin, Latch, Origin, Table, exchange, until};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

/// An upstream's server: does to each stream what a test says.
struct Server {
    origin: H2Origin,
    act: Arc<Mutex<Act>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Act {
    Answer(&'static str),
    /// A gRPC status, in trailers or in the head.
    Trailers(&'static str),
    HeadOnly(&'static str),
    Reset(u32),
    /// A part of the body, and then a reset.
    Cut(u32),
    /// The connection ends.
    Close,
    Goaway,
    Silent,
}

impl Server {
    fn new() -> Self {
        let act = Arc::new(Mutex::new(Act::Answer("200")));
        let theirs = Arc::clone(&act);
        let origin = H2Origin::new(move |call| {
            let act = *theirs.lock().unwrap();
            act.on(call);
        });
        Self { origin, act }
    }

    fn set(&self, act: Act) {
        *self.act.lock().unwrap() = act;
    }

    /// Requests other than health checks.
    fn hits(&self) -> usize {
        self.origin.seen().iter().filter(|seen| seen.path() != "/healthz").count()
    }
}

impl Act {
    fn on(self, call: &mut Call) {
        const OK: (&str, &str) = (":status", "200");
        const GRPC: (&str, &str) = ("content-type", "application/grpc");
        if self != Self::Silent {
            call.body();
        }
        match self {
            Self::Answer(status) => _ = call.headers(&[(":status", status)], true),
            Self::Trailers(status) => {
                call.headers(&[OK, GRPC], false);
                call.trailers(&[("grpc-status", status)]);
            }
            Self::HeadOnly(status) => _ = call.headers(&[OK, GRPC, ("grpc-status", status)], true),
            Self::Reset(code) => _ = call.reset(code),
            Self::Cut(code) => {
                call.headers(&[OK], false);
                call.data(b"half", false);
                call.reset(code);
            }
            Self::Close => call.close(),
            Self::Goaway => _ = call.goaway(0, 0),
            Self::Silent => call.await_reset(),
        }
    }
}

const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;

fn servers() -> [Server; 2] {
    [Server::new(), Server::new()]
}

fn upstream(addrs: &[SocketAddr], keys: &str) -> String {
    let urls: Vec<_> = addrs.iter().map(|addr| format!("'http://{addr}'")).collect();
    format!("upstreams: {{ origin: {{ endpoints: [{}], protocol: http2, balance: round_robin, {keys} }} }}", urls.join(", "))
}

/// In front of both, with a short `timeouts.response`.
fn before(servers: &[Server; 2], keys: &str) -> Gateway {
    let addrs = [servers[0].origin.addr(), servers[1].origin.addr()];
    Gateway::start(&upstream(&addrs, &format!("timeouts: {{ response: 300ms }}, {keys}")))
}

fn judged(n: u32) -> String {
    format!("outlier: {{ consecutive_failures: {n}, eject_for: 1h }}")
}

fn ejections(gateway: &Gateway) -> f64 {
    gateway.metric("tollgate_endpoint_ejections_total", &[])
}

fn is_used(gateway: &Gateway, addr: SocketAddr) -> bool {
    let (_, upstream) = admin(gateway, "GET /upstreams/origin");
    let endpoints = upstream["endpoints"].as_array().unwrap();
    endpoints.iter().any(|endpoint| endpoint["address"] == addr.to_string() && endpoint["used"] == true)
}

fn ask(gateway: &Gateway) {
    exchange(gateway.addr(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
}

#[test]
fn every_kind_of_failure_counts() {
    let mut table = Table::new("failures");
    for (name, act) in [
        ("a listed status", Act::Answer("503")),
        ("a reset", Act::Reset(INTERNAL_ERROR)),
        ("a reset that says no error", Act::Reset(0)),
        ("a reset within the body", Act::Cut(INTERNAL_ERROR)),
        ("a connection that ends", Act::Close),
        ("a connection that is always about to end", Act::Goaway),
        ("refusals of everything", Act::Reset(REFUSED_STREAM)),
        ("complaints about us", Act::Reset(ENHANCE_YOUR_CALM)),
        ("silence", Act::Silent),
        ("gRPC's UNAVAILABLE behind the body", Act::Trailers("14")),
        ("gRPC's UNAVAILABLE without one", Act::HeadOnly("14")),
    ] {
        let servers = servers();
        // At random, so that what is tried again may come to the same one.
        let addrs = [servers[0].origin.addr(), servers[1].origin.addr()];
        let keys = format!("timeouts: {{ response: 300ms }}, {}", judged(3));
        let gateway = Gateway::start(&upstream(&addrs, &keys).replace("round_robin", "random"));
        assert_eq!(gateway.statuses(4, "/"), [200; 4], "{name}");
        servers[0].set(act);
        until(&format!("{name} ejects"), || {
            ask(&gateway);
            !is_used(&gateway, servers[0].origin.addr())
        });
        let counted = (gateway.statuses(6, "/"), ejections(&gateway), is_used(&gateway, servers[1].origin.addr()));
        table.row(name, if counted == (vec![200; 6], 1.0, true) { String::new() } else { format!("{counted:?}") });
    }
}

#[test]
fn what_a_request_or_a_restart_brings_about_does_not_count() {
    let mut table = Table::new("no failures");
    for (name, act, status) in [
        ("a call that the server cancels", Act::Reset(CANCEL), 502),
        ("an unlisted status", Act::Answer("500"), 500),
        ("gRPC's INTERNAL", Act::Trailers("13"), 200),
        ("gRPC's UNKNOWN", Act::HeadOnly("2"), 200),
    ] {
        let servers = servers();
        let gateway = before(&servers, &judged(1));
        servers.iter().for_each(|server| server.set(act));
        let statuses = gateway.statuses(10, "/");
        let unjudged = statuses.iter().all(|found| *found == status) && ejections(&gateway) == 0.0;
        table.row(name, if unjudged { String::new() } else { format!("{statuses:?} {}", gateway.log()) });
    }
}

#[test]
fn refusals_that_the_next_try_makes_up_for_do_not_count() {
    for act in [Act::Reset(REFUSED_STREAM), Act::Goaway] {
        let servers = servers();
        // In turn, so that what one refuses the other one gets.
        let gateway = before(&servers, &judged(1));
        servers[0].set(act);
        assert_eq!(gateway.statuses(10, "/"), [200; 10]);
        assert!(servers[0].hits() >= 5 && ejections(&gateway) == 0.0);
    }
}

#[test]
fn a_connection_that_is_closed_just_when_it_is_used_again_is_not_a_failure() {
    let racing = H2Origin::new(|call| match call.nth {
        1 => _ = call.headers(&[(":status", "200")], true),
        _ => call.close(),
    });
    let other = H2Origin::ok();
    let gateway = Gateway::start(&upstream(&[racing.addr(), other.addr()], &judged(1)));
    assert_eq!(gateway.statuses(10, "/"), [200; 10]);
    assert!(gateway.metric("tollgate_upstream_retries_total", &[]) > 0.0, "the race was met");
    let post = || exchange(gateway.addr(), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nz").outcome();
    let outcomes: Vec<_> = (0..8).map(|_| post()).collect();
    assert!(outcomes.iter().any(|outcome| outcome == "502"), "{outcomes:?}");
    assert_eq!(ejections(&gateway), 0.0);
}

#[test]
fn a_connection_that_breaks_under_others_is_a_failure_for_each() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = H2Origin::new(move |call| match call.seen.path() {
        "/wait" => {
            theirs.wait();
            call.close();
        }
        _ => _ = call.headers(&[(":status", "200")], true),
    });
    let other = H2Origin::ok();
    let gateway = Gateway::start(&upstream(&[origin.addr(), other.addr()], &judged(2)));
    // Each worker has a connection of its own, so all go over one of the client's, which stays with its worker.
    let mut client = H2::connect(gateway.addr());
    assert_eq!([client.get("/").status(), client.get("/").status()], [200; 2]);
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/wait")];
    let streams: Vec<_> = (0..6).map(|_| client.request(&fields, None)).collect();
    until("three wait on one connection", || origin.most_streams() == 3);
    door.open();
    let mut statuses: Vec<_> = streams.into_iter().map(|stream| client.receive(stream).status()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 502, 502, 502]);
    assert_eq!(ejections(&gateway), 1.0);
}

#[test]
fn a_caller_in_a_hurry_does_not_count() {
    let servers = servers();
    let gateway = before(&servers, &judged(1));
    servers.iter().for_each(|server| server.set(Act::Silent));
    let mut client = H2::connect(gateway.addr());
    let head = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/a.B/C"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", "20m"),
    ];
    for body in [Some(&b"\0\0\0\0\0"[..]), None, Some(b""), None] {
        let reply = client.ask(&head, body);
        assert_eq!(reply.header("grpc-status"), Some("4"), "{}", reply.outcome());
    }
    assert_eq!((servers[0].hits() + servers[1].hits(), ejections(&gateway)), (4, 0.0));
    // Over HTTP/1.1 the same words mean nothing, and silence is silence.
    exchange(gateway.addr(), "GET / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nGrpc-Timeout: 20m\r\n\r\n");
    assert_eq!(ejections(&gateway), 1.0);
}

#[test]
fn a_good_answer_ends_a_row_also_one_whose_client_knows_its_length() {
    let bad = Arc::new(Mutex::new(false));
    let theirs = Arc::clone(&bad);
    let flaky = H2Origin::new(move |call| {
        if *theirs.lock().unwrap() {
            call.reset(INTERNAL_ERROR);
            return;
        }
        // A client over HTTP/1.1 has all that it waits for before the stream ends.
        call.headers(&[(":status", "200"), ("content-length", "4")], false);
        call.data(b"good", false);
        call.data(b"", true);
    });
    let other = H2Origin::ok();
    let gateway = Gateway::start(&upstream(&[flaky.addr(), other.addr()], &judged(3)));
    for n in 0..12 {
        *bad.lock().unwrap() = n % 3 > 0;
        gateway.statuses(2, "/");
    }
    assert_eq!(ejections(&gateway), 0.0, "two in a row are not three");
    *bad.lock().unwrap() = true;
    gateway.statuses(6, "/");
    assert_eq!(ejections(&gateway), 1.0);
}

#[test]
fn connections_that_cannot_be_made_count_and_cost_nobody_a_response() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let http1 = Origin::ok();
    for addr in [nobody, http1.addr()] {
        let good = Server::new();
        let gateway = Gateway::start(&upstream(&[addr, good.origin.addr()], &judged(3)));
        assert_eq!(gateway.statuses(30, "/"), [200; 30]);
        assert!(!is_used(&gateway, addr));
        assert_eq!((ejections(&gateway), gateway.metric("tollgate_upstream_retries_total", &[])), (1.0, 3.0));
    }
}

#[test]
fn a_drained_endpoint_finishes_its_streams_and_its_connection() {
    let door = Latch::default();
    let behind = |door: &Latch| {
        let door = door.clone();
        H2Origin::new(move |call| {
            if call.seen.path() == "/wait" {
                door.wait();
            }
            call.headers(&[(":status", "200")], true);
        })
    };
    let origins = [behind(&door), behind(&door)];
    let addrs = [origins[0].addr(), origins[1].addr()];
    let gateway = Gateway::start(&upstream(&addrs, ""));
    let heads = || origins.each_ref().map(|origin| origin.seen().len());
    let mut clients = [gateway.client(), gateway.client()];
    for client in &mut clients {
        client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    until("each has one", || heads() == [1, 1]);
    let path = format!("/upstreams/origin/{}/drain", addrs[0]);
    assert_eq!(admin(&gateway, &format!("POST {path}")).0, 200);
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
    assert_eq!((heads(), origins[0].open()), ([1, 7], 1), "nothing new, and what is under way goes on");
    door.open();
    for client in &mut clients {
        assert_eq!(client.receive().outcome(), "200");
    }
    until("its connection is closed", || origins[0].open() == 0);
    assert_eq!(origins[1].open(), origins[1].connections(), "the other's are not");
    assert_eq!(admin(&gateway, &format!("DELETE {path}")).0, 200);
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
    assert_eq!(heads()[0], 4);
    for addr in addrs {
        assert_eq!(admin(&gateway, &format!("POST /upstreams/origin/{addr}/drain")).0, 200);
    }
    let refused = gateway.get("/");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[("kind", "no_endpoint")]), 1.0);
}

#[test]
fn a_hash_sends_a_client_to_one_endpoint() {
    let servers = servers();
    let addrs = [servers[0].origin.addr(), servers[1].origin.addr()];
    let keys = "balance: { hash: 'header:x-key', load_bound: 1000 }";
    let gateway = Gateway::start(&upstream(&addrs, keys).replace("balance: round_robin, ", ""));
    for key in 0..16 {
        let before = servers.each_ref().map(Server::hits);
        for _ in 0..3 {
            exchange(gateway.addr(), format!("GET / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n"));
        }
        let after = servers.each_ref().map(Server::hits);
        assert!(after == [before[0] + 3, before[1]] || after == [before[0], before[1] + 3], "{before:?} {after:?}");
    }
    assert!(servers.iter().all(|server| server.hits() > 0), "not all keys go to one");
}

#[test]
fn health_checks_over_http_speak_what_requests_do() {
    let servers = servers();
    let gateway = before(
        &servers,
        "health: { path: /healthz, host: 'shop.example', interval: 20ms, timeout: 2s, unhealthy_after: 2, healthy_after: 2 }",
    );
    let checks = |server: &Server| server.origin.seen().into_iter().filter(|seen| seen.path() == "/healthz").collect::<Vec<_>>();
    until("both are checked", || servers.iter().all(|server| checks(server).len() >= 2));
    let seen = checks(&servers[0]).swap_remove(0);
    assert_eq!(
        [":method", ":scheme", ":authority", "host", "connection"].map(|name| seen.header(name)),
        [Some("GET"), Some("http"), Some("shop.example"), None, None]
    );
    servers[0].set(Act::Answer("500"));
    let used = |used: bool| until(&format!("used: {used}"), || is_used(&gateway, servers[0].origin.addr()) == used);
    used(false);
    let before = servers[0].hits();
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
    assert_eq!(servers[0].hits(), before);
    servers[0].set(Act::Answer("200"));
    used(true);
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
    assert_eq!(servers[0].hits(), before + 3);
    until("checks leave no connections behind", || servers[0].origin.open() <= 3);
}
