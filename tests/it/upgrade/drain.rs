//! The end of the process, or of a listener, while connections are tunnels.

use super::{End, KEY, Noted, Socket, accepting, asking, close_code, first_frame, frame, masked, silent, switching};
use crate::harness::{Gateway, Latch, Next, Origin, until};

const DRAIN: &str = "shutdown: { delay: 0s, drain: 20s }";

#[test]
fn a_websocket_is_closed_on_both_sides_when_the_process_ends() {
    let (noted, passed) = (Noted::default(), Latch::default());
    let (note, gate) = (noted.clone().taking(), passed.clone());
    let origin = accepting(move |head, mut socket| {
        assert_eq!(socket.read(masked(0x81, b"hello").len()), masked(0x81, b"hello"));
        gate.open();
        note(head, socket);
    });
    let mut gateway = Gateway::before(&origin, &format!("{DRAIN}\naccess_log: {{ format: text, to: stdout }}"));
    let mut socket = Socket::websocket(gateway.addr(), "/");
    socket.send(masked(0x81, b"hello"));
    passed.wait();
    gateway.signal("TERM");
    let (bytes, end) = socket.rest();
    assert_eq!((close_code(&bytes), end), (Some(1001), End::Fin));
    assert_eq!(first_frame(&bytes).unwrap().1[2..], *b"going away");
    // The answer to that has nowhere to go, but is no reason to reset anybody.
    socket.send(masked(0x88, b"\x03\xe9"));
    drop(socket);
    let (bytes, end) = noted.wait(1);
    assert_eq!((close_code(&bytes), end), (Some(1001), End::Fin));
    until("the process has ended", || gateway.exit_code().is_some());
    assert_eq!(gateway.exit_code(), Some(0));
    until("it is logged", || gateway.access_log().contains("ended=drain"));
}

#[test]
fn a_frame_that_is_under_way_is_finished_before_the_close() {
    let (door, second) = (Latch::default(), Latch::default());
    let (gate, half) = (door.clone(), second.clone());
    let origin = accepting(move |_, mut socket| {
        let whole = frame(0x82, &[7; 100_000], None);
        socket.send(&whole[..60_000]);
        half.open();
        gate.wait();
        socket.send(&whole[60_000..]);
        socket.send(frame(0x81, b"too late", None));
        socket.rest();
    });
    let gateway = Gateway::before(&origin, DRAIN);
    let mut socket = Socket::websocket(gateway.addr(), "/");
    second.wait();
    let begun = socket.read(60_000);
    gateway.signal("TERM");
    until("the listener is closed", || std::net::TcpStream::connect(gateway.addr()).is_err());
    door.open();
    let (rest, end) = socket.rest();
    let all = [begun, rest].concat();
    let (first, payload, length) = first_frame(&all).unwrap();
    assert_eq!((first, payload.len(), end), (0x82, 100_000, End::Fin));
    // What came in the same read may have passed too.
    let behind = &all[length..];
    let behind = behind.strip_prefix(&*frame(0x81, b"too late", None)).unwrap_or(behind);
    assert_eq!(close_code(behind), Some(1001));
}

#[test]
fn a_side_that_has_closed_is_not_told_again() {
    let (origin, noted) = silent();
    let gateway = Gateway::before(&origin, DRAIN);
    let mut socket = Socket::websocket(gateway.addr(), "/");
    socket.send(masked(0x88, b"\x03\xe8"));
    until("the frame has passed", || gateway.metric("tollgate_upgraded_connections", &[]) == 1.0);
    // It has when upstream has it, which says nothing; a ping-pong of our own tells.
    let mut other = Socket::websocket(gateway.addr(), "/");
    other.send(masked(0x81, b"x")).finish();
    noted.wait(1);
    gateway.signal("TERM");
    assert_eq!(close_code(&socket.rest().0), Some(1001));
    drop(socket);
    assert_eq!(noted.wait(2), (masked(0x88, b"\x03\xe8"), End::Fin));
}

/// A client that takes no notice is left.
#[test]
fn a_client_that_does_not_end_is_left_and_the_process_ends_well() {
    let (origin, noted) = silent();
    let mut gateway = Gateway::before(&origin, DRAIN);
    let mut socket = Socket::websocket(gateway.addr(), "/");
    gateway.signal("TERM");
    assert_eq!(noted.wait(1).1, End::Fin);
    until("the process ends before its drain does", || gateway.exit_code().is_some());
    assert_eq!(gateway.exit_code(), Some(0));
    assert_eq!(close_code(&socket.rest().0), Some(1001));
}

#[test]
fn what_nobody_can_close_goes_on_until_the_drain_ends() {
    let origin = Origin::new(|call| {
        call.body();
        call.send("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
        let (stream, ahead) = call.switch();
        let mut socket = Socket::over(stream, ahead);
        while socket.fill().is_none() {
            let echo = std::mem::take(&mut socket.ahead);
            socket.send(echo);
        }
        Next::Close
    });
    let yaml = "shutdown: { delay: 0s, drain: 1s }\nroutes: [{ name: all, upstream: origin, upgrade: [x] }]";
    let mut gateway = Gateway::before(&origin, yaml);
    let mut client = Socket::connect(gateway.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    gateway.signal("TERM");
    until("the listener is closed", || std::net::TcpStream::connect(gateway.addr()).is_err());
    assert_eq!(client.send("still").read(5), b"still");
    let (bytes, end) = client.rest();
    assert!(bytes.is_empty() && end != End::Silent);
    until("the process ends after its drain time", || gateway.exit_code().is_some());
}

#[test]
fn a_listener_that_a_reload_removes_closes_its_websockets_and_no_others() {
    let (origin, _) = silent();
    let listener = |name: &str| format!("{{ name: {name}, address: '127.0.0.1:0' }}");
    // Two listeners on port 0 are the same address to the file, so they differ in it.
    let public = "{ name: public, address: '127.0.0.2:0' }";
    let gateway = Gateway::before(&origin, &format!("listeners: [{public}, {}]", listener("extra")));
    let mut kept = Socket::websocket(gateway.addr(), "/");
    let mut gone = Socket::websocket(gateway.listener("extra"), "/");
    gateway.reload(&format!("listeners: [{public}]"));
    let (bytes, end) = gone.rest();
    assert_eq!((close_code(&bytes), end), (Some(1001), End::Fin));
    drop(gone);
    until("one is left", || gateway.metric("tollgate_upgraded_connections", &[]) == 1.0);
    kept.send(masked(0x81, b"still here"));
    kept.stream.tcp().set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    assert_eq!(kept.fill(), Some(End::Silent));
}

/// Until upstream has said what the connection becomes, it is not told to end: a 101 with `Connection: close` would be a contradiction.
#[test]
fn a_handshake_under_way_is_finished_and_what_it_makes_is_closed() {
    let (door, asked) = (Latch::default(), Latch::default());
    let (gate, there) = (door.clone(), asked.clone());
    let origin = Origin::new(move |call| {
        call.body();
        there.open();
        gate.wait();
        call.send(switching(KEY));
        let (stream, ahead) = call.switch();
        Socket::over(stream, ahead).rest();
        Next::Close
    });
    let mut gateway = Gateway::before(&origin, DRAIN);
    let mut socket = Socket::connect(gateway.addr());
    socket.send(asking("/", ""));
    asked.wait();
    gateway.signal("TERM");
    until("the listener is closed", || std::net::TcpStream::connect(gateway.addr()).is_err());
    door.open();
    let head = socket.head().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains("connection: upgrade\r\n") && !head.contains("close"), "{head}");
    let (bytes, end) = socket.rest();
    assert_eq!((close_code(&bytes), end), (Some(1001), End::Fin));
    drop(socket);
    until("the process has ended", || gateway.exit_code().is_some());
    assert_eq!(gateway.exit_code(), Some(0));
}

/// Whether the process ends or only the listener goes.
#[test]
fn a_handshake_under_way_that_is_declined_ends_its_connection_with_the_answer() {
    for reload in [false, true] {
        let (door, asked) = (Latch::default(), Latch::default());
        let (gate, there) = (door.clone(), asked.clone());
        let origin = Origin::new(move |call| {
            call.body();
            there.open();
            gate.wait();
            call.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
            Next::Keep
        });
        let public = "{ name: public, address: '127.0.0.2:0' }";
        let extra = "{ name: extra, address: '127.0.0.1:0' }";
        let gateway = Gateway::before(&origin, &format!("{DRAIN}\nlisteners: [{public}, {extra}]"));
        let addr = gateway.listener("extra");
        let mut socket = Socket::connect(addr);
        socket.send(asking("/", ""));
        asked.wait();
        if reload {
            gateway.reload(&format!("{DRAIN}\nlisteners: [{public}]"));
        } else {
            gateway.signal("TERM");
        }
        until("the listener is closed", || std::net::TcpStream::connect(addr).is_err());
        door.open();
        let head = socket.head().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 403 ") && head.contains("connection: close\r\n"), "{head}");
        assert_eq!(socket.rest(), (b"no".to_vec(), End::Fin));
    }
}
