//! Bodies and trailers, both ways, without holding them in memory.

use crate::harness::{Client, Gateway, H2, Latch, Next, Origin, Table, crlf, exchange, happens, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const EIGHT_MIB: usize = 8 << 20;

/// Bytes that would show a lost, doubled or swapped block.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from((i / 251 + i) % 251).expect("below 251")).collect()
}

fn chunks(body: &[u8], size: usize) -> Vec<u8> {
    let mut wire = Vec::with_capacity(body.len() + body.len() / size * 8 + 16);
    for part in body.chunks(size) {
        wire.extend(format!("{:x}\r\n", part.len()).into_bytes());
        wire.extend_from_slice(part);
        wire.extend(b"\r\n");
    }
    wire.extend(b"0\r\n\r\n");
    wire
}

#[test]
fn request_bodies_arrive_whole_in_either_framing() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("request bodies");
    for length in [0, 1, 100, 8_191, 8_192, 65_536, 1_000_000] {
        let body = pattern(length);
        let plain =
            [format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").into_bytes(), body.clone()].concat();
        let chunked =
            [b"PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), chunks(&body, 1_000)].concat();
        for (framing, request) in [("length", plain), ("chunked", chunked)] {
            origin.forget();
            let outcome = exchange(gateway.addr(), request).outcome();
            let same = outcome == "200" && origin.wait(1).body == body;
            table.row(&format!("{length} bytes, {framing}"), if same { String::new() } else { outcome });
        }
    }
}

#[test]
fn response_bodies_arrive_whole_in_either_framing() {
    let origin = Origin::new(|call| {
        let (framing, length) =
            call.target().trim_start_matches('/').split_once('/').map(|(f, l)| (f.to_owned(), l.parse().unwrap())).unwrap();
        let body = pattern(length);
        let answer = match framing.as_str() {
            "length" => [format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes(), body].concat(),
            "chunked" => [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), chunks(&body, 1_000)].concat(),
            _ => [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), body].concat(),
        };
        call.answer(&answer);
        if framing == "close" { Next::Close } else { Next::Keep }
    });
    let gateway = Gateway::before(&origin, "");
    let (mut h1, mut h2) = (gateway.client(), H2::connect(gateway.addr()));
    let mut table = Table::new("response bodies");
    for length in [0, 1, 100, 8_191, 8_192, 65_536, 1_000_000] {
        for framing in ["length", "chunked", "close"] {
            let target = format!("/{framing}/{length}");
            let expected = pattern(length);
            let response = h1.get(&target).response();
            let right = response.status == 200 && !response.cut && response.body == expected;
            table.row(
                &target,
                if right { String::new() } else { format!("HTTP/1: {} bytes, cut {}", response.body.len(), response.cut) },
            );
            let reply = h2.get(&target);
            let right = reply.outcome() == "200" && reply.body == expected;
            table.row(
                &target,
                if right { String::new() } else { format!("HTTP/2: {} with {} bytes", reply.outcome(), reply.body.len()) },
            );
        }
    }
}

#[test]
fn eight_mib_go_up_and_come_back_at_the_same_time() {
    let origin = Origin::echo();
    let gateway = Gateway::before(&origin, "");
    let body = pattern(EIGHT_MIB);
    let head = format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {EIGHT_MIB}\r\n\r\n");
    let response = exchange(gateway.addr(), [head.into_bytes(), body.clone()].concat()).response();
    assert!(response.body.ends_with(&body), "{} bytes came back", response.body.len());
    let mut h2 = H2::connect(gateway.addr());
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/x")];
    let reply = h2.ask(&fields, Some(&body[..60_000]));
    assert!(reply.body.windows(1000).any(|part| part == &body[..1000]) && reply.status() == 200);
}

/// The gateway's memory while `stalled` says that nothing moves any more.
fn growth_until_stalled(gateway: &Gateway, before: u64, progress: &AtomicUsize) -> u64 {
    let mut last = usize::MAX;
    until("the writer is held back", || {
        let now = progress.load(Ordering::Relaxed);
        let moved = std::mem::replace(&mut last, now) != now;
        // Held back means: no progress during a whole interval.
        !moved && !happens(Duration::from_millis(300), || progress.load(Ordering::Relaxed) != now)
    });
    gateway.rss().saturating_sub(before)
}

#[test]
fn a_client_that_does_not_read_holds_the_upstream_back_and_costs_no_memory() {
    let sent = Arc::new(AtomicUsize::new(0));
    let progress = Arc::clone(&sent);
    let origin = Origin::new(move |call| {
        if call.target() != "/large" {
            return call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
        call.body();
        call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 256 << 20));
        let block = vec![b'x'; 64 << 10];
        while progress.load(Ordering::Relaxed) < 256 << 20 && call.send(&block) {
            progress.fetch_add(block.len(), Ordering::Relaxed);
        }
        Next::Close
    });
    let gateway =
        Gateway::before(&origin, "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { write_idle: 60s } }]");
    gateway.get("/warm-up");
    for over_h2 in [false, true] {
        sent.store(0, Ordering::Relaxed);
        let before = gateway.rss();
        let h1 = (!over_h2).then(|| {
            let mut client = Client::connect_narrow(gateway.addr());
            client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        });
        let h2 = over_h2.then(|| {
            let mut client = H2::connect_with_window(gateway.addr(), 65_535);
            client.request(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/large")], None);
            client
        });
        until("the upstream has begun", || sent.load(Ordering::Relaxed) > 0);
        let growth = growth_until_stalled(&gateway, before, &sent);
        assert!(growth < 8 << 20, "memory grew by {} KiB, HTTP/2: {over_h2}", growth >> 10);
        assert!(sent.load(Ordering::Relaxed) < 64 << 20, "the upstream was not held back, HTTP/2: {over_h2}");
        drop((h1, h2));
    }
}

#[test]
fn an_upstream_that_does_not_read_holds_the_client_back_and_costs_no_memory() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = Origin::new(move |call| {
        if call.method() == "POST" {
            theirs.wait();
        }
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    });
    let gateway = Gateway::before(&origin, "");
    gateway.get("/warm-up");
    let before = gateway.rss();
    let sent = AtomicUsize::new(0);
    let total = 32 << 20;
    std::thread::scope(|scope| {
        let sent = &sent;
        let uploader = scope.spawn(|| {
            let mut client = gateway.client();
            client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {total}\r\n\r\n"));
            let block = vec![b'x'; 64 << 10];
            while sent.load(Ordering::Relaxed) < total && client.try_send(&block) {
                sent.fetch_add(block.len(), Ordering::Relaxed);
            }
            client.receive().outcome()
        });
        let growth = growth_until_stalled(&gateway, before, sent);
        assert!(growth < 8 << 20, "memory grew by {} KiB", growth >> 10);
        door.open();
        assert_eq!(uploader.join().unwrap(), "200");
    });
}

#[test]
fn trailers_pass_in_both_directions() {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-More\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nX-More: a\r\nX-More: b\r\nConnection: x\r\n\r\n",
    );
    let gateway = Gateway::before(&origin, "");
    let response = exchange(gateway.addr(), crlf("POST /x HTTP/1.1\nHost: a\nTE: trailers\nConnection: TE\nTransfer-Encoding: chunked\nTrailer: X-Up\n\n1\nz\n0\nX-Up: 7\nX-Up: 8\n\n")).response();
    let seen = origin.wait(1);
    assert_eq!(seen.trailers.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["7", "8"]);
    assert_eq!(response.text(), "ok");
    assert_eq!(crate::harness::fields(&response.trailers, "x-more"), ["a", "b"]);
    assert_eq!(crate::harness::fields(&response.trailers, "x-sum"), ["1"]);
    assert!(response.header("x-sum").is_none() && crate::harness::field(&response.trailers, "connection").is_none());
    let mut h2 = H2::connect(gateway.addr());
    let stream =
        h2.open(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/x"), ("te", "trailers")], false);
    h2.data(stream, b"z", false);
    h2.trailers(stream, &[("x-up", "9")]);
    let reply = h2.receive(stream);
    assert_eq!((reply.status(), crate::harness::field(&reply.trailers, "x-sum")), (200, Some("1")));
    assert_eq!(crate::harness::field(&origin.wait(2).trailers, "x-up"), Some("9"));
}

#[test]
fn a_client_that_did_not_ask_for_trailers_still_gets_a_clean_end() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n");
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    for _ in 0..3 {
        let response = client.get("/").response();
        assert!(response.text() == "ok" && !response.cut && response.header("x-sum").is_none());
    }
}

#[test]
fn an_answer_that_comes_before_the_upload_is_over_reaches_the_client() {
    let origin = Origin::new(|call| {
        call.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig");
        Next::Close
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    let response = client.receive().response();
    assert_eq!((response.status, response.text().as_str()), (413, "big"));
}

#[test]
fn a_response_is_streamed_not_collected() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = Origin::new(move |call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        theirs.wait();
        call.send("6\r\nsecond\r\n0\r\n\r\n");
        Next::Keep
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut early = String::new();
    while !early.contains("first") {
        early = String::from_utf8_lossy(client.grow()).into_owned();
        assert!(!early.is_empty(), "nothing arrived before the response was complete");
    }
    door.open();
    assert_eq!(client.receive().response().text(), "firstsecond");
}

/// SL-8: nothing is unpacked on the way, so that 64 KiB that stand for 64 MiB are 64 KiB.
#[test]
fn compressed_bodies_are_passed_on_as_they_are() {
    let script = "head -c 67108864 /dev/zero | gzip -9";
    let packed = std::process::Command::new("sh").args(["-c", script]).output().unwrap().stdout;
    assert!((1_000..200_000).contains(&packed.len()), "{}", packed.len());
    let origin = Origin::new(|call| {
        if !call.body() {
            return Next::Close;
        }
        let body = call.seen().body;
        let coded = "Content-Type: application/json\r\nContent-Encoding: gzip";
        call.send(format!("HTTP/1.1 200 OK\r\n{coded}\r\nContent-Length: {}\r\n\r\n", body.len()));
        call.send(body);
        Next::Keep
    });
    // A limit that reads responses leaves this one alone as well.
    let limits = "limits: [{ name: tokens, per: ip, rate: 1000/s, cost: { response_json: usage.total_tokens, reserve: 3 } }]";
    let gateway = Gateway::before(&origin, limits);
    gateway.get("/warm-up");
    let before = gateway.rss();
    for _ in 0..5 {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", packed.len());
        let response = exchange(gateway.addr(), [head.as_bytes(), &packed].concat()).response();
        assert!(response.status == 200 && response.body == packed && response.header("content-encoding") == Some("gzip"));
    }
    assert!(origin.seen().iter().skip(1).all(|seen| seen.body == packed && seen.header("content-encoding") == Some("gzip")));
    assert!(gateway.rss() < before + (8 << 20), "memory grew by {} KiB", (gateway.rss() - before) >> 10);
}
