//! `tollgate check` on what a route says of upgrades.

use crate::harness::{DEADLINE, Table, run};
use std::fs;

const FILE: &str = "listeners:
- { name: public, address: 127.0.0.1:0 }
admin: { address: 127.0.0.1:0 }
routes:
- name: all
  upstream: api
upstreams:
  api: { endpoints: [http://127.0.0.1:9001] }
  h2: { endpoints: [http://127.0.0.1:9001], protocol: http2 }
";

/// What stands in place of `upstream: api` in line 6, the line of the problem, its path and what is said.
#[rustfmt::skip]
const WRONG: &[(&str, usize, &str, &str)] = &[
    ("upstream: api\n  upgrade: [h2c]", 7, "routes[0].upgrade[0]", "requests inside of `h2c` would pass by every limit"),
    ("upstream: api\n  upgrade: [websocket, TLS/1.0]", 7, "routes[0].upgrade[1]", "would pass by every limit"),
    ("upstream: api\n  upgrade: [HTTP/2.0]", 7, "routes[0].upgrade[0]", "would pass by every limit"),
    ("upstream: api\n  upgrade: ['web socket']", 7, "routes[0].upgrade[0]", "`web socket` is not a protocol"),
    ("upstream: api\n  upgrade: [a//b]", 7, "routes[0].upgrade[0]", "is not a protocol"),
    ("upstream: api\n  upgrade: ['']", 7, "routes[0].upgrade[0]", "is not a protocol"),
    ("upstream: api\n  upgrade: [a/1, A/1]", 7, "routes[0].upgrade[1]", "`A/1` is there already"),
    ("upstream: api\n  upgrade: []\n  websocket: { messages: 5/s }", 8, "routes[0].websocket", "`websocket` is not in its `upgrade`"),
    ("upstream: api\n  websocket: {}", 7, "routes[0].websocket", "at least one of messages, bytes and max_message"),
    ("upstream: api\n  websocket: { message: 5/s }", 7, "routes[0].websocket.message", "did you mean `messages`?"),
    ("upstream: api\n  websocket: { messages: 0/s }", 7, "routes[0].websocket.messages", "must be at least 1"),
    ("upstream: api\n  websocket: { bytes: 5MiB }", 7, "routes[0].websocket.bytes", "`5MiB` is not a rate of bytes"),
    ("upstream: api\n  websocket: { bytes: 1TiB/s }", 7, "routes[0].websocket.bytes", "not a size"),
    ("upstream: api\n  websocket: { bytes: 2GiB/s }", 7, "routes[0].websocket.bytes", "cannot be counted"),
    ("upstream: api\n  websocket: { max_message: 0 }", 7, "routes[0].websocket.max_message", "must be at least 1 byte"),
    ("upstream: api\n  timeouts: { tunnel_idle: 0s }", 7, "routes[0].timeouts.tunnel_idle", "must be more than zero"),
    ("upstream: h2\n  upgrade: [websocket]", 7, "routes[0].upgrade", "`protocol: http2`, which has no upgrades"),
    ("upstream: h2\n  websocket: { max_message: 1 }", 7, "routes[0].websocket", "`auto` speaks HTTP/1.1 for upgrades"),
    ("respond: { status: 204 }\n  upgrade: [websocket]", 7, "routes[0].upgrade", "only a route with an `upstream` has upgrades"),
    ("respond: { status: 204 }\n  websocket: { max_message: 1 }", 7, "routes[0].websocket", "only a route with an `upstream` has upgrades"),
];

const RIGHT: &[&str] = &[
    "upstream: api\n  upgrade: websocket",
    "upstream: api\n  upgrade: []",
    "upstream: api\n  upgrade: [websocket, chat/2]\n  timeouts: { tunnel_idle: 5m }",
    "upstream: api\n  websocket: { messages: 50/s burst 100, bytes: 1MiB/s burst 4MiB, max_message: 64KiB }",
    "upstream: api\n  websocket: { messages: unlimited }",
    "upstream: h2",
    "upstream: h2\n  upgrade: []",
];

#[test]
fn mistakes_in_upgrades_are_told_with_their_place() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("gateway.yaml");
    let check = |route: &str| {
        fs::write(&path, FILE.replace("upstream: api", route)).unwrap();
        let output = run(&["check", path.to_str().unwrap(), "--format", "json"], b"", DEADLINE).unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let mut table = Table::new("mistakes");
    for (route, line, at, says) in WRONG {
        let (valid, said) = check(route);
        let problems: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        let found = problems.as_array().is_some_and(|problems| {
            problems.iter().any(|problem| {
                let text = format!("{} {}", problem["message"], problem["hint"]).replace("\\\"", "\"");
                problem["path"] == **at && problem["line"] == *line && text.contains(says)
            })
        });
        table.row(route, if found && !valid { String::new() } else { said });
    }
    for route in RIGHT {
        let (valid, said) = check(route);
        table.row(route, if valid { String::new() } else { said });
    }
}
