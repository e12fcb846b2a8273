//! TLS-2: what is spoken inside; and that requests know they came over TLS.

use super::{dial, failures, gateway, listener, outcome};
use crate::harness::{Authority, Client, Dial, Gateway, H2, Latch, Leaf, Next, Origin, Table, happens, until};
use std::time::Duration;

#[test]
fn alpn_decides_and_http1_is_the_custom() {
    let origin = Origin::ok();
    let (authority, gateway) = gateway(&origin, "");
    let how = authority.dial("localhost");
    let mut table = Table::new("TLS-2");
    for (offered, agreed) in [
        (vec!["h2", "http/1.1"], Some("h2")),
        (vec!["http/1.1", "h2"], Some("h2")),
        (vec!["http/1.1"], Some("http/1.1")),
        (vec!["h2"], Some("h2")),
        (vec!["spdy/3", "http/1.1"], Some("http/1.1")),
        (vec![], None),
    ] {
        let how = how.clone().alpn(&offered);
        let (found, status) = if agreed == Some("h2") {
            let mut client = H2::connect_secure(gateway.addr(), &how).unwrap();
            (client.wire().agreed(), client.get("/").status())
        } else {
            let mut client = dial(&gateway, &how).unwrap();
            (client.wire().agreed(), client.get("/").status())
        };
        let right = found.as_deref() == agreed && status == 200;
        table.row(&format!("{offered:?}"), if right { String::new() } else { format!("{found:?}, {status}") });
    }
    let refused = dial(&gateway, &how.alpn(&["spdy/3"])).err().unwrap();
    assert!(refused.contains("NoApplicationProtocol"), "{refused}");
    until("it is counted", || failures(&gateway, "alpn") == 1.0);
}

#[test]
fn protocols_of_the_listener_are_what_is_offered() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let how = authority.dial("localhost");
    let start = |protocols: &str| {
        Gateway::before(&origin, &listener(&format!("certificates: {pair}"), &format!(", protocols: [{protocols}]")))
    };
    let only1 = start("http1");
    assert_eq!(dial(&only1, &how.clone().alpn(&["h2", "http/1.1"])).unwrap().wire().agreed().as_deref(), Some("http/1.1"));
    assert!(dial(&only1, &how.clone().alpn(&["h2"])).is_err());
    let only2 = start("http2");
    assert_eq!(H2::connect_secure(only2.addr(), &how.clone().alpn(&["h2", "http/1.1"])).unwrap().get("/").status(), 200);
    assert!(dial(&only2, &how.clone().alpn(&["http/1.1"])).is_err());
    // HTTP/2 is never just assumed.
    assert_eq!(outcome(&only2, &how), "closed");
    until("both are counted", || failures(&only2, "alpn") == 2.0);
}

#[test]
fn an_http2_preface_without_alpn_is_no_http2() {
    let origin = Origin::ok();
    let (authority, gateway) = gateway(&origin, "");
    let mut client = dial(&gateway, &authority.dial("localhost")).unwrap();
    assert_eq!(client.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").outcome(), "400");
}

#[test]
fn upstream_learns_that_it_was_https() {
    let origin = Origin::ok();
    let (authority, gateway) = gateway(&origin, "forwarded_header: forwarded");
    let how = authority.dial("localhost");
    let mut client = dial(&gateway, &how).unwrap();
    let request = "GET / HTTP/1.1\r\nHost: localhost:443\r\nX-Forwarded-Proto: http\r\n\r\n";
    assert_eq!(client.ask(request).status(), 200);
    let fields = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];
    let mut client = H2::connect_secure(gateway.addr(), &how.alpn(&["h2"])).unwrap();
    assert_eq!(client.ask(&fields, None).status(), 200);
    for seen in origin.seen() {
        assert_eq!(seen.all("x-forwarded-proto"), ["https"]);
        assert!(seen.header("forwarded").unwrap().ends_with(";proto=https"), "{:?}", seen.headers);
        // The scheme's own port is none.
        assert_eq!(seen.header("host"), Some("localhost"));
    }
    assert_eq!(origin.seen().len(), 2);
}

#[test]
fn bodies_of_any_size_go_through_in_both_directions() {
    let origin = Origin::echo();
    let (authority, gateway) = gateway(&origin, "");
    let how = authority.dial("localhost");
    let mut client = dial(&gateway, &how).unwrap();
    for size in [0, 1, 4095, 16 << 10, (16 << 10) + 1, 1 << 20, 9 << 20] {
        let body = "x".repeat(size);
        let reply = client.ask(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n{body}")).response();
        assert!(!reply.cut && reply.text().ends_with(&body) && reply.body.len() > size, "{size}: {}", reply.body.len());
    }
    let mut client = H2::connect_secure(gateway.addr(), &how.alpn(&["h2"])).unwrap();
    let fields = [(":method", "POST"), (":scheme", "https"), (":authority", "a"), (":path", "/"), ("content-length", "30000")];
    let reply = client.ask(&fields, Some(&[b'y'; 30_000]));
    assert!(reply.ended && reply.body.ends_with(&[b'y'; 30_000]));
}

/// What TLS has taken and the kernel has not goes out when the client reads, though nothing more is written.
#[test]
fn the_last_bytes_of_a_response_do_not_stay_behind() {
    let origin = Origin::new(|call| {
        let size: usize = call.target()[1..].parse().unwrap();
        let body = vec![b'x'; size];
        call.answer(&[format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").as_bytes(), &body].concat())
    });
    let (authority, gateway) = gateway(&origin, "");
    let how = authority.dial("localhost");
    for (n, size) in (1..=76).map(|n| (n, (1 << 20) + n * (48 << 10))) {
        let mut client = Client::connect_narrow(gateway.addr()).secure(&how).unwrap();
        client.send(format!("GET /{size} HTTP/1.1\r\nHost: a\r\n\r\n"));
        // At some of these sizes all is written and not all has gone out; larger ones have to wait for the client.
        origin.wait(n);
        happens(Duration::from_millis(60), || gateway.metric("tollgate_requests_total", &[("route", "all")]) == n as f64);
        let reply = client.receive().response();
        assert!(!reply.cut && reply.body.len() == size, "{size}: {}", reply.body.len());
    }
}

/// Several requests in one record and one request in many: the socket's bookkeeping doesn't care.
#[test]
fn requests_ahead_and_in_pieces_are_answered_in_order() {
    let origin = Origin::echo();
    let (authority, gateway) = gateway(&origin, "");
    let mut client = dial(&gateway, &authority.dial("localhost")).unwrap();
    let one = |n: usize| format!("POST /{n} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    client.send((0..20).map(one).collect::<String>());
    for n in 0..20 {
        assert!(client.receive().response().text().starts_with(&format!("POST /{n} ")), "{n}");
    }
    for byte in one(20).bytes() {
        client.send([byte]);
    }
    assert!(client.receive().response().text().starts_with("POST /20 "));
}

/// RFC 8446 section 6.1: an end is announced, whoever wants it.
#[test]
fn every_ordinary_end_is_announced() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let quick = listener(&format!("certificates: {pair}"), ", timeouts: { keep_alive: 300ms, header: 300ms }");
    let gateway = Gateway::before(&origin, &quick);
    let how = authority.dial("localhost");
    let ends = |client: &mut Client| client.receive().outcome();
    let mut table = Table::new("ends over TLS");
    let mut client = dial(&gateway, &how).unwrap();
    assert_eq!(client.get("/").status(), 200);
    table.outcome("idle for too long", "closed", &ends(&mut client));
    let mut client = dial(&gateway, &how).unwrap();
    table.outcome("nothing said", "closed", &ends(&mut client));
    let mut client = dial(&gateway, &how).unwrap();
    client.send("GET / HT");
    table.outcome("too slow with a head", "closed", &ends(&mut client));
    let mut client = dial(&gateway, &how).unwrap();
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").status(), 200);
    table.outcome("asked for", "closed", &ends(&mut client));
    let mut client = dial(&gateway, &how).unwrap();
    assert_eq!(client.ask("nonsense\r\n\r\n").status(), 400);
    table.outcome("after nonsense", "closed", &ends(&mut client));
    let mut client = H2::connect_secure(gateway.addr(), &how.alpn(&["h2"])).unwrap();
    assert_eq!(client.get("/").status(), 200);
    table.row("HTTP/2", if client.is_closed() && client.announced() { "" } else { "not announced" });
}

/// What ends with the connection must not look complete when it was cut.
#[test]
fn an_end_that_is_a_fault_is_not_announced() {
    let seen = Latch::default();
    let wait = seen.clone();
    let origin = Origin::new(move |call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        wait.wait();
        Next::Close
    });
    let (authority, gateway) = gateway(&origin, "");
    let mut client = dial(&gateway, &authority.dial("localhost")).unwrap();
    // To HTTP/1.0 a body of unknown length ends with the connection.
    client.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n");
    until("the body begins", || client.grow().ends_with(b"\r\n\r\nabc"));
    let head = String::from_utf8_lossy(client.grown()).to_lowercase();
    assert!(head.starts_with("http/1.0 200") && !head.contains("content-length"), "{head}");
    seen.open();
    let (rest, announced) = client.into_wire().drain();
    assert_eq!(rest, b"");
    assert!(!announced, "this end is a fault");
}

/// PROXY protocol comes first, and in clear text.
#[test]
fn a_proxy_header_comes_before_the_handshake() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let config = listener(&format!("certificates: {pair}"), ", proxy_protocol: required");
    let gateway = Gateway::before(&origin, &format!("{config}\ntrusted_proxies: loopback"));
    let how = authority.dial("localhost");
    let mut client = gateway.client();
    client.send("PROXY TCP4 203.0.113.7 192.0.2.1 1234 443\r\n");
    let mut client = client.secure(&how).unwrap();
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(origin.wait(1).all("x-forwarded-for"), ["203.0.113.7"]);
    assert_eq!(origin.wait(1).all("x-forwarded-proto"), ["https"]);
    assert!(dial(&gateway, &how).is_err());
    let refused = [("listener", "public"), ("reason", "proxy_header")];
    until("it is counted", || gateway.metric("tollgate_connections_refused_total", &refused) == 1.0);
}

/// Header and hello in one segment: what was read of the hello belongs to it.
#[test]
fn a_proxy_header_and_a_hello_may_come_at_once() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let config = listener(&format!("certificates: {pair}"), ", proxy_protocol: required");
    let gateway = Gateway::before(&origin, &format!("{config}\ntrusted_proxies: loopback"));
    let relay = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (from, to) = (relay.local_addr().unwrap(), gateway.addr());
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut client, _) = relay.accept().unwrap();
        let mut hello = vec![0; 16 << 10];
        let read = client.read(&mut hello).unwrap();
        let mut server = std::net::TcpStream::connect(to).unwrap();
        server.write_all(&[b"PROXY TCP4 203.0.113.7 192.0.2.1 1234 443\r\n", &hello[..read]].concat()).unwrap();
        let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let back = std::thread::spawn(move || drop(std::io::copy(&mut back_from, &mut back_to)));
        drop(std::io::copy(&mut client, &mut server));
        drop(server.shutdown(std::net::Shutdown::Write));
        back.join().unwrap();
    });
    let mut client = Client::connect(from).secure(&authority.dial("localhost")).unwrap();
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(origin.wait(1).all("x-forwarded-for"), ["203.0.113.7"]);
}

/// A Unix socket carries TLS like any other.
#[test]
fn tls_over_a_unix_socket() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let socket = authority.dir().join("http.sock");
    let clear = "{ name: public, address: '127.0.0.1:0' }";
    let secured = format!("{{ name: sock, address: 'unix:{}', tls: {{ certificates: {pair} }} }}", socket.display());
    let _gateway = Gateway::before(&origin, &format!("listeners: [{clear}, {secured}]"));
    let command =
        format!("curl -sS --unix-socket {} --cacert {} https://localhost/x", socket.display(), authority.ca().display());
    let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok", "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(origin.wait(1).all("x-forwarded-proto"), ["https"]);
}

/// A connection cap counts connections, whatever they speak.
#[test]
fn connections_are_capped_before_they_shake_hands() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let gateway = Gateway::before(&origin, &listener(&format!("certificates: {pair}"), ", max_connections: 2"));
    let how: Dial = authority.dial("localhost");
    let first = dial(&gateway, &how).unwrap();
    let stalled = gateway.client();
    until("both are open", || gateway.metric("tollgate_worker_connections", &[]) == 2.0);
    assert!(dial(&gateway, &how).is_err());
    drop((first, stalled));
    until("there is room again", || dial(&gateway, &how).is_ok());
}

/// A drain ends idle connections with a word, and lets the others finish.
#[test]
fn a_drain_is_announced() {
    let origin = Origin::ok();
    let (authority, mut gateway) = gateway(&origin, "");
    let how = authority.dial("localhost");
    let mut idle = dial(&gateway, &how).unwrap();
    assert_eq!(idle.get("/").status(), 200);
    let mut in_handshake = gateway.client();
    in_handshake.send([22, 3, 1]);
    until("both are open", || gateway.metric("tollgate_worker_connections", &[]) == 2.0);
    gateway.signal("TERM");
    assert_eq!(idle.receive().outcome(), "closed");
    until("it ends", || gateway.exit_code() == Some(0));
}
