//! Keys and tokens that end at the gateway.

use super::get;
use crate::harness::{Gateway, H2, Origin, Table, field, fields, hashed};

const SECRET: &str = "a-secret-of-at-least-thirty-two-bytes";

fn config(strip_keys: bool, strip_tokens: bool) -> String {
    format!(
        "identity:
  api_key: {{ sources: [{{ header: x-api-key }}, bearer, {{ query: key }}, {{ cookie: key }}], unknown: anonymous, strip: {strip_keys} }}
  user: {{ jwt: {{ sources: [bearer, {{ cookie: token }}], keys: {{ secret: {SECRET} }}, invalid: anonymous, strip: {strip_tokens} }} }}
clients: [{{ id: a, api_keys: ['{}'] }}]",
        hashed("k1")
    )
}

/// Target and fields of a request; the target and the lines that must, and the text that must not, reach upstream.
type Row = (&'static str, &'static str, &'static str, &'static [&'static str], &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("/", "x-api-key: k1\n", "/", &[], "k1"),
    ("/", "X-API-KEY: unknown\n", "/", &[], "unknown"),
    ("/", "authorization: Bearer k1\n", "/", &[], "authorization"),
    ("/", "authorization: Basic abc\n", "/", &["authorization: basic abc"], "k1"),
    ("/", "authorization: Bearer a.b.c\n", "/", &["authorization: bearer a.b.c"], "k1"),
    ("/?key=k1", "", "/", &[], "k1"),
    ("/?a=1&key=k1&b=%20", "", "/?a=1&b=%20", &[], "k1"),
    ("/?k%65y=k1&a", "", "/?a", &[], "k1"),
    ("/?keys=1&key=k1", "", "/?keys=1", &[], "k1"),
    ("/", "cookie: key=k1\n", "/", &[], "cookie"),
    ("/", "cookie: a=1; key=k1; b=2\n", "/", &["cookie: a=1; b=2"], "k1"),
    ("/", "cookie: a=1\ncookie: key=k1;c=3\n", "/", &["cookie: a=1; c=3"], "k1"),
    ("/", "cookie: keys=1;token=a.b.c\n", "/", &["cookie: keys=1;token=a.b.c"], "k1"),
    ("/?key=second", "x-api-key: k1\ncookie: key=third\n", "/", &[], "second"),
    ("/?a=key=x", "", "/?a=key=x", &[], "k1"),
    ("/?a=1;key=k1&b", "", "/?a=1;b", &[], "k1"),
    ("/?+key=k1", "", "/", &[], "k1"),
    ("/", "authorization: Bearer\tk1\n", "/", &[], "authorization"),
    ("/", "cookie: a=1; key =k1; b=2\n", "/", &["cookie: a=1; b=2"], "k1"),
    ("/", "cookie: a=1; key=\"k1\"\n", "/", &["cookie: a=1"], "k1"),
    ("/", "cookie: a=1; c=3, key=k1; b=2\n", "/", &["cookie: a=1; b=2"], "k1"),
    ("/", "x-api-key: k1\ncookie: key=\"k; k1\"; b=2\n", "/", &["cookie: b=2"], "k1"),
];

#[test]
fn keys_are_taken_out_wherever_they_stand() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config(true, false));
    check("stripped keys", &gateway, &origin, ROWS);
}

fn check(title: &'static str, gateway: &Gateway, origin: &Origin, rows: &[Row]) {
    let mut table = Table::new(title);
    for (target, sent, forwarded, lines, never) in rows {
        origin.forget();
        let status = get(gateway, target, sent).status;
        table.outcome(&format!("{target} {sent:?}"), "200", &status.to_string());
        let seen = origin.wait(1);
        let wire = String::from_utf8_lossy(&seen.wire).to_lowercase();
        let head = wire.replace(&format!("host: {}", origin.addr()), "");
        let is_right = seen.line == format!("GET {forwarded} HTTP/1.1")
            && lines.iter().all(|line| head.contains(&format!("\r\n{line}\r\n")))
            && !head.contains(never);
        table.row(&format!("{target} {sent:?}"), if is_right { String::new() } else { head });
    }
}

#[test]
fn tokens_are_taken_out_and_keys_stay() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config(false, true));
    #[rustfmt::skip]
    let rows: &[Row] = &[
        ("/", "authorization: Bearer a.b.c\n", "/", &[], "a.b.c"),
        ("/", "authorization: Bearer k1\n", "/", &["authorization: bearer k1"], "a.b.c"),
        ("/", "cookie: token=a.b.c; key=k1\n", "/", &["cookie: key=k1"], "a.b.c"),
        ("/?key=k1", "x-api-key: k1\ncookie: token=x\n", "/?key=k1", &["x-api-key: k1"], "token"),
    ];
    check("stripped tokens", &gateway, &origin, rows);
}

#[test]
fn by_default_everything_is_forwarded() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config(false, false));
    get(&gateway, "/?key=k1", "x-api-key: k1\nauthorization: Bearer k1\ncookie: key=k1;a=1\n");
    let seen = origin.wait(1);
    assert_eq!(seen.line, "GET /?key=k1 HTTP/1.1");
    assert_eq!(
        ["x-api-key", "authorization", "cookie"].map(|name| field(&seen.headers, name)),
        [Some("k1"), Some("Bearer k1"), Some("key=k1;a=1")]
    );
}

#[test]
fn cookies_of_http2_are_taken_out_too() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config(true, true));
    let head = [(":method", "GET"), (":scheme", "http"), (":path", "/?key=k1"), (":authority", "a")];
    let cookies = [("cookie", "a=1"), ("cookie", "key=k1"), ("cookie", "token=a.b.c"), ("cookie", "b=2")];
    assert_eq!(H2::connect(gateway.addr()).ask(&[&head[..], &cookies[..]].concat(), None).status(), 200);
    let seen = origin.wait(1);
    assert_eq!((seen.line.as_str(), fields(&seen.headers, "cookie")), ("GET / HTTP/1.1", vec!["a=1; b=2"]));
}
