//! The same over HTTP/2, and what only HTTP/2 and gRPC can say.

use super::{is_used, retries, retry, withheld};
use crate::harness::{Call, Gateway, H2, H2Origin, H2Reply, Table, code, exchange};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const INTERNAL_ERROR: u32 = 2;

fn upstream(addrs: &[SocketAddr], keys: &str) -> String {
    super::upstream(addrs, &format!("protocol: http2, {keys}"))
}

fn before(origin: &H2Origin, keys: &str) -> Gateway {
    Gateway::start(&upstream(&[origin.addr()], &retry(keys)))
}

/// A server that treats its first `n` requests in one way, and the others well.
fn failing(n: usize, fault: impl Fn(&mut Call) + Send + Sync + 'static) -> H2Origin {
    let count = Arc::new(AtomicUsize::new(0));
    H2Origin::new(move |call| {
        call.body();
        if count.fetch_add(1, Ordering::SeqCst) < n {
            fault(call);
        } else {
            call.headers(&[(":status", "200"), ("content-length", "2")], false);
            call.data(b"ok", true);
        }
    })
}

fn ask(gateway: &Gateway, method: &str, body: &str) -> u16 {
    let length = body.len();
    exchange(gateway.addr(), format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")).status()
}

#[test]
fn what_upstream_has_not_begun_with_is_tried_again_whatever_it_is() {
    // The first refusal costs nothing, those behind it are retries like others.
    let origin = failing(3, |call| {
        call.reset(code::REFUSED_STREAM);
    });
    let gateway = before(&origin, "attempts: 2");
    assert_eq!(ask(&gateway, "POST", "hello"), 200);
    let bodies: Vec<_> = origin.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!((bodies, retries(&gateway, "refused")), (vec![b"hello".to_vec(); 4], 3.0));

    let origin = failing(9, |call| {
        call.reset(code::REFUSED_STREAM);
    });
    let gateway = before(&origin, "attempts: 2");
    assert_eq!((ask(&gateway, "POST", ""), origin.seen().len(), withheld(&gateway, "attempts")), (503, 4, 1.0));
}

#[test]
fn a_body_that_is_not_kept_cannot_be_sent_to_whoever_comes_behind_a_refusal() {
    let origin = failing(1, |call| {
        call.reset(code::REFUSED_STREAM);
    });
    let gateway = before(&origin, "max_body: 4");
    assert_eq!((ask(&gateway, "POST", "hello"), origin.seen().len(), withheld(&gateway, "body")), (503, 1, 1.0));
}

#[test]
fn what_is_above_the_last_stream_of_a_goaway_is_tried_again_whatever_it_is() {
    for method in ["GET", "POST"] {
        let origin = failing(1, |call| {
            call.goaway(0, 0);
            call.close();
        });
        let gateway = before(&origin, "");
        assert_eq!((ask(&gateway, method, "hello"), origin.seen().len(), origin.connections()), (200, 2, 2), "{method}");
        assert_eq!(retries(&gateway, "refused"), 1.0);
    }
}

#[test]
fn a_stream_or_connection_that_breaks_is_tried_again_for_what_is_idempotent() {
    let mut table = Table::new("breaks");
    for (method, expected, requests) in [("GET", 200, 2), ("PUT", 200, 2), ("POST", 502, 1)] {
        for closes in [true, false] {
            let origin = failing(1, move |call| {
                if closes {
                    return call.close();
                }
                call.reset(INTERNAL_ERROR);
            });
            let gateway = before(&origin, "");
            let seen = (ask(&gateway, method, "body"), origin.seen().len(), retries(&gateway, "reset"));
            let fits = seen == (expected, requests, (requests - 1) as f64);
            table.row(&format!("{method} {closes}"), if fits { String::new() } else { format!("{seen:?}") });
        }
    }
}

#[test]
fn statuses_and_times_are_as_in_http1() {
    for (method, expected, requests) in [("PUT", 200, 2), ("POST", 503, 1)] {
        let origin = failing(1, |call| {
            call.headers(&[(":status", "503")], true);
        });
        let gateway = before(&origin, "");
        assert_eq!((ask(&gateway, method, "x"), origin.seen().len()), (expected, requests), "{method}");
    }
    let (frozen, good) = (H2Origin::new(|call| call.await_reset()), H2Origin::ok());
    let keys =
        format!("balance: round_robin, outlier: {{ consecutive_failures: 1, eject_for: 1h }}, {}", retry("per_try: 500ms"));
    let gateway = Gateway::start(&upstream(&[frozen.addr(), good.addr()], &keys));
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
    assert_eq!((frozen.seen().len(), retries(&gateway, "timeout")), (1, 1.0));
    assert!(!is_used(&gateway, frozen.addr()));
}

/// A call with one message, and how it ends.
fn call(gateway: &Gateway) -> H2Reply {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/s/m"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    H2::connect(gateway.addr()).ask(&fields, Some(b"\0\0\0\0\x02hi"))
}

#[test]
fn calls_are_tried_again_by_their_status_if_that_is_listed() {
    let mut table = Table::new("calls");
    for (status, pushback, on, calls) in [
        ("14", None, "[grpc-unavailable]", 2),
        ("8", None, "[grpc-unavailable]", 1),
        ("8", None, "[grpc-unavailable, grpc-resource-exhausted]", 2),
        ("13", None, "[grpc-unavailable, grpc-resource-exhausted]", 1),
        ("14", None, "[connect, reset, 5xx]", 1),
        ("14", Some("0"), "[grpc-unavailable]", 2),
        ("14", Some("20"), "[grpc-unavailable]", 2),
        ("14", Some("5000"), "[grpc-unavailable]", 1),
        ("14", Some("-1"), "[grpc-unavailable]", 1),
        ("14", Some("soon"), "[grpc-unavailable]", 1),
    ] {
        let origin = failing(1, move |call| {
            let mut fields = vec![(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", status)];
            fields.extend(pushback.map(|millis| ("grpc-retry-pushback-ms", millis)));
            call.headers(&fields, true);
        });
        let gateway = before(&origin, &format!("on: {on}"));
        let reply = call(&gateway);
        let seen: Vec<_> = origin.seen().into_iter().map(|seen| seen.body).collect();
        let last = if calls == 2 { reply.body == b"ok" } else { reply.header("grpc-status") == Some(status) };
        let fits = last && seen == vec![b"\0\0\0\0\x02hi".to_vec(); calls] && retries(&gateway, "grpc") == (calls - 1) as f64;
        table.row(
            &format!("{status} {pushback:?} {on}"),
            if fits { String::new() } else { format!("{} calls, {reply:?}", seen.len()) },
        );
    }
}

/// Messages have been passed on by then, and what is no gRPC means something else by the field.
#[test]
fn a_call_that_has_begun_and_a_request_that_is_no_call_are_not_tried_again() {
    let origin = failing(1, |call| {
        call.headers(&[(":status", "200"), ("content-type", "application/grpc")], false);
        call.data(b"\0\0\0\0\x02hi", false);
        call.trailers(&[("grpc-status", "14")]);
    });
    let gateway = before(&origin, "on: [grpc-unavailable]");
    assert_eq!((call(&gateway).body.as_slice(), origin.seen().len()), (&b"\0\0\0\0\x02hi"[..], 1));

    let origin = failing(1, |call| {
        call.headers(&[(":status", "200"), ("grpc-status", "14")], true);
    });
    let gateway = before(&origin, "on: [grpc-unavailable]");
    assert_eq!((ask(&gateway, "POST", "x"), origin.seen().len()), (200, 1));
}
