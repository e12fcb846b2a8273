//! HF-1 and HF-2: streams that are begun and never finished, reset by the client or by us.

use super::{FIELDS, Memory, others_are_served};
use crate::harness::{Client, Gateway, H2, Next, Origin, code, kind, until};

/// Answers everything but `/flood`.
fn origin() -> Origin {
    Origin::new(|call| {
        if call.target() == "/flood" { call.stall() } else { call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") }
    })
}

fn flooded(origin: &Origin) -> usize {
    origin.lines().iter().filter(|line| line.contains("/flood")).count()
}

/// Each opened stream counts against the limit like any other, reset or not.
#[test]
fn rapid_resets_are_charged_and_cancelled_upstream() {
    let origin = origin();
    let gateway = Gateway::before(&origin, "limits: [{ name: fifty, match: { path: /flood }, per: ip, rate: 50/hour }]");
    let memory = Memory::of(&gateway);
    let mut attacker = H2::connect(gateway.addr());
    for _ in 0..2_000 {
        let stream = attacker.request(&FIELDS, None);
        attacker.cancel(stream);
    }
    others_are_served(&gateway);
    assert!(flooded(&origin) <= 50, "{} of 2000 reset streams reached the upstream", flooded(&origin));
    until("the cancelled calls are given up", || origin.open() <= 1);
    memory.grew_at_most(8, "2000 resets");
}

/// All at once: more streams are reset before they are looked at than anybody needs to.
#[test]
fn resets_at_once_end_the_connection() {
    let origin = origin();
    let gateway = Gateway::before(&origin, "");
    let memory = Memory::of(&gateway);
    let mut attacker = H2::connect(gateway.addr());
    for _ in 0..10_000 {
        let stream = attacker.request(&FIELDS, None);
        attacker.cancel(stream);
    }
    assert!(attacker.is_closed());
    others_are_served(&gateway);
    assert!(flooded(&origin) <= 1_000, "{} of 10000 reset streams reached the upstream", flooded(&origin));
    until("it is counted", || gateway.metric("tollgate_reset_floods_total", &[]) > 0.5);
    until("the cancelled calls are given up", || origin.open() <= 1);
    memory.grew_at_most(8, "10000 resets");
}

/// One after the other, each only when the upstream has it: what is not seen by looking at a burst.
#[test]
fn resets_at_leisure_end_the_connection_too() {
    let origin = origin();
    let gateway = Gateway::before(&origin, "");
    let mut attacker = H2::connect(gateway.addr());
    let mut begun = 0;
    while begun < 2_000 && !attacker.is_over() {
        let stream = attacker.request(&FIELDS, None);
        begun += 1;
        // An answered PING says that the gateway has read on; whether it lives shows in the answer.
        attacker.ping();
        attacker.cancel(stream);
        attacker.ping();
    }
    assert!((500..600).contains(&begun), "{begun} streams were begun");
    assert!(attacker.is_closed());
    assert!(flooded(&origin) <= begun);
    assert_eq!(gateway.metric("tollgate_reset_floods_total", &[]), 1.0);
    until("the cancelled calls are given up", || origin.open() <= 1);
    others_are_served(&gateway);
}

/// A browser that leaves its pages, and a proxy whose many clients sometimes do.
#[test]
fn who_resets_less_than_half_is_no_attacker() {
    let origin = origin();
    let gateway = Gateway::before(&origin, "");
    let mut browser = H2::connect(gateway.addr());
    for n in 0..1_000 {
        if n % 2 == 0 {
            assert_eq!(browser.get("/page").status(), 200, "request {n}");
        } else {
            let stream = browser.request(&FIELDS, None);
            browser.ping();
            browser.cancel(stream);
        }
    }
    assert_eq!(browser.get("/page").status(), 200);
    assert_eq!(gateway.metric("tollgate_reset_floods_total", &[]), 0.0);
}

/// HF-2: the client makes us reset its streams, which hides them from who counts only its resets (CVE-2025-8671).
#[test]
fn streams_that_we_are_made_to_reset_end_the_connection_too() {
    type Provocation = (&'static str, fn(&mut H2, u32));
    let provocations: [Provocation; 3] = [
        ("a window update of 0", |client, stream| client.frame(kind::WINDOW_UPDATE, 0, stream, &[0; 4])),
        ("a window that overflows", |client, stream| {
            for _ in 0..2 {
                client.frame(kind::WINDOW_UPDATE, 0, stream, &(i32::MAX as u32).to_be_bytes());
            }
        }),
        ("trailers that end nothing", |client, stream| {
            client.frame(kind::HEADERS, crate::harness::flag::END_HEADERS, stream, &crate::harness::header_block(&[("x", "1")]));
        }),
    ];
    for (name, provoke) in provocations {
        let origin = origin();
        let gateway = Gateway::before(&origin, "limits: [{ name: many, match: { path: /flood }, per: ip, rate: 400/hour }]");
        let memory = Memory::of(&gateway);
        let mut attacker = H2::connect(gateway.addr());
        let mut begun = 0;
        while begun < 4_000 && !attacker.is_over() {
            let post = [(":method", "POST"), FIELDS[1], FIELDS[2], FIELDS[3]];
            let stream = attacker.open(&post, false);
            provoke(&mut attacker, stream);
            attacker.ping();
            begun += 1;
        }
        assert!(begun < 1_200, "{name}: {begun} streams were begun");
        assert!(attacker.is_closed(), "{name}");
        assert!(flooded(&origin) <= 400, "{name}: {} reached the upstream", flooded(&origin));
        until("the cancelled calls are given up", || origin.open() <= 1);
        memory.grew_at_most(8, name);
        others_are_served(&gateway);
    }
}

/// A concurrency limit counts upstream work under way: neither more because streams were reset, nor less.
#[test]
fn slots_count_the_work_and_not_the_streams() {
    let origin = origin();
    let gateway = Gateway::before(&origin, "limits: [{ name: few, match: { path: /flood }, per: ip, concurrency: 5 }]");
    let mut attacker = H2::connect(gateway.addr());
    for _ in 0..100 {
        let stream = attacker.request(&FIELDS, None);
        attacker.ping();
        attacker.cancel(stream);
        attacker.ping();
        assert!(origin.open() <= 7, "{} calls at once", origin.open());
    }
    until("all slots are free", || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
    let held: Vec<u32> = (0..6).map(|_| attacker.request(&FIELDS, None)).collect();
    assert_eq!(attacker.receive(held[5]).status(), 429);
}

/// The same over HTTP/1.1: requests whose connection is reset as soon as they are sent.
#[test]
fn requests_on_connections_that_are_reset_are_charged_and_cancelled() {
    let origin = origin();
    let listener = "listeners: [{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 0 }]";
    let gateway = Gateway::before(
        &origin,
        &format!("{listener}\nlimits: [{{ name: fifty, match: {{ path: /flood }}, per: ip, rate: 50/hour }}]"),
    );
    let memory = Memory::of(&gateway);
    for _ in 0..300 {
        let mut client = Client::connect(gateway.addr());
        client.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
        client.reset();
    }
    until("all are gone", || gateway.metric("tollgate_worker_connections", &[]) == 0.0);
    assert!(flooded(&origin) <= 50, "{}", flooded(&origin));
    until("the cancelled calls are given up", || origin.open() <= 1);
    memory.grew_at_most(8, "300 resets");
    others_are_served(&gateway);
}

/// What was promised about codes: a burst is answered with ENHANCE_YOUR_CALM, where the client stays to hear it.
#[test]
fn a_burst_of_resets_is_told_to_calm_down() {
    let origin = Origin::new(|call| if call.body() { Next::Keep } else { Next::Close });
    let gateway = Gateway::before(&origin, "");
    let mut attacker = H2::connect(gateway.addr());
    let mut burst = Vec::new();
    for n in 0..200_u32 {
        burst.extend(H2::frame_bytes(kind::HEADERS, 5, 2 * n + 1, &crate::harness::header_block(&FIELDS)));
        burst.extend(H2::frame_bytes(kind::RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8]));
    }
    attacker.write(&burst);
    attacker.pump(|client| client.last_word().is_some());
    assert_eq!(attacker.last_word(), Some(code::ENHANCE_YOUR_CALM));
    assert!(attacker.is_closed());
}
