//! Bodies that are sent again, and those that can't be.

use super::{BUSY, OK, before, failing, retries, withheld};
use crate::harness::{Ending, Gateway, Next, Origin, Table, until};
use std::sync::atomic::{AtomicUsize, Ordering};

fn chunked(body: &[u8], step: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for piece in body.chunks(step) {
        text.extend(format!("{:x}\r\n", piece.len()).as_bytes());
        text.extend(piece);
        text.extend(b"\r\n");
    }
    text.extend(b"0\r\n\r\n");
    text
}

fn put(body: &[u8], chunks: Option<usize>) -> Vec<u8> {
    let framing = match chunks {
        None => format!("Content-Length: {}", body.len()),
        Some(_) => "Transfer-Encoding: chunked".to_owned(),
    };
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
    [head.as_bytes(), &chunks.map_or_else(|| body.to_vec(), |step| chunked(body, step))].concat()
}

#[test]
fn a_body_within_the_bound_is_sent_again_whole() {
    let mut table = Table::new("bodies");
    let body: Vec<u8> = (0..64_u32 << 10).map(|i| (i % 251) as u8).collect();
    for (name, length, chunks, requests) in [
        ("a short one", 5, None, 2),
        ("a short one in chunks of a byte", 100, Some(1), 2),
        ("all that is kept", 32 << 10, None, 2),
        ("all that is kept, in chunks", 32 << 10, Some(7000), 2),
        ("a byte too much", (32 << 10) + 1, None, 1),
        ("a byte too much, in chunks", (32 << 10) + 1, Some(7000), 1),
        ("twice as much", 64 << 10, Some(64 << 10), 1),
    ] {
        for fault in [503, 0] {
            let origin = failing(1, move |call| {
                call.body();
                if fault == 0 { call.reset() } else { call.answer(BUSY) }
            });
            let gateway = before(&origin, "max_body: 32KiB");
            let status = gateway.client().ask(put(&body[..length], chunks)).status();
            let seen = origin.seen();
            let expected = if requests == 2 {
                200
            } else if fault == 0 {
                502
            } else {
                503
            };
            let whole = seen.iter().all(|seen| seen.body == body[..length] && seen.complete());
            let counted = (retries(&gateway, "status") + retries(&gateway, "reset"), withheld(&gateway, "body"));
            let fits = status == expected
                && seen.len() == requests
                && whole
                && counted == ((requests - 1) as f64, (2 - requests) as f64);
            table.row(
                &format!("{name}, {fault}"),
                if fits { String::new() } else { format!("{status}, {} requests, whole: {whole}, {counted:?}", seen.len()) },
            );
        }
    }
}

#[test]
fn trailers_are_sent_again_too() {
    let origin = failing(1, |call| {
        call.body();
        call.reset()
    });
    let gateway = before(&origin, "");
    let request =
        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n";
    assert_eq!(gateway.client().ask(request).status(), 200);
    let seen = origin.seen();
    assert_eq!((seen.len(), &seen[0].trailers, &seen[0].body), (2, &seen[1].trailers, &seen[1].body));
}

#[test]
fn all_bodies_together_are_bounded() {
    let origin = failing(1, |call| {
        call.body();
        call.reset()
    });
    let gateway = before(&origin, "max_bodies: 1KiB");
    assert_eq!(gateway.client().ask(put(&[b'x'; 1025], None)).status(), 502);
    assert_eq!((origin.seen().len(), withheld(&gateway, "body")), (1, 1.0));
    // What the first one has kept is free again: a whole kibibyte fits.
    let origin = failing(4, |call| {
        call.body();
        call.reset()
    });
    let gateway = before(&origin, "max_bodies: 1KiB, attempts: 1");
    let statuses: Vec<_> = (0..4).map(|_| gateway.client().ask(put(&[b'x'; 1024], None)).status()).collect();
    assert_eq!((statuses, origin.seen().len()), (vec![502, 502, 200, 200], 6));
}

#[test]
fn nothing_is_held_back_before_the_first_try() {
    let origin = Origin::ok();
    let gateway = before(&origin, "");
    let mut client = gateway.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    origin.wait_heads(1);
    client.send("ab");
    assert_eq!(origin.seen()[0].ending, Ending::Open);
    assert_eq!(client.ask("cd").status(), 200);
    assert_eq!(origin.wait(1).body, b"abcd");
}

/// Upstream answers before it has read the body, and the client is still sending it.
#[test]
fn a_body_that_is_still_coming_goes_to_the_next_try() {
    let origin = failing(1, |call| {
        call.send(BUSY);
        Next::Close
    });
    let gateway = before(&origin, "");
    let mut client = gateway.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
    origin.wait_heads(2);
    assert_eq!(client.ask("def").status(), 200);
    assert_eq!(origin.wait(2).body, b"abcdef");
}

#[test]
fn a_body_that_fails_is_the_clients_fault_and_ends_it() {
    let origin = Origin::ok();
    let gateway = before(&origin, "");
    let mut client = gateway.client();
    let reply = client.ask("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    assert_eq!((reply.status(), gateway.metric("tollgate_upstream_retries_total", &[])), (400, 0.0));
    assert_eq!(gateway.metric("tollgate_upstream_errors_total", &[]), 0.0);
}

/// A response that comes while its request is still on its way: what was kept of that is let go, and memory does not grow with requests.
#[test]
fn what_is_kept_is_let_go_with_the_head() {
    static HEADS: AtomicUsize = AtomicUsize::new(0);
    let origin = Origin::new(|call| {
        HEADS.fetch_add(1, Ordering::SeqCst);
        call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
        call.body();
        call.send("0\r\n\r\n");
        Next::Keep
    });
    // With room for one body and no more: the second is kept too, since the first one is kept no longer.
    let gateway = before(&origin, "max_body: 1KiB, max_bodies: 1KiB");
    let mut first = gateway.client();
    first.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n");
    first.send([b'x'; 1000]);
    until("the response begins", || first.grow().windows(2).any(|two| two == b"hi"));
    let second = failing(1, |call| {
        call.body();
        call.reset()
    });
    gateway.reload(&super::upstream(&[second.addr()], &super::retry("max_body: 1KiB, max_bodies: 1KiB")));
    assert_eq!((gateway.client().ask(put(&[b'y'; 1024], None)).status(), HEADS.load(Ordering::SeqCst)), (200, 1));
    first.send([b'x'; 24]);
}

#[test]
fn posts_are_sent_once_whatever_is_kept_of_them() {
    for fault in [true, false] {
        let origin = failing(1, move |call| {
            call.body();
            if fault { call.reset() } else { call.answer(BUSY) }
        });
        let gateway: Gateway = before(&origin, "");
        let reply = gateway.client().ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!((reply.status(), origin.seen().len()), (if fault { 502 } else { 503 }, 1));
        assert_eq!(gateway.client().ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi").status(), 200, "{OK:?}");
    }
}
