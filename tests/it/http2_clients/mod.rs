//! What RFC 9113 and RFC 7541 ask of a server, frame by frame: sent by hand to a listener in clear text and to one over TLS, and each
//! answered with an error of the right kind and code, or not at all.
//!
//! A stream error may be treated as a connection error (RFC 9113 §5.4), and a malformed request may be answered before its stream is
//! reset (§8.1.1). Beyond that a row says exactly what must come. Whatever came, the gateway serves the next connection.

mod compression;
mod control;
mod fields;
mod flow;
mod framing;
mod streams;

use crate::harness::{
    Authority, DEADLINE, Dial, Gateway, H2, H2Reply, Leaf, Origin, PREFACE, Table, code, flag, header_block, kind,
};
use std::time::Duration;

/// What must come of a script.
#[derive(Debug, Clone, Copy)]
enum Verdict {
    /// Nothing: the connection serves the next request.
    Fine,
    /// The stream is reset with one of these codes, and the connection serves on; or the connection ends with one of them.
    Stream(u32, &'static [u32]),
    /// GOAWAY with one of these codes, and the end.
    Connection(&'static [u32]),
    /// A 4xx answer, or the stream or the connection ends with PROTOCOL_ERROR.
    Malformed(u32),
}

use Verdict::{Connection, Fine, Malformed, Stream};

/// Name, what is sent behind the preface, what must come of it.
type Row = (&'static str, fn(&mut H2), Verdict);

const PROTOCOL: &[u32] = &[code::PROTOCOL_ERROR];
const SIZE: &[u32] = &[code::FRAME_SIZE_ERROR];
const FLOW: &[u32] = &[code::FLOW_CONTROL_ERROR];
// The library has the unspecific code (RFC 9113 §7) where these would be more to the point. What must happen is the same.
const FORM: &[u32] = &[code::FRAME_SIZE_ERROR, code::PROTOCOL_ERROR];
const CLOSED: &[u32] = &[code::STREAM_CLOSED, code::PROTOCOL_ERROR];
const COMPRESSION: &[u32] = &[code::COMPRESSION_ERROR, code::PROTOCOL_ERROR];

/// A gateway with both kinds of listener, in front of an upstream that answers everything but `/stall`.
struct Bench {
    gateway: Gateway,
    origin: Origin,
    _authority: Authority,
    ways: [(&'static str, Option<Dial>); 2],
}

impl Bench {
    fn new() -> Self {
        let origin = Origin::new(|call| match call.target() {
            "/stall" => call.stall(),
            "/hundred" => call.answer(format!("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "x".repeat(100)).as_bytes()),
            _ => call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        });
        let authority = Authority::new("servers");
        let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
        let gateway = Gateway::before(
            &origin,
            &format!(
                "listeners:\n- {{ name: public, address: '127.0.0.1:0' }}\n- {{ name: secure, address: '127.0.0.2:0', tls: {{ certificates: {pair} }} }}"
            ),
        );
        let dial = authority.dial("localhost").alpn(&["h2"]);
        Self { gateway, origin, _authority: authority, ways: [("clear text", None), ("TLS", Some(dial))] }
    }

    fn silent(&self, dial: Option<&Dial>) -> H2 {
        H2::connect_silent(self.gateway.listener(if dial.is_some() { "secure" } else { "public" }), dial)
    }

    /// A connection whose settings are exchanged.
    fn connect(&self, dial: Option<&Dial>) -> H2 {
        let mut client = self.silent(dial);
        client.greet(1 << 20);
        client.pump(|client| client.frames.iter().any(|frame| frame.kind == kind::SETTINGS && frame.flags & flag::ACK != 0));
        client.frames.clear();
        client
    }
}

/// Runs every row on both listeners.
fn run(title: &'static str, rows: &[Row]) {
    let bench = Bench::new();
    let mut table = Table::new(title);
    for (name, script, verdict) in rows {
        for (way, dial) in &bench.ways {
            let mut client = bench.connect(dial.as_ref());
            script(&mut client);
            table.row(&format!("{name}, {way}"), problem(&mut client, *verdict));
        }
    }
    assert_eq!(bench.gateway.get("/after").status, 200, "the next connection is served");
}

/// What is wrong with what came; empty if nothing is.
fn problem(client: &mut H2, verdict: Verdict) -> String {
    let wanted = |code: Option<u32>, codes: &[u32]| code.is_some_and(|code| codes.contains(&code));
    match verdict {
        Fine => serves_on(client),
        Stream(stream, codes) => {
            client.pump(|client| client.reset_of(stream).is_some() || client.last_word().is_some());
            match client.reset_of(stream) {
                reset @ Some(_) if wanted(reset, codes) => serves_on(client),
                None if wanted(client.last_word(), codes) => ends(client),
                reset => {
                    format!("expected stream {stream} to end with {codes:?}, seen RST {reset:?}, GOAWAY {:?}", client.last_word())
                }
            }
        }
        Connection(codes) => {
            client.pump(|client| client.last_word().is_some());
            match client.last_word() {
                word if wanted(word, codes) => ends(client),
                word => format!("expected the connection to end with {codes:?}, seen GOAWAY {word:?}"),
            }
        }
        Malformed(stream) => {
            let reply = client.receive(stream);
            match reply {
                H2Reply { status: Some(400..=499), .. } => String::new(),
                H2Reply { status: None, reset: Some(code::PROTOCOL_ERROR), .. } => serves_on(client),
                H2Reply { status: None, goaway: Some(code::PROTOCOL_ERROR), .. } => ends(client),
                other => format!("expected a malformed request to be refused, seen {other:?}"),
            }
        }
    }
}

/// Another request on the same connection is answered, and nothing has been said against the connection.
fn serves_on(client: &mut H2) -> String {
    client.skip_to(2_001);
    let reply = client.get("/next");
    match (reply.outcome().as_str(), client.last_word()) {
        ("200", None) => String::new(),
        (outcome, word) => format!("the connection serves no more: {outcome}, GOAWAY {word:?}"),
    }
}

/// After GOAWAY with an error the connection is closed (RFC 9113 §5.4.1).
fn ends(client: &mut H2) -> String {
    if client.is_closed() { String::new() } else { format!("GOAWAY came, but no end within {DEADLINE:?}") }
}

/// The header block of a request.
fn request(method: &str, path: &str) -> Vec<u8> {
    header_block(&[(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)])
}

fn get() -> Vec<u8> {
    request("GET", "/x")
}

/// A whole request without a body.
fn ask(client: &mut H2, stream: u32, path: &str) {
    client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &request("GET", path));
}

/// A request whose body is still to come.
fn begin(client: &mut H2, stream: u32, path: &str) {
    client.frame(kind::HEADERS, flag::END_HEADERS, stream, &request("POST", path));
}

/// A frame whose length says something else than its payload.
fn frame_head(length: u32, kind: u8, flags: u8, stream: u32) -> Vec<u8> {
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes
}

/// Waits until the stream has been answered, so that it is closed on both sides.
fn answered(client: &mut H2, stream: u32) {
    let reply = client.receive(stream);
    assert_eq!(reply.outcome(), "200", "the request that comes first");
}

/// A gateway that times out soon.
fn impatient(origin: &Origin) -> Gateway {
    Gateway::before(
        origin,
        "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { header: 300ms, keep_alive: 300ms } }]",
    )
}

/// RFC 9113 §3.4.
#[test]
fn a_connection_begins_with_the_preface() {
    let bench = Bench::new();
    for (way, dial) in &bench.ways {
        let mut client = bench.silent(dial.as_ref());
        client.write(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
        client.frame(kind::SETTINGS, 0, 0, &[]);
        assert!(client.is_closed(), "{way}: what is no preface ends the connection");
        let mut client = bench.silent(dial.as_ref());
        client.greet(1 << 20);
        client.pump(|client| !client.frames.is_empty());
        assert_eq!(
            client.frames.first().map(|frame| (frame.kind, frame.flags, frame.stream)),
            Some((kind::SETTINGS, 0, 0)),
            "{way}"
        );
    }
    assert!(bench.origin.seen().is_empty(), "{:?}", bench.origin.lines());
}

/// HF-8: whoever says nothing, half a preface, or nothing behind it, is not waited for.
#[test]
fn half_a_beginning_is_not_waited_for() {
    let origin = Origin::ok();
    let gateway = impatient(&origin);
    for bytes in [&b""[..], b"PRI * HTTP/2.0\r\n", PREFACE, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        let mut client = H2::connect_silent(gateway.addr(), None);
        client.wire().tcp().set_read_timeout(Some(DEADLINE + Duration::from_secs(4))).unwrap();
        client.write(bytes);
        assert!(client.is_closed(), "{:?} is waited for", String::from_utf8_lossy(bytes));
    }
}

/// RFC 9113 §6.8: a client that says goodbye is still told what it asked for.
#[test]
fn a_clients_goaway_ends_no_request_of_its_own() {
    let bench = Bench::new();
    for (way, dial) in &bench.ways {
        let mut client = bench.connect(dial.as_ref());
        ask(&mut client, 1, "/x");
        client.frame(kind::GOAWAY, 0, 0, &[0; 8]);
        assert_eq!(client.receive(1).outcome(), "200", "{way}");
        assert!(client.is_closed(), "{way}: nothing more is to come");
    }
}
