//! WS-1 to WS-3: what is offered to upstream, and that nothing is a tunnel before upstream has said so.

use super::{KEY, Socket, accepting, asking, masked, switching};
use crate::harness::{Client, Gateway, Latch, Next, Origin, Sees, Table, Wire, crlf, until};
use Sees::One;

/// Never switches; upstream of requests that are looked at.
fn refusing() -> Origin {
    Origin::answering(
        "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nContent-Length: 2\r\n\r\nno",
    )
}

const OFFERED: Sees = One(&["connection: upgrade", "upgrade: websocket"], &["connection: keep-alive"]);
const PLAIN: Sees = One(&[], &["connection", "upgrade"]);

#[rustfmt::skip]
const REQUESTS: &[(&str, &str, Sees)] = &[
    ("a handshake", "GET / HTTP/1.1\nHost: a\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Key: k\nSec-WebSocket-Version: 13\nSec-WebSocket-Protocol: chat\nSec-WebSocket-Extensions: permessage-deflate\n\n",
        One(&["connection: upgrade", "upgrade: websocket", "sec-websocket-key: k", "sec-websocket-version: 13", "sec-websocket-protocol: chat", "sec-websocket-extensions: permessage-deflate"], &[])),
    ("in a list, in any case", "GET / HTTP/1.1\nHost: a\nConnection: keep-alive, UPGRADE\nUpgrade: WebSocket\n\n", OFFERED),
    ("on two lines", "GET / HTTP/1.1\nHost: a\nConnection: keep-alive\nConnection: upgrade\nUpgrade: websocket\n\n", OFFERED),
    ("a wrong version", "GET / HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 777\n\n", OFFERED),
    ("with TE", "GET / HTTP/1.1\nHost: a\nConnection: upgrade, te\nTE: trailers\nUpgrade: websocket\n\n", One(&["connection: upgrade"], &["te:"])),
    ("among others", "GET / HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: foo, websocket\n\n", One(&["upgrade: websocket"], &["upgrade: foo"])),
    ("an empty body", "GET / HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: websocket\nContent-Length: 0\n\n", OFFERED),
    ("without Connection", "GET / HTTP/1.1\nHost: a\nUpgrade: websocket\n\n", PLAIN),
    ("Connection without it", "GET / HTTP/1.1\nHost: a\nConnection: keep-alive\nUpgrade: websocket\n\n", PLAIN),
    ("another protocol", "GET / HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: foo\n\n", PLAIN),
    ("h2c", "GET / HTTP/1.1\nHost: a\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABk\n\n", One(&[], &["connection", "upgrade", "http2-settings"])),
    ("TLS", "OPTIONS /x HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: TLS/1.0\n\n", PLAIN),
    ("POST", "POST / HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: websocket\nContent-Length: 0\n\n", PLAIN),
    ("a body", "GET / HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: websocket\nContent-Length: 4\n\nbody", One(&["content-length: 4"], &["connection", "upgrade"])),
    ("a chunked body", "GET / HTTP/1.1\nHost: a\nConnection: upgrade\nUpgrade: websocket\nTransfer-Encoding: chunked\n\n4\nbody\n0\n\n", One(&["transfer-encoding: chunked"], &["connection", "upgrade"])),
    ("HTTP/1.0", "GET / HTTP/1.0\nHost: a\nConnection: upgrade\nUpgrade: websocket\n\n", PLAIN),
];

#[test]
fn upstream_is_offered_a_websocket_and_nothing_else() {
    let origin = refusing();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("offers");
    for (name, request, sees) in REQUESTS {
        table.send(&gateway, &origin, name, &crlf(request), "426", *sees);
    }
}

#[test]
fn a_route_says_what_its_connections_may_become() {
    let origin = refusing();
    let yaml = "\
routes:
  - { name: none, match: { path: '/none' }, upstream: origin, upgrade: [] }
  - { name: other, match: { path: '/other' }, upstream: origin, upgrade: [chat/2, Echo] }
  - { name: all, upstream: origin }";
    let gateway = Gateway::before(&origin, yaml);
    let mut table = Table::new("routes");
    for (path, upgrade, sees) in [
        ("/none", "websocket", PLAIN),
        ("/other", "websocket", PLAIN),
        ("/other", "chat", PLAIN),
        ("/other", "CHAT/2", One(&["upgrade: chat/2", "connection: upgrade"], &[])),
        ("/other", "foo, echo, chat/2", One(&["upgrade: echo"], &["upgrade: foo"])),
        ("/x", "echo", PLAIN),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: {upgrade}\r\n\r\n");
        table.send(&gateway, &origin, &format!("{path} {upgrade}"), request.as_bytes(), "426", sees);
    }
}

/// A 101 counts only if it answers what was asked.
#[test]
fn an_answer_that_does_not_fit_is_a_502() {
    let right = switching(KEY);
    let mut table = Table::new("answers");
    for (name, answer) in [
        ("no Upgrade", right.replace("Upgrade: websocket\r\n", "")),
        ("no Connection", right.replace("Connection: Upgrade\r\n", "")),
        ("another protocol", right.replace("websocket", "h2c")),
        ("two protocols", right.replace("websocket", "websocket, h2c")),
        ("two Upgrades", right.replace("Upgrade: websocket\r\n", "Upgrade: websocket\r\nUpgrade: websocket\r\n")),
        ("no accept", right.replace("Sec-WebSocket-Accept", "X")),
        ("a wrong accept", switching("AAAAAAAAAAAAAAAAAAAAAA==")),
        ("HTTP/1.0", right.replace("HTTP/1.1", "HTTP/1.0")),
        ("a transfer coding of its own", right.replace("\r\n\r\n", "\r\nTransfer-Encoding: gzip\r\n\r\n")),
    ] {
        let origin = Origin::answering(answer);
        let gateway = Gateway::before(&origin, "");
        let mut client = Client::connect(gateway.addr());
        table.outcome(name, "502", &client.ask(asking("/", "")).outcome());
        // It is still a client of ours, and upstream's connection is gone.
        until("upstream's connection is closed", || origin.open() == 0);
        table.outcome(&format!("{name}, then"), "502", &client.get("/").outcome());
        assert!(gateway.metric("tollgate_upstream_errors_total", &[("kind", "invalid")]) >= 1.0, "{name}");
    }
}

#[test]
fn a_client_without_one_key_gets_no_websocket_whatever_upstream_says() {
    let origin = accepting(|_, mut socket| drop(socket.rest()));
    let gateway = Gateway::before(&origin, "");
    let twice = asking("/", &format!("Sec-WebSocket-Key: {KEY}\r\n"));
    assert_eq!(Client::connect(gateway.addr()).ask(twice).outcome(), "502");
}

#[test]
fn fields_of_the_answer_reach_the_client_with_the_gateways_own() {
    let origin =
        Origin::new(|call| {
            call.body();
            call.send(switching(KEY).replace(
                "\r\n\r\n",
                "\r\nSec-WebSocket-Protocol: chat\r\nX-Hop: 1\r\nConnection: X-Hop\r\nSet-Cookie: a\r\n\r\n",
            ));
            let (stream, ahead) = call.switch();
            Socket::over(stream, ahead).rest();
            Next::Close
        });
    let gateway = Gateway::before(&origin, "limits: [{ name: plan, per: ip, rate: 5/min }]");
    let mut client = Client::connect(gateway.addr());
    let response = client.ask(asking("/", "")).response();
    assert_eq!(response.status, 101);
    let lower: Vec<(String, &str)> = response.headers.iter().map(|(n, v)| (n.to_lowercase(), v.as_str())).collect();
    let all = |name: &str| lower.iter().filter(|(n, _)| n == name).map(|(_, v)| *v).collect::<Vec<_>>();
    assert_eq!((all("connection"), all("upgrade")), (vec!["upgrade"], vec!["websocket"]));
    assert_eq!(all("sec-websocket-accept"), ["s3pPLMBiTxaQ9kYGzzhZRbK+xOo="]);
    assert_eq!((all("sec-websocket-protocol"), all("set-cookie"), all("x-hop")), (vec!["chat"], vec!["a"], vec![]));
    assert_eq!(all("x-ratelimit-remaining"), ["4"]);
    assert!(all("content-length").is_empty() && all("transfer-encoding").is_empty());
}

/// What was sent early is neither lost nor seen before its time.
#[test]
fn early_bytes_wait_for_the_101_on_both_sides() {
    let may_switch = Latch::default();
    let gate = may_switch.clone();
    let origin = Origin::new(move |call| {
        call.body();
        gate.wait();
        let (stream, ahead) = call.switch();
        let mut socket = Socket::over(stream, ahead);
        assert_eq!(socket.ahead, b"", "bytes of the tunnel before the 101");
        socket.send([switching(KEY).as_bytes(), &super::frame(0x81, b"hello", None)].concat());
        let early = socket.read(masked(0x81, b"early").len() + 70_000);
        socket.send(super::frame(0x82, &early[..5], None));
        socket.rest();
        Next::Close
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = Socket::connect(gateway.addr());
    client.send([asking("/", "").as_bytes(), &masked(0x81, b"early")].concat());
    origin.wait_heads(1);
    let more = vec![b'x'; 70_000];
    std::thread::scope(|scope| {
        let mut writer = Socket::over(Wire::Plain(client.stream.tcp().try_clone().unwrap()), Vec::new());
        let more = &more;
        scope.spawn(move || _ = writer.send(more));
        may_switch.open();
        assert!(client.head().starts_with("HTTP/1.1 101 "));
        assert_eq!(client.read(7), super::frame(0x81, b"hello", None));
        assert_eq!(client.read(7), super::frame(0x82, &masked(0x81, b"early")[..5], None));
    });
}

/// The same where the parser has read ahead: behind chunks it is given all there is.
#[test]
fn early_bytes_behind_an_earlier_chunked_request_are_not_lost() {
    let origin = accepting(|target, mut socket| {
        if target == "/ws" {
            let early = socket.read(11);
            socket.send(early);
            socket.rest();
        }
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = Socket::connect(gateway.addr());
    let chunked = "POST /first HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    client.send([chunked.as_bytes(), asking("/ws", "").as_bytes(), b"early bytes"].concat());
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    client.read(5);
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(client.read(11), b"early bytes");
}

/// SM-12 and CVE-2026-2833: whatever upstream says instead of 101, what is behind the request is HTTP, and counted.
#[test]
fn bytes_behind_an_upgrade_that_is_refused_are_the_next_request() {
    for answer in ["200 OK", "403 Forbidden", "426 Upgrade Required", "302 Found"] {
        let origin = Origin::answering(format!("HTTP/1.1 {answer}\r\nContent-Length: 2\r\n\r\nno"));
        let gateway = Gateway::before(&origin, "limits: [{ name: plan, per: ip, rate: 2/min }]");
        let mut client = gateway.client();
        let behind = "GET /second HTTP/1.1\r\nHost: a\r\n\r\nGET /third HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send([asking("/first", "Sec-WebSocket-Version: 777\r\n").as_str(), behind].concat());
        let status: u16 = answer[..3].parse().unwrap();
        assert_eq!([client.receive().status(), client.receive().status(), client.receive().status()], [status, status, 429]);
        assert_eq!(origin.lines(), ["GET /first HTTP/1.1", "GET /second HTTP/1.1"], "{answer}");
        let seen = origin.seen();
        assert!(seen[0].header("upgrade").is_some() && seen[1].header("upgrade").is_none());
    }
}

/// Frames behind a handshake that is refused are garbage to an HTTP server, and go nowhere.
#[test]
fn frames_behind_a_refused_handshake_reach_nobody() {
    let origin = refusing();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send([asking("/", "").as_bytes(), &masked(0x81, b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n")].concat());
    assert_eq!(client.receive().status(), 426);
    assert!(matches!(client.receive().outcome().as_str(), "400" | "closed" | "reset"));
    assert_eq!(origin.lines(), ["GET / HTTP/1.1"]);
}

#[test]
fn another_protocol_is_a_tunnel_too_when_the_route_lists_it() {
    let origin = Origin::new(|call| {
        call.body();
        call.send("HTTP/1.1 101 Sure\r\nConnection: upgrade\r\nUpgrade: CHAT/2\r\n\r\nwelcome");
        let (stream, ahead) = call.switch();
        let mut socket = Socket::over(stream, ahead);
        let (mut all, _) = socket.rest();
        all.reverse();
        socket.send(all);
        Next::Close
    });
    let gateway = Gateway::before(&origin, "routes: [{ name: all, upstream: origin, upgrade: [chat/2] }]");
    let mut client = Socket::connect(gateway.addr());
    client.send("PUT /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: chat/2\r\nContent-Length: 0\r\n\r\nabc");
    let head = client.head().to_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains("\r\nupgrade: chat/2\r\n"), "{head}");
    assert_eq!(client.read(7), b"welcome");
    assert_eq!(client.send("def").finish().rest(), (b"fedcba".to_vec(), super::End::Fin));
}

#[test]
fn connect_and_requests_over_a_kept_connection_stay_what_they_were() {
    let origin = accepting(|_, mut socket| drop(socket.rest()));
    let gateway = Gateway::before(&origin, "");
    assert_eq!(Client::connect(gateway.addr()).ask("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n").status(), 405);
    let mut client = gateway.client();
    assert_eq!(client.get("/").response().text(), "plain");
    assert_eq!(client.ask(asking("/", "")).status(), 101);
}

#[test]
fn upstream_that_takes_too_long_or_leaves_is_told_as_ever() {
    let origin = Origin::new(|call| match call.target() {
        "/stalls" => call.stall(),
        _ => call.reset(),
    });
    let yaml = "routes: [{ name: all, upstream: origin, timeouts: { response: 200ms } }]";
    let gateway = Gateway::before(&origin, yaml);
    assert_eq!(gateway.client().ask(asking("/stalls", "")).status(), 504);
    assert_eq!(gateway.client().ask(asking("/resets", "")).status(), 502);
}

#[test]
fn a_client_of_a_unix_socket_gets_a_websocket_too() {
    use std::io::{Read, Write};
    let origin = accepting(|_, mut socket| {
        let early = socket.read(5);
        socket.send(early).rest();
    });
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("s");
    let listeners =
        format!("[{{ name: public, address: '127.0.0.1:0' }}, {{ name: local, address: 'unix:{}' }}]", path.display());
    let gateway = Gateway::before(&origin, &format!("listeners: {listeners}"));
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(crate::harness::DEADLINE)).unwrap();
    stream.write_all(&[asking("/", "").as_bytes(), b"early"].concat()).unwrap();
    let mut all = Vec::new();
    while !all.ends_with(b"\r\n\r\nearly") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        all.push(byte[0]);
    }
    assert!(all.starts_with(b"HTTP/1.1 101 "));
    drop(stream);
    until("it is over", || gateway.metric("tollgate_upgraded_connections", &[]) == 0.0);
}

/// Interim responses before the 101 don't disturb it.
#[test]
fn a_100_may_come_before_the_101() {
    let origin = Origin::new(|call| {
        call.body();
        call.send(format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n{}x", switching(KEY)));
        call.stall()
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = Socket::connect(gateway.addr());
    client.send(asking("/", ""));
    // Hints are passed on, a 100 that nobody asked for is not.
    assert_eq!(client.head(), "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(client.read(1), b"x");
}
