//! The same bytes with the gateway as without it, in both directions and to the end.

use super::tls::Pki;
use super::{End, Heard, Socket, accepting, accepting_secure, first_frame, frame, masked};
use crate::harness::{Gateway, Origin, Table};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// What a client does once it has all that upstream had to say to what it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finally {
    /// Waits for upstream to end.
    Waits,
    /// Half-closes.
    Finishes,
    /// Resets.
    Resets,
}

/// What a client sends in these pieces, and does then.
struct Case {
    name: String,
    target: &'static str,
    pieces: Vec<Vec<u8>>,
    finally: Finally,
}

/// What the two ends have seen.
#[derive(PartialEq, Eq)]
struct Seen {
    client: Heard,
    upstream: Heard,
}

/// Echoes frame by frame, without their masks: a Ping as a Pong, and a Close as its own last word.
fn reply(first: u8, payload: &[u8]) -> Vec<u8> {
    frame(if first & 0x0f == 9 { 0x8a } else { first }, payload, None)
}

fn serve(target: &str, mut socket: Socket) -> Heard {
    let (mut all, mut closed) = (Vec::new(), false);
    if let Some(words) = target.strip_prefix("/says/") {
        socket.send(frame(0x81, words.as_bytes(), None));
    }
    loop {
        while let Some((first, payload, length)) = first_frame(&socket.ahead) {
            all.extend(socket.ahead.drain(..length));
            match (target, payload.as_slice()) {
                // Behind a Close frame there is nothing to say.
                _ if closed => {}
                ("/resets", b"now") => {
                    socket.reset();
                    return (all, End::Reset);
                }
                ("/finishes", b"now") => _ = socket.finish(),
                ("/half-a-frame", b"now") => {
                    socket.send(&frame(0x82, &[7; 1000], None)[..500]);
                    return (all, End::Fin);
                }
                ("/closes", b"now") => {
                    socket.send(frame(0x88, b"\x0f\xa0bye", None)).finish();
                    closed = true;
                }
                _ => _ = socket.send(reply(first, &payload)),
            }
            if first & 0x0f == 8 {
                closed = true;
                socket.finish();
            }
        }
        if let Some(end) = socket.fill() {
            all.extend(&socket.ahead);
            return (all, end);
        }
    }
}

fn run(socket: Socket, ends: &Receiver<Heard>, case: &Case) -> Seen {
    let mut socket = socket.upgraded(case.target);
    let sent = case.pieces.concat();
    // What has to be back before the client ends: the echo of all whole frames.
    let (mut expected, mut rest) = (case.target.strip_prefix("/says/").map_or(0, |words| 2 + words.len()), &sent[..]);
    while let Some((first, payload, length)) = first_frame(rest) {
        expected += if payload == b"now" { 0 } else { reply(first, &payload).len() };
        rest = if first & 0x0f == 8 { &[] } else { &rest[length..] };
    }
    // Upstream has a frame before it says anything to it, so nobody waits for the other.
    case.pieces.iter().for_each(|piece| _ = socket.send(piece));
    let mut back = socket.read(expected);
    let (more, end) = match case.finally {
        Finally::Waits => {
            let seen = socket.rest();
            drop(socket);
            seen
        }
        Finally::Finishes => socket.finish().rest(),
        Finally::Resets => {
            socket.reset();
            (Vec::new(), End::Reset)
        }
    };
    back.extend(more);
    let upstream = ends.recv_timeout(crate::harness::DEADLINE);
    Seen { client: (back, end), upstream: upstream.unwrap_or_else(|_| panic!("{}: upstream sees no end", case.name)) }
}

fn cases() -> Vec<Case> {
    let text = |payload: &[u8]| masked(0x81, payload);
    let close = |code: u16, reason: &str| masked(0x88, &[&code.to_be_bytes(), reason.as_bytes()].concat());
    let bye = close(1000, "");
    let mut cases = Vec::new();
    let mut add = |name: &str, target: &'static str, pieces: Vec<Vec<u8>>, finally: Finally| {
        cases.push(Case { name: name.to_owned(), target, pieces, finally });
    };
    for size in [0, 1, 125, 126, 127, 1000, 0xffff, 0x1_0000, 1 << 20, 16 << 20] {
        let payload: Vec<u8> = (0..size).map(|at| (at * 31) as u8).collect();
        add(&format!("a binary message of {size} bytes"), "/", vec![masked(0x82, &payload), bye.clone()], Finally::Waits);
        add(&format!("a text message of {size} bytes"), "/", vec![text(&vec![b'x'; size]), bye.clone()], Finally::Waits);
    }
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 4999, 0, 1005] {
        add(&format!("close code {code}"), "/", vec![close(code, "why not")], Finally::Waits);
    }
    add("a Close frame without a code", "/", vec![masked(0x88, b"")], Finally::Waits);
    add("a Close frame of one byte", "/", vec![masked(0x88, b"x")], Finally::Waits);
    for parts in [2, 3, 50] {
        let mut pieces: Vec<Vec<u8>> = (0..parts).map(|_| masked(0x00, b"part")).collect();
        pieces[0] = masked(0x01, b"first");
        pieces[parts - 1] = masked(0x80, b"last");
        pieces.push(bye.clone());
        add(&format!("a message in {parts} frames"), "/", pieces, Finally::Waits);
    }
    let between = vec![
        masked(0x02, b"a"),
        masked(0x89, b"ping"),
        masked(0x00, b""),
        masked(0x8a, b"pong"),
        masked(0x80, b"b"),
        bye.clone(),
    ];
    add("control frames within a message", "/", between.clone(), Finally::Waits);
    add("the same in single bytes", "/", between.concat().into_iter().map(|byte| vec![byte]).collect(), Finally::Waits);
    add("the same at once", "/", vec![between.concat()], Finally::Waits);
    add("an empty last frame", "/", vec![masked(0x01, b"a"), masked(0x80, b""), bye.clone()], Finally::Waits);
    add("text that is no UTF-8", "/", vec![text(b"\xff\xfe\xc0\xaf"), bye.clone()], Finally::Waits);
    add("reserved bits", "/", vec![masked(0xc1, b"deflated?"), masked(0xf2, b"x"), bye.clone()], Finally::Waits);
    add("reserved opcodes", "/", vec![masked(0x83, b"x"), masked(0x8f, b"y"), bye.clone()], Finally::Waits);
    add("no mask", "/", vec![frame(0x81, b"bare", None), bye.clone()], Finally::Waits);
    add("a mask of zeroes", "/", vec![frame(0x81, b"bare", Some([0; 4])), bye.clone()], Finally::Waits);
    add("a mask of ones", "/", vec![frame(0x81, b"bare", Some([255; 4])), bye.clone()], Finally::Waits);
    add(
        "a length longer written than need be",
        "/",
        vec![b"\x82\xff\0\0\0\0\0\0\0\x01\0\0\0\0z".to_vec(), bye.clone()],
        Finally::Waits,
    );
    add("a hundred pings", "/", vec![masked(0x89, b"ping").repeat(100), bye.clone()], Finally::Waits);
    add("a ping of 200 bytes", "/", vec![masked(0x89, &[1; 200]), bye.clone()], Finally::Waits);
    add("something behind a Close frame", "/", vec![[bye.clone(), text(b"more")].concat()], Finally::Waits);
    add("upstream speaks first", "/says/hello", vec![bye.clone()], Finally::Waits);
    add("upstream closes", "/closes", vec![text(b"a"), text(b"now"), bye.clone()], Finally::Finishes);
    add("upstream ends without a word", "/finishes", vec![text(b"a"), text(b"now")], Finally::Finishes);
    add("upstream ends within a frame", "/half-a-frame", vec![text(b"a"), text(b"now")], Finally::Waits);
    add("upstream resets", "/resets", vec![text(b"a"), text(b"now")], Finally::Waits);
    add("the client ends without a word", "/", vec![text(b"a")], Finally::Finishes);
    add("the client ends within a header", "/", vec![text(b"a"), vec![0x82]], Finally::Finishes);
    add(
        "the client ends within a frame",
        "/",
        vec![text(b"a"), masked(0x82, &[9; 70_000])[..60_000].to_vec()],
        Finally::Finishes,
    );
    add("the client says nothing at all", "/", vec![], Finally::Finishes);
    add("the client resets", "/", vec![text(b"a")], Finally::Resets);
    add("the client resets at once", "/", vec![], Finally::Resets);
    cases
}

fn origin() -> (Origin, Receiver<Heard>) {
    let (script, ends) = script();
    (accepting(script), ends)
}

fn script() -> (impl Fn(&str, Socket) + Send + Sync + 'static, Receiver<Heard>) {
    let (sender, ends): (Sender<Heard>, _) = channel();
    let sender = Arc::new(Mutex::new(sender));
    let script = move |target: &str, socket: Socket| {
        let seen = serve(target, socket);
        let _test_is_over = sender.lock().unwrap().send(seen);
    };
    (script, ends)
}

/// Compares what the two ends of `with` see with what they do where there is nothing between them.
fn compare(title: &'static str, with: impl Fn() -> Socket, ends: &Receiver<Heard>) {
    let (direct, direct_ends) = origin();
    let mut table = Table::new(title);
    let cases = cases();
    assert!(cases.len() >= 40);
    for case in &cases {
        let (with, without) = (run(with(), ends, case), run(Socket::connect(direct.addr()), &direct_ends, case));
        let told = |(bytes, end): &Heard| format!("{} bytes, {end:?}", bytes.len());
        let mut problem = String::new();
        if with != without {
            problem = format!(
                "with: client {}, upstream {}; without: client {}, upstream {}",
                told(&with.client),
                told(&with.upstream),
                told(&without.client),
                told(&without.upstream)
            );
        }
        table.row(&case.name, problem);
    }
}

#[test]
fn bytes_and_ends_are_the_same_with_the_gateway_and_without() {
    let (origin, ends) = origin();
    let gateway = Gateway::before(&origin, "");
    compare("echo", || Socket::connect(gateway.addr()), &ends);
}

/// TLS on both sides changes nothing of it: an end is announced, a reset is not.
#[test]
fn bytes_and_ends_are_the_same_over_tls() {
    let (script, ends) = script();
    let pki = Pki::new();
    let origin = accepting_secure(pki.serve(), script);
    let gateway = Gateway::before(&origin, &format!("{}\n{}", pki.listener(), pki.upstream("auto")));
    compare("echo over TLS", || pki.socket(&gateway), &ends);
}

/// What the meter lets through is untouched too; frames that it takes for none are other tests'.
#[test]
fn a_meter_changes_nothing_of_what_it_lets_through() {
    let (origin, ends) = origin();
    let yaml = "routes: [{ name: all, upstream: origin, websocket: { messages: 100000/s, bytes: 900MB/s, max_message: 1GiB } }]";
    let gateway = Gateway::before(&origin, yaml);
    let mut table = Table::new("echo through a meter");
    let refused = ["no mask", "a ping of 200 bytes"];
    for case in cases().iter().filter(|case| !refused.contains(&case.name.as_str())) {
        let (with, without) =
            (run(Socket::connect(gateway.addr()), &ends, case), run(Socket::connect(origin.addr()), &ends, case));
        table.row(&case.name, if with == without { "" } else { "differs" });
    }
}
