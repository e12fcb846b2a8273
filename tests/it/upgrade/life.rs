//! WS-4 and WS-5: what a tunnel holds, for how long, and what is known of it.

use super::{End, Socket, accepting, asking, close_code, frame, masked, silent, switching};
use crate::harness::{Client, Gateway, Latch, Next, Origin, happens, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ONE_SLOT: &str = "limits: [{ name: open, per: ip, concurrency: 1 }]";

fn is_busy(gateway: &Gateway) -> bool {
    match Client::connect(gateway.addr()).ask(asking("/probe", "")).status() {
        429 => true,
        101 => false,
        other => panic!("{other}"),
    }
}

/// Obeys: resets, finishes, or echoes and ends with its client.
fn obedient() -> Origin {
    accepting(|_, mut socket| {
        while let Some((_, payload, length)) = super::first_frame(&socket.ahead).or_else(|| {
            let ended = loop {
                match socket.fill() {
                    Some(End::Silent) => {}
                    Some(_) => break true,
                    None if super::first_frame(&socket.ahead).is_some() => break false,
                    None => {}
                }
            };
            (!ended).then(|| super::first_frame(&socket.ahead).unwrap())
        }) {
            socket.ahead.drain(..length);
            match payload.as_slice() {
                b"reset" => return socket.reset(),
                b"finish" => _ = socket.finish(),
                _ => _ = socket.send(frame(0x81, &payload, None)),
            }
        }
    })
}

/// Ends a connection in some way.
type Ends = fn(Socket);

#[test]
fn a_slot_is_held_until_both_sides_have_ended_and_comes_back_however_they_do() {
    let origin = obedient();
    let gateway = Gateway::before(&origin, ONE_SLOT);
    let ends: &[(&str, Ends)] = &[
        ("both finish", |mut socket| assert_eq!(socket.finish().rest().1, End::Fin)),
        ("the client is gone", drop),
        ("the client resets", Socket::reset),
        ("upstream resets", |mut socket| assert_eq!(socket.send(masked(0x81, b"reset")).rest().1, End::Reset)),
        ("upstream finishes first", |mut socket| {
            assert_eq!(socket.send(masked(0x81, b"finish")).rest().1, End::Fin);
            socket.finish();
        }),
    ];
    for (name, end) in ends {
        let mut socket = Socket::websocket(gateway.addr(), "/");
        assert_eq!(socket.send(masked(0x81, b"a")).read(3), b"\x81\x01a", "{name}");
        assert!(is_busy(&gateway), "{name}: held while it is open");
        end(socket);
        until(&format!("{name}: the slot is free"), || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
        until(&format!("{name}: nothing is open"), || origin.open() == 0);
        assert_eq!(gateway.metric("tollgate_upgraded_connections", &[]), 0.0, "{name}");
    }
    // And is free for the next.
    drop(Socket::websocket(gateway.addr(), "/"));
}

#[test]
fn half_a_close_holds_the_slot_and_carries_what_comes_the_other_way() {
    let go_on = Latch::default();
    let gate = go_on.clone();
    let origin = accepting(move |_, mut socket| {
        assert_eq!(socket.rest(), (b"last words".to_vec(), End::Fin));
        gate.wait();
        socket.send(vec![b'x'; 1 << 20]);
    });
    let gateway = Gateway::before(&origin, ONE_SLOT);
    let mut socket = Socket::websocket(gateway.addr(), "/");
    socket.send("last words").finish();
    assert!(is_busy(&gateway));
    go_on.open();
    let (bytes, end) = socket.rest();
    assert_eq!((bytes.len(), end), (1 << 20, End::Fin));
    until("the slot is free", || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
}

#[test]
fn a_websocket_is_one_request_however_much_goes_over_it() {
    let origin = obedient();
    let gateway = Gateway::before(&origin, "limits: [{ name: plan, per: ip, rate: 2/hour }]");
    let mut socket = Socket::websocket(gateway.addr(), "/");
    for _ in 0..100 {
        assert_eq!(socket.send(masked(0x81, b"a")).read(3), b"\x81\x01a");
    }
    let mut second = Client::connect(gateway.addr());
    assert_eq!(second.ask(asking("/", "")).status(), 101);
    let mut third = Client::connect(gateway.addr());
    let refused = third.ask(asking("/", "")).response();
    assert_eq!((refused.status, refused.header("upgrade")), (429, None));
    assert_eq!(third.get("/").status(), 429, "the connection goes on as HTTP");
    assert_eq!(gateway.metric("tollgate_limited_total", &[("limit", "plan")]), 2.0);
}

#[test]
fn the_log_and_the_metrics_know_what_a_tunnel_was() {
    let origin = obedient();
    let gateway = Gateway::before(&origin, "access_log: { format: json, to: stdout }");
    let mut socket = Socket::websocket(gateway.addr(), "/chat?key=x");
    assert_eq!(socket.send(masked(0x81, b"hello")).read(7), b"\x81\x05hello");
    let open = || gateway.metric("tollgate_upgraded_connections", &[("route", "all")]);
    assert_eq!(open(), 1.0);
    assert_eq!(gateway.metric("tollgate_requests_total", &[("route", "all")]), 0.0, "it has not ended");
    assert_eq!(socket.finish().rest(), (vec![], End::Fin));
    until("the tunnel is counted as over", || open() == 0.0);
    let bytes = |direction| gateway.metric("tollgate_upgraded_bytes_total", &[("route", "all"), ("direction", direction)]);
    assert_eq!((bytes("received"), bytes("sent")), (11.0, 7.0));
    assert_eq!(gateway.metric("tollgate_upgraded_duration_seconds_count", &[("route", "all")]), 1.0);
    assert_eq!(gateway.metric("tollgate_requests_total", &[("route", "all"), ("code", "1xx")]), 1.0);
    drop(Socket::websocket(gateway.addr(), "/2").send(masked(0x81, b"reset")).rest());
    until("both lines are written", || gateway.access_log().lines().count() == 2);
    let log = gateway.access_log();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (first, second) = (&lines[0], &lines[1]);
    assert_eq!((&first["method"], &first["path"], &first["status"]), (&"GET".into(), &"/chat".into(), &101.into()));
    assert_eq!((&first["upgraded"], &first["ended"]), (&"websocket".into(), &"closed".into()));
    assert_eq!((&first["received_bytes"], &first["sent_bytes"]), (&11.into(), &7.into()));
    assert_eq!(first.get("aborted"), None);
    assert_eq!((&second["path"], &second["ended"]), (&"/2".into(), &"upstream".into()));
}

#[test]
fn connections_are_counted_for_as_long_as_they_are_tunnels() {
    let (origin, noted) = silent();
    let yaml = "listeners: [{ name: public, address: '127.0.0.1:0', max_connections: 1 }]\nupstreams: { origin: { endpoints: ['http://ORIGIN'], max_connections: 1 } }";
    let gateway = Gateway::before(&origin, yaml);
    let socket = Socket::websocket(gateway.addr(), "/");
    assert!(gateway.client().is_closed(), "the listener is full");
    drop(socket);
    assert_eq!(noted.wait(1), (vec![], End::Fin));
    until("there is room again", || gateway.metric("tollgate_worker_connections", &[]) == 0.0);
    drop(Socket::websocket(gateway.addr(), "/"));
}

#[test]
fn a_tunnel_is_an_exchange_of_its_upstream() {
    let (origin, _) = silent();
    let yaml = "upstreams: { origin: { endpoints: ['http://ORIGIN'], max_connections: 1 } }";
    let gateway = Gateway::before(&origin, yaml);
    let socket = Socket::websocket(gateway.addr(), "/");
    assert_eq!(gateway.get("/").status, 503);
    drop(socket);
    until("there is room again", || gateway.get("/").status == 200);
}

#[test]
fn who_says_nothing_for_too_long_is_closed_and_told_so() {
    let (origin, noted) = silent();
    let yaml = "\
limits: [{ name: open, per: ip, concurrency: 1 }]
access_log: { format: text, to: stdout }
routes: [{ name: all, upstream: origin, timeouts: { tunnel_idle: 300ms } }]";
    let gateway = Gateway::before(&origin, yaml);
    let mut socket = Socket::websocket(gateway.addr(), "/");
    let (bytes, end) = socket.rest();
    assert_eq!((close_code(&bytes), end), (Some(1001), End::Fin));
    drop(socket);
    let (bytes, end) = noted.wait(1);
    assert_eq!((close_code(&bytes), bytes[1] & 0x80, end), (Some(1001), 0x80, End::Fin), "masked, as a client's");
    until("the slot is free", || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
    until("it is logged", || gateway.access_log().contains("upgraded=websocket received=0 sent=0 ended=idle"));
}

#[test]
fn a_protocol_nobody_knows_is_cut_when_it_is_idle() {
    let origin = Origin::new(|call| {
        call.body();
        call.send("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
        let (stream, ahead) = call.switch();
        assert_eq!(Socket::over(stream, ahead).rest(), (b"half".to_vec(), End::Fin));
        Next::Close
    });
    let yaml = "routes: [{ name: all, upstream: origin, upgrade: x, timeouts: { tunnel_idle: 300ms } }]";
    let gateway = Gateway::before(&origin, yaml);
    let mut client = Socket::connect(gateway.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhalf");
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(client.rest(), (vec![], End::Fin));
}

/// Every byte in either direction counts as life, and the timeouts of HTTP don't.
#[test]
fn a_tunnel_that_is_used_stays_whatever_the_timeouts_of_http_say() {
    let (origin, noted) = silent();
    let yaml = "\
listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { header: 100ms, body_idle: 100ms, keep_alive: 100ms, write_idle: 100ms } }]
routes: [{ name: all, upstream: origin, timeouts: { response: 200ms, total: 300ms, tunnel_idle: 1500ms } }]
upstreams: { origin: { endpoints: ['http://ORIGIN'], timeouts: { response: 200ms, idle: 100ms } } }";
    let gateway = Gateway::before(&origin, yaml);
    let mut socket = Socket::websocket(gateway.addr(), "/");
    let (begun, mut sent) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(2) {
        socket.send(masked(0x89, b""));
        sent += 6;
        assert!(!happens(Duration::from_millis(50), || noted.count() > 0));
    }
    socket.finish();
    let (bytes, end) = noted.wait(1);
    assert_eq!((bytes.len(), end), (sent, End::Fin));
}

/// Backpressure: what a client doesn't read is not read from upstream.
#[test]
fn a_slow_reader_slows_the_sender_and_fills_no_memory() {
    const ALL: u64 = 256 << 20;
    let sent = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&sent);
    let origin = accepting(move |_, mut socket| {
        let piece = vec![b'x'; 1 << 20];
        socket.stream.tcp().set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        while theirs.load(Ordering::SeqCst) < ALL {
            if std::io::Write::write_all(&mut socket.stream, &piece).is_err() {
                return;
            }
            theirs.fetch_add(1 << 20, Ordering::SeqCst);
        }
    });
    let gateway = Gateway::before(&origin, "");
    let before = gateway.rss();
    let mut socket = Socket::websocket(gateway.addr(), "/");
    let mut last = u64::MAX;
    // Until the kernel's buffers are full and nothing moves any more.
    until("upstream has to wait", || {
        let now = sent.load(Ordering::SeqCst);
        let still = now == last && now > 0 && !happens(Duration::from_millis(100), || sent.load(Ordering::SeqCst) > now);
        last = now;
        still
    });
    assert!(sent.load(Ordering::SeqCst) < ALL / 2);
    assert!(gateway.rss() < before + (8 << 20), "{} bytes more", gateway.rss() - before);
    let mut left = usize::try_from(ALL).unwrap();
    while left > 0 {
        let ended = socket.fill();
        assert!(ended.is_none() || left == socket.ahead.len(), "{ended:?} with {left} to come");
        left -= socket.ahead.len();
        socket.ahead.clear();
    }
    assert!(gateway.rss() < before + (8 << 20), "{} bytes more", gateway.rss() - before);
}

#[test]
fn a_reload_leaves_a_tunnel_as_it_was_agreed() {
    let origin = obedient();
    let gateway = Gateway::before(&origin, ONE_SLOT);
    let mut socket = Socket::websocket(gateway.addr(), "/");
    gateway.reload("limits: [{ name: open, per: ip, concurrency: 1 }]\nroutes: [{ name: other, upstream: origin, websocket: { max_message: 1 } }]");
    assert_eq!(socket.send(masked(0x81, b"hello")).read(7), b"\x81\x05hello");
    assert!(is_busy(&gateway), "the slot is still held");
    gateway.reload("limits: [{ name: open, per: ip, concurrency: 1 }]\nroutes: [{ name: gone, respond: {} }]\nupstreams: {}");
    assert_eq!(socket.send(masked(0x81, b"hello")).read(7), b"\x81\x05hello");
    assert_eq!(gateway.metric("tollgate_upgraded_connections", &[("route", "all")]), 1.0);
    assert_eq!(socket.finish().rest(), (vec![], End::Fin));
    until("the slot is free", || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
    until("it is counted where it began", || gateway.metric("tollgate_upgraded_connections", &[]) == 0.0);
}

/// A tunnel that lasts for days must not keep every configuration that there was meanwhile.
#[test]
fn tunnels_keep_no_configuration_in_memory() {
    let origin = obedient();
    let route = "{ name: all, upstream: origin }";
    let gateway = Gateway::before(&origin, &format!("routes: [{route}]"));
    let large = |n: u32| {
        let body = format!("{n}-").repeat(300_000);
        format!("routes: [{route}, {{ name: large, match: {{ path: /large }}, respond: {{ body: '{body}' }} }}]")
    };
    let mut sockets = Vec::new();
    let mut generation = |n: u32| {
        gateway.reload(&large(n));
        sockets.push(Socket::websocket(gateway.addr(), "/"));
    };
    (10..14).for_each(&mut generation);
    let before = gateway.rss();
    // Each has a fixed answer of 900 kB.
    (14..26).for_each(&mut generation);
    let grown = gateway.rss().saturating_sub(before);
    assert!(grown < 5 << 20, "{grown} bytes more for 12 generations");
    for socket in &mut sockets {
        assert_eq!(socket.send(masked(0x81, b"a")).read(3), b"\x81\x01a");
    }
}

#[test]
fn a_client_that_leaves_before_the_101_leaves_nothing_behind() {
    let door = Latch::default();
    let gate = door.clone();
    let origin = Origin::new(move |call| {
        call.body();
        if call.target() == "/" {
            gate.wait();
        }
        call.send(switching(super::KEY));
        call.stall()
    });
    let gateway = Gateway::before(&origin, ONE_SLOT);
    let mut socket = Socket::connect(gateway.addr());
    socket.send([asking("/", "").as_bytes(), b"early"].concat());
    origin.wait_heads(1);
    assert!(is_busy(&gateway));
    socket.reset();
    until("the slot is free", || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
    door.open();
    until("upstream's connection is closed", || origin.open() == 0);
    assert_eq!(gateway.metric("tollgate_upgraded_connections", &[]), 0.0);
    assert!(!is_busy(&gateway));
}

#[test]
fn tunnels_spread_over_workers_and_all_end() {
    let origin = obedient();
    let gateway = Gateway::before(&origin, "workers: 2");
    let mut sockets: Vec<Socket> = (0..40).map(|_| Socket::websocket(gateway.addr(), "/")).collect();
    for socket in &mut sockets {
        assert_eq!(socket.send(masked(0x81, b"a")).read(3), b"\x81\x01a");
    }
    assert_eq!(gateway.metric("tollgate_upgraded_connections", &[]), 40.0);
    drop(sockets);
    until("all are over", || gateway.metric("tollgate_upgraded_connections", &[]) == 0.0 && origin.open() == 0);
    gateway.stop();
}
