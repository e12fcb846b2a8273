//! HTTP/2 requests that the protocol calls malformed or that must change on their way to an HTTP/1 upstream.

use crate::harness::{Gateway, H2, Origin, Sees, Sees::*, Table, reached};

/// Name, fields, what the client gets, what the upstream gets.
type Row = (&'static str, &'static [(&'static str, &'static str)], &'static str, Sees);

const GET: (&str, &str) = (":method", "GET");
const HTTP: (&str, &str) = (":scheme", "http");
const A: (&str, &str) = (":authority", "a");
const X: (&str, &str) = (":path", "/x");

/// The library may refuse a request by resetting its stream, by ending the connection or with a 400.
const REFUSED: &str = "400|rst|goaway|closed";

#[rustfmt::skip]
const AUTHORITIES: &[Row] = &[
    ("host differs from :authority", &[GET, HTTP, A, X, ("host", "b")], REFUSED, Nothing),
    ("host equals :authority", &[GET, HTTP, A, X, ("host", "a")], "200", One(&["get /x http/1.1", "host: a"], &[])),
    ("two hosts", &[GET, HTTP, X, ("host", "a"), ("host", "b")], REFUSED, Nothing),
    ("two hosts beside :authority", &[GET, HTTP, A, X, ("host", "a"), ("host", "a")], REFUSED, Nothing),
    ("neither :authority nor host", &[GET, HTTP, X], REFUSED, Nothing),
    ("host alone", &[GET, HTTP, X, ("host", "a")], "200", One(&["host: a"], &[])),
    ("userinfo", &[GET, HTTP, X, (":authority", "u:p@a")], REFUSED, Nothing),
    ("space in :authority", &[GET, HTTP, X, (":authority", "a b")], REFUSED, Nothing),
    ("path in :authority", &[GET, HTTP, X, (":authority", "a/b")], REFUSED, Nothing),
    ("CRLF in :authority", &[GET, HTTP, X, (":authority", "a\r\nX: y")], REFUSED, Nothing),
];

#[rustfmt::skip]
const PSEUDO: &[Row] = &[
    (":scheme ftp", &[GET, (":scheme", "ftp"), A, X], REFUSED, Nothing),
    (":scheme with a URL", &[GET, (":scheme", "http://x/?"), A, X], REFUSED, Nothing),
    (":scheme with CRLF", &[GET, (":scheme", "http\r\nX: y"), A, X], REFUSED, Nothing),
    ("no :scheme", &[GET, A, X], REFUSED, Nothing),
    ("no :method", &[HTTP, A, X], REFUSED, Nothing),
    ("no :path", &[GET, HTTP, A], REFUSED, Nothing),
    ("empty :path", &[GET, HTTP, A, (":path", "")], REFUSED, Nothing),
    ("two :path", &[GET, HTTP, A, X, X], REFUSED, Nothing),
    (":path * with GET", &[GET, HTTP, A, (":path", "*")], REFUSED, Nothing),
    (":path * with OPTIONS", &[(":method", "OPTIONS"), HTTP, A, (":path", "*")], "200|204", Nothing),
    (":path without a slash", &[GET, HTTP, A, (":path", "x")], REFUSED, Nothing),
    (":path that is a URL", &[GET, HTTP, A, (":path", "http://b/x")], REFUSED, Nothing),
    (":path with a request line", &[GET, HTTP, A, (":path", "/ HTTP/1.1\r\nX: y")], REFUSED, Nothing),
    (":path with a space", &[GET, HTTP, A, (":path", "/a b")], REFUSED, Nothing),
    (":path with an encoded slash", &[GET, HTTP, A, (":path", "/a%2fb")], REFUSED, Nothing),
    (":path with a backslash", &[GET, HTTP, A, (":path", "/a\\b")], REFUSED, Nothing),
    (":path with raw UTF-8", &[GET, HTTP, A, (":path", "/é")], REFUSED, Nothing),
    (":method with a request line", &[(":method", "GET / HTTP/1.1\r\n"), HTTP, A, X], REFUSED, Nothing),
    (":method with a space", &[(":method", "GE T"), HTTP, A, X], REFUSED, Nothing),
    ("CONNECT", &[(":method", "CONNECT"), (":authority", "a:80")], "400|405|501|rst|goaway", Nothing),
    ("extended CONNECT to an upstream that says 200", &[(":method", "CONNECT"), (":protocol", "websocket"), HTTP, A, X], "502", One(&["get /x http/1.1", "upgrade: websocket"], &["connect ", ":protocol"])),
    ("extended CONNECT for something else", &[(":method", "CONNECT"), (":protocol", "connect-udp"), HTTP, A, X], "501", Nothing),
    ("TRACE", &[(":method", "TRACE"), HTTP, A, X], "405", Nothing),
    ("unknown pseudo field", &[GET, HTTP, A, X, (":x", "y")], REFUSED, Nothing),
    (":status in a request", &[GET, HTTP, A, X, (":status", "200")], REFUSED, Nothing),
    ("pseudo field behind a regular one", &[GET, HTTP, A, ("x", "y"), X], REFUSED, Nothing),
];

#[rustfmt::skip]
const FIELDS: &[Row] = &[
    ("leading space in a value", &[GET, HTTP, A, X, ("y", " 1")], REFUSED, Nothing),
    ("trailing space in a value", &[GET, HTTP, A, X, ("y", "1 ")], REFUSED, Nothing),
    ("leading tab in a value", &[GET, HTTP, A, X, ("y", "\t1")], REFUSED, Nothing),
    ("CRLF in a value", &[GET, HTTP, A, X, ("y", "1\r\nZ: 2")], REFUSED, Nothing),
    ("LF in a value", &[GET, HTTP, A, X, ("y", "1\nZ: 2")], REFUSED, Nothing),
    ("NUL in a value", &[GET, HTTP, A, X, ("y", "1\0")], REFUSED, Nothing),
    ("upper-case name", &[GET, HTTP, A, X, ("Y", "1")], REFUSED, Nothing),
    ("space in a name", &[GET, HTTP, A, X, ("y z", "1")], REFUSED, Nothing),
    ("colon in a name", &[GET, HTTP, A, X, ("y:z", "1")], REFUSED, Nothing),
    ("CRLF in a name", &[GET, HTTP, A, X, ("y\r\nz", "1")], REFUSED, Nothing),
    ("empty name", &[GET, HTTP, A, X, ("", "1")], REFUSED, Nothing),
    ("connection", &[GET, HTTP, A, X, ("connection", "close")], REFUSED, Nothing),
    ("keep-alive", &[GET, HTTP, A, X, ("keep-alive", "1")], REFUSED, Nothing),
    ("proxy-connection", &[GET, HTTP, A, X, ("proxy-connection", "close")], REFUSED, Nothing),
    ("transfer-encoding", &[GET, HTTP, A, X, ("transfer-encoding", "chunked")], REFUSED, Nothing),
    ("upgrade", &[GET, HTTP, A, X, ("upgrade", "h2c")], REFUSED, Nothing),
    ("te: gzip", &[GET, HTTP, A, X, ("te", "gzip")], REFUSED, Nothing),
    ("te: trailers", &[GET, HTTP, A, X, ("te", "trailers")], "200", One(&["get /x http/1.1"], &["te: gzip"])),
    ("http2-settings", &[GET, HTTP, A, X, ("http2-settings", "AA")], "200|400|rst", AtMost(&[], &["http2-settings"])),
    ("cookie crumbs", &[GET, HTTP, A, X, ("cookie", "a=1"), ("cookie", "b=2"), ("cookie", "c=3")], "200", One(&["cookie: a=1; b=2; c=3"], &[])),
    ("unknown expectation", &[GET, HTTP, A, X, ("expect", "foo")], "417", Nothing),
    ("underscores of X-Forwarded-For", &[GET, HTTP, A, X, ("x_forwarded_for", "9.9.9.9")], "200|400", AtMost(&[], &["x_forwarded_for"])),
    ("forged forwarding fields", &[GET, HTTP, A, X, ("x-forwarded-for", "9.9.9.9"), ("forwarded", "for=9.9.9.9")], "200", One(&["x-forwarded-for: 127.0.0.1", "via: 2 tollgate"], &["forwarded: for=9"])),
    ("the fragment never arrives", &[GET, HTTP, A, (":path", "/a#b")], "200|400|rst", AtMost(&["get /a http/1.1"], &[])),
];

/// Fields, DATA and how it must end: the sum of DATA is not what `content-length` says.
const LENGTHS: &[(&str, &str, &[u8])] = &[
    ("more than announced", "3", b"four"),
    ("less than announced", "9", b"four"),
    ("announced nothing", "0", b"four"),
    ("not a number", "x", b"four"),
    ("signed", "+4", b"four"),
    ("a list", "4, 4", b"four"),
];

fn run(title: &'static str, rows: &[Row]) {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "trusted_proxies: []");
    let mut table = Table::new(title);
    for (name, fields, client, sees) in rows {
        origin.forget();
        let outcome = H2::connect(gateway.addr()).ask(fields, None).outcome();
        table.outcome(name, client, &outcome);
        table.row(name, sees.problem(&reached(&gateway, &origin)).unwrap_or_default());
    }
}

#[test]
fn one_authority_decides() {
    run(":authority", AUTHORITIES);
}

#[test]
fn pseudo_fields_are_validated_before_a_request_line_is_made_of_them() {
    run("pseudo fields", PSEUDO);
}

#[test]
fn fields_are_refused_or_translated() {
    run("fields", FIELDS);
}

#[test]
fn data_that_contradicts_content_length_resets_the_stream_and_aborts_the_upstream_request() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("content-length and DATA");
    for (name, length, data) in LENGTHS {
        origin.forget();
        let fields = [(":method", "POST"), HTTP, A, X, ("content-length", *length)];
        let outcome = H2::connect(gateway.addr()).ask(&fields, Some(data)).outcome();
        table.outcome(name, REFUSED, &outcome);
        table.row(name, NothingWhole.problem(&reached(&gateway, &origin)).unwrap_or_default());
    }
}

#[test]
fn a_body_without_a_length_is_chunked_for_the_upstream() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = H2::connect(gateway.addr());
    assert_eq!(client.ask(&[(":method", "POST"), HTTP, A, X], Some(b"body")).status(), 200);
    let seen = origin.wait(1);
    assert_eq!((seen.body.as_slice(), seen.header("transfer-encoding")), (&b"body"[..], Some("chunked")));
    assert_eq!(client.ask(&[(":method", "POST"), HTTP, A, X, ("content-length", "4")], Some(b"body")).status(), 200);
    let seen = origin.wait(2);
    assert_eq!(
        (seen.body.as_slice(), seen.header("content-length"), seen.header("transfer-encoding")),
        (&b"body"[..], Some("4"), None)
    );
    let twice = [(":method", "POST"), HTTP, A, X, ("content-length", "4"), ("content-length", "4")];
    let outcome = client.ask(&twice, Some(b"body")).outcome();
    assert!(["200", "400", "rst"].contains(&outcome.as_str()), "{outcome}");
    assert!(origin.seen().iter().all(|seen| seen.all("content-length").len() <= 1));
}

#[test]
fn framing_fields_in_trailers_are_not_delivered() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = H2::connect(gateway.addr());
    let stream = client.open(&[(":method", "POST"), HTTP, A, X], false);
    client.data(stream, b"body", false);
    client.trailers(stream, &[("content-length", "9"), ("x-fine", "1")]);
    let outcome = client.receive(stream).outcome();
    assert!(["200", "400", "rst"].contains(&outcome.as_str()), "{outcome}");
    for seen in origin.seen().iter().filter(|seen| seen.complete()) {
        assert!(!seen.trailers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length")), "{:?}", seen.trailers);
    }
}

#[test]
fn a_bad_request_does_not_disturb_its_neighbours() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = H2::connect(gateway.addr());
    assert_eq!(client.get("/first").status(), 200);
    let refused = client.ask(&[GET, HTTP, A, X, ("host", "b")], None).outcome();
    assert!(["400", "rst"].contains(&refused.as_str()), "{refused}");
    assert_eq!(client.get("/second").status(), 200);
}

#[test]
fn a_fragment_does_not_escape_the_limit_of_its_path() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: a, match: { path: /a }, per: ip, rate: 2/hour }]");
    let mut client = H2::connect(gateway.addr());
    let statuses = ["/a#1", "/a#2", "/a#3"].map(|path| client.get(path).outcome());
    assert!(statuses[2] == "429" || statuses.iter().all(|status| status != "200"), "{statuses:?}");
    assert!(origin.lines().iter().all(|line| line == "GET /a HTTP/1.1"), "{:?}", origin.lines());
}

#[test]
fn hop_by_hop_fields_of_an_http1_upstream_do_not_reach_an_http2_client() {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    );
    let gateway = Gateway::before(&origin, "");
    let reply = H2::connect(gateway.addr()).get("/");
    assert_eq!((reply.status(), reply.body.as_slice()), (200, &b"ok"[..]));
    for name in ["connection", "x-hop", "keep-alive", "proxy-connection", "transfer-encoding"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
}
