//! Costs that the response says somewhere in its JSON. Something is reserved until then.

use super::{ALGORITHMS, DAY, about, answered, ask, remaining, reply, reset, retry_after, table_origin};
use crate::harness::{Gateway, Latch, Next, Origin, Reply, Table, crlf, exchange, happens, together, until};
use std::time::Duration;

fn json(head: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {head}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn chunked(kind: &str, size: usize, body: &str) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n").into_bytes();
    for part in body.as_bytes().chunks(size) {
        bytes.extend(format!("{:x}\r\n", part.len()).into_bytes());
        bytes.extend(part);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

fn coded(coding: &str) -> Vec<u8> {
    let answer = String::from_utf8(json("200 OK", r#"{"usage":{"total_tokens":7}}"#)).unwrap();
    answer.replace("Content-Length", &format!("Content-Encoding: {coding}\r\nContent-Length")).into_bytes()
}

const CHAT: &str = r#"{"choices":[{"text":"usage: {\"total_tokens\": 44}"}],"usage":{"prompt_tokens":4,"total_tokens":11}}"#;
const EVENTS: &str = "data: {\"choices\":[{}],\"usage\":null}\n\n: ping\n\nevent: x\ndata: {\"usage\":{\"total_tokens\":2}}\n\n\
data: {\"choices\":[],\"usage\":{\"total_tokens\":12}}\n\ndata: [DONE]\n\n";

/// Name, the whole answer, what it costs.
fn bodies() -> Vec<(&'static str, Vec<u8>, u64)> {
    let plain = |body: &str| json("200 OK", body);
    let tokens = |value: &str| json("200 OK", &format!("{{\"usage\":{{\"total_tokens\":{value}}}}}"));
    let without = |remove: &str| String::from_utf8(plain(CHAT)).unwrap().replace(remove, "").into_bytes();
    let events = |text: &str| chunked("text/event-stream; charset=utf-8", 1000, text);
    let cut =
        |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{body}").into();
    let cut_chunked = |body: &str| {
        let whole = chunked("application/json", 1000, body);
        whole[..whole.len() - 5].to_vec()
    };
    vec![
        ("plain", plain(CHAT), 11),
        ("json by suffix", String::from_utf8(plain(CHAT)).unwrap().replace("/json", "/vnd.x+json; v=1").into(), 11),
        ("chunked", chunked("application/json", 1000, CHAT), 11),
        ("chunks of a byte", chunked("application/json", 1, CHAT), 11),
        ("until the connection ends", without(&format!("Content-Length: {}\r\n", CHAT.len())), 11),
        ("pretty", plain("{\n  \"usage\" : {\r\n\t\"total_tokens\" : 6 } }\n"), 6),
        ("escaped key", plain(r#"{"us\u0061ge":{"total_tokens":8}}"#), 8),
        ("twice", plain(r#"{"usage":{"total_tokens":8},"usage":{"total_tokens":9}}"#), 9),
        ("events", events(EVENTS), 12),
        ("events in chunks of a byte", chunked("text/event-stream", 1, EVENTS), 12),
        ("events with CRLF", events(&EVENTS.replace('\n', "\r\n")), 12),
        ("events without the number", events("data: {\"choices\":[]}\n\ndata: [DONE]\n\n"), 3),
        ("above the maximum", tokens("51"), 50),
        ("beyond 64 bits", tokens("99999999999999999999999"), 50),
        ("nothing", tokens("0"), 0),
        ("a fraction", tokens("6.2"), 7),
        ("an exponent", tokens("1.2e1"), 12),
        ("negative", tokens("-6"), 3),
        ("a string", tokens("\"6\""), 3),
        ("null", tokens("null"), 3),
        ("another place", plain(r#"{"total_tokens":6,"data":{"usage":{"total_tokens":6}}}"#), 3),
        ("no JSON", plain("usage.total_tokens = 6"), 3),
        ("empty", plain(""), 3),
        ("another type", String::from_utf8(plain(CHAT)).unwrap().replace("application/json", "text/html").into(), 3),
        ("no type", without("Content-Type: application/json\r\n"), 3),
        ("gzip", coded("gzip"), 3),
        ("br and gzip", coded("br, gzip"), 3),
        ("identity", coded("identity"), 7),
        ("an error that says", json("500 Oops", CHAT), 11),
        ("204", b"HTTP/1.1 204 No Content\r\nContent-Type: application/json\r\n\r\n".to_vec(), 3),
        ("304", b"HTTP/1.1 304 Not Modified\r\nContent-Type: application/json\r\n\r\n".to_vec(), 3),
        ("cut behind the number", cut(&format!("{CHAT}   ")), 11),
        ("cut before the number", cut(r#"{"usage":{"total_"#), 3),
        ("cut within the number", cut(r#"{"usage":{"total_tokens":12"#), 3),
        ("chunks cut behind the number", cut_chunked(CHAT), 11),
        ("no answer", b"".to_vec(), 3),
        ("half a head", b"HTTP/1.1 200 OK\r\nContent-Ty".to_vec(), 3),
    ]
}

#[test]
fn a_number_in_the_body_says_the_cost_however_the_body_comes() {
    let rows = bodies();
    let origin = table_origin(rows.iter().map(|(name, answer, _)| (*name, answer.clone())).collect());
    let limit = "{ name: tokens, per: { header: x-key }, rate: 100/day,
  cost: { response_json: usage.total_tokens, reserve: 3, max: 50 } }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    let mut table = Table::new("costs in a body");
    let metric = |name: &str| gateway.metric(name, &[("limit", "tokens")]) as u64;
    let mut settled = 0;
    for (key, (name, _, cost)) in rows.iter().enumerate() {
        match reply(&gateway, key, "GET", name) {
            Reply::Response(response) => {
                table.outcome(&format!("{name}, meanwhile"), "Some(97)", &format!("{:?}", remaining(&response)));
            }
            // What breaks off at once may take its head along.
            other => table.outcome(name, if name.contains("cut") { "closed|reset" } else { "200" }, &other.outcome()),
        }
        settled += cost;
        let _ends = happens(Duration::from_secs(1), || metric("tollgate_settled_cells_total") == settled);
        let seen = metric("tollgate_settled_cells_total");
        table.outcome(&format!("{name}, settled"), &cost.to_string(), &(seen + cost - settled).to_string());
        settled = seen;
        let next = answered(&gateway, key, "GET", "none");
        table.outcome(&format!("{name}, next"), &format!("{:?}", Some(97 - cost)), &format!("{:?}", remaining(&next)));
        settled += 3;
        until("the next is settled", || metric("tollgate_settled_cells_total") == settled);
    }
    assert_eq!(metric("tollgate_reserved_cells_total"), 3 * 2 * rows.len() as u64);
    let seen = origin.seen();
    assert!(seen.iter().all(|seen| seen.header("accept-encoding").is_none()), "upstream must answer in plain text");
}

#[test]
fn a_body_may_come_byte_by_byte() {
    let answers = [("plain", json("200 OK", CHAT), 11), ("events", chunked("text/event-stream", 7, EVENTS), 12)];
    for (name, answer, cost) in answers {
        let length = answer.len();
        let origin = Origin::new(move |call| {
            call.body();
            let sent = answer.iter().all(|byte| {
                // A write of its own for each, and now and then enough time to be read alone.
                std::thread::sleep(Duration::from_micros(50));
                call.send([*byte])
            });
            if sent { Next::Keep } else { Next::Close }
        });
        let limit = "{ name: x, per: ip, rate: 100/day, cost: { response_json: usage.total_tokens, reserve: 3 } }";
        let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
        assert_eq!(gateway.get("/").status, 200, "{name} of {length} bytes");
        until("it is settled", || gateway.metric("tollgate_settled_cells_total", &[]) == cost as f64);
        assert_eq!(remaining(&gateway.get("/")), Some(97 - cost), "{name}");
    }
}

#[test]
fn only_responses_that_are_read_are_asked_for_in_plain_text() {
    let origin = Origin::ok();
    let config = "limits:
- { name: tokens, match: { path: /chat }, per: ip, rate: 100/day, cost: { response_json: n } }
- { name: watched, match: { path: /shadow }, per: ip, rate: 100/day, mode: shadow, cost: { response_json: n } }
- { name: header, match: { path: /header }, per: ip, rate: 100/day, cost: { response_header: n } }";
    let gateway = Gateway::before(&origin, config);
    let rows = [("/chat", None), ("/shadow", None), ("/header", Some("gzip;q=0.8")), ("/other", Some("gzip;q=0.8"))];
    for (n, (path, expected)) in rows.into_iter().enumerate() {
        assert_eq!(ask(&gateway, path, "Accept-Encoding: gzip;q=0.8\n").status, 200);
        assert_eq!(origin.wait(n + 1).header("accept-encoding"), expected, "{path}");
    }
}

#[test]
fn head_costs_what_was_reserved() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n");
    let limit = "{ name: tokens, per: { header: x-key }, rate: 100/day, cost: { response_json: a, reserve: 3 } }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    for left in [97, 94] {
        assert_eq!(remaining(&answered(&gateway, 1, "HEAD", "")), Some(left));
    }
    until("both are settled", || gateway.metric("tollgate_settled_cells_total", &[("limit", "tokens")]) == 6.0);
}

#[test]
fn a_response_may_cost_more_than_is_left_and_then_the_client_waits() {
    let origin = table_origin(vec![("thirty", json("200 OK", r#"{"n":30}"#))]);
    let mut table = Table::new("debts");
    for name in ALGORITHMS {
        let limit =
            format!("{{ name: x, per: ip, rate: 10/day, algorithm: {name}, cost: {{ response_json: n, reserve: 3, max: 50 }} }}");
        let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
        assert_eq!(answered(&gateway, 0, "GET", "thirty").status, 200);
        until("it is settled", || gateway.metric("tollgate_settled_cells_total", &[]) == 30.0);
        let refused = answered(&gateway, 0, "GET", "thirty");
        let (wait, expected) = (retry_after(&refused).unwrap_or(0), expected_wait(name, reset(&refused)));
        let holds = (refused.status, remaining(&refused)) == (429, Some(0)) && about(wait, expected);
        table.row(name, if holds { String::new() } else { format!("Retry-After {wait}, not {expected}: {refused:?}") });
        assert_eq!(gateway.metric("tollgate_reserved_cells_total", &[]), 3.0, "{name}: who is refused reserves nothing");
    }
}

/// After 30 of 10 a day, for a request that reserves 3.
fn expected_wait(algorithm: &str, reset: u64) -> u64 {
    match algorithm {
        "sliding_log" => DAY,
        "fixed_window" => reset,
        // What is beyond the quota fades no later than the quota itself.
        "sliding_window" => reset - DAY * 7 / 10,
        _ => (30 + 3 - 10) * DAY / 10,
    }
}

#[test]
fn parallel_requests_reserve_first_so_that_no_more_are_let_in_than_fit() {
    for name in ALGORITHMS {
        let door = Latch::default();
        let behind = door.clone();
        let origin = Origin::new(move |call| {
            behind.wait();
            call.answer(&json("200 OK", r#"{"n":1}"#))
        });
        let limit = format!("{{ name: x, per: ip, rate: 10/day, algorithm: {name}, cost: {{ response_json: n, reserve: 3 }} }}");
        let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
        let statuses = std::thread::scope(|scope| {
            let all = scope.spawn(|| together(12, |_| exchange(gateway.addr(), crlf("GET / HTTP/1.1\nHost: a\n\n")).status()));
            until("nine are refused", || gateway.metric("tollgate_limited_total", &[]) == 9.0);
            door.open();
            all.join().unwrap()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 3, "{name}: {statuses:?}");
        until("three cells are settled", || gateway.metric("tollgate_settled_cells_total", &[]) == 3.0);
        assert_eq!(remaining(&ask(&gateway, "/", "")), Some(4), "{name}: 7 are left and 3 are reserved");
    }
}
