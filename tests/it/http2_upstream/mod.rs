//! HTTP/2 towards upstreams: connections and streams, what becomes of messages on their way between versions, bodies, and faults.

mod bodies;
mod connections;
mod faults;
mod lifecycle;
mod messages;

use crate::harness::{Call, H2};

/// `:method`, `:scheme http`, `:authority a` and this path.
fn fields<'a>(method: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)]
}

/// A `200` with this body and nothing more.
fn answer(call: &Call, body: &[u8]) {
    let length = body.len().to_string();
    call.headers(&[(":status", "200"), ("content-length", &length)], body.is_empty());
    call.data(body, true);
}

/// Opens a stream for a body.
fn upload(client: &mut H2, path: &str) -> u32 {
    client.open(&fields("POST", path), false)
}

/// Bytes that would show a lost, doubled or swapped block.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from((i / 251 + i) % 251).expect("below 251")).collect()
}
