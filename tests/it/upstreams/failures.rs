//! What is wrong in `balance`, `health` and `outlier`, and what is said about it.

use crate::harness::{DEADLINE, Gateway, Table, run, until};
use std::fs;

/// Keys of an upstream, the path that the complaint names, and a word of it.
#[rustfmt::skip]
const WRONG: &[(&str, &str, &str)] = &[
    ("balance: fastest", "upstreams.origin.balance", "least_requests"),
    ("balance: { hash: cookie }", "upstreams.origin.balance.hash", "client, ip or header:NAME"),
    ("balance: { hash: 'header:' }", "upstreams.origin.balance.hash", "not a header's name"),
    ("balance: { hash: 'header:a b' }", "upstreams.origin.balance.hash", "not a header's name"),
    ("balance: { hash: ip, load_bound: 1 }", "upstreams.origin.balance.load_bound", "more than 1"),
    ("balance: { hash: ip, load_bound: .nan }", "upstreams.origin.balance.load_bound", "more than 1"),
    ("balance: { hash: ip, bound: 2 }", "upstreams.origin.balance", "bound"),
    ("balance: { random: 1 }", "upstreams.origin.balance", "random"),
    ("slow_start: soon", "upstreams.origin.slow_start", "duration"),
    ("panic_below: 150%", "upstreams.origin.panic_below", "share"),
    ("health: { interval: 0s }", "upstreams.origin.health.interval", "more than zero"),
    ("health: { timeout: 0s }", "upstreams.origin.health.timeout", "more than zero"),
    ("health: { healthy_after: 0 }", "upstreams.origin.health.healthy_after", "at least 1"),
    ("health: { unhealthy_after: 0 }", "upstreams.origin.health.unhealthy_after", "at least 1"),
    ("health: { path: healthz }", "upstreams.origin.health.path", "starts with /"),
    ("health: { path: '/a b' }", "upstreams.origin.health.path", "no blanks"),
    ("health: { host: 'a b' }", "upstreams.origin.health.host", "not a host"),
    ("health: { status: [] }", "upstreams.origin.health.status", "no endpoint would ever be well"),
    ("health: { status: [99] }", "upstreams.origin.health.status", "200 to 599"),
    ("health: { body: '' }", "upstreams.origin.health.body", "leave it out"),
    ("health: { type: udp }", "upstreams.origin.health.type", "udp"),
    ("health: { type: tcp, path: / }", "upstreams.origin.health.path", "only type: http has a `path`"),
    ("health: { type: grpc, body: x }", "upstreams.origin.health.body", "only type: http has a `body`"),
    ("health: { service: x }", "upstreams.origin.health.service", "only type: grpc has a `service`"),
    ("health: { pth: / }", "upstreams.origin.health", "pth"),
    ("outlier: { consecutive_failures: 0 }", "upstreams.origin.outlier.consecutive_failures", "at least 1"),
    ("outlier: { eject_for: 0s }", "upstreams.origin.outlier.eject_for", "more than zero"),
    ("outlier: { eject_for: 10m, max_eject_for: 5m }", "upstreams.origin.outlier.max_eject_for", "not be less than"),
    ("outlier: { max_ejected: half }", "upstreams.origin.outlier.max_ejected", "share"),
    ("outlier: { status: [404] }", "upstreams.origin.outlier.status", "5xx"),
    ("outlier: { success_rate: { minimum_requests: 0 } }", "upstreams.origin.outlier.success_rate.minimum_requests", "at least 1"),
    ("outlier: { success_rate: { window: 0s } }", "upstreams.origin.outlier.success_rate.window", "more than zero"),
];

#[test]
fn mistakes_are_named_with_their_place() {
    let gateway = Gateway::start("upstreams: { origin: { builtin: echo } }");
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    let check = |keys: &str| {
        let yaml = format!("upstreams:\n  origin:\n    endpoints: ['http://127.0.0.1:9']\n    {keys}");
        fs::write(&file, gateway.complete(&yaml)).unwrap();
        let output = run(&["check", file.to_str().unwrap()], b"", DEADLINE).expect("check ends");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let mut table = Table::new("mistakes");
    for (keys, path, word) in WRONG {
        let (code, text) = check(keys);
        let told = code == Some(65) && text.contains(path) && text.contains(word) && text.contains("gateway.yaml:4:");
        table.row(keys, if told { String::new() } else { format!("{code:?}: {text}") });
    }
    let all = "balance: { hash: 'header:x-k', load_bound: 1.5 }\n    slow_start: 30s\n    panic_below: 0.5\n    health: { status: [2xx, 404], body: ok, host: a.example }\n    outlier: { success_rate: {}, max_ejected: 1, eject_for: 1h }";
    table.row("everything right", if check(all).0 == Some(0) { String::new() } else { check(all).1 });
}

#[test]
fn an_upstream_that_is_built_in_has_nothing_to_watch() {
    let gateway = Gateway::start("upstreams: { origin: { builtin: echo } }");
    let generation = gateway.generation();
    gateway.replace("upstreams: { origin: { builtin: echo, health: {} } }");
    until("the file is refused", || gateway.log().contains("upstreams.origin.health"));
    assert_eq!(gateway.generation(), generation);
}
