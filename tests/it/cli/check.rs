//! `tollgate check`: every problem of a file in one go, each with its place and what was probably meant.

use crate::harness::{DEADLINE, Origin, Table, run};
use std::fs;
use std::process::Output;

/// Writes `yaml` to a file and checks it.
fn check(yaml: &str, options: &[&str]) -> Output {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    fs::write(&file, yaml).unwrap();
    let args = [&["check", file.to_str().unwrap()], options].concat();
    run(&args, b"", DEADLINE).expect("check ends")
}

/// Everything it printed.
fn printed(output: &Output) -> String {
    [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat()
}

const GOOD: &str = "listeners:
- { name: public, address: 127.0.0.1:0 }
admin: { address: 127.0.0.1:0 }
limits:
- name: plan
  per: client
  rate: 5/min burst 10
routes:
- name: all
  match: { path: '/{*rest}' }
  upstream: api
upstreams:
  api: { endpoints: [http://127.0.0.1:9001] }
";

#[test]
fn a_good_file_is_exit_code_0() {
    let output = check(GOOD, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
}

#[test]
fn all_problems_come_in_one_go_with_their_place_and_an_excerpt() {
    let bad = GOOD
        .replace("rate: 5/min burst 10", "rate: 5/min burts 10")
        .replace("  per: client", "  per: cleint")
        .replace("upstream: api", "upstream: apy")
        .replace("admin:", "adnim:");
    let output = check(&bad, &[]);
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(65), "{text}");
    for (what, wanted) in [
        ("the unknown key", "adnim"),
        ("its place", "gateway.yaml:3:"),
        ("what was meant", "admin"),
        ("the wrong word", "cleint"),
        ("its place", "gateway.yaml:6:"),
        ("the path of the rate", "limits[0].rate"),
        ("its place", "gateway.yaml:7:"),
        ("an excerpt", "rate: 5/min burts 10"),
        ("the dangling reference", "routes[0].upstream"),
        ("its place", "gateway.yaml:11:"),
    ] {
        assert!(text.contains(wanted), "{what} ({wanted}) is missing in\n{text}");
    }
    assert!(text.matches("did you mean").count() >= 2, "{text}");
}

#[test]
fn json_is_for_editors() {
    let output = check(&GOOD.replace("rate: 5/min burst 10", "rate: 5/fortnight"), &["--format", "json"]);
    assert_eq!(output.status.code(), Some(65));
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed(&output)));
    let list =
        json.as_array().or_else(|| json.as_object()?.values().find_map(serde_json::Value::as_array)).expect("a list of problems");
    assert_eq!(list.len(), 1, "{json}");
    assert_eq!((list[0]["path"].as_str(), list[0]["line"].as_u64()), (Some("limits[0].rate"), Some(7)), "{json}");
    assert!(list[0]["column"].is_u64() && list[0]["message"].is_string(), "{json}");
    let good = check(GOOD, &["--format", "json"]);
    assert_eq!(good.status.code(), Some(0));
    assert!(serde_json::from_slice::<serde_json::Value>(&good.stdout).is_ok());
}

/// What replaces `rate: 5/min burst 10`, or a line of its own, and a word of the complaint.
#[rustfmt::skip]
const WRONG: &[(&str, &str, &str)] = &[
    ("count 0", "rate: 0/min", "rate"),
    ("negative", "rate: -1/min", "rate"),
    ("exponent", "rate: 1e30/min", "rate"),
    ("2^63", "rate: 9223372036854775808/min", "rate"),
    ("2^64", "rate: 18446744073709551616/min", "rate"),
    ("period 0", "rate: 5/0s", "rate"),
    ("too long a period", "rate: 5/400d", "rate"),
    ("no period", "rate: 5", "rate"),
    ("no count", "rate: /min", "rate"),
    ("fraction", "rate: 0.5/s", "rate"),
    ("burst 0", "rate: 5/min burst 0", "rate"),
    ("empty", "rate: ''", "rate"),
    ("a map", "rate: { a: { b: 1 } }", "rate"),
    ("rate and concurrency", "rate: 5/min\n  concurrency: 3", "concurrency"),
    ("neither", "mode: enforce", "rate"),
    ("concurrency 0", "concurrency: 0", "concurrency"),
    ("negative concurrency", "concurrency: -1", "concurrency"),
    ("unknown algorithm", "rate: 5/min\n  algorithm: gcra2", "gcra"),
    ("not yet", "rate: 5/min\n  response: {}", "limits[0].response: not available in this version"),
    ("no store to share with", "rate: 5/min\n  consistency: strict", "limits[0].consistency: there is no shared store"),
    ("unknown key", "rate: 5/min\n  burts: 3", "burts"),
    ("duplicate key", "rate: 5/min\n  rate: 6/min", "rate"),
    ("bad name", "rate: 5/min\n- { name: 'A b', per: ip, rate: 1/s }", "name"),
    ("same name twice", "rate: 5/min\n- { name: plan, per: ip, rate: 1/s }", "plan"),
    ("unknown route", "rate: 5/min\n  match: { routes: nowhere }", "nowhere"),
    ("unknown client", "rate: 5/min\n  match: { clients: nobody }", "nobody"),
    ("unknown tier", "rate: 5/min\n  match: { tiers: gold }", "gold"),
    ("rate of an unknown tier", "rate: { gold: 5/min, default: 1/s }", "gold"),
    ("bad pattern", "rate: 5/min\n  match: { path: 'no-slash' }", "path"),
    ("bad range", "rate: 5/min\n  match: { ips: 10.0.0.0/99 }", "ips"),
    ("cost that never fits", "rate: 5/min\n  cost: 99", "cost"),
    ("a cost that a query would say", "rate: 5/min\n  cost: { graphql: { max_depth: 5 } }", "`graphql` is not available in this version"),
];

#[test]
fn impossible_values_are_refused_with_their_place() {
    let mut table = Table::new("impossible values");
    for (name, line, word) in WRONG {
        let output = check(&GOOD.replace("rate: 5/min burst 10", line), &[]);
        let text = printed(&output);
        let told = output.status.code() == Some(65) && text.contains(word) && text.contains("gateway.yaml:");
        table.row(name, if told { String::new() } else { format!("exit {:?}: {text}", output.status.code()) });
    }
}

/// Other sections: what is replaced, by what, and a word of the complaint.
#[rustfmt::skip]
const WRONG_SECTIONS: &[(&str, &str, &str, &str)] = &[
    ("no listeners", "listeners:\n- { name: public, address: 127.0.0.1:0 }", "listeners: []", "listener"),
    ("no routes", "routes:\n- name: all\n  match: { path: '/{*rest}' }\n  upstream: api", "routes: []", "route"),
    ("bad address", "address: 127.0.0.1:0 }\nadmin", "address: localhost }\nadmin", "address"),
    ("port too large", "address: 127.0.0.1:0 }\nadmin", "address: 127.0.0.1:99999 }\nadmin", "address"),
    ("public admin without a token", "admin: { address: 127.0.0.1:0 }", "admin: { address: 0.0.0.0:0 }", "token"),
    ("bad endpoint", "http://127.0.0.1:9001", "ftp://127.0.0.1", "endpoint"),
    ("endpoint with a path", "http://127.0.0.1:9001", "http://127.0.0.1:9001/x", "endpoint"),
    ("another scheme", "http://127.0.0.1:9001", "ftps://127.0.0.1:9001", "http://host:port or https://host:port"),
    ("tls for clear text", "api: { endpoints", "api: { tls: { insecure: true }, endpoints", "upstreams.api.tls"),
    ("no endpoints", "endpoints: [http://127.0.0.1:9001]", "endpoints: []", "endpoint"),
    ("workers 0", "admin:", "workers: 0\nadmin:", "workers"),
    ("bad trusted proxy", "admin:", "trusted_proxies: [everyone]\nadmin:", "trusted_proxies"),
    ("plain key", "admin:", "clients: [{ id: c, api_keys: [secret] }]\nadmin:", "hash-key"),
    ("same key twice", "admin:", "clients: [{ id: c, api_keys: ['sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'] }, { id: d, api_keys: ['sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'] }]\nadmin:", "clients[1]"),
    ("tls without a certificate", "address: 127.0.0.1:0 }\nadmin", "address: 127.0.0.1:0, tls: {} }\nadmin", "certificates"),
    ("a store without an address", "admin:", "store: { redis: { urls: [] } }\nadmin:", "store.redis.urls: at least one URL is needed"),
    ("websocket keys of later versions", "admin:", "telemetry: { otlp: x }\nadmin:", "not available"),
    ("tabs", "- name: all", "-\tname: all\n\tx: 1", "tab"),
    ("route cost above an unconditional limit's burst", "  upstream: api", "  cost: 99\n  upstream: api", "routes[0].cost"),
    ("balance by what a request doesn't have", "api: { endpoints", "api: { balance: { hash: cookie }, endpoints", "upstreams.api.balance.hash"),
    ("a protocol nobody speaks", "api: { endpoints", "api: { protocol: http3, endpoints", "upstreams.api.protocol"),
    ("a gRPC status that is none of the two", "admin:", "rejection: { grpc_status: ABORTED }\nadmin:", "rejection.grpc_status"),
    ("a path that HTTP/2 has no form for", "  upstream: api", "  rewrite: { path: '/<' }\n  upstream: api", "routes[0].rewrite.path"),
    ("two routes for the same requests", "routes:", "routes:\n- { name: twin, match: { path: '/{*rest}' }, upstream: api }", "routes[1].match"),
    ("one parameter twice", "'/{*rest}'", "'/{x}/{x}'", "routes[0].match.path"),
    ("admin on a listener's address", "127.0.0.1:0 }\nadmin: { address: 127.0.0.1:0 }", "127.0.0.1:8080 }\nadmin: { address: 127.0.0.1:8080 }", "admin.address"),
    ("a listener for no connections", "address: 127.0.0.1:0 }\nadmin", "address: 127.0.0.1:0, max_connections: 0 }\nadmin", "listeners[0].max_connections"),
    ("an upstream for no connections", "api: { endpoints", "api: { max_connections: 0, endpoints", "upstreams.api.max_connections"),
    ("wrong type", "listeners:\n-", "listeners: 5\nx:\n-", "listeners"),
];

#[test]
fn impossible_sections_are_refused_with_their_place() {
    let mut table = Table::new("impossible sections");
    for (name, from, to, word) in WRONG_SECTIONS {
        assert!(GOOD.contains(from), "{name}: {from:?} is not in the file");
        let output = check(&GOOD.replace(from, to), &[]);
        let text = printed(&output);
        let told = output.status.code() == Some(65) && text.contains(word) && text.contains("gateway.yaml");
        table.row(name, if told { String::new() } else { format!("exit {:?}: {text}", output.status.code()) });
    }
}

#[test]
fn a_secret_in_the_file_is_not_repeated_in_a_complaint() {
    let output = check(&format!("{GOOD}clients: [{{ id: c, api_keys: [very-secret-key] }}]\n"), &["--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(65));
    assert!(!json.to_string().contains("\"message\":\"very-secret-key"), "{json}");
}

#[test]
fn running_with_a_bad_file_prints_the_same_and_does_not_start() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    fs::write(&file, GOOD.replace("upstream: api", "upstream: apy")).unwrap();
    let output = run(&["run", "--config", file.to_str().unwrap()], b"", DEADLINE).expect("it does not start");
    assert_ne!(output.status.code(), Some(0));
    assert!(printed(&output).contains("routes[0].upstream"), "{}", printed(&output));
}

#[test]
fn an_address_in_use_is_told_and_ends_it() {
    let origin = Origin::ok();
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    fs::write(&file, GOOD.replace("name: public, address: 127.0.0.1:0", &format!("name: public, address: '{}'", origin.addr())))
        .unwrap();
    let output = run(&["run", "--config", file.to_str().unwrap()], b"", DEADLINE).expect("it does not start");
    assert_ne!(output.status.code(), Some(0));
    let text = printed(&output);
    assert!(text.contains("public"), "{text}");
    assert_eq!(text.matches("in use").count(), 1, "told once:\n{text}");
}

#[test]
fn the_environment_is_substituted_inside_values() {
    let with_default = GOOD.replace("http://127.0.0.1:9001", "'http://127.0.0.1:${TOLLGATE_TEST_UNSET:-9001}'");
    assert_eq!(check(&with_default, &[]).status.code(), Some(0));
    let missing = check(&GOOD.replace("http://127.0.0.1:9001", "'http://127.0.0.1:${TOLLGATE_TEST_UNSET}'"), &[]);
    assert_eq!(missing.status.code(), Some(65));
    assert!(printed(&missing).contains("TOLLGATE_TEST_UNSET"), "{}", printed(&missing));
}
