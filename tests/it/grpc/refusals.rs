//! What a gRPC call gets from the gateway itself: HTTP 200, a status of gRPC in the only frame, no body.

use super::{head, message};
use crate::harness::{Gateway, H2, H2Origin, Table, flag, hashed, kind, until};
use std::net::TcpListener;

#[test]
fn a_call_over_a_limit_gets_a_head_and_nothing_else() {
    let origin = H2Origin::ok();
    let yaml = "access_log: { format: json, to: stdout }\nlimits: [{ name: none-left, per: ip, rate: 1/hour }]";
    let gateway = Gateway::before_http2(&origin, yaml);
    let mut client = H2::connect(gateway.addr());
    client.ask(&head("/"), Some(&message("x")));
    client.frames.clear();
    let reply = client.ask(&head("/"), Some(&message("x")));
    assert_eq!(
        (reply.status(), reply.header("grpc-status"), reply.header("content-type")),
        (200, Some("8"), Some("application/grpc"))
    );
    let told = reply.header("grpc-message").unwrap();
    assert!(told.contains("limit none-left is exhausted"), "{told}");
    assert!(reply.header("retry-after").unwrap().parse::<u64>().unwrap() > 3000);
    assert!(reply.header("x-ratelimit-remaining") == Some("0") && reply.header("ratelimit").is_some());
    assert_eq!((reply.header("content-length"), reply.body.len(), reply.trailers.len()), (None, 0, 0));
    let of_stream: Vec<_> = client.frames.iter().filter(|frame| frame.stream == 3).collect();
    assert!(of_stream.iter().all(|frame| frame.kind != kind::DATA), "a DATA frame");
    let heads: Vec<_> = of_stream.iter().filter(|frame| frame.kind == kind::HEADERS).collect();
    assert!(heads.len() == 1 && heads[0].flags & flag::END_STREAM != 0, "{heads:?}");
    until("it is in the log", || gateway.access_log().lines().count() == 2);
    let log = gateway.access_log();
    let line: serde_json::Value = serde_json::from_str(log.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&line["status"], &line["grpc_status"], &line["limited_by"]), (&200.into(), &8.into(), &"none-left".into()));
    assert_eq!(gateway.metric("tollgate_grpc_responses_total", &[("code", "8")]), 1.0);
    assert_eq!(gateway.metric("tollgate_limited_total", &[("limit", "none-left")]), 1.0);
}

#[test]
fn a_refused_call_is_ended_while_its_client_still_talks() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "limits: [{ name: one, per: ip, rate: 1/hour }]");
    let mut client = H2::connect(gateway.addr());
    client.ask(&head("/"), Some(&message("x")));
    let stream = super::open(&mut client, "/", &[]);
    client.data(stream, &message("a"), false);
    let reply = client.receive(stream);
    assert_eq!((reply.outcome().as_str(), reply.header("grpc-status")), ("200", Some("8")));
    assert_eq!(client.ask(&head("/"), Some(b"")).header("grpc-status"), Some("8"), "the connection lives on");
    let mut codes = Vec::new();
    until("the reset", || {
        client.ask(&head("/"), Some(b""));
        let resets = client.frames.iter().filter(|frame| (frame.kind, frame.stream) == (kind::RST_STREAM, stream));
        codes = resets.map(|frame| frame.payload.clone()).collect();
        !codes.is_empty()
    });
    assert_eq!(codes, [vec![0; 4]], "the rest of the upload is not wanted, which is nobody's fault");
}

#[test]
fn the_operator_may_call_it_unavailable() {
    let origin = H2Origin::ok();
    let yaml =
        "rejection: { grpc_status: UNAVAILABLE, body: problem, status: 503 }\nlimits: [{ name: one, per: ip, rate: 1/hour }]";
    let gateway = Gateway::before_http2(&origin, yaml);
    let mut client = H2::connect(gateway.addr());
    client.ask(&head("/"), Some(&message("x")));
    let reply = client.ask(&head("/"), Some(&message("x")));
    assert_eq!((reply.status(), reply.header("grpc-status")), (200, Some("14")));
}

#[test]
fn every_answer_of_the_gateway_has_its_status() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let origin = H2Origin::new(|call| match call.seen.path() {
        "/busy" => drop(call.reset(11)),
        "/refused" => drop(call.reset(7)),
        "/broken" => drop(call.reset(2)),
        _ => call.await_reset(),
    });
    let upstreams = format!(
        "upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'], protocol: http2 }}, down: {{ endpoints: ['http://{nobody}'], protocol: http2 }} }}"
    );
    let yaml = format!(
        "{upstreams}\nblocked: [{{ path: /blocked }}]\nroutes: [{{ name: down, match: {{ path: /down }}, upstream: down }}, \
         {{ name: get, match: {{ path: /get, methods: [GET] }}, upstream: origin }}, \
         {{ name: few, match: {{ path: ['/busy', '/refused', '/broken', '/slow', '/blocked'] }}, upstream: origin, max_body: 1KiB, timeouts: {{ response: 200ms }} }}]\n\
         identity: {{ api_key: {{ sources: [{{ header: x-api-key }}], unknown: reject }} }}\n\
         clients: [{{ id: a, api_keys: ['{}'] }}]",
        hashed("good")
    );
    let gateway = Gateway::before_http2(&origin, &yaml);
    let large = "x".repeat(2000);
    let mut table = Table::new("answers to gRPC calls");
    for (path, more, code) in [
        ("/nowhere", vec![], "12"),
        ("/get", vec![], "12"),
        ("/blocked", vec![], "7"),
        ("/slow", vec![("x-api-key", "bad")], "16"),
        ("/slow", vec![("x-api-key", "good")], "4"),
        ("/slow", vec![("content-length", "2005")], "8"),
        ("/down", vec![], "14"),
        ("/busy", vec![], "8"),
        ("/refused", vec![], "14"),
        ("/broken", vec![], "14"),
        ("/a%2fb", vec![], "13"),
    ] {
        let body = if more.iter().any(|(name, _)| *name == "content-length") { &large } else { "x" };
        let reply = H2::connect(gateway.addr()).ask(&[head(path), more].concat(), Some(&message(body)));
        let seen = format!("{} {}", reply.outcome(), reply.header("grpc-status").unwrap_or("-"));
        table.outcome(path, &format!("200 {code}"), &seen);
        let clean = reply.body.is_empty() && reply.header("grpc-message").is_some_and(|message| !message.is_empty());
        table.row(path, if clean { String::new() } else { format!("{reply:?}") });
    }
}

#[test]
fn what_only_looks_like_grpc_gets_an_answer_of_http() {
    let origin = H2Origin::ok();
    let gateway = Gateway::before_http2(&origin, "limits: [{ name: one, per: ip, rate: 1/hour }]");
    assert_eq!(gateway.get("/").status, 200);
    for content_type in ["application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text", "application/json"] {
        let mut fields = head("/");
        fields.retain(|(name, _)| *name != "content-type");
        fields.push(("content-type", content_type));
        let reply = H2::connect(gateway.addr()).ask(&fields, Some(b"x"));
        assert_eq!((reply.status(), reply.header("grpc-status")), (429, None), "{content_type}");
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
    let http1 = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(gateway.client().ask(http1).status(), 429, "gRPC is HTTP/2");
}

#[test]
fn what_a_failure_gives_back_it_gives_back_to_grpc_too() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let yaml = format!(
        "upstreams: {{ origin: {{ endpoints: ['http://{nobody}'], protocol: http2 }} }}\n\
         limits: [{{ name: one, per: ip, rate: 1/hour, refund: {{ status: ['5xx'] }} }}]"
    );
    let gateway = Gateway::start(&yaml);
    let mut client = H2::connect(gateway.addr());
    for _ in 0..3 {
        assert_eq!(
            client.ask(&head("/"), Some(&message("x"))).header("grpc-status"),
            Some("14"),
            "a 502, whatever HTTP says of it"
        );
    }
}
