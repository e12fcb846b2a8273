//! Upstreams that answer each request with its own marker, or break off.

use super::{Deed, Errand, foreign};
use crate::harness::{Call, Next};
use std::sync::{Arc, Mutex};

/// What an upstream has seen that it must not.
pub(super) type Told = Arc<Mutex<Vec<String>>>;

fn look(told: &Told, errand: &Errand, body: &[u8]) {
    if let Some(problem) = foreign(body, &errand.marker) {
        told.lock().unwrap().push(format!("upstream: {problem}"));
    }
}

pub(super) fn http1(call: &mut crate::harness::Exchange, told: &Told) -> Next {
    let Some(errand) = Errand::read(call.target()) else { return call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") };
    if errand.deed == Deed::Vanish {
        return Next::Close;
    }
    if errand.deed != Deed::Early {
        let whole = call.body();
        look(told, &errand, &call.seen().body);
        if !whole {
            return Next::Close;
        }
    }
    let answer = errand.answer();
    let mark = errand.marker.trim_matches(['<', '>']);
    let chunked = errand.answered == 3;
    // An answer that breaks off is never whole, not even an empty one.
    let length = answer.len() + usize::from(errand.deed == Deed::Break);
    let framing = if chunked { "Transfer-Encoding: chunked".to_owned() } else { format!("Content-Length: {length}") };
    call.send(format!("HTTP/1.1 200 OK\r\nX-Mark: {mark}\r\n{framing}\r\n\r\n"));
    if errand.deed == Deed::Break {
        call.send(&answer[..answer.len() / 2]);
        return if answer.len() > 50_000 { call.reset() } else { Next::Close };
    }
    if chunked {
        call.send([format!("{:x}\r\n", answer.len()).as_bytes(), &answer, b"\r\n0\r\n\r\n"].concat());
    } else {
        call.send(answer);
    }
    if errand.deed == Deed::Early {
        let whole = call.body();
        look(told, &errand, &call.seen().body);
        if !whole {
            return Next::Close;
        }
    }
    Next::Keep
}

pub(super) fn http2(call: &mut Call, told: &Told) {
    let Some(errand) = Errand::read(call.seen.path()) else {
        call.headers(&[(":status", "200")], true);
        return;
    };
    if errand.deed == Deed::Vanish {
        call.reset(2);
        return;
    }
    if errand.deed != Deed::Early {
        match call.body() {
            Some(body) => look(told, &errand, &body),
            None => return,
        }
    }
    let mark = errand.marker.trim_matches(['<', '>']);
    let answer = errand.answer();
    let nothing = answer.is_empty() && errand.deed != Deed::Break;
    call.headers(&[(":status", "200"), ("x-mark", mark)], nothing);
    if errand.deed == Deed::Break {
        call.data(&answer[..answer.len() / 2], false);
        call.reset(2);
        return;
    }
    if !nothing {
        call.data(&answer, true);
    }
    if errand.deed == Deed::Early
        && let Some(body) = call.body()
    {
        look(told, &errand, &body);
    }
}
