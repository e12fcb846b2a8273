//! Requests that an HTTP library accepts and a gateway must not pass on as they are.

use crate::harness::{Client, Gateway, Origin, Sees, Sees::*, Table, crlf, exchange};

/// Name, request (`\n` is sent as CRLF), what the client gets, what the upstream gets.
type Row = (&'static str, &'static str, &'static str, Sees);

#[rustfmt::skip]
const HOSTS: &[Row] = &[
    ("no Host in 1.1", "GET / HTTP/1.1\n\n", "400", Nothing),
    ("two equal Hosts", "GET / HTTP/1.1\nHost: a\nHost: a\n\n", "400", Nothing),
    ("two different Hosts", "GET / HTTP/1.1\nHost: a\nHost: b\n\n", "400", Nothing),
    ("Host with a space", "GET / HTTP/1.1\nHost: a b\n\n", "400", Nothing),
    ("Host with userinfo", "GET / HTTP/1.1\nHost: u@a\n\n", "400", Nothing),
    ("Host with a path", "GET / HTTP/1.1\nHost: a/b\n\n", "400", Nothing),
    ("Host list", "GET / HTTP/1.1\nHost: a,b\n\n", "400|200", AtMost(&["host: a,b"], &[])),
    ("Host with two ports", "GET / HTTP/1.1\nHost: a:1:2\n\n", "400", Nothing),
    ("Host with a word as port", "GET / HTTP/1.1\nHost: a:http\n\n", "400", Nothing),
    ("Host with an open bracket", "GET / HTTP/1.1\nHost: [::1\n\n", "400", Nothing),
    ("empty Host", "GET /x HTTP/1.1\nHost:\n\n", "400|200", AtMost(&["get /x http/1.1"], &[])),
    ("Host with a port", "GET /x HTTP/1.1\nHost: a:8080\n\n", "200", One(&["get /x http/1.1", "host: a:8080"], &[])),
    ("Host that is an IPv6 address", "GET /x HTTP/1.1\nHost: [::1]:80\n\n", "200", One(&["get /x http/1.1"], &[])),
    ("1.0 without Host", "GET /x HTTP/1.0\n\n", "200", One(&["get /x http/1.1"], &["connection: keep-alive"])),
];

#[rustfmt::skip]
const TARGETS: &[Row] = &[
    ("absolute form, other authority", "GET http://evil/x HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("absolute form, same authority", "GET http://a/x HTTP/1.1\nHost: a\n\n", "200", One(&["get /x http/1.1", "host: a"], &[])),
    ("absolute form, other case", "GET HTTP://A/x HTTP/1.1\nHost: a\n\n", "200", One(&["get /x http/1.1"], &[])),
    ("absolute form, default port", "GET http://a:80/x HTTP/1.1\nHost: a\n\n", "200", One(&["get /x http/1.1"], &[])),
    ("absolute form, other port", "GET http://a:81/x HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("absolute form, userinfo", "GET http://u:p@a/x HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("absolute form, ftp", "GET ftp://a/x HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("a word as target", "GET admin HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("authority form with GET", "GET a:80 HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("asterisk with GET", "GET * HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("asterisk with OPTIONS", "OPTIONS * HTTP/1.1\nHost: a\n\n", "200|204", Nothing),
    ("fragment", "GET /a#b HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("fragment in the query", "GET /a?b#c HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("backslash", "GET /a\\b HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("raw UTF-8", "GET /\u{e9} HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("quote", "GET /\"x HTTP/1.1\nHost: a\n\n", "400|200", AtMost(&["get /\"x http/1.1"], &[])),
    ("encoded NUL", "GET /a%00 HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("percent and no hex", "GET /a%zz HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("percent at the end", "GET /a% HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("percent and one digit", "GET /a%2 HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("encoded slash", "GET /a%2fb HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("encoded Slash", "GET /a%2Fb HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("encoded backslash", "GET /a%5cb HTTP/1.1\nHost: a\n\n", "400", Nothing),
    ("encoded slash in the query", "GET /a?b=%2f HTTP/1.1\nHost: a\n\n", "200", One(&["get /a?b=%2f http/1.1"], &[])),
    ("CONNECT", "CONNECT a:80 HTTP/1.1\nHost: a:80\n\n", "405|501|400", Nothing),
    ("CONNECT with a path", "CONNECT /x HTTP/1.1\nHost: a\n\n", "405|501|400", Nothing),
    ("TRACE", "TRACE / HTTP/1.1\nHost: a\n\n", "405", Nothing),
];

#[rustfmt::skip]
const CODINGS: &[Row] = &[
    ("gzip, chunked", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: gzip, chunked\n\n0\n\n", "400|501", NothingWhole),
    ("chunked, chunked", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked, chunked\n\n0\n\n", "400|501", NothingWhole),
    ("two lines of chunked", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n0\n\n", "400|501", NothingWhole),
    (",chunked", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: ,chunked\n\n0\n\n", "400|501", NothingWhole),
    ("chunked,", "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked,\n\n0\n\n", "400|501", NothingWhole),
    ("Chunked", "POST /x HTTP/1.1\nHost: a\nTransfer-Encoding: Chunked\n\n1\nz\n0\n\n", "200|400", AtMost(&["transfer-encoding: chunked"], &["content-length"])),
    ("chunked", "POST /x HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n1\nz\n0\n\n", "200", One(&["transfer-encoding: chunked"], &["content-length"])),
    ("unknown expectation", "GET / HTTP/1.1\nHost: a\nExpect: foo\n\n", "417", Nothing),
    ("two expectations", "GET / HTTP/1.1\nHost: a\nExpect: 100-continue, foo\n\n", "417", Nothing),
    ("GET with a body", "GET /x HTTP/1.1\nHost: a\nContent-Length: 3\n\nabc", "200", One(&["content-length: 3"], &["transfer-encoding"])),
    ("GET with a chunked body", "GET /x HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", "200", One(&["transfer-encoding: chunked"], &["content-length"])),
    ("DELETE with a body", "DELETE /x HTTP/1.1\nHost: a\nContent-Length: 3\n\nabc", "200", One(&["content-length: 3"], &[])),
    ("POST without a body", "POST /x HTTP/1.1\nHost: a\nContent-Length: 0\n\n", "200", One(&["post /x http/1.1", "content-length: 0"], &["transfer-encoding"])),
    ("equal lengths twice", "POST /x HTTP/1.1\nHost: a\nContent-Length: 3\nContent-Length: 3\n\nabc", "200|400", AtMost(&["content-length: 3"], &["transfer-encoding"])),
];

#[rustfmt::skip]
const HOP_BY_HOP: &[Row] = &[
    (
        "Connection nominates fields",
        "GET /x HTTP/1.1\nHost: a\nConnection: x-one, ,X-Two\nConnection: x-three\nX-One: 1\nX-Two: 2\nX-Three: 3\nX-Four: 4\n\n",
        "200",
        One(&["x-four: 4"], &["connection", "x-one", "x-two", "x-three"]),
    ),
    (
        "hop-by-hop fields nobody nominated",
        "GET /x HTTP/1.1\nHost: a\nKeep-Alive: 5\nProxy-Connection: keep-alive\nTE: gzip\nUpgrade: foo\nHTTP2-Settings: AA\n\n",
        "200",
        One(&[], &["keep-alive", "proxy-connection", "te:", "upgrade", "http2-settings"]),
    ),
    ("h2c upgrade", "GET /x HTTP/1.1\nHost: a\nConnection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABk\n\n", "200", One(&["get /x http/1.1"], &["upgrade", "http2-settings", "connection: upgrade"])),
    ("keep-alive of a 1.0 client", "GET /x HTTP/1.0\nHost: a\nConnection: keep-alive\n\n", "200", One(&["get /x http/1.1"], &["connection: keep-alive", "keep-alive"])),
    ("close of a client", "GET /x HTTP/1.1\nHost: a\nConnection: close\n\n", "200", One(&["get /x http/1.1"], &["connection: close"])),
    ("Connection nominates what the gateway adds", "GET /x HTTP/1.1\nHost: a\nConnection: X-Forwarded-For, X-Forwarded-Proto, Via, Host, X-Forwarded-Host\n\n", "200", One(&["host: a", "x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http", "x-forwarded-host: a", "via: 1.1 tollgate"], &[])),
    ("Connection nominates the framing", "POST /x HTTP/1.1\nHost: a\nConnection: content-length\nContent-Length: 3\n\nabc", "200|400", AtMost(&["post /x http/1.1"], &[])),
];

#[rustfmt::skip]
const FOLDED_NAMES: &[Row] = &[
    ("underscores of X-Forwarded-For", "GET /x HTTP/1.1\nHost: a\nX_Forwarded_For: 9.9.9.9\n\n", "200|400", AtMost(&[], &["x_forwarded_for", "x-forwarded-for: 9"])),
    ("one underscore", "GET /x HTTP/1.1\nHost: a\nX-Forwarded_For: 9.9.9.9\n\n", "200|400", AtMost(&[], &["x-forwarded_for"])),
    ("dots of X-Real-IP", "GET /x HTTP/1.1\nHost: a\nX.Real.IP: 9.9.9.9\n\n", "200|400", AtMost(&[], &["x.real.ip"])),
    ("dots of X-API-Key", "GET /x HTTP/1.1\nHost: a\nx.api.key: k\n\n", "200|400", AtMost(&[], &["x.api.key"])),
    ("underscores of X-API-Key", "GET /x HTTP/1.1\nHost: a\nX_API_Key: k\n\n", "200|400", AtMost(&[], &["x_api_key"])),
    ("underscores of Content-Length", "GET /x HTTP/1.1\nHost: a\nContent_Length: 5\n\n", "200|400", AtMost(&[], &["content_length"])),
    ("underscores of Transfer-Encoding", "GET /x HTTP/1.1\nHost: a\nTransfer_Encoding: chunked\n\n", "200|400", AtMost(&[], &["transfer_encoding"])),
    ("underscores of Sec-WebSocket-Key", "GET /x HTTP/1.1\nHost: a\nSec_WebSocket_Key: k\n\n", "200|400", AtMost(&[], &["sec_websocket_key"])),
    ("forged forwarding fields", "GET /x HTTP/1.1\nHost: a\nX-Forwarded-For: 9.9.9.9\nX-Forwarded-Proto: https\nX-Forwarded-Host: evil\nX-Forwarded-Port: 1\nX-Forwarded-Prefix: /p\nX-Real-IP: 9.9.9.9\nForwarded: for=9.9.9.9\n\n", "200", One(&["x-forwarded-for: 127.0.0.1", "x-forwarded-proto: http", "x-forwarded-host: a"], &["x-forwarded-for: 9", "x-forwarded-proto: https", "x-forwarded-host: evil", "x-forwarded-port: 1", "x-forwarded-prefix", "x-real-ip: 9", "forwarded: for=9"])),
    ("an ordinary underscore", "GET /x HTTP/1.1\nHost: a\nmy_field: 1\n\n", "200", One(&["my_field: 1"], &[])),
];

/// Listed although more than one answer is right: both ends must agree.
#[rustfmt::skip]
const LENIENT: &[Row] = &[
    ("empty line first", "\nGET /x HTTP/1.1\nHost: a\n\n", "200", One(&["get /x http/1.1"], &[])),
    ("unknown method", "PURGE /x HTTP/1.1\nHost: a\n\n", "200", One(&["purge /x http/1.1"], &[])),
    ("lower-case method", "get /x HTTP/1.1\nHost: a\n\n", "200|400|405|501", AtMost(&["get /x http/1.1"], &[])),
];

fn run(title: &'static str, rows: &[Row]) {
    let origin = Origin::ok();
    let gateway = Gateway::before(
        &origin,
        "trusted_proxies: []\nidentity: { api_key: { sources: [{ header: x-api-key }], unknown: anonymous } }",
    );
    let mut table = Table::new(title);
    for (name, request, client, sees) in rows {
        table.send(&gateway, &origin, name, &crlf(request), client, *sees);
    }
}

#[test]
fn host_is_one_and_valid() {
    run("Host", HOSTS);
}

#[test]
fn targets_are_forwarded_exactly_or_refused() {
    run("request targets", TARGETS);
}

#[test]
fn only_one_plain_chunked_is_a_transfer_coding() {
    run("codings and expectations", CODINGS);
}

#[test]
fn hop_by_hop_fields_end_here() {
    run("hop-by-hop", HOP_BY_HOP);
}

#[test]
fn names_that_fold_onto_trusted_ones_are_dropped() {
    run("folded names", FOLDED_NAMES);
}

#[test]
fn tolerated_spellings_mean_the_same_at_both_ends() {
    run("lenient", LENIENT);
}

#[test]
fn bare_line_feeds_are_refused_or_become_crlf() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("bare LF");
    let rows: [(&str, &[u8]); 3] = [
        ("every line", b"GET /x HTTP/1.1\nHost: a\n\n"),
        ("request line", b"GET /x HTTP/1.1\nHost: a\r\n\r\n"),
        ("last line", b"GET /x HTTP/1.1\r\nHost: a\r\n\n"),
    ];
    for (name, request) in rows {
        table.send(&gateway, &origin, name, request, "200|400", AtMost(&["get /x http/1.1"], &[]));
    }
}

#[test]
fn trailers_that_frame_or_route_are_dropped() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let request = "POST / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n1\nz\n0\nContent-Length: 9\nHost: evil\nX-Forwarded-For: 9.9.9.9\nAuthorization: x\nX-Fine: 1\n\n";
    let status = exchange(gateway.addr(), crlf(request)).outcome();
    assert!(["200", "400"].contains(&status.as_str()), "{status}");
    let Some(seen) = origin.seen().into_iter().find(|seen| seen.complete()) else { return };
    for (name, _) in &seen.trailers {
        let name = name.to_lowercase();
        assert!(
            !["content-length", "host", "x-forwarded-for", "authorization"].contains(&name.as_str()),
            "trailer {name} was passed on"
        );
    }
    assert!(seen.header("x-fine").is_none(), "a trailer was merged into the head");
}

#[test]
fn a_malformed_chunk_is_the_clients_fault_and_aborts_the_upstream_request() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send(crlf("POST /x HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n5\nhello\n"));
    origin.wait_heads(1);
    client.send("XYZ\r\n");
    assert_eq!(client.receive().outcome(), "400");
    assert!(client.is_closed());
    let seen = origin.wait(1);
    assert!(!seen.complete(), "the upstream saw a clean end: {:?}", String::from_utf8_lossy(&seen.wire));
    assert_eq!(gateway.get("/next").status, 200);
}

#[test]
fn length_and_coding_together_never_reach_the_upstream_together() {
    let rows = [
        ("length first", "POST /x HTTP/1.1\nHost: a\nContent-Length: 6\nTransfer-Encoding: chunked\n\n1\nz\n0\n\n"),
        ("coding first", "POST /x HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nContent-Length: 6\n\n1\nz\n0\n\n"),
    ];
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("CL + TE");
    for (name, request) in rows {
        table.send(
            &gateway,
            &origin,
            name,
            &crlf(request),
            "400|200",
            AtMost(&["transfer-encoding: chunked"], &["content-length"]),
        );
        let mut client = Client::connect(gateway.addr());
        client.send(crlf(request)).receive();
        table.row(name, if client.is_closed() { "" } else { "the connection stays open" });
    }
}
