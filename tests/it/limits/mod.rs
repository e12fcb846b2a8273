//! What `gateway.yaml` can say about limits: algorithms, costs, settlements, delays, calendars, schedules, warm-up and room.
//!
//! Periods are days wherever a test counts: a day's window does not end while it runs, and what drains meanwhile is less than a
//! second of 86400.

mod algorithms;
mod calendars;
mod delays;
mod endings;
mod mistakes;
mod queues;
mod reloads;
mod request_costs;
mod response_costs;
mod response_headers;
mod rooms;
mod schedules;
mod slots;
mod statuses;
mod warmups;

use crate::harness::{Gateway, Next, Origin, Reply, Response, crlf, exchange, fields};

/// Every algorithm's name.
const ALGORITHMS: [&str; 6] = ["gcra", "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log"];
/// Those that drain at the rate.
const BUCKETS: [&str; 3] = ["gcra", "token_bucket", "leaky_bucket"];
const DAY: u64 = 86_400;

/// `GET target` with these fields, each of which ends in a newline, on a connection of its own.
fn ask(gateway: &Gateway, target: &str, fields: &str) -> Response {
    exchange(gateway.addr(), crlf(&format!("GET {target} HTTP/1.1\nHost: a\n{fields}\n"))).response()
}

/// The number in a field.
fn number(response: &Response, name: &str) -> Option<u64> {
    response.header(name).map(|value| value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
}

fn remaining(response: &Response) -> Option<u64> {
    number(response, "x-ratelimit-remaining")
}

/// Seconds until all is there again.
fn reset(response: &Response) -> u64 {
    number(response, "x-ratelimit-reset").expect("the response says when its limit is reset")
}

fn retry_after(response: &Response) -> Option<u64> {
    number(response, "retry-after")
}

/// Whether a number of seconds is what it would be had the test taken no time; it may have taken some.
fn about(seconds: u64, expected: u64) -> bool {
    (expected.saturating_sub(3)..=expected).contains(&seconds)
}

/// Answers as the target says: `/503` with that status, all else with 200.
fn status_origin() -> Origin {
    Origin::new(|call| {
        let status: u16 = call.target().trim_start_matches('/').parse().unwrap_or(200);
        call.answer(format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n").as_bytes())
    })
}

/// Answers with exactly the bytes that the request's `x-answer` names in this table, and closes.
fn table_origin(answers: Vec<(&'static str, Vec<u8>)>) -> Origin {
    Origin::new(move |call| {
        if !call.body() {
            return Next::Close;
        }
        let seen = call.seen();
        let wanted = fields(&seen.headers, "x-answer").concat();
        match answers.iter().find(|(name, _)| *name == wanted) {
            Some((_, answer)) => call.send(answer),
            None => call.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        };
        Next::Close
    })
}

/// Answers with `name`'s answer; counted under `key`.
fn answered(gateway: &Gateway, key: usize, method: &str, name: &str) -> Response {
    reply(gateway, key, method, name).response()
}

fn reply(gateway: &Gateway, key: usize, method: &str, name: &str) -> Reply {
    let request = format!("{method} / HTTP/1.1\nHost: a\nx-key: {key}\nx-answer: {name}\nAccept-Encoding: gzip, br\n\n");
    let mut client = gateway.client();
    client.send(crlf(&request));
    client.receive_to(method)
}
