//! gRPC end to end, as frames: messages with their length in front, statuses in trailers. No generated code, so that what is on the wire
//! is what is written here.

mod calls;
mod refusals;

use crate::harness::{Call, H2, Piece};

/// What every call begins with.
fn head(path: &str) -> Vec<(&str, &str)> {
    vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
        ("content-type", "application/grpc+proto"),
        ("te", "trailers"),
    ]
}

/// A message on the wire: not compressed, its length, itself.
fn message(text: &str) -> Vec<u8> {
    [&[0], &u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat()
}

/// The messages that have arrived whole.
fn messages(mut bytes: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    while let Some(head) = bytes.first_chunk::<5>() {
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let Some(text) = bytes.get(5..5 + length) else { break };
        messages.push(String::from_utf8(text.to_vec()).unwrap());
        bytes = &bytes[5 + length..];
    }
    messages
}

/// The server's initial metadata.
fn begin(call: &Call) {
    call.headers(&[(":status", "200"), ("content-type", "application/grpc")], false);
}

/// The server's next message; `None` when its client has said all.
fn next_message(call: &mut Call, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(first) = messages(buffer).into_iter().next() {
            buffer.drain(..5 + first.len());
            return Some(first);
        }
        match call.next() {
            Piece::Data(bytes) => buffer.extend(bytes),
            _ => return None,
        }
    }
}

/// Opens a call.
fn open(client: &mut H2, path: &str, more: &[(&str, &str)]) -> u32 {
    client.open(&[&head(path), more].concat(), false)
}
