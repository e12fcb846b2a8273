//! Uploads have a least pace: a byte now and then does not hold an upstream's connection for hours.

use crate::harness::{DEADLINE, Ending, Gateway, H2, H2Origin, Next, Origin, crlf, happens, run};
use std::time::{Duration, Instant};

/// At least 1000 B/s after half a second, although half a second may pass between two bytes.
fn strict(more: &str) -> String {
    format!(
        "listeners: [{{ name: public, address: '127.0.0.1:0', timeouts: {{ body_idle: 500ms, min_body_rate: 1000B/s }} }}]\n{more}"
    )
}

const APART: Duration = Duration::from_millis(50);

/// Sends a byte every 50 ms for as long as `goes_on` says so; false if that was for too long.
fn drip(mut goes_on: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < DEADLINE {
        if !goes_on() {
            return true;
        }
        std::thread::sleep(APART);
    }
    false
}

#[test]
fn who_drips_gets_a_408_and_his_request_is_aborted_upstream() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &strict(""));
    for (n, (head, byte)) in [("Content-Length: 1000", "x"), ("Transfer-Encoding: chunked", "1\r\nx\r\n")].iter().enumerate() {
        let mut client = gateway.client();
        client.send(crlf(&format!("POST / HTTP/1.1\nHost: a\n{head}\n\n")));
        client.wait_at_most(Duration::from_millis(1));
        assert!(drip(|| client.send(byte).grow().is_empty()), "{head}");
        client.wait_at_most(DEADLINE);
        let response = client.receive().response();
        assert_eq!((response.status, response.json()["error"].as_str()), (408, Some("request_timeout")), "{head}");
        assert_eq!(origin.wait(n + 1).ending, Ending::Aborted, "{head}");
    }
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn in_http2_too_and_before_an_http2_upstream() {
    let (origin, h2_origin) = (Origin::ok(), H2Origin::ok());
    let upstreams = format!(
        "upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'] }}, two: {{ endpoints: ['http://{}'], protocol: http2 }} }}
routes: [{{ name: one, match: {{ path: /one }}, upstream: origin }}, {{ name: two, match: {{ path: /two }}, upstream: two }}]",
        h2_origin.addr()
    );
    let gateway = Gateway::before(&origin, &strict(&upstreams));
    for path in ["/one", "/two"] {
        let mut client = H2::connect(gateway.addr());
        let stream = client.open(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", path)], false);
        // Each byte is followed by a question, so that what has come by then is known.
        let ended = drip(|| {
            client.data(stream, b"x", false);
            client.ping();
            client.receive_until(stream, |_| true).status.is_none()
        });
        assert!(ended, "{path}");
        assert_eq!(client.receive(stream).status(), 408, "{path}");
        // Other streams of the connection live.
        assert_eq!(
            client.ask(&[(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", path)], None).status(),
            200
        );
    }
    assert_eq!(origin.wait(1).ending, Ending::Aborted);
    h2_origin.wait_reset(1);
}

#[test]
fn who_is_fast_enough_may_take_longer_than_any_pause() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &strict(""));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6000\r\n\r\n");
    for _ in 0..20 {
        client.send([b'x'; 300]);
        std::thread::sleep(APART);
    }
    assert_eq!(client.receive().status(), 200);
    assert_eq!(origin.wait(1).body.len(), 6000);
}

/// What upstream does not take the client can't send.
#[test]
fn the_upstreams_slowness_is_not_the_clients() {
    const BODY: usize = 24 << 20;
    let origin = Origin::new(|call| {
        std::thread::sleep(Duration::from_millis(1500));
        call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    });
    let gateway =
        Gateway::before(&origin, &strict("routes: [{ name: r, match: { path: / }, upstream: origin, max_body: 1GiB }]"));
    let mut client = gateway.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY}\r\n\r\n"));
    client.send(vec![b'x'; BODY]);
    assert_eq!(client.receive().status(), 200);
}

#[test]
fn calls_and_listeners_that_say_off_have_none() {
    let h2_origin = H2Origin::new(|call| {
        call.body();
        call.headers(&[(":status", "200"), ("content-type", "application/grpc")], false);
        call.trailers(&[("grpc-status", "0")]);
    });
    let gateway = Gateway::before_http2(&h2_origin, &strict(""));
    let mut client = H2::connect(gateway.addr());
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/a.B/C"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let call = client.open(&fields, false);
    for _ in 0..30 {
        client.data(call, b"\0\0\0\0\0", false);
        std::thread::sleep(APART);
    }
    client.data(call, b"", true);
    assert_eq!(client.receive(call).status(), 200);

    let origin = Origin::ok();
    let off = strict("").replace("1000B/s", "off");
    let gateway = Gateway::before(&origin, &off);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n");
    for _ in 0..30 {
        client.send("x");
        std::thread::sleep(APART);
    }
    assert_eq!(client.receive().status(), 200);
}

/// An answer that has begun is broken off.
#[test]
fn who_drips_behind_an_answer_is_cut() {
    let origin = Origin::new(|call| {
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        call.body();
        Next::Close
    });
    let gateway = Gateway::before(&origin, &strict(""));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    assert!(happens(DEADLINE, || client.grow().ends_with(b"half")));
    assert!(drip(|| client.try_send("x") && origin.seen()[0].ending == Ending::Open));
    assert_eq!(origin.wait(1).ending, Ending::Aborted);
    assert_eq!(client.receive().outcome(), "200 cut");
}

#[test]
fn a_rate_that_is_none_is_an_error_in_the_file() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    for (rate, expected) in [
        ("fast", "not a rate of bytes"),
        ("240", "not a rate of bytes"),
        ("0B/s", "at least 1"),
        ("1KiB/s burst 2KiB", "without a burst"),
        ("1B/min", "from 1 byte to 4 GiB per second"),
        ("8GiB/s", "from 1 byte to 4 GiB per second"),
    ] {
        let yaml = format!(
            "listeners: [{{ name: public, address: '127.0.0.1:0', timeouts: {{ min_body_rate: '{rate}' }} }}]
routes: [{{ name: r, match: {{ path: / }}, respond: {{ status: 200 }} }}]"
        );
        std::fs::write(&file, yaml).unwrap();
        let output = run(&["check", file.to_str().unwrap()], b"", DEADLINE).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(65) && text.contains(expected), "{rate}: {text}");
        assert!(text.contains("listeners[0]"), "{text}");
    }
}
