//! WS-6: WebSockets over HTTP/2 (RFC 8441), each a stream here and a connection upstream.

use super::{End, Socket, accept, accepting, close_code, first_frame, frame, masked, silent};
use crate::harness::{Gateway, H2, Latch, Next, Origin, happens, kind, until};
use bytes::Bytes;
use std::time::Duration;

pub(crate) type Fields<'a> = Vec<(&'a str, &'a str)>;

pub(crate) fn connect(path: &str) -> Fields<'_> {
    vec![
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
    ]
}

const CANCEL: u32 = 8;

/// Echoes frames; resets or finishes when it is told to.
pub(super) fn echo() -> Origin {
    accepting(|_, mut socket| {
        loop {
            while let Some((first, payload, length)) = first_frame(&socket.ahead) {
                socket.ahead.drain(..length);
                match payload.as_slice() {
                    b"reset" => return socket.reset(),
                    b"finish" => _ = socket.finish(),
                    _ => _ = socket.send(frame(first, &payload, None)),
                }
            }
            match socket.fill() {
                None | Some(End::Silent) => {}
                Some(_) => return,
            }
        }
    })
}

/// An open WebSocket and its stream.
fn open(gateway: &Gateway, path: &str) -> (H2, u32) {
    let mut client = H2::connect(gateway.addr());
    let stream = client.open(&connect(path), false);
    let head = client.receive_head(stream);
    assert_eq!((head.status(), head.ended), (200, false));
    (client, stream)
}

#[test]
fn a_stream_becomes_a_websocket_upstream() {
    let origin = echo();
    let gateway = Gateway::before(&origin, "access_log: { format: json, to: stdout }");
    let mut client = H2::connect(gateway.addr());
    let mut fields = connect("/chat?x=1");
    fields.extend([("sec-websocket-key", "the-clients-own"), ("sec-websocket-accept", "x"), ("x-kept", "yes")]);
    fields.extend([("sec_websocket_key", "another"), ("sec.websocket.key", "another"), ("sec_websocket_protocol", "another")]);
    let stream = client.open(&fields, false);
    let head = client.receive_head(stream);
    assert_eq!((head.status(), head.ended), (200, false));
    for name in ["connection", "upgrade", "sec-websocket-accept", "content-length", "transfer-encoding"] {
        assert_eq!(head.header(name), None, "{name}");
    }
    let settings = client.frames.iter().find(|frame| frame.kind == kind::SETTINGS).unwrap();
    assert!(settings.payload.chunks(6).any(|setting| setting == [0, 8, 0, 0, 0, 1]), "ENABLE_CONNECT_PROTOCOL: {settings:?}");
    let seen = origin.seen().swap_remove(0);
    assert_eq!(seen.line, "GET /chat?x=1 HTTP/1.1");
    assert_eq!((seen.all("connection"), seen.all("upgrade")), (vec!["upgrade"], vec!["websocket"]));
    assert_eq!((seen.all("sec-websocket-version"), seen.all("sec-websocket-protocol")), (vec!["13"], vec!["chat"]));
    assert_eq!((seen.header("host"), seen.header("x-kept"), seen.header("via")), (Some("a"), Some("yes"), Some("2 tollgate")));
    let keys = seen.all("sec-websocket-key");
    assert!(keys.len() == 1 && keys[0].len() == 24 && keys[0] != "the-clients-own", "{keys:?}");
    assert_eq!(seen.header("sec-websocket-accept"), None);
    assert!(!String::from_utf8_lossy(&seen.wire).contains("another"), "look-alikes: {seen:?}");
    for size in [0, 5, 70_000] {
        let before = client.receive_at_least(stream, 0).body.len();
        let (sent, back) = (masked(0x82, &vec![7; size]), frame(0x82, &vec![7; size], None));
        client.data(stream, &sent, false);
        assert_eq!(client.receive_at_least(stream, before + back.len()).body[before..], back);
    }
    client.data(stream, b"", true);
    let reply = client.receive(stream);
    assert!(reply.ended && reply.reset.is_none(), "END_STREAM is answered with END_STREAM");
    until("it is logged", || gateway.access_log().contains("\"ended\":\"closed\""));
    let line: serde_json::Value = serde_json::from_str(gateway.access_log().lines().next().unwrap()).unwrap();
    assert_eq!((&line["method"], &line["status"], &line["protocol"]), (&"CONNECT".into(), &200.into(), &"HTTP/2".into()));
    // The connection goes on.
    assert_eq!(client.get("/").status(), 200);
}

#[test]
fn ends_and_resets_are_translated_both_ways() {
    let (quiet, noted) = silent();
    let gateway = Gateway::before(&quiet, "limits: [{ name: open, per: ip, concurrency: 1 }]");
    let free = |gateway: &Gateway| until("the slot is free", || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
    let (mut client, stream) = open(&gateway, "/");
    assert_eq!(H2::connect(gateway.addr()).ask(&connect("/"), None).status(), 429);
    client.data(stream, b"last", true);
    assert_eq!(noted.wait(1), (b"last".to_vec(), End::Fin));
    assert!(client.receive(stream).ended);
    free(&gateway);
    let (mut client, stream) = open(&gateway, "/");
    client.cancel(stream);
    assert_eq!(noted.wait(2), (vec![], End::Reset), "RST_STREAM with CANCEL is a reset");
    free(&gateway);
    let (client, _) = open(&gateway, "/");
    drop(client);
    noted.wait(3);
    free(&gateway);
    let origin = echo();
    let gateway = Gateway::before(&origin, "");
    let (mut client, stream) = open(&gateway, "/");
    client.data(stream, &masked(0x81, b"finish"), false);
    let reply = client.receive(stream);
    assert!(reply.ended && reply.reset.is_none(), "{reply:?}");
    let stream = client.open(&connect("/"), false);
    client.receive_head(stream);
    client.data(stream, &masked(0x81, b"reset"), false);
    let reply = client.receive(stream);
    assert_eq!((reply.ended, reply.reset), (false, Some(CANCEL)), "a reset is RST_STREAM with CANCEL");
    assert_eq!(client.get("/").status(), 200, "other streams go on");
}

#[test]
fn an_answer_that_is_no_101_is_an_ordinary_response_and_never_a_tunnel() {
    for (answer, status, body) in [
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403, "no"),
        ("HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n", 426, ""),
        ("HTTP/1.1 302 Found\r\nLocation: /x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n", 302, "no"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", 502, "bad_gateway"),
        ("HTTP/1.1 204 No Content\r\n\r\n", 502, "bad_gateway"),
        ("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", 502, "bad_gateway"),
        (
            "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            502,
            "bad_gateway",
        ),
    ] {
        let origin = Origin::answering(answer);
        let gateway = Gateway::before(&origin, "");
        let mut client = H2::connect(gateway.addr());
        let stream = client.open(&connect("/"), false);
        client.data(stream, b"early", false);
        let reply = client.receive(stream);
        assert_eq!((reply.status(), reply.ended), (status, true), "{answer}");
        assert!(String::from_utf8_lossy(&reply.body).contains(body), "{answer}");
        assert_eq!(origin.seen()[0].wire.windows(5).filter(|window| *window == b"early").count(), 0);
        until("upstream has nothing of what was meant for a tunnel", || origin.seen().iter().all(crate::harness::Seen::complete));
    }
}

#[test]
fn what_is_no_websocket_opens_nothing() {
    let origin = echo();
    let yaml = "\
routes:
  - { name: plain, match: { path: '/plain' }, upstream: origin, upgrade: [] }
  - { name: fixed, match: { path: '/fixed' }, respond: { status: 200 } }
  - { name: gets, match: { path: '/gets', methods: [GET] }, upstream: origin }
  - { name: posts, match: { path: '/posts', methods: [POST] }, upstream: origin }
limits: [{ name: plan, per: ip, rate: 3/hour }]";
    let gateway = Gateway::before(&origin, yaml);
    let mut client = H2::connect(gateway.addr());
    let mut ask = |fields: &Fields<'_>| client.ask(fields, None).outcome();
    assert_eq!(ask(&vec![(":method", "CONNECT"), (":authority", "b:80")]), "405");
    let mut other = connect("/gets");
    other[1].1 = "connect-udp";
    assert_eq!(ask(&other), "501");
    assert_eq!((ask(&connect("/plain")), ask(&connect("/fixed"))), ("501".into(), "501".into()));
    // The 200 of a refused gRPC call would say that there is a tunnel.
    let call = [connect("/plain"), vec![("content-type", "application/grpc")]].concat();
    assert_eq!(ask(&call), "501");
    assert_eq!((ask(&connect("/posts")), ask(&connect("/nowhere"))), ("405".into(), "404".into()));
    assert!(origin.lines().is_empty(), "{:?}", origin.lines());
    // None of these has cost anything; a WebSocket costs one like any other request.
    for expected in [200, 200, 200, 429] {
        let stream = client.open(&connect("/gets"), false);
        assert_eq!(client.receive_head(stream).status(), expected);
    }
}

#[test]
fn limits_hold_for_streams_too() {
    let (origin, noted) = silent();
    let gateway =
        Gateway::before(&origin, "routes: [{ name: all, upstream: origin, websocket: { messages: 2/day, max_message: 5 } }]");
    let mut client = H2::connect(gateway.addr());
    let two = masked(0x81, b"hello").repeat(2);
    for (nth, (third, code)) in [(masked(0x81, b""), 1008), (masked(0x01, b"sixsix"), 1009)].into_iter().enumerate() {
        let stream = client.open(&connect("/"), false);
        client.receive_head(stream);
        client.data(stream, &[two.as_slice(), &third].concat(), false);
        let reply = client.receive(stream);
        assert_eq!((close_code(&reply.body), reply.ended), (Some(code), true));
        client.data(stream, b"", true);
        let (seen, end) = noted.wait(nth + 1);
        assert_eq!((&seen[..two.len()], close_code(&seen[two.len()..]), end), (&*two, Some(code), End::Fin));
    }
}

#[test]
fn a_stream_is_closed_when_the_process_ends() {
    let (origin, noted) = silent();
    let mut gateway = Gateway::before(&origin, "shutdown: { delay: 0s, drain: 20s }");
    let (mut client, stream) = open(&gateway, "/");
    gateway.signal("TERM");
    let reply = client.receive(stream);
    assert_eq!((close_code(&reply.body), reply.ended), (Some(1001), true));
    client.data(stream, &masked(0x88, b"\x03\xe9"), true);
    let (seen, end) = noted.wait(1);
    assert_eq!((close_code(&seen), end), (Some(1001), End::Fin));
    assert!(client.is_closed());
    assert!(client.frames.iter().any(|frame| frame.kind == kind::GOAWAY));
    until("the process has ended", || gateway.exit_code().is_some());
    assert_eq!(gateway.exit_code(), Some(0));
}

/// A window that is closed holds a tunnel up, as a full socket does; it neither fills memory nor ends anything.
#[test]
fn a_client_without_a_window_is_waited_for() {
    let origin = accepting(|_, mut socket| {
        socket.stream.tcp().set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        for _ in 0..64 {
            socket.send(vec![b'x'; 1 << 20]);
        }
        socket.rest();
    });
    let yaml = "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { write_idle: 200ms } }]";
    let gateway = Gateway::before(&origin, yaml);
    let before = gateway.rss();
    let mut client = H2::connect_with_window(gateway.addr(), 1000);
    let stream = client.open(&connect("/"), false);
    assert_eq!(client.receive_head(stream).status(), 200);
    assert_eq!(client.receive_at_least(stream, 1000).body.len(), 1000);
    // Well past the time that a response would have been given.
    assert!(!happens(Duration::from_millis(700), || gateway.metric("tollgate_upgraded_connections", &[]) == 0.0));
    assert!(gateway.rss() < before + (8 << 20), "{} bytes more", gateway.rss() - before);
    client.frame(kind::WINDOW_UPDATE, 0, stream, &(20_000_u32).to_be_bytes());
    let reply = client.receive_at_least(stream, 21_000);
    assert_eq!((reply.body.len(), reply.reset), (21_000, None));
}

#[test]
fn many_websockets_share_a_connection() {
    let origin = echo();
    let gateway = Gateway::before(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let streams: Vec<u32> = (0..50).map(|_| client.open(&connect("/"), false)).collect();
    for (i, stream) in streams.iter().enumerate() {
        assert_eq!(client.receive_head(*stream).status(), 200);
        client.data(*stream, &masked(0x81, format!("{i:03}").as_bytes()), false);
    }
    for (i, stream) in streams.iter().enumerate() {
        assert_eq!(client.receive_at_least(*stream, 5).body, frame(0x81, format!("{i:03}").as_bytes(), None));
    }
    assert_eq!(gateway.metric("tollgate_upgraded_connections", &[]), 50.0);
    drop(client);
    until("all are over", || gateway.metric("tollgate_upgraded_connections", &[]) == 0.0 && origin.open() == 0);
}

#[test]
fn a_stream_that_is_cancelled_before_the_101_leaves_nothing_behind() {
    let door = Latch::default();
    let gate = door.clone();
    let origin = Origin::new(move |call| {
        call.body();
        gate.wait();
        let key = call.seen().header("sec-websocket-key").unwrap_or_default().to_owned();
        call.send(super::switching(&key));
        call.stall()
    });
    let gateway = Gateway::before(&origin, "limits: [{ name: open, per: ip, concurrency: 1 }]");
    let mut client = H2::connect(gateway.addr());
    let stream = client.open(&connect("/"), false);
    origin.wait_heads(1);
    client.cancel(stream);
    until("the slot is free", || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
    door.open();
    until("upstream's connection is closed", || origin.open() == 0);
    let stream = client.open(&connect("/"), false);
    assert_eq!(client.receive_head(stream).status(), 200);
}

/// The key that upstream gets is the one its answer is held against.
#[test]
fn the_accept_belongs_to_the_key_upstream_was_given() {
    let origin = Origin::new(|call| {
        call.body();
        let key = call.seen().header("sec-websocket-key").unwrap().to_owned();
        assert_ne!(accept(&key), accept(super::KEY));
        call.send(super::switching(&key));
        let (stream, ahead) = call.switch();
        Socket::over(stream, ahead).send("hi").rest();
        Next::Close
    });
    let gateway = Gateway::before(&origin, "");
    let (mut client, stream) = open(&gateway, "/");
    assert_eq!(client.receive_at_least(stream, 2).body, b"hi");
}

/// A client of somebody else's making, which waits for the setting before it dares.
#[test]
fn the_h2_crate_gets_a_websocket() {
    let origin = echo();
    let gateway = Gateway::before(&origin, "");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let talk = async {
        let tcp = tokio::net::TcpStream::connect(gateway.addr()).await.unwrap();
        let (mut client, connection) = h2::client::handshake(tcp).await.unwrap();
        let connection = tokio::spawn(connection);
        client = client.ready().await.unwrap();
        while !client.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut request = http::Request::connect("http://a/ws").body(()).unwrap();
        request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        let (response, mut sender) = client.send_request(request, false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        let mut back = Vec::new();
        for size in [1, 200, 70_000] {
            let (sent, expected) = (masked(0x82, &vec![1; size]), frame(0x82, &vec![1; size], None));
            sender.send_data(Bytes::from(sent), false).unwrap();
            back.clear();
            while back.len() < expected.len() {
                let data = body.data().await.unwrap().unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                back.extend_from_slice(&data);
            }
            assert_eq!(back, expected);
        }
        sender.send_data(Bytes::new(), true).unwrap();
        while let Some(data) = body.data().await {
            assert!(data.unwrap().is_empty());
        }
        drop((client, sender, body));
        connection.abort();
    };
    runtime.block_on(async { tokio::time::timeout(crate::harness::DEADLINE, talk).await }).expect("the conversation ends");
}
