//! Interim responses (1xx) of an upstream reach clients, in front of the response and nowhere else (RFC 9110 §15.2).

use crate::harness::{Authority, Client, Gateway, H2, H2Origin, H2Reply, Latch, Leaf, Next, Origin, crlf, exchange, get, until};

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const NOTHING: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Sends `first`, waits at the latch, and sends `then`.
fn in_two(first: &'static str, then: &'static str) -> (Origin, Latch) {
    let latch = Latch::default();
    let opened = latch.clone();
    let origin = Origin::new(move |call| {
        call.send(first);
        opened.wait();
        call.answer(then.as_bytes())
    });
    (origin, latch)
}

/// All bytes of the replies to a request after which the client ends its side.
fn raw(gateway: &Gateway, request: &str) -> String {
    let mut client = gateway.client();
    client.send(crlf(request));
    until("the connection ends", || {
        let before = client.grown().len();
        client.grow().len() == before
    });
    String::from_utf8_lossy(client.grown()).into_owned()
}

#[test]
fn hints_arrive_before_the_response_is_there() {
    let (origin, latch) = in_two(HINTS, OK);
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let hints = String::from_utf8_lossy(client.grow()).into_owned();
    assert_eq!(hints, "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n");
    latch.open();
    let response = client.receive().response();
    assert_eq!((response.status, response.text().as_str(), response.interim), (200, "ok", vec![103]));
    assert_eq!(client.get("/").response().interim, [103], "and on the same connection again");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn they_are_cleaned_like_any_response() {
    let hints = "HTTP/1.1 103 X\r\nLink: </a>\r\nLink: </b>\r\nConnection: x-hop, close\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\n\
                 Transfer-Encoding: chunked\r\nContent-Length: 7\r\nServer: secret\r\nX-Env: theirs\r\n\r\n";
    let origin = Origin::new(move |call| {
        call.send(hints);
        call.answer(NOTHING.as_bytes())
    });
    let edits = "{ remove: [server], set: { x-env: ours } }";
    let gateway = Gateway::before(
        &origin,
        &format!("routes: [{{ name: r, match: {{ path: / }}, upstream: origin, response_headers: {edits} }}]"),
    );
    let text = raw(&gateway, "GET / HTTP/1.1\nHost: a\nConnection: close\n\n");
    let (first, rest) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(first, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.contains("x-env: ours"), "{rest}");
}

#[test]
fn a_status_that_nobody_knows_is_passed_on_and_a_100_is_not() {
    let origin = Origin::new(|call| {
        for status in ["100 Continue", "102 Processing", "199 Whatever", "103 Early Hints"] {
            call.send(format!("HTTP/1.1 {status}\r\n\r\n"));
        }
        call.answer(OK.as_bytes())
    });
    let gateway = Gateway::before(&origin, "");
    assert_eq!(gateway.get("/").interim, [102, 199, 103]);
}

#[test]
fn clients_of_1_0_get_none() {
    let origin = Origin::new(|call| {
        call.send(HINTS);
        call.answer(OK.as_bytes())
    });
    let gateway = Gateway::before(&origin, "");
    let response = exchange(gateway.addr(), "GET / HTTP/1.0\r\nHost: a\r\n\r\n").response();
    assert_eq!((response.status, response.interim.len(), response.text().as_str()), (200, 0, "ok"));
}

#[test]
fn an_upload_gets_one_100_of_the_gateway_and_the_hints_of_the_upstream() {
    let origin = Origin::new(|call| {
        call.send("HTTP/1.1 100 Continue\r\n\r\n");
        call.send(HINTS);
        if !call.body() {
            return Next::Close;
        }
        call.send("HTTP/1.1 100 Continue\r\n\r\n");
        call.send("HTTP/1.1 102 Processing\r\n\r\n");
        call.answer(OK.as_bytes())
    });
    let gateway = Gateway::before(&origin, "");
    for framing in ["Content-Length: 4\n\nbody", "Transfer-Encoding: chunked\n\n4\nbody\n0\n\n"] {
        let (head, body) = framing.split_once("\n\n").unwrap();
        let mut client = gateway.client();
        client.send(crlf(&format!("POST / HTTP/1.1\nHost: a\nExpect: 100-continue\n{head}\n\n")));
        until("the gateway asks for the body", || client.grow().windows(12).any(|text| text == b"HTTP/1.1 100"));
        let mut response = client.ask(crlf(body)).response();
        response.interim.sort_unstable();
        assert_eq!((response.status, response.interim), (200, vec![100, 102, 103]), "{head}");
        assert_eq!(client.get("/").status(), 200);
    }
    // And who does not ask gets no 100 at all.
    let response = exchange(gateway.addr(), crlf("POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbody")).response();
    assert_eq!((response.status, response.interim), (200, vec![103, 102]));
}

#[test]
fn a_refusal_of_the_upstream_before_the_body_has_its_hints_in_front() {
    let origin = Origin::new(|call| {
        call.send(HINTS);
        call.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
        Next::Close
    });
    let gateway = Gateway::before(&origin, "");
    let request = crlf("POST / HTTP/1.1\nHost: a\nContent-Length: 1000000\n\nsome");
    let response = exchange(gateway.addr(), request).response();
    assert_eq!((response.status, response.interim), (413, vec![103]));
}

#[test]
fn an_upstream_that_dies_behind_its_hints_is_a_502() {
    let origin = Origin::new(|call| {
        call.body();
        call.send(HINTS);
        if call.target() == "/reset" { call.reset() } else { Next::Close }
    });
    let gateway = Gateway::before(&origin, "access_log: { format: json, to: stdout }");
    for path in ["/close", "/reset"] {
        let response = gateway.get(path);
        assert_eq!((response.status, response.interim), (502, vec![103]), "{path}");
    }
    until("both are logged", || gateway.access_log().lines().filter(|line| line.contains("\"status\":502")).count() == 2);
    assert!(!gateway.access_log().contains("\"status\":103"));
}

#[test]
fn they_do_not_extend_the_upstreams_time() {
    let origin = Origin::new(|call| {
        call.body();
        while call.send(HINTS) && call.nth == 1 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        Next::Close
    });
    let gateway =
        Gateway::before(&origin, "routes: [{ name: r, match: { path: / }, upstream: origin, timeouts: { response: 500ms } }]");
    let response = gateway.get("/");
    assert_eq!(response.status, 504);
    assert!((1..32).contains(&response.interim.len()), "{:?}", response.interim);
}

#[test]
fn more_of_them_than_a_bound_are_a_502_and_never_more_than_the_bound_are_passed_on() {
    let origin = Origin::new(|call| {
        let count = call.target().trim_start_matches('/').parse().unwrap();
        for _ in 0..count {
            call.send(HINTS);
        }
        call.answer(OK.as_bytes())
    });
    let gateway = Gateway::before(&origin, "");
    for (count, status) in [(32, 200), (33, 502), (1000, 502)] {
        let response = gateway.get(&format!("/{count}"));
        assert_eq!((response.status, response.interim.len()), (status, 32), "{count}");
    }
}

/// A client that reads nothing gets its responses whole and in order when it reads at last: hints are left out where they would have no
/// place, and where more of them wait than may.
#[test]
fn a_client_that_reads_late_gets_whole_messages_in_order() {
    const BODY: usize = 300_000;
    const ROUNDS: usize = 40;
    let origin = Origin::new(|call| {
        for _ in 0..20 {
            call.send(format!("HTTP/1.1 103 Early Hints\r\nLink: </{}>\r\n\r\n", "x".repeat(4000)));
        }
        call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n"));
        call.send(vec![b'b'; BODY]);
        Next::Keep
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = Client::connect_narrow(gateway.addr());
    for _ in 0..ROUNDS {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    origin.wait_heads(2);
    let before = gateway.rss();
    let mut hints = 0;
    for round in 0..ROUNDS {
        let response = client.receive().response();
        assert_eq!((response.status, response.body.len(), response.cut), (200, BODY, false), "{round}");
        assert!(response.body.iter().all(|byte| *byte == b'b') && response.interim.iter().all(|status| *status == 103));
        assert!(response.interim.len() <= 20);
        hints += response.interim.len();
    }
    assert!(hints > 0);
    assert!(gateway.rss() < before + (8 << 20), "memory grew by {} KiB", (gateway.rss() - before) >> 10);
}

/// The socket is full from the first byte of the hints on, and they still come before the response.
#[test]
fn hints_that_do_not_fit_into_the_socket_at_once_are_still_whole() {
    let origin = Origin::new(|call| {
        for i in 0..7 {
            call.send(format!("HTTP/1.1 103 Early Hints\r\nLink: </{i}{}>\r\n\r\n", "x".repeat(4000)));
        }
        call.answer(OK.as_bytes())
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = Client::connect_narrow(gateway.addr());
    for _ in 0..200 {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for round in 0..200 {
        let response = client.receive().response();
        assert_eq!((response.status, response.text().as_str(), response.cut), (200, "ok", false), "{round}");
    }
}

#[test]
fn hints_before_a_101_leave_the_tunnel_clean() {
    let origin = Origin::new(|call| {
        call.body();
        call.send(HINTS);
        call.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\nhello");
        let (mut wire, _) = call.switch();
        drop(std::io::copy(&mut wire, &mut std::io::sink()));
        Next::Close
    });
    let gateway = Gateway::before(&origin, "routes: [{ name: r, match: { path: / }, upstream: origin, upgrade: [chat] }]");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n");
    let response = client.receive().response();
    assert_eq!((response.status, response.interim), (101, vec![103]));
    until("the first bytes of the tunnel arrive", || client.grow() == b"hello");
}

#[test]
fn a_101_that_nobody_asked_for_is_a_502_behind_hints_too() {
    let origin = Origin::new(|call| {
        call.body();
        call.send(HINTS);
        call.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n");
        Next::Close
    });
    let gateway = Gateway::before(&origin, "");
    let response = gateway.get("/");
    assert_eq!((response.status, response.interim), (502, vec![103]));
}

#[test]
fn over_tls_and_from_an_http2_upstream_it_is_the_same() {
    let origin = H2Origin::new(|call| {
        call.body();
        call.headers(&[(":status", "103"), ("link", "</a>"), ("content-length", "9")], false);
        call.headers(&[(":status", "100")], false);
        call.headers(&[(":status", "200"), ("content-length", "2")], false);
        call.data(b"ok", true);
    });
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let gateway = Gateway::before_http2(
        &origin,
        &format!("listeners: [{{ name: public, address: '127.0.0.1:0', tls: {{ certificates: {pair} }} }}]"),
    );
    let mut client = gateway.client().secure(&authority.dial("localhost")).unwrap();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    until("both heads arrive", || client.grow().ends_with(b"ok"));
    let text = String::from_utf8_lossy(client.grown()).into_owned();
    assert!(text.starts_with("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n"), "{text}");
}

/// Statuses of what came before the response.
fn statuses(reply: &H2Reply) -> Vec<u16> {
    reply.interim.iter().map(|(status, _)| *status).collect()
}

#[test]
fn streams_of_http2_get_them_before_the_response_is_there() {
    let (origin, latch) = in_two(HINTS, OK);
    let gateway = Gateway::before(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let stream = client.request(&get("/"), None);
    let so_far = client.receive_until(stream, |reply| !reply.interim.is_empty());
    let link = ("link".to_owned(), "</style.css>; rel=preload".to_owned());
    assert_eq!((so_far.status, so_far.interim), (None, vec![(103, vec![link])]));
    latch.open();
    let response = client.receive(stream);
    assert_eq!((response.status(), response.body, response.ended), (200, b"ok".to_vec(), true));
    assert_eq!(statuses(&client.get("/")), [103], "and on the same connection again");
}

#[test]
fn over_http2_they_are_cleaned_and_bounded_like_over_http1() {
    let origin = Origin::new(|call| {
        let count = call.target().trim_start_matches('/').parse().unwrap();
        for _ in 0..count {
            call.send("HTTP/1.1 100 Continue\r\n\r\n");
            call.send("HTTP/1.1 103 X\r\nLink: </a>\r\nConnection: x-hop, close\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nContent-Length: 7\r\nServer: s\r\n\r\n");
        }
        call.answer(OK.as_bytes())
    });
    let edits = "routes: [{ name: r, upstream: origin, response_headers: { remove: [server] } }]";
    let gateway = Gateway::before(&origin, edits);
    let mut client = H2::connect(gateway.addr());
    for (count, status, passed) in [(1, 200, 1), (16, 200, 16), (17, 502, 16), (500, 502, 16)] {
        let reply = client.get(&format!("/{count}"));
        assert_eq!((reply.status(), statuses(&reply)), (status, vec![103; passed]), "{count}");
        for (_, fields) in &reply.interim {
            assert_eq!(*fields, [("link".to_owned(), "</a>".to_owned())]);
        }
    }
}

/// Heads know no window, so what a client that does not read may be owed of them has a bound of its own.
#[test]
fn a_stream_is_told_no_more_than_a_bound() {
    let origin = Origin::new(|call| {
        for i in 0..30 {
            call.send(format!("HTTP/1.1 103 Early Hints\r\nLink: </{i}{}>\r\n\r\n", "x".repeat(4000)));
        }
        call.answer(OK.as_bytes())
    });
    let gateway = Gateway::before(&origin, "");
    let reply = H2::connect(gateway.addr()).get("/");
    assert_eq!((reply.status(), statuses(&reply)), (200, vec![103; 8]));
}

#[test]
fn an_upload_over_http2_gets_hints_and_an_upstream_that_dies_behind_them_is_a_502() {
    let origin = Origin::new(|call| {
        call.send(HINTS);
        if !call.body() || call.target() == "/dies" {
            return Next::Close;
        }
        call.answer(OK.as_bytes())
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = H2::connect(gateway.addr());
    for (path, status) in [("/", 200), ("/dies", 502)] {
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", path)];
        let reply = client.ask(&fields, Some(b"body"));
        assert_eq!((reply.status(), statuses(&reply)), (status, vec![103]), "{path}");
    }
}

#[test]
fn a_stream_that_its_client_has_reset_gets_nothing_more() {
    let (origin, latch) = in_two("", OK);
    let gateway = Gateway::before(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let stream = client.request(&get("/"), None);
    origin.wait_heads(1);
    client.cancel(stream);
    latch.open();
    client.ping();
    assert!(!client.frames.iter().any(|frame| frame.stream == stream), "{:?}", client.frames);
    assert_eq!(client.get("/").status(), 200);
}

#[test]
fn hints_before_a_101_reach_the_stream_before_its_200() {
    let origin = Origin::new(|call| {
        call.body();
        let key = call.seen().header("sec-websocket-key").unwrap().to_owned();
        call.send(HINTS);
        call.send(format!(
            "HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            crate::upgrade::accept(&key)
        ));
        call.stall()
    });
    let gateway = Gateway::before(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let stream = client.open(&crate::upgrade::connect("/"), false);
    let head = client.receive_head(stream);
    assert_eq!((head.status(), statuses(&head), head.ended), (200, vec![103], false));
}
