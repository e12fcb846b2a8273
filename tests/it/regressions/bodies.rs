//! Bodies whose announced length and real length part ways.

use crate::harness::{Gateway, H2, Origin, Sees::NothingWhole, reached};

#[test]
fn an_http2_post_of_length_0_may_end_with_an_empty_frame() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/x"), ("content-length", "0")];
    let mut client = H2::connect(gateway.addr());
    let stream = client.open(&fields, false);
    client.data(stream, b"", true);
    assert_eq!(client.receive(stream).outcome(), "200");
    let seen = origin.wait(1);
    assert!(seen.complete() && seen.line == "POST /x HTTP/1.1" && seen.body.is_empty(), "{seen:?}");
    origin.forget();
    let stream = client.open(&fields, false);
    client.data(stream, b"", false);
    client.data(stream, b"four", true);
    let outcome = client.receive(stream).outcome();
    assert!(["400", "rst", "goaway", "closed"].contains(&outcome.as_str()), "{outcome}");
    assert_eq!(NothingWhole.problem(&reached(&gateway, &origin)), None);
}

/// The bytes come with the head, or only when the next request is on its way.
#[test]
fn bytes_behind_a_204_are_nobodys_answer() {
    for (now, later) in [("extra", ""), ("", "extra")] {
        let origin = Origin::new(move |call| {
            if call.target() == "/empty" {
                return call.answer(format!("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n{now}").as_bytes());
            }
            let stale = if call.nth > 1 { later } else { "" };
            call.answer(format!("{stale}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").as_bytes())
        });
        let gateway = Gateway::before(&origin, "");
        let mut client = gateway.client();
        for _ in 0..3 {
            origin.forget();
            assert_eq!(client.get("/empty").outcome(), "204");
            let next = client.get("/next").response();
            assert_eq!((next.status, next.text().as_str()), (200, "ok"));
            let seen = origin.seen();
            assert_ne!(seen[0].connection, seen[1].connection, "the upstream connection was used again");
        }
    }
}
