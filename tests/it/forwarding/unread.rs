//! What an HTTP/2 client still sends when it has been answered: a reset right behind the answer would be taken for the outcome.

use crate::harness::{Gateway, H2, Origin, kind, until};

const POST: [(&str, &str); 4] = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
const ONCE: &str = "limits: [{ name: once, per: ip, rate: 1/hour }]";
/// What a stream's window takes.
const WINDOW: usize = 65_535;

/// A refused upload that has begun.
fn refused(gateway: &Gateway) -> (H2, u32) {
    assert_eq!(gateway.get("/").status, 200);
    let mut client = H2::connect(gateway.addr());
    let stream = client.open(&POST, false);
    assert_eq!(client.receive(stream).status(), 429);
    (client, stream)
}

/// The codes of its resets.
fn resets(client: &H2, stream: u32) -> Vec<u8> {
    let resets = client.frames.iter().filter(|frame| frame.kind == kind::RST_STREAM && frame.stream == stream);
    resets.flat_map(|frame| frame.payload.clone()).collect()
}

#[test]
fn the_rest_of_a_refused_upload_is_read_and_forgotten() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, ONCE);
    let (mut client, stream) = refused(&gateway);
    for _ in 0..WINDOW / 16_384 {
        client.data(stream, &[0; 16_384], false);
    }
    client.data(stream, b"the end", true);
    // Whatever was said about that stream comes before the next answer.
    assert_eq!(client.get("/").status(), 429);
    assert_eq!(resets(&client, stream), Vec::<u8>::new());
}

#[test]
fn an_upload_that_does_not_end_is_reset_after_its_answer() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, ONCE);
    let (mut client, stream) = refused(&gateway);
    until("the reset", || client.get("/").status() == 429 && !resets(&client, stream).is_empty());
    assert_eq!(resets(&client, stream), [0, 0, 0, 0], "NO_ERROR: the answer is complete");
    assert_eq!(client.get("/").status(), 429, "the connection goes on");
}

#[test]
fn an_upload_that_turns_out_too_large_is_read_on_too() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "routes: [{ name: small, upstream: origin, max_body: 1KiB }]");
    let mut client = H2::connect(gateway.addr());
    let stream = client.open(&POST, false);
    client.data(stream, &[0; 2048], false);
    assert_eq!(client.receive(stream).status(), 413);
    client.data(stream, &[0; 16_384], false);
    client.data(stream, b"the end", true);
    assert_eq!(client.get("/").status(), 200);
    assert_eq!(resets(&client, stream), Vec::<u8>::new());
}
