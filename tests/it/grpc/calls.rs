//! Calls of all four kinds, their deadlines and their ends.

use super::{begin, head, message, messages, next_message, open};
use crate::harness::{Gateway, H2, H2Origin, Latch, Next, Origin, field, kind, until};

const CANCEL: u32 = 8;

/// `/unary`, `/server`, `/client`, `/bidi` and what a test may want to go wrong.
fn service() -> H2Origin {
    H2Origin::new(|call| {
        let mut buffer = Vec::new();
        match call.seen.path() {
            "/unary" => {
                let asked = next_message(call, &mut buffer).unwrap_or_default();
                call.body();
                begin(call);
                call.data(&message(&format!("hello {asked}")), false);
                call.trailers(&[("grpc-status", "0"), ("grpc-message", "fine"), ("x-trace", "t1")]);
            }
            "/server" => {
                begin(call);
                for i in 0..100 {
                    call.data(&message(&i.to_string()), false);
                }
                call.trailers(&[("grpc-status", "0")]);
            }
            "/client" => {
                let mut heard = Vec::new();
                while let Some(message) = next_message(call, &mut buffer) {
                    heard.push(message);
                }
                begin(call);
                call.data(&message(&heard.join("+")), false);
                call.trailers(&[("grpc-status", "0")]);
            }
            "/bidi" => {
                begin(call);
                while let Some(asked) = next_message(call, &mut buffer) {
                    call.data(&message(&asked.to_uppercase()), false);
                }
                call.trailers(&[("grpc-status", "0")]);
            }
            "/not-found" => drop(call.headers(
                &[
                    (":status", "200"),
                    ("content-type", "application/grpc"),
                    ("grpc-status", "5"),
                    ("grpc-message", "no such user"),
                ],
                true,
            )),
            "/early" => {
                // The answer is there before the client has said all.
                call.headers(&[(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "3")], true);
                call.await_reset();
            }
            "/done" => {
                // The whole answer, and then that the rest of the question is not needed.
                begin(call);
                call.data(&message("enough"), false);
                call.trailers(&[("grpc-status", "0")]);
                call.reset(0);
            }
            "/html" => {
                call.headers(&[(":status", "503"), ("content-type", "text/html"), ("content-length", "4")], false);
                call.data(b"busy", true);
            }
            _ => call.await_reset(),
        }
    })
}

#[test]
fn a_unary_call_has_its_trailers_and_its_log_line() {
    let origin = service();
    let gateway = Gateway::before_http2(&origin, "access_log: { format: json, to: stdout }");
    let mut client = H2::connect(gateway.addr());
    let call = [head("/unary"), vec![("grpc-timeout", "5S"), ("x-id-bin", "AAE=")]].concat();
    let reply = client.ask(&call, Some(&message("world")));
    assert_eq!((reply.status(), messages(&reply.body)), (200, vec!["hello world".to_owned()]));
    assert_eq!((field(&reply.trailers, "grpc-status"), field(&reply.trailers, "grpc-message")), (Some("0"), Some("fine")));
    assert_eq!((field(&reply.trailers, "x-trace"), reply.header("content-length")), (Some("t1"), None));
    let seen = origin.wait(1);
    for (name, value) in
        [("te", "trailers"), ("content-type", "application/grpc+proto"), ("grpc-timeout", "5S"), ("x-id-bin", "AAE=")]
    {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    assert_eq!(client.ask(&head("/not-found"), Some(&message("x"))).header("grpc-status"), Some("5"));
    until("both are in the log", || gateway.access_log().lines().count() == 2);
    let log = gateway.access_log();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["status"], &lines[0]["grpc_status"]), (&200.into(), &0.into()));
    assert_eq!((&lines[1]["status"], &lines[1]["grpc_status"]), (&200.into(), &5.into()));
    for code in ["0", "5"] {
        assert_eq!(gateway.metric("tollgate_grpc_responses_total", &[("code", code)]), 1.0);
    }
}

#[test]
fn a_server_streams() {
    let gateway_origin = service();
    let gateway = Gateway::before_http2(&gateway_origin, "");
    let mut client = H2::connect(gateway.addr());
    let reply = client.ask(&head("/server"), Some(&message("go")));
    assert_eq!(messages(&reply.body), (0..100).map(|i| i.to_string()).collect::<Vec<_>>());
    assert_eq!(field(&reply.trailers, "grpc-status"), Some("0"));
}

#[test]
fn a_message_arrives_when_it_is_said() {
    let door = Latch::default();
    let theirs = door.clone();
    let origin = H2Origin::new(move |call| {
        begin(call);
        call.data(&message("first"), false);
        theirs.wait();
        call.data(&message("second"), false);
        call.trailers(&[("grpc-status", "0")]);
    });
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let stream = client.request(&head("/"), Some(&message("go")));
    let reply = client.receive_until(stream, |reply| messages(&reply.body).len() == 1);
    assert_eq!(messages(&reply.body), ["first"]);
    door.open();
    assert_eq!(messages(&client.receive(stream).body), ["first", "second"]);
}

#[test]
fn a_client_streams() {
    let origin = service();
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let stream = open(&mut client, "/client", &[]);
    // Messages cut anywhere.
    let bytes = [message("one"), message("two"), message("three")].concat();
    for part in bytes.chunks(4) {
        client.data(stream, part, false);
    }
    client.data(stream, b"", true);
    let reply = client.receive(stream);
    assert_eq!((messages(&reply.body), field(&reply.trailers, "grpc-status")), (vec!["one+two+three".to_owned()], Some("0")));
}

#[test]
fn both_stream_and_it_is_one_call() {
    let origin = service();
    let gateway = Gateway::before_http2(&origin, "limits: [{ name: two, per: ip, rate: 2/hour }]");
    let mut client = H2::connect(gateway.addr());
    for _ in 0..2 {
        let stream = open(&mut client, "/bidi", &[]);
        // The server's metadata is there before the client has said anything.
        assert_eq!(client.receive_until(stream, |reply| reply.status.is_some()).status(), 200);
        for (i, said) in ["a", "b", "c", "d", "e"].iter().enumerate() {
            client.data(stream, &message(said), false);
            let reply = client.receive_until(stream, |reply| messages(&reply.body).len() > i);
            assert_eq!(messages(&reply.body)[i], said.to_uppercase());
        }
        client.data(stream, b"", true);
        assert_eq!(field(&client.receive(stream).trailers, "grpc-status"), Some("0"));
    }
    assert_eq!(client.ask(&head("/bidi"), Some(b"")).header("grpc-status"), Some("8"));
}

#[test]
fn a_deadline_ends_the_call_on_both_sides() {
    let origin = service();
    let routes = "routes: [{ name: short, match: { path: /short }, upstream: origin, timeouts: { total: 200ms } }, \
                  { name: all, match: { path: '/{*rest}' }, upstream: origin, timeouts: { total: 60s } }]";
    let gateway = Gateway::before_http2(&origin, routes);
    // The caller's, the caller's though the route allows more, the route's though the caller allows more.
    for (n, (path, timeout)) in [("/stall", "200m"), ("/stall", "200000u"), ("/short", "1H")].into_iter().enumerate() {
        let mut client = H2::connect(gateway.addr());
        let reply = client.ask(&[head(path), vec![("grpc-timeout", timeout)]].concat(), Some(&message("x")));
        assert_eq!((reply.status(), reply.header("grpc-status")), (200, Some("4")), "{path} {timeout}");
        assert_eq!((origin.wait_reset(n + 1), origin.seen()[n].header("grpc-timeout")), (CANCEL, Some(timeout)));
    }
    assert_eq!(origin.connections(), 1, "a caller's haste says nothing about the connection");
}

#[test]
fn a_deadline_that_has_passed_in_a_queue_is_not_begun_anew() {
    let origin = service();
    let limits = "limits: [{ name: slow, per: global, rate: 1/s burst 1, over: { delay: { max: 5s, queue: 10 } } }]";
    let gateway = Gateway::before_http2(&origin, limits);
    let mut client = H2::connect(gateway.addr());
    assert_eq!(field(&client.ask(&head("/unary"), Some(&message("x"))).trailers, "grpc-status"), Some("0"));
    let late = client.ask(&[head("/unary"), vec![("grpc-timeout", "100m")]].concat(), Some(&message("x")));
    assert_eq!(late.header("grpc-status"), Some("4"));
    assert_eq!(origin.seen().len(), 1, "the caller has given up before its turn came");
}

#[test]
fn a_call_without_a_deadline_of_grpcs_form_has_none() {
    let origin = service();
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let reply = client.ask(&[head("/unary"), vec![("grpc-timeout", "soon")]].concat(), Some(&message("x")));
    assert_eq!(field(&reply.trailers, "grpc-status"), Some("0"));
}

#[test]
fn cancelling_cancels() {
    let origin = service();
    let gateway = Gateway::before_http2(&origin, "access_log: { format: json, to: stdout }");
    let mut client = H2::connect(gateway.addr());
    for (n, path) in ["/stall", "/bidi"].into_iter().enumerate() {
        let stream = open(&mut client, path, &[]);
        client.data(stream, &message("a"), false);
        origin.wait_heads(n + 1);
        client.cancel(stream);
        assert_eq!(origin.wait_reset(n + 1), CANCEL, "{path}");
    }
    until("both are in the log", || gateway.access_log().lines().count() == 2);
    assert!(gateway.access_log().lines().next().unwrap().contains("\"status\":499"), "{}", gateway.access_log());
    assert_eq!(gateway.metric("tollgate_grpc_responses_total", &[("code", "none")]), 2.0);
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[]), 0.0);
}

#[test]
fn an_error_that_comes_early_ends_a_streaming_client() {
    let origin = service();
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let stream = open(&mut client, "/early", &[]);
    client.data(stream, &message("a"), false);
    let reply = client.receive(stream);
    assert_eq!((reply.outcome().as_str(), reply.header("grpc-status")), ("200", Some("3")));
    assert_eq!(origin.wait_reset(1), CANCEL, "nobody will say more");
}

#[test]
fn an_answer_that_is_complete_stays_so_when_upstream_wants_no_more_of_the_question() {
    let origin = service();
    let gateway = Gateway::before_http2(&origin, "");
    let mut client = H2::connect(gateway.addr());
    for _ in 0..20 {
        let stream = open(&mut client, "/done", &[]);
        client.data(stream, &message("a"), false);
        let reply = client.receive(stream);
        assert_eq!((messages(&reply.body), field(&reply.trailers, "grpc-status")), (vec!["enough".to_owned()], Some("0")));
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_answer_that_is_not_grpc_passes_as_it_is() {
    let origin = service();
    let gateway = Gateway::before_http2(&origin, "");
    let reply = H2::connect(gateway.addr()).ask(&head("/html"), Some(&message("x")));
    assert_eq!((reply.status(), reply.header("content-type"), reply.body.as_slice()), (503, Some("text/html"), &b"busy"[..]));
    assert_eq!(reply.header("grpc-status"), None);
}

#[test]
fn an_upstream_of_http1_with_trailers_can_answer_too() {
    let origin = Origin::new(|call| {
        call.body();
        call.send("HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n");
        let body = message("hi");
        call.send([format!("{:x}\r\n", body.len()).into_bytes(), body, b"\r\n0\r\ngrpc-status: 0\r\n\r\n".to_vec()].concat());
        Next::Keep
    });
    let gateway = Gateway::before(&origin, "");
    let reply = H2::connect(gateway.addr()).ask(&head("/"), Some(&message("x")));
    assert_eq!((messages(&reply.body), field(&reply.trailers, "grpc-status")), (vec!["hi".to_owned()], Some("0")));
    assert_eq!(origin.wait(1).header("te"), Some("trailers"));
}

#[test]
fn many_small_messages_wait_for_a_slow_client_without_harm_to_others() {
    let origin = H2Origin::new(|call| {
        begin(call);
        if call.seen.path() == "/flood" {
            let small = message("x");
            while call.data(&small, false) {}
        } else {
            call.data(&message("ok"), false);
            call.trailers(&[("grpc-status", "0")]);
        }
    });
    let gateway = Gateway::before_http2(&origin, "");
    let before = gateway.rss();
    let mut slow: Vec<H2> = Vec::new();
    for _ in 0..6 {
        let mut client = H2::connect_with_window(gateway.addr(), 1000);
        let stream = client.request(&head("/flood"), Some(&message("go")));
        client.receive_until(stream, |reply| reply.body.len() >= 900);
        slow.push(client);
    }
    for _ in 0..10 {
        let reply = H2::connect(gateway.addr()).ask(&head("/"), Some(&message("go")));
        assert_eq!(field(&reply.trailers, "grpc-status"), Some("0"));
    }
    assert_eq!(origin.connections(), 1, "nobody lost his connection");
    let growth = gateway.rss().saturating_sub(before);
    assert!(growth < 64 << 20, "memory grew by {} KiB", growth >> 10);
    let ended = |client: &H2| client.frames.iter().any(|frame| frame.kind == kind::RST_STREAM);
    assert!(!slow.iter().any(ended));
}
