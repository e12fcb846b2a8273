//! What a client may send over one WebSocket, to the frame and to the byte.

use super::{End, Noted, Socket, accepting, close_code, frame, masked, silent};
use crate::harness::{Gateway, Latch, Origin, Table, until};

fn with(origin: &Origin, limits: &str) -> Gateway {
    let yaml = format!(
        "access_log: {{ format: json, to: stdout }}\nroutes: [{{ name: all, upstream: origin, websocket: {{ {limits} }} }}]"
    );
    Gateway::before(origin, &yaml)
}

/// A text message with nothing in it but this many bytes.
fn text(size: usize) -> Vec<u8> {
    masked(0x81, &vec![b'x'; size])
}

/// Sends frames that pass and one more; the close codes that client and upstream see behind just the former.
fn refused(gateway: &Gateway, noted: &Noted, passes: &[u8], one_more: &[u8]) -> (Option<u16>, Option<u16>) {
    let nth = noted.count() + 1;
    let mut socket = Socket::websocket(gateway.addr(), "/");
    socket.send([passes, one_more].concat());
    let (bytes, end) = socket.rest();
    assert_eq!(end, End::Fin);
    drop(socket);
    let (seen, end) = noted.wait(nth);
    assert_eq!((seen.starts_with(passes), end), (true, End::Fin), "{} of {} bytes", seen.len(), passes.len());
    (close_code(&bytes), close_code(&seen[passes.len()..]))
}

/// Sends frames that all pass, in pieces of `step` bytes, and ends.
fn passes(gateway: &Gateway, noted: &Noted, frames: &[u8], step: usize) -> bool {
    let nth = noted.count() + 1;
    let mut socket = Socket::websocket(gateway.addr(), "/");
    frames.chunks(step).for_each(|piece| _ = socket.send(piece));
    let (bytes, end) = socket.finish().rest();
    (bytes, end) == (vec![], End::Fin) && noted.wait(nth) == (frames.to_vec(), End::Fin)
}

const POLICY: (Option<u16>, Option<u16>) = (Some(1008), Some(1008));
const TOO_BIG: (Option<u16>, Option<u16>) = (Some(1009), Some(1009));
const PROTOCOL: (Option<u16>, Option<u16>) = (Some(1002), Some(1002));

#[test]
fn exactly_so_many_messages_pass() {
    let (origin, noted) = silent();
    let gateway = with(&origin, "messages: 5/day");
    let mut table = Table::new("messages");
    let five = text(3).repeat(5);
    table.row("five", if passes(&gateway, &noted, &five, 1000) { "" } else { "refused" });
    table.row("five in single bytes", if passes(&gateway, &noted, &five, 1) { "" } else { "refused" });
    let in_frames = [masked(0x01, b"a"), masked(0x89, b"ping"), masked(0x00, b"b"), masked(0x80, b"c")].concat();
    let pings = masked(0x8a, &[1; 125]).repeat(50);
    let many_frames = [in_frames.repeat(5), pings.clone()].concat();
    table.row("fragments and control frames", if passes(&gateway, &noted, &many_frames, 7) { "" } else { "refused" });
    for (name, before) in [("one by one", five), ("in frames", many_frames)] {
        table.row(name, format!("{:?}", refused(&gateway, &noted, &before, &text(0))).replace(&format!("{POLICY:?}"), ""));
    }
    until("both are counted", || {
        gateway.metric("tollgate_websocket_refused_total", &[("route", "all"), ("reason", "messages")]) == 2.0
    });
    until("and logged", || gateway.access_log().matches("\"ended\":\"messages\"").count() == 2);
}

/// What is sent before the 101 is counted like the rest.
#[test]
fn early_messages_are_counted_too() {
    let (origin, noted) = silent();
    let gateway = with(&origin, "messages: 5/day");
    let mut socket = Socket::connect(gateway.addr());
    socket.send([super::asking("/", "").as_bytes(), &text(3).repeat(6)].concat());
    assert!(socket.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(close_code(&socket.rest().0), Some(1008));
    drop(socket);
    let (seen, _) = noted.wait(1);
    let (passed, close) = seen.split_at(text(3).len() * 5);
    assert_eq!((passed, close_code(close)), (&*text(3).repeat(5), Some(1008)));
}

#[test]
fn a_burst_is_what_passes_at_once() {
    let (origin, noted) = silent();
    let gateway = with(&origin, "messages: 1/day burst 3");
    assert_eq!(refused(&gateway, &noted, &text(1).repeat(3), &text(1)), POLICY);
}

#[test]
fn bytes_are_counted_as_they_come_over_the_wire() {
    let (origin, noted) = silent();
    let gateway = with(&origin, "bytes: 1000/day");
    // 6 bytes of header for a short frame, 8 for a longer one.
    let exact = [text(100), masked(0x89, b"1234"), text(876)].concat();
    assert_eq!(exact.len(), 1000);
    assert!(passes(&gateway, &noted, &exact, 64));
    assert_eq!(refused(&gateway, &noted, &exact, &masked(0x8a, b"")), POLICY, "not even an empty Pong fits");
    let short = [text(100), text(878)].concat();
    assert_eq!(short.len(), 992);
    assert!(passes(&gateway, &noted, &[short.clone(), text(2)].concat(), 13));
    assert_eq!(refused(&gateway, &noted, &short, &text(3)), POLICY);
    assert_eq!(refused(&gateway, &noted, b"", &text(2000)), POLICY, "more than ever fits");
}

#[test]
fn a_message_may_be_as_large_as_the_limit_and_not_a_byte_larger() {
    let (origin, noted) = silent();
    let gateway = with(&origin, "max_message: 64KiB");
    let max = 64 << 10;
    assert!(passes(&gateway, &noted, &text(max), 4096));
    assert!(passes(&gateway, &noted, &text(max).repeat(3), 1 << 20));
    assert_eq!(refused(&gateway, &noted, b"", &text(max + 1)), TOO_BIG);
    assert_eq!(refused(&gateway, &noted, &text(max), &text(max + 1)), TOO_BIG);
    let begun = [masked(0x02, &vec![1; max - 10]), masked(0x89, &[0; 125]), masked(0x00, &[2; 9])].concat();
    assert!(passes(&gateway, &noted, &[begun.clone(), masked(0x80, &[3; 1])].concat(), 1000));
    assert_eq!(refused(&gateway, &noted, &begun, &masked(0x80, &[3; 2])), TOO_BIG);
    // The length alone refuses: nothing of the payload has to come.
    let announced = [&[0x82, 0xff][..], &(1_u64 << 40).to_be_bytes(), &[0; 4]].concat();
    assert_eq!(refused(&gateway, &noted, b"", &announced), TOO_BIG);
}

#[test]
fn what_is_no_frame_is_not_passed_where_frames_are_counted() {
    let (origin, noted) = silent();
    let gateway = with(&origin, "messages: 1000/s");
    let mut table = Table::new("frames");
    for (name, wrong) in [
        ("a ping of 126 bytes", masked(0x89, &[0; 126])),
        ("half a ping", masked(0x09, b"")),
        ("no mask", frame(0x81, b"x", None)),
        ("a continuation of nothing", masked(0x80, b"x")),
        ("a length of 64 bits", [&[0x82, 0xff][..], &[0xff; 12]].concat()),
    ] {
        let seen = refused(&gateway, &noted, &text(1), &wrong);
        table.row(name, if seen == PROTOCOL { String::new() } else { format!("{seen:?}") });
    }
    let seen = refused(&gateway, &noted, &masked(0x01, b"begun"), &text(1));
    table.row("a message within a message", if seen == PROTOCOL { String::new() } else { format!("{seen:?}") });
    until("all are counted", || gateway.metric("tollgate_websocket_refused_total", &[("reason", "protocol")]) == 6.0);
}

#[test]
fn every_connection_is_counted_by_itself_and_upstream_not_at_all() {
    let origin = accepting(|_, mut socket| {
        socket.send(frame(0x82, &[0; 5000], None).repeat(20));
        socket.rest();
    });
    let gateway = with(&origin, "messages: 2/day, bytes: 100/day, max_message: 10");
    for _ in 0..3 {
        let mut socket = Socket::websocket(gateway.addr(), "/");
        socket.send(text(10).repeat(2));
        let (bytes, end) = socket.finish().rest();
        assert_eq!((bytes.len(), end), (20 * 5004, End::Fin));
    }
    assert_eq!(gateway.metric("tollgate_websocket_refused_total", &[]), 0.0);
}

#[test]
fn a_frame_from_upstream_is_finished_before_a_refused_client_is_closed() {
    let (door, begun) = (Latch::default(), Latch::default());
    let (gate, half) = (door.clone(), begun.clone());
    let origin = accepting(move |_, mut socket| {
        let whole = frame(0x82, &[7; 300], None);
        socket.send(&whole[..100]);
        half.open();
        gate.wait();
        socket.send(&whole[100..]);
        socket.rest();
    });
    let gateway = with(&origin, "max_message: 10");
    let mut socket = Socket::websocket(gateway.addr(), "/");
    begun.wait();
    let mut all = socket.read(100);
    socket.send(text(11));
    until("the client is refused", || gateway.metric("tollgate_upgraded_connections", &[]) == 1.0);
    door.open();
    all.extend(socket.rest().0);
    let (whole, close) = all.split_at(304);
    assert_eq!((whole, close_code(close)), (&*frame(0x82, &[7; 300], None), Some(1009)));
}

/// What a refused client goes on sending reaches nobody and does not keep its slot.
#[test]
fn a_client_that_goes_on_sending_is_not_heard() {
    let (origin, noted) = silent();
    let yaml = "limits: [{ name: open, per: ip, concurrency: 1 }]\nroutes: [{ name: all, upstream: origin, websocket: { messages: 1/day } }]";
    let gateway = Gateway::before(&origin, yaml);
    let mut socket = Socket::websocket(gateway.addr(), "/");
    socket.send(text(1).repeat(2));
    assert_eq!(close_code(&socket.rest().0), Some(1008));
    for _ in 0..100 {
        socket.send(text(1000));
    }
    let (seen, end) = noted.wait(1);
    assert_eq!((seen[..7].to_vec(), close_code(&seen[7..]), end), (text(1), Some(1008), End::Fin));
    // It neither ends nor stops; it is left all the same.
    until("the slot is free", || gateway.metric("tollgate_concurrency_slots", &[]) == 0.0);
}
