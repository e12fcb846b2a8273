//! RFC 9113 §8.1 to §8.5: requests that are malformed as a whole. What single fields may be is in `standards::h2_requests`.

use super::*;

/// Sends a GET of these fields, whole.
fn fields(client: &mut H2, fields: &[(&str, &str)]) {
    client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &header_block(fields));
}

/// Sends the head of a POST with these fields besides its own.
fn post(client: &mut H2, more: &[(&str, &str)]) {
    let own = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/x")];
    client.frame(kind::HEADERS, flag::END_HEADERS, 1, &header_block(&[&own, more].concat()));
}

fn trailers(client: &mut H2, fields: &[(&str, &str)]) {
    client.frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &header_block(fields));
}

const M: (&str, &str) = (":method", "GET");
const S: (&str, &str) = (":scheme", "http");
const A: (&str, &str) = (":authority", "a");
const P: (&str, &str) = (":path", "/x");

#[rustfmt::skip]
const PSEUDO: &[Row] = &[
    ("two :method", |c| fields(c, &[M, M, S, A, P]), Malformed(1)),
    ("two :scheme", |c| fields(c, &[M, S, S, A, P]), Malformed(1)),
    ("two :authority", |c| fields(c, &[M, S, A, A, P]), Malformed(1)),
    ("two :path", |c| fields(c, &[M, S, A, P, P]), Malformed(1)),
    ("any order", |c| { fields(c, &[P, A, S, M]); answered(c, 1); }, Fine),
    ("a field between pseudo fields", |c| fields(c, &[M, S, ("y", "1"), A, P]), Malformed(1)),
    ("an upper-case pseudo field", |c| fields(c, &[(":Method", "GET"), S, A, P]), Malformed(1)),
    ("CONNECT with a scheme and a path", |c| fields(c, &[(":method", "CONNECT"), S, A, P]), Malformed(1)),
    ("CONNECT without an authority", |c| fields(c, &[(":method", "CONNECT")]), Malformed(1)),
    ("only a field", |c| fields(c, &[("y", "1")]), Malformed(1)),
];

#[rustfmt::skip]
const TRAILERS: &[Row] = &[
    ("trailers", |c| { post(c, &[]); c.data(1, b"body", false); trailers(c, &[("x-sum", "1")]); answered(c, 1); }, Fine),
    ("trailers behind nothing", |c| { post(c, &[]); trailers(c, &[("x-sum", "1")]); answered(c, 1); }, Fine),
    ("trailers that end nothing", |c| { post(c, &[]); c.data(1, b"body", false); c.frame(kind::HEADERS, flag::END_HEADERS, 1, &header_block(&[("x-sum", "1")])); }, Stream(1, PROTOCOL)),
    ("an upper-case name in trailers", |c| { post(c, &[]); c.data(1, b"body", false); trailers(c, &[("X-Sum", "1")]); }, Malformed(1)),
    ("CRLF in trailers", |c| { post(c, &[]); c.data(1, b"body", false); trailers(c, &[("x-sum", "1\r\nx: y")]); }, Malformed(1)),
    ("connection in trailers", |c| { post(c, &[]); c.data(1, b"body", false); trailers(c, &[("connection", "close")]); }, Malformed(1)),
    ("transfer-encoding in trailers", |c| { post(c, &[]); c.data(1, b"body", false); trailers(c, &[("transfer-encoding", "chunked")]); }, Malformed(1)),
    ("DATA behind trailers", |c| { begin(c, 1, "/stall"); trailers(c, &[("x-sum", "1")]); c.data(1, b"body", true); }, Stream(1, CLOSED)),
];

#[rustfmt::skip]
const LENGTHS: &[Row] = &[
    ("as announced, in pieces", |c| { post(c, &[("content-length", "8")]); c.data(1, b"1234", false); c.data(1, b"5678", true); answered(c, 1); }, Fine),
    ("padding does not count", |c| { post(c, &[("content-length", "3")]); c.frame(kind::DATA, flag::END_STREAM | flag::PADDED, 1, b"\x03abc\0\0\0"); answered(c, 1); }, Fine),
    ("a length and no body at all", |c| fields(c, &[M, S, A, P, ("content-length", "5")]), Malformed(1)),
    ("too much in the second piece", |c| { post(c, &[("content-length", "8")]); c.data(1, b"1234", false); c.data(1, b"56789", true); }, Malformed(1)),
    ("too little in two", |c| { post(c, &[("content-length", "9")]); c.data(1, b"1234", false); c.data(1, b"5678", true); }, Malformed(1)),
    ("too little before trailers", |c| { post(c, &[("content-length", "9")]); c.data(1, b"1234", false); trailers(c, &[("x-sum", "1")]); }, Malformed(1)),
    ("different lengths", |c| { post(c, &[("content-length", "4"), ("content-length", "5")]); c.data(1, b"1234", true); }, Malformed(1)),
    ("an empty length", |c| { post(c, &[("content-length", "")]); c.data(1, b"1234", true); }, Malformed(1)),
    ("an enormous length", |c| { post(c, &[("content-length", "99999999999999999999")]); c.data(1, b"1234", true); }, Malformed(1)),
];

#[test]
fn pseudo_fields_come_once_and_first() {
    run("pseudo fields", PSEUDO);
}

#[test]
fn trailers_end_the_stream_and_are_fields() {
    run("trailers", TRAILERS);
}

/// Malformed, strictly. The library drops the field and goes on, which is as good: nobody ever sees it.
#[test]
fn a_pseudo_field_in_trailers_reaches_nobody() {
    let bench = Bench::new();
    for (way, dial) in &bench.ways {
        bench.origin.forget();
        let mut client = bench.connect(dial.as_ref());
        post(&mut client, &[]);
        client.data(1, b"body", false);
        trailers(&mut client, &[(":path", "/y"), ("x-sum", "1")]);
        let outcome = client.receive(1).outcome();
        assert!(["200", "400", "rst", "goaway"].contains(&outcome.as_str()), "{way}: {outcome}");
        for seen in bench.origin.seen() {
            assert!(seen.line == "POST /x HTTP/1.1" && seen.trailers.iter().all(|(name, _)| name == "x-sum"), "{way}: {seen:?}");
        }
    }
}

#[test]
fn data_is_as_long_as_was_announced() {
    run("lengths", LENGTHS);
}

/// SM-5 with the bytes that count: what an attacker hides in DATA behind a short length never becomes a request.
#[test]
fn what_is_beyond_the_length_never_reaches_the_upstream_as_a_request() {
    let bench = Bench::new();
    let hidden = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    for (way, dial) in &bench.ways {
        for length in ["0", "4"] {
            let mut client = bench.connect(dial.as_ref());
            post(&mut client, &[("content-length", length)]);
            client.data(1, &[&b"four"[..usize::from(length != "0") * 4], hidden].concat(), true);
            let reply = client.receive(1);
            assert!(reply.status != Some(200), "{way}: {reply:?}");
        }
        let seen = crate::harness::reached(&bench.gateway, &bench.origin);
        assert!(seen.iter().all(|seen| !seen.complete() && !seen.line.contains("smuggled")), "{way}: {seen:?}");
    }
}
