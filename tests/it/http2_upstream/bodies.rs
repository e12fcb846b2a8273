//! Bodies through the windows of both sides: whole, streamed, and never more of them in memory than the windows hold.

use super::{answer, fields, pattern, upload};
use crate::harness::{Client, Gateway, H2, H2Origin, Hello, Latch, Piece, Table, exchange, happens, kind, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LENGTHS: [usize; 7] = [0, 1, 100, 16_384, 65_535, 65_536, 1_000_000];

#[test]
fn request_bodies_arrive_whole_through_narrow_windows() {
    let origin = H2Origin::saying(Hello { window: 1000, ..Hello::default() }, |call| {
        call.body();
        answer(call, b"ok");
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut table = Table::new("request bodies");
    for (i, length) in LENGTHS.into_iter().enumerate() {
        let body = pattern(length);
        let head = format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let outcome = exchange(gateway.addr(), [head.into_bytes(), body.clone()].concat()).outcome();
        let seen = origin.wait(2 * i + 1);
        let same =
            outcome == "200" && seen.body == body && seen.ended && seen.header("content-length") == Some(&length.to_string());
        table.row(&format!("{length} bytes from HTTP/1.1"), if same { String::new() } else { outcome });
        let outcome = H2::connect(gateway.addr()).ask(&fields("PUT", "/x"), Some(&body[..length.min(60_000)])).outcome();
        let seen = origin.wait(2 * i + 2);
        let same = outcome == "200" && seen.body == body[..length.min(60_000)] && seen.header("content-length").is_none();
        table.row(&format!("{length} bytes from HTTP/2"), if same { String::new() } else { outcome });
    }
}

#[test]
fn response_bodies_arrive_whole_with_and_without_a_length() {
    let origin = H2Origin::new(|call| {
        let (framing, length) = call.seen.path().trim_start_matches('/').split_once('/').unwrap();
        let body = pattern(length.parse().unwrap());
        let fields: &[(&str, &str)] = match framing {
            "length" => &[(":status", "200"), ("content-length", length)],
            _ => &[(":status", "200")],
        };
        match framing {
            // The end in a frame of its own.
            "late" => {
                call.headers(fields, false);
                call.data(&body, false);
                call.frame(kind::DATA, 1, &[]);
            }
            _ => {
                call.headers(fields, body.is_empty());
                call.data(&body, true);
            }
        }
    });
    let gateway = Gateway::before_http2(&origin, "");
    let (mut h1, mut h2) = (gateway.client(), H2::connect(gateway.addr()));
    let mut table = Table::new("response bodies");
    for length in LENGTHS {
        for framing in ["length", "stream", "late"] {
            let target = format!("/{framing}/{length}");
            let expected = pattern(length);
            let response = h1.get(&target).response();
            let right = response.status == 200 && !response.cut && response.body == expected;
            table.row(
                &target,
                if right { String::new() } else { format!("HTTP/1: {}, cut {}", response.body.len(), response.cut) },
            );
            let reply = h2.get(&target);
            let right = reply.outcome() == "200" && reply.body == expected;
            table.row(&target, if right { String::new() } else { format!("HTTP/2: {}, {}", reply.outcome(), reply.body.len()) });
        }
    }
    assert_eq!(origin.connections(), 1, "nothing of this was an error");
}

/// The gateway's memory while `progress` stands still.
fn growth_until_stalled(gateway: &Gateway, before: u64, progress: &AtomicUsize) -> u64 {
    let mut last = usize::MAX;
    until("the writer is held back", || {
        let now = progress.load(Ordering::Relaxed);
        let moved = std::mem::replace(&mut last, now) != now;
        !moved && !happens(Duration::from_millis(300), || progress.load(Ordering::Relaxed) != now)
    });
    gateway.rss().saturating_sub(before)
}

#[test]
fn a_client_that_does_not_read_holds_upstream_back_and_nobody_else() {
    let sent = Arc::new(AtomicUsize::new(0));
    let progress = Arc::clone(&sent);
    let origin = H2Origin::new(move |call| {
        if call.seen.path() != "/large" {
            return answer(call, b"ok");
        }
        call.headers(&[(":status", "200")], false);
        let block = vec![b'x'; 16 << 10];
        while call.data(&block, false) {
            progress.fetch_add(block.len(), Ordering::Relaxed);
        }
    });
    let gateway =
        Gateway::before_http2(&origin, "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { write_idle: 60s } }]");
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
            client.request(&fields("GET", "/large"), None);
            client
        });
        until("the upstream has begun", || sent.load(Ordering::Relaxed) > 0);
        let growth = growth_until_stalled(&gateway, before, &sent);
        assert!(growth < 8 << 20, "memory grew by {} KiB, HTTP/2: {over_h2}", growth >> 10);
        // Windows and buffers; for HTTP/1.1 also what the kernel holds.
        let most = if over_h2 { 1 << 20 } else { 16 << 20 };
        assert!(sent.load(Ordering::Relaxed) < most, "the upstream was not held back, HTTP/2: {over_h2}");
        assert_eq!(gateway.get("/others").text(), "ok");
        drop((h1, h2));
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_upstream_that_does_not_read_holds_the_client_back() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = H2Origin::new(move |call| {
        if call.seen.header(":method") == Some("POST") {
            theirs.wait();
        }
        call.body();
        answer(call, b"ok");
    });
    let gateway = Gateway::before_http2(&origin, "");
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
        assert!(sent.load(Ordering::Relaxed) < total, "the client was not held back");
        door.open();
        assert_eq!(uploader.join().unwrap(), "200");
    });
    assert_eq!(origin.wait(2).body.len(), total);
}

#[test]
fn an_answer_that_comes_before_the_upload_is_over_reaches_the_client() {
    const CANCEL: u32 = 8;
    let origin = H2Origin::new(|call| {
        call.headers(&[(":status", "413"), ("content-length", "3")], false);
        call.data(b"big", true);
        call.await_reset();
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = gateway.client();
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
    client.send(vec![b'x'; 100_000]);
    let response = client.receive().response();
    assert_eq!((response.status, response.text().as_str()), (413, "big"));
    assert_eq!(origin.wait(1).reset, Some(CANCEL), "nobody needs the rest of the upload");
    let mut h2 = H2::connect(gateway.addr());
    let stream = upload(&mut h2, "/x");
    h2.data(stream, &[b'x'; 30_000], false);
    assert_eq!(h2.receive(stream).outcome(), "413");
    assert_eq!((origin.wait(2).reset, origin.connections()), (Some(CANCEL), 1));
}

#[test]
fn a_complete_answer_stays_complete_when_upstream_stops_the_upload() {
    let origin = H2Origin::new(|call| {
        answer(call, b"enough");
        call.reset(0);
    });
    let gateway = Gateway::before_http2(&origin, "");
    for _ in 0..20 {
        let mut client = gateway.client();
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbegin");
        assert_eq!(client.receive().response().text(), "enough");
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn both_sides_talk_in_turn() {
    let origin = H2Origin::new(|call| {
        call.headers(&[(":status", "200")], false);
        while let Piece::Data(bytes) = call.next() {
            call.data(&bytes.to_ascii_uppercase(), false);
        }
        call.frame(kind::DATA, 1, &[]);
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let stream = upload(&mut client, "/");
    for (said, heard) in [("a", "A"), ("bc", "ABC"), ("d", "ABCD")] {
        client.data(stream, said.as_bytes(), false);
        assert_eq!(client.receive_until(stream, |reply| reply.body.len() == heard.len()).body, heard.as_bytes());
    }
    client.data(stream, b"", true);
    assert_eq!(client.receive(stream).outcome(), "200");
}

#[test]
fn an_upload_goes_on_while_its_client_reads_nothing() {
    let origin = H2Origin::new(|call| {
        call.headers(&[(":status", "200")], false);
        // More than the client's window: it will stand still until the upload is over.
        call.data(&pattern(100), false);
        let length = call.body().map_or(0, |body| body.len());
        call.data(format!(" {length}").as_bytes(), true);
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = H2::connect_with_window(gateway.addr(), 16);
    let stream = upload(&mut client, "/");
    client.receive_until(stream, |reply| reply.body.len() == 16);
    // Less than a stream's first window each, or the client would have to read WINDOW_UPDATEs, which it does not.
    client.data(stream, &[b'x'; 40_000], false);
    client.data(stream, &[b'x'; 20_000], true);
    let seen = origin.wait(1);
    assert_eq!((seen.body.len(), seen.ended), (60_000, true));
    client.frame(kind::WINDOW_UPDATE, 0, stream, &1000_u32.to_be_bytes());
    assert!(client.receive(stream).body.ends_with(b" 60000"));
}

#[test]
fn a_client_that_stops_within_its_body_is_no_complete_request() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "");
    let mut h1 = gateway.client();
    h1.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    origin.wait_heads(1);
    h1.reset();
    let mut h2 = H2::connect(gateway.addr());
    let stream = upload(&mut h2, "/");
    h2.data(stream, b"half", false);
    origin.wait_heads(2);
    h2.cancel(stream);
    let bad = exchange(gateway.addr(), "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nXX\r\n");
    assert_eq!(bad.outcome(), "400");
    for n in 1..=3 {
        let seen = origin.wait(n);
        assert!(!seen.ended && seen.reset == Some(8), "{n}: {seen:?}");
    }
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[]), 0.0);
}

#[test]
fn a_body_that_is_too_large_is_cut_off() {
    let origin = H2Origin::ok();
    let routes = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, max_body: 1KiB }]";
    let gateway = Gateway::before_http2(&origin, routes);
    let mut h2 = H2::connect(gateway.addr());
    assert_eq!(h2.ask(&fields("POST", "/"), Some(&[b'x'; 2000])).outcome(), "413");
    assert!(!origin.wait(1).ended);
}
