//! What is wrong in `retry`, `max_requests` and `max_pending`, and what is said about it.

use crate::harness::{DEADLINE, Gateway, Table, run};
use std::fs;

/// Keys of an upstream, the path that the complaint names, and a word of it.
#[rustfmt::skip]
const WRONG: &[(&str, &str, &str)] = &[
    ("retry: 3", "upstreams.origin.retry", "a map of keys"),
    ("retry: { tries: 3 }", "upstreams.origin.retry", "tries"),
    ("retry: { attempts: 0 }", "upstreams.origin.retry.attempts", "from 1 to 10"),
    ("retry: { attempts: 11 }", "upstreams.origin.retry.attempts", "from 1 to 10"),
    ("retry: { on: [] }", "upstreams.origin.retry.on", "no outcome"),
    ("retry: { on: [conect] }", "upstreams.origin.retry.on", "connect, reset"),
    ("retry: { on: [timeout] }", "upstreams.origin.retry.on", "per_try"),
    ("retry: { on: [404] }", "upstreams.origin.retry.on", "only 5xx, 408, 425 and 429"),
    ("retry: { on: [4xx] }", "upstreams.origin.retry.on", "only 5xx, 408, 425 and 429"),
    ("retry: { on: [99] }", "upstreams.origin.retry.on", "200 to 599"),
    ("retry: { budget: 120% }", "upstreams.origin.retry.budget", "share"),
    ("retry: { backoff: 250ms..25ms }", "upstreams.origin.retry.backoff", "not be longer"),
    ("retry: { backoff: 25..ms }", "upstreams.origin.retry.backoff", "duration"),
    ("retry: { backoff: 1s..2m }", "upstreams.origin.retry.backoff", "a minute"),
    ("retry: { max_wait: 2m }", "upstreams.origin.retry.max_wait", "a minute"),
    ("retry: { per_try: 0s }", "upstreams.origin.retry.per_try", "more than zero"),
    ("retry: { max_body: 1GiB }", "upstreams.origin.retry.max_body", "16MiB"),
    ("max_requests: 0", "upstreams.origin.max_requests", "at least 1"),
    ("max_pending: many", "upstreams.origin.max_pending", "many"),
];

#[test]
fn mistakes_are_named_with_their_place() {
    let gateway = Gateway::start("upstreams: { origin: { builtin: echo } }");
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    let check = |endpoints: &str, keys: &str| {
        fs::write(&file, gateway.complete(&format!("upstreams:\n  origin:\n    {endpoints}\n    {keys}"))).unwrap();
        let output = run(&["check", file.to_str().unwrap()], b"", DEADLINE).expect("check ends");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let mut table = Table::new("mistakes");
    let some = "endpoints: ['http://127.0.0.1:9']";
    for (keys, path, word) in WRONG {
        let (code, text) = check(some, keys);
        let told = code == Some(65) && text.contains(path) && text.contains(word) && text.contains("gateway.yaml:4:");
        table.row(keys, if told { String::new() } else { format!("{code:?}: {text}") });
    }
    for key in ["retry: {}", "max_requests: 5", "max_pending: 5"] {
        let (code, text) = check("builtin: echo", key);
        let told = code == Some(65) && text.contains("neither fails nor fills up");
        table.row(&format!("built in, {key}"), if told { String::new() } else { format!("{code:?}: {text}") });
    }
    for right in [
        "retry: { attempts: 2, on: [connect, reset, 502, 503, 504], budget: 20%, backoff: 25ms..250ms }",
        "retry: { on: 5xx, per_try: 1s, max_wait: 0s, max_body: 0, max_bodies: 1MiB, min_per_second: 0, backoff: 0s }",
        "retry: { on: [429, 408, 425, grpc-unavailable, grpc-resource-exhausted], backoff: 10ms .. 1s }",
        "max_requests: 100\n    max_pending: 10",
    ] {
        let (code, text) = check(some, right);
        table.row(right, if code == Some(0) { String::new() } else { text });
    }
}
