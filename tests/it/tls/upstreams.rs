//! TLS towards upstreams: who is believed, what a failed handshake is, and what the end of a connection means.

use crate::harness::{Authority, Gateway, Latch, Leaf, Next, Origin, Serve, Table, until};
use std::fs;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An upstream with this certificate that answers `ok`.
fn origin(pair: &(String, String)) -> Origin {
    Origin::secure(Serve::showing(pair, None), |call| call.answer(OK))
}

/// In front of this host and port, with these settings.
fn gateway(host: &str, origin: &Origin, tls: &str) -> Gateway {
    let port = origin.addr().port();
    Gateway::start(&format!(
        "upstreams: {{ origin: {{ endpoints: ['https://{host}:{port}'], timeouts: {{ connect: 1s }}, tls: {{ {tls} }} }} }}"
    ))
}

fn errors(gateway: &Gateway, kind: &str) -> f64 {
    gateway.metric("tollgate_upstream_errors_total", &[("upstream", "origin"), ("kind", kind)])
}

#[test]
fn only_the_right_one_is_believed() {
    let authority = Authority::new("upstreams");
    let stranger = Authority::new("strangers");
    let ca = format!("ca: '{}'", authority.ca().display());
    let right = origin(&authority.sign(&Leaf::of(&["localhost", "127.0.0.1", "other.internal"])));
    let wrong_name = origin(&authority.sign(&Leaf::of(&["elsewhere.internal"])));
    let expired = origin(&authority.sign(&Leaf::of(&["localhost"]).until(1_600_000_000)));
    let unknown = origin(&stranger.sign(&Leaf::of(&["localhost"])));
    let with = |more: &str| format!("{ca}, {more}");
    let mut table = Table::new("upstream certificates");
    for (name, host, origin, tls, expected) in [
        ("the right one", "localhost", &right, ca.clone(), 200),
        ("by its address", "127.0.0.1", &right, ca.clone(), 200),
        ("by another name", "localhost", &right, with("server_name: other.internal"), 200),
        ("by a name it has not", "localhost", &right, with("server_name: third.internal"), 502),
        ("by an address it has not", "127.0.0.2", &right, ca.clone(), 502),
        ("one for another name", "localhost", &wrong_name, ca.clone(), 502),
        ("the same by that name", "localhost", &wrong_name, with("server_name: elsewhere.internal"), 200),
        ("an expired one", "localhost", &expired, ca.clone(), 502),
        ("one of somebody else", "localhost", &unknown, ca.clone(), 502),
        ("one that nobody public signed", "localhost", &right, String::new(), 502),
        ("anybody, for another name", "localhost", &wrong_name, "insecure: true".to_owned(), 200),
        ("anybody, expired", "localhost", &expired, "insecure: true".to_owned(), 200),
        ("anybody, unknown", "localhost", &unknown, with("insecure: true"), 200),
    ] {
        let gateway = gateway(host, origin, &tls);
        let reply = gateway.get("/");
        let is_counted = errors(&gateway, "tls") + errors(&gateway, "connect") == f64::from(u8::from(expected == 502));
        let warned = gateway.log().contains("insecure: anybody who answers is believed") == tls.contains("insecure");
        let internals = ["ertificate", "rustls", "TLS"].iter().any(|word| reply.text().contains(word));
        let right = reply.status == expected && is_counted && warned && !internals;
        table.row(name, if right { String::new() } else { format!("{} {}\n{}", reply.status, reply.text(), gateway.log()) });
    }
}

#[test]
fn we_show_a_certificate_where_one_is_asked_for() {
    let (servers, clients) = (Authority::new("upstreams"), Authority::new("clients"));
    let origin = Origin::secure(Serve::showing(&servers.sign(&Leaf::of(&["localhost"])), Some(&clients)), |call| call.answer(OK));
    let ca = format!("ca: '{}'", servers.ca().display());
    let pair = clients.issue("gateway", &Leaf::of(&["gateway"]));
    let with = gateway("localhost", &origin, &format!("{ca}, client_cert: {pair}"));
    assert_eq!(with.get("/").status, 200);
    let not_after = || with.metric("tollgate_tls_certificate_not_after_seconds", &[("upstream", "origin")]);
    assert_eq!(not_after(), 4_000_000_000.0);
    let without = gateway("localhost", &origin, &ca);
    assert_eq!(without.get("/").status, 502);
    let stranger = Authority::new("strangers");
    let wrong = stranger.issue("gateway", &Leaf::of(&["gateway"]));
    assert_eq!(gateway("localhost", &origin, &format!("{ca}, client_cert: {wrong}")).get("/").status, 502);
    // It follows its file; connections go on.
    clients.issue("gateway", &Leaf::of(&["gateway"]).until(3_000_000_000));
    until("the new certificate is in force", || not_after() == 3_000_000_000.0);
    assert_eq!(with.get("/").status, 200);
}

#[test]
fn authorities_of_upstreams_follow_their_file() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let origin = origin(&new.sign(&Leaf::of(&["localhost"])));
    let gateway = gateway("localhost", &origin, &format!("ca: '{}'", old.ca().display()));
    assert_eq!(gateway.get("/").status, 502);
    fs::write(old.ca(), "nonsense").unwrap();
    until("nonsense is counted", || gateway.metric("tollgate_tls_file_reloads_total", &[("result", "failure")]) == 1.0);
    fs::copy(new.ca(), old.ca()).unwrap();
    until("the new authority is believed", || gateway.get("/").status == 200);
}

/// An upstream that accepts and then does this.
fn listening(act: impl Fn(std::net::TcpStream) + Send + Sync + 'static) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let act = Arc::new(act);
    std::thread::spawn(move || {
        for stream in listener.incoming().take(20).flatten() {
            let act = Arc::clone(&act);
            std::thread::spawn(move || act(stream));
        }
    });
    addr
}

#[test]
fn a_handshake_that_fails_is_502_and_one_that_stalls_504() {
    use std::io::{Read, Write};
    let some = |stream: &mut std::net::TcpStream| stream.read(&mut [0; 4096]).is_ok();
    let closes = listening(move |mut stream| assert!(some(&mut stream)));
    let at_once = listening(drop);
    let nonsense = listening(move |mut stream| {
        some(&mut stream);
        drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
    });
    let stalls = listening(move |mut stream| while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {});
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (name, addr, expected, kind) in [
        ("closes", closes, 502, "tls"),
        ("closes at once", at_once, 502, "tls"),
        ("speaks something else", nonsense, 502, "tls"),
        ("says nothing", stalls, 504, "connect"),
        ("is not there", gone, 502, "connect"),
    ] {
        let gateway = Gateway::start(&format!(
            "upstreams: {{ origin: {{ endpoints: ['https://{addr}'], timeouts: {{ connect: 500ms }} }} }}"
        ));
        assert_eq!((gateway.get("/").status, errors(&gateway, kind)), (expected, 1.0), "{name}: {}", gateway.log());
    }
}

#[test]
fn the_next_endpoint_is_tried_when_a_handshake_fails() {
    let authority = Authority::new("upstreams");
    let good = origin(&authority.sign(&Leaf::of(&["localhost"])));
    let bad = origin(&Authority::new("strangers").sign(&Leaf::of(&["localhost"])));
    let gateway = Gateway::start(&format!(
        "upstreams: {{ origin: {{ endpoints: ['https://localhost:{}', 'https://localhost:{}'], tls: {{ ca: '{}' }} }} }}",
        bad.addr().port(),
        good.addr().port(),
        authority.ca().display()
    ));
    // A body can't be sent twice; but nothing has been sent.
    for _ in 0..8 {
        let reply = gateway.client().ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(reply.status(), 200);
    }
    assert_eq!((good.seen().len(), bad.seen().len()), (8, 0));
}

/// A ticket after the handshake is no byte nobody asked for, and connections are used again.
#[test]
fn connections_are_used_again_and_clear_text_is_never_mixed_in() {
    let authority = Authority::new("upstreams");
    let origin = origin(&authority.sign(&Leaf::of(&["localhost"])));
    let gateway = gateway("localhost", &origin, &format!("ca: '{}'", authority.ca().display()));
    for _ in 0..10 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(origin.connections(), 1);
    // Other settings, other connections: whoever insists on a name does not take one that was made without.
    let port = origin.addr().port();
    let with = |tls: &str| format!("upstreams: {{ origin: {{ endpoints: ['https://localhost:{port}'], tls: {{ {tls} }} }} }}");
    gateway.reload(&with("insecure: true"));
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(origin.connections(), 2);
    gateway.reload(&with(&format!("ca: '{}', server_name: elsewhere.internal", authority.ca().display())));
    assert_eq!(gateway.get("/").status, 502);
    gateway.reload(&format!("upstreams: {{ origin: {{ endpoints: ['http://localhost:{port}'] }} }}"));
    assert_eq!(gateway.get("/").status, 502);
    assert_eq!(origin.seen().len(), 11);
    gateway.reload(&with("insecure: true"));
    assert_eq!(gateway.get("/").status, 200);
    // And a connection at rest keeps nobody from leaving.
    gateway.stop();
}

/// What TLS has to say between two exchanges is no byte nobody asked for.
#[test]
fn new_keys_on_a_connection_at_rest_are_no_reason_to_close_it() {
    let authority = Authority::new("upstreams");
    let (answered, changed) = (Latch::default(), Latch::default());
    let (wait, tell) = (answered.clone(), changed.clone());
    let pair = authority.sign(&Leaf::of(&["localhost"]));
    let origin = Origin::secure(Serve::showing(&pair, None), move |call| {
        call.answer(OK);
        if call.nth == 1 {
            wait.wait();
            call.stream.change_keys();
            tell.open();
        }
        Next::Keep
    });
    let gateway = gateway("localhost", &origin, &format!("ca: '{}'", authority.ca().display()));
    assert_eq!(gateway.get("/").status, 200);
    answered.open();
    changed.wait();
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!(origin.connections(), 1);
}

/// The keep-alive race, over TLS: an end that was announced and one that was not.
#[test]
fn a_connection_that_was_closed_while_idle_is_not_used() {
    for cut in [false, true] {
        let authority = Authority::new("upstreams");
        let pair = authority.sign(&Leaf::of(&["localhost"]));
        let origin = Origin::secure(Serve::showing(&pair, None), move |call| {
            call.answer(OK);
            if cut { call.cut() } else { Next::Close }
        });
        let gateway = gateway("localhost", &origin, &format!("ca: '{}'", authority.ca().display()));
        for n in 0..5 {
            assert_eq!(gateway.get("/").status, 200);
            until("upstream has closed", || origin.open() == 0);
            assert_eq!(origin.connections(), n + 1);
        }
        assert_eq!(errors(&gateway, "closed"), 0.0);
    }
}

/// What ends with the connection is whole only if the end was announced; what says how long it is needs no such word.
#[test]
fn a_body_that_is_cut_is_never_complete() {
    type Script = (&'static str, &'static str, bool, &'static str);
    let rows: [Script; 8] = [
        ("a length, whole, announced", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false, "200"),
        ("a length, whole, cut", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", true, "200"),
        ("a length, short, announced", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", false, "200 cut|closed|reset"),
        ("a length, short, cut", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", true, "200 cut|closed|reset"),
        ("chunks, short, cut", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true, "200 cut|closed|reset"),
        ("until the end, announced", "HTTP/1.1 200 OK\r\n\r\nabc", false, "200"),
        ("until the end, cut", "HTTP/1.1 200 OK\r\n\r\nabc", true, "200 cut|closed|reset"),
        ("half a head, cut", "HTTP/1.1 200 OK\r\nContent-", true, "502"),
    ];
    let authority = Authority::new("upstreams");
    let pair = authority.sign(&Leaf::of(&["localhost"]));
    let row = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&row);
    let origin = Origin::secure(Serve::showing(&pair, None), move |call| {
        let (_, answer, cut, _) = rows[current.load(Ordering::SeqCst)];
        call.answer(answer.as_bytes());
        if cut { call.cut() } else { Next::Close }
    });
    let gateway = gateway("localhost", &origin, &format!("ca: '{}'", authority.ca().display()));
    let mut table = Table::new("truncation");
    for (i, (name, _, _, expected)) in rows.into_iter().enumerate() {
        row.store(i, Ordering::SeqCst);
        let reply = gateway.client().get("/");
        table.outcome(name, expected, &reply.outcome());
        until("upstream has closed", || origin.open() == 0);
    }
}

/// Large bodies both ways at once, more than TLS or the kernel holds back.
#[test]
fn large_bodies_go_through() {
    let authority = Authority::new("upstreams");
    let pair = authority.sign(&Leaf::of(&["localhost"]));
    let origin = Origin::secure(Serve::showing(&pair, None), |call| {
        if !call.body() {
            return Next::Close;
        }
        let body = call.seen().body;
        call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
        call.send(body);
        Next::Keep
    });
    let gateway = gateway("localhost", &origin, &format!("ca: '{}'", authority.ca().display()));
    let body: Vec<u8> = (0..8_u32 << 20).map(|i| (i % 251) as u8).collect();
    for _ in 0..2 {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        let reply = gateway.client().ask([head.as_bytes(), &body].concat()).response();
        assert!(reply.status == 200 && !reply.cut && reply.body == body);
    }
    assert_eq!(origin.connections(), 1);
}

/// What TLS has taken of a request and the kernel has not goes out when the upstream reads.
#[test]
fn the_last_bytes_of_a_request_do_not_stay_behind() {
    let authority = Authority::new("upstreams");
    let pair = authority.sign(&Leaf::of(&["localhost"]));
    let origin = Origin::secure(Serve::showing(&pair, None), |call| {
        // The kernel's buffers fill meanwhile.
        std::thread::sleep(Duration::from_millis(60));
        call.answer(OK)
    });
    let gateway = gateway("localhost", &origin, &format!("ca: '{}'", authority.ca().display()));
    for size in (1..=60).map(|n| n * (64 << 10)) {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
        assert_eq!(gateway.client().ask([head.as_bytes(), &vec![b'x'; size]].concat()).outcome(), "200", "{size}");
    }
}

/// We take leave too.
#[test]
fn idle_connections_are_closed_with_a_word() {
    use std::io::Read;
    let authority = Authority::new("upstreams");
    let pair = authority.sign(&Leaf::of(&["localhost"]));
    let announced = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&announced);
    let origin = Origin::secure(Serve::showing(&pair, None), move |call| {
        call.answer(OK);
        if matches!(call.stream.read(&mut [0]), Ok(0)) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Next::Close
    });
    let port = origin.addr().port();
    let gateway = Gateway::start(&format!(
        "upstreams: {{ origin: {{ endpoints: ['https://localhost:{port}'], timeouts: {{ idle: 300ms }}, tls: {{ ca: '{}' }} }} }}",
        authority.ca().display()
    ));
    assert_eq!(gateway.get("/").status, 200);
    until("the end is announced", || announced.load(Ordering::SeqCst) == 1);
}
