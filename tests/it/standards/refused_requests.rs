//! What the HTTP library refuses today. Kept as a table so that an upgrade or another codec cannot let it in.

use crate::harness::{Client, Gateway, Origin, Sees, Table, crlf};

/// Name and bytes; `\n` is sent as CRLF, `␊` as a bare LF, `␍` as a bare CR.
type Row = (&'static str, &'static str);

#[rustfmt::skip]
const HEADS: &[Row] = &[
    ("obs-fold", "GET / HTTP/1.1\nHost: a\nX: 1\n 2\n\n"),
    ("obs-fold with a tab", "GET / HTTP/1.1\nHost: a\nX: 1\n\t2\n\n"),
    ("space before the colon", "GET / HTTP/1.1\nHost: a\nX : 1\n\n"),
    ("tab before the colon", "GET / HTTP/1.1\nHost: a\nX\t: 1\n\n"),
    ("space before the first field", "GET / HTTP/1.1\n Host: a\n\n"),
    ("NUL in a value", "GET / HTTP/1.1\nHost: a\nX: 1\0\n\n"),
    ("CR in a value", "GET / HTTP/1.1\nHost: a\nX: 1␍2\n\n"),
    ("control character in a value", "GET / HTTP/1.1\nHost: a\nX: 1\u{1}\n\n"),
    ("DEL in a value", "GET / HTTP/1.1\nHost: a\nX: 1\u{7f}\n\n"),
    ("no colon", "GET / HTTP/1.1\nHost: a\nX\n\n"),
    ("empty name", "GET / HTTP/1.1\nHost: a\n: x\n\n"),
    ("NUL in a name", "GET / HTTP/1.1\nHost: a\nX\0Y: 1\n\n"),
    ("quote in a name", "GET / HTTP/1.1\nHost: a\nX\"Y: 1\n\n"),
    ("version 1.2", "GET / HTTP/1.2\nHost: a\n\n"),
    ("version 2.0", "GET / HTTP/2.0\nHost: a\n\n"),
    ("lower-case version", "GET / http/1.1\nHost: a\n\n"),
    ("0.9", "GET /\n\n"),
    ("no version", "GET / \nHost: a\n\n"),
    ("double space", "GET  / HTTP/1.1\nHost: a\n\n"),
    ("tab", "GET\t/ HTTP/1.1\nHost: a\n\n"),
    ("space in the target", "GET /a b HTTP/1.1\nHost: a\n\n"),
    ("NUL in the target", "GET /a\0 HTTP/1.1\nHost: a\n\n"),
    ("space behind the version", "GET / HTTP/1.1 \nHost: a\n\n"),
    ("method with a separator", "G(T / HTTP/1.1\nHost: a\n\n"),
    ("only garbage", "\u{1}\u{2}\u{3}\n\n"),
];

const LENGTHS: &[&str] = &[
    "+1",
    "-1",
    "-0",
    "0x1",
    "1_0",
    "",
    "1, 2",
    "1 1",
    "1.0",
    "1e1",
    "٣",
    "99999999999999999999",
    "18446744073709551616",
    "chunked",
];

#[rustfmt::skip]
const CODINGS: &[&str] = &[
    "identity", "gzip", "chunked, gzip", "chunked, identity", "xchunked", "chunkedx", "\"chunked\"", "'chunked'", "chunked;q=1", "chunked\u{b}", "\u{b}chunked",
    "x chunked", "chunk", "chunked\u{ff}", "", "chunked, cow", "cow, chunked",
];

/// Behind a head that says `Transfer-Encoding: chunked`.
#[rustfmt::skip]
const CHUNKS: &[Row] = &[
    ("0x prefix", "0x1\nz\n0\n\n"),
    ("plus sign", "+1\nz\n0\n\n"),
    ("minus zero", "-0\n\n"),
    ("leading space", " 1\nz\n0\n\n"),
    ("underscore", "1_0\n0123456789abcdef\n0\n\n"),
    ("no digit", "\nz\n0\n\n"),
    ("only an extension", ";a\nz\n0\n\n"),
    ("not hex", "g\nz\n0\n\n"),
    ("overflow", "10000000000000001\nz\n0\n\n"),
    ("overflow to zero", "100000000000000000\n\n"),
    ("LF behind the size", "1␊z\n0\n\n"),
    ("LF behind the data", "1\nz␊0\n\n"),
    ("LF behind the last chunk", "1\nz\n0␊\n"),
    ("CR alone behind the size", "1␍z\n0\n\n"),
    ("LF in an extension", "1;a␊z\n0\n\n"),
    ("CR CR in an extension", "1;a␍␍\nz\n0\n\n"),
    ("too much data", "5\nabcdeXX\n0\n\n"),
    ("too little data", "5\nabc\n0\n\n"),
    ("trailer without a colon", "0\nX\n\n"),
    ("trailer with a space before the colon", "0\nX : 1\n\n"),
];

/// The gateway must answer 4xx or 501 (or just close) and end the connection.
fn refused(table: &mut Table, gateway: &Gateway, origin: &Origin, name: &str, request: &[u8]) {
    table.send(gateway, origin, name, request, "4xx|501|505|closed|reset", Sees::NothingWhole);
    let mut client = Client::connect(gateway.addr());
    // A request behind it must never be read: not as a second request and not as part of the first.
    client.send(request).send("GET /behind HTTP/1.1\r\nHost: a\r\n\r\n");
    let first = client.receive();
    let closed = matches!(first.outcome().as_str(), "closed" | "reset") || client.is_closed();
    table.row(name, if closed { "" } else { "the connection stays open" });
    let behind = crate::harness::reached(gateway, origin).into_iter().any(|seen| seen.line.contains("/behind"));
    table.row(name, if behind { "the bytes behind it were read as a request" } else { "" });
}

fn wire(text: &str) -> Vec<u8> {
    String::from_utf8(crlf(text)).unwrap().replace('␊', "\n").replace('␍', "\r").into_bytes()
}

#[test]
fn malformed_heads() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("malformed heads");
    for (name, request) in HEADS {
        refused(&mut table, &gateway, &origin, name, &wire(request));
    }
}

#[test]
fn malformed_lengths() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("malformed lengths");
    for length in LENGTHS {
        let request = format!("POST / HTTP/1.1\nHost: a\nContent-Length: {length}\n\nz");
        refused(&mut table, &gateway, &origin, &format!("content-length {length:?}"), &wire(&request));
    }
    let differing = "POST / HTTP/1.1\nHost: a\nContent-Length: 1\nContent-Length: 2\n\nzz";
    refused(&mut table, &gateway, &origin, "two different lengths", &wire(differing));
    let empty_first = "POST / HTTP/1.1\nHost: a\nContent-Length:\nContent-Length: 1\n\nz";
    refused(&mut table, &gateway, &origin, "empty length, then one", &wire(empty_first));
}

#[test]
fn unknown_transfer_codings() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("unknown codings");
    for coding in CODINGS {
        let request = format!("POST / HTTP/1.1\nHost: a\nTransfer-Encoding: {coding}\n\n0\n\n");
        refused(&mut table, &gateway, &origin, &format!("transfer-encoding {coding:?}"), &wire(&request));
    }
    let in_1_0 = "POST / HTTP/1.0\nHost: a\nTransfer-Encoding: chunked\n\n0\n\n";
    refused(&mut table, &gateway, &origin, "chunked in 1.0", &wire(in_1_0));
}

#[test]
fn malformed_chunks() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("malformed chunks");
    let head = "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n";
    for (name, chunks) in CHUNKS {
        refused(&mut table, &gateway, &origin, name, &wire(&format!("{head}{chunks}")));
    }
    let long = format!("{head}1;{}\nz\n0\n\n", "e".repeat(20 << 10));
    refused(&mut table, &gateway, &origin, "20 KiB of extension", &wire(&long));
}

#[test]
fn too_large_heads() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("too large heads");
    let many: String = (0..1000).map(|i| format!("X-{i}: 1\n")).collect();
    let rows = [
        ("1000 fields", format!("GET / HTTP/1.1\nHost: a\n{many}\n"), "431"),
        ("1 MB field", format!("GET / HTTP/1.1\nHost: a\nX: {}\n\n", "x".repeat(1 << 20)), "431|reset"),
        ("70 kB target", format!("GET /{} HTTP/1.1\nHost: a\n\n", "x".repeat(70_000)), "414"),
        ("8000 octets of target", format!("GET /{} HTTP/1.1\nHost: a\n\n", "x".repeat(7_980)), "200"),
    ];
    for (name, request, expected) in rows {
        let sees = if expected == "200" { Sees::One(&[], &[]) } else { Sees::Nothing };
        table.send(&gateway, &origin, name, &wire(&request), expected, sees);
    }
}
