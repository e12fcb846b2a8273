//! `tollgate check` on what a file says about the shared store: every mistake with its place, and no secret.

use crate::harness::{DEADLINE, Table, run};
use std::fs;

/// `STORE` is line 3, `LIMIT` line 5.
const FILE: &str = "listeners: [{ name: public, address: 127.0.0.1:0 }]
admin: { address: 127.0.0.1:0 }
STORE
limits:
- { name: plan, per: client, LIMIT }
routes: [{ name: all, match: { path: '/{*rest}' }, respond: { status: 200, body: ok } }]
upstreams: {}
";
const REDIS: &str = "store: { redis: { urls: 'redis://127.0.0.1:6379' } }";
const RATE: &str = "rate: 5/min";

/// The store, the limit, the line of the problem, its path and what is said.
type Row = (&'static str, &'static str, usize, &'static str, &'static str);

#[rustfmt::skip]
const WRONG: &[Row] = &[
    ("store: { redis: {} }", RATE, 3, "store.redis", "`urls` is required"),
    ("store: { redis: { urls: [] } }", RATE, 3, "store.redis.urls", "at least one URL is needed"),
    ("store: { redis: { urls: 'http://:hunter2@a' } }", RATE, 3, "store.redis.urls", "is not the URL of a Redis server"),
    ("store: { redis: { urls: ':hunter2@a' } }", RATE, 3, "store.redis.urls", "is not the URL of a Redis server"),
    ("store: { redis: { urls: 'redis://' } }", RATE, 3, "store.redis.urls", "names no host"),
    ("store: { redis: { urls: 'redis://:hunter2@a/x' } }", RATE, 3, "store.redis.urls", "something else than the number of a database"),
    ("store: { redis: { urls: 'redis://hunter2%zz@a' } }", RATE, 3, "store.redis.urls", "this "),
    ("store: { redis: { urls: 'redis://:hunter2@a#insecure' } }", RATE, 3, "store.redis.urls", "has a fragment"),
    ("store: { redis: { urls: 'redis://:hunter2@a?protocol=3' } }", RATE, 3, "store.redis.urls", "a parameter that means nothing"),
    ("store: { redis: { urls: 'unix:/a?pass=hunter2&x=1' } }", RATE, 3, "store.redis.urls", "a parameter that means nothing"),
    ("store: { redis: { urls: 'unix:redis.sock' } }", RATE, 3, "store.redis.urls", "names no socket"),
    ("store: { redis: { urls: ['redis://a', 'redis://:hunter2@b'] } }", RATE, 3, "store.redis.urls", "`topology: single` is one server"),
    ("store: { redis: { urls: 'redis://a', topology: sentinel } }", RATE, 3, "store.redis.sentinel_master", "write which one"),
    ("store: { redis: { urls: 'redis://a', topology: sentinel, sentinel_master: '' } }", RATE, 3, "store.redis.sentinel_master", "write which one"),
    ("store: { redis: { urls: 'unix:/a', topology: cluster } }", RATE, 3, "store.redis.urls", "are reached over TCP"),
    ("store: { redis: { urls: 'unix:/a', topology: sentinel, sentinel_master: m } }", RATE, 3, "store.redis.urls", "are reached over TCP"),
    ("store: { redis: { urls: 'redis://a/1', topology: cluster } }", RATE, 3, "store.redis.urls", "a cluster has the database 0 alone"),
    ("store: { redis: { urls: 'redis://a', timeout: 1000h } }", RATE, 3, "store.redis.timeout", "at most 10s"),
    ("store: { redis: { urls: 'redis://a', key_secret: '' } }", RATE, 3, "store.redis.key_secret", "an empty secret keeps nothing secret"),
    ("store: { redis: { urls: 'redis://a', topology: ring } }", RATE, 3, "store.redis.topology", "`sentinel`"),
    ("store: { redis: { urls: 'redis://a', sentinel_master: m } }", RATE, 3, "store.redis.sentinel_master", "only `topology: sentinel` has sentinels"),
    ("store: { redis: { urls: 'redis://a', sentinel_password: hunter2 } }", RATE, 3, "store.redis.sentinel_password", "only `topology: sentinel` has sentinels"),
    ("store: { redis: { urls: 'redis://a', sentinel_username: u } }", RATE, 3, "store.redis.sentinel_username", "only `topology: sentinel` has sentinels"),
    ("store: { redis: { urls: 'redis://a', username: u } }", RATE, 3, "store.redis.username", "a user has a password"),
    ("store: { redis: { urls: ['rediss://a', 'redis://b'], topology: cluster } }", RATE, 3, "store.redis.urls", "all must be spoken to alike"),
    ("store: { redis: { urls: 'redis://a', tls: { insecure: true } } }", RATE, 3, "store.redis.tls", "nothing is encrypted"),
    ("store: { redis: { urls: 'rediss://a', tls: { server_name: b } } }", RATE, 3, "store.redis.tls.server_name", "must be for the host in its URL"),
    ("store: { redis: { urls: 'rediss://a', tls: { ca: /no/such/file } } }", RATE, 3, "store.redis.tls.ca", "/no/such/file"),
    ("store: { redis: { urls: 'redis://a', key_prefix: '' } }", RATE, 3, "store.redis.key_prefix", "1 to 40"),
    ("store: { redis: { urls: 'redis://a', key_prefix: 'a b' } }", RATE, 3, "store.redis.key_prefix", "1 to 40"),
    ("store: { redis: { urls: 'redis://a', key_prefix: 'a{b}' } }", RATE, 3, "store.redis.key_prefix", "1 to 40"),
    ("store: { redis: { urls: 'redis://a', key_prefix: aaaaaaaaaabbbbbbbbbbccccccccccdddddddddde } }", RATE, 3, "store.redis.key_prefix", "1 to 40"),
    ("store: { redis: { urls: 'redis://a', timeout: 0s } }", RATE, 3, "store.redis.timeout", "must be more than zero"),
    ("store: { redis: { urls: 'redis://a', connections: 0 } }", RATE, 3, "store.redis.connections", "from 1 to 16"),
    ("store: { redis: { urls: 'redis://a', connections: 17 } }", RATE, 3, "store.redis.connections", "from 1 to 16"),
    ("store: { redis: { urls: 'redis://a', max_in_flight: 0 } }", RATE, 3, "store.redis.max_in_flight", "must be at least 1"),
    ("store: { redis: { urls: 'redis://a', consistency: eventual } }", RATE, 3, "store.redis.consistency", "`lease`"),
    ("store: { redis: { urls: 'redis://a', on_failure: pass } }", RATE, 3, "store.redis.on_failure", "`local`"),
    ("store: { redis: { urls: 'redis://a', on_faliure: open } }", RATE, 3, "store.redis.on_faliure", "did you mean `on_failure`?"),
    (REDIS, "rate: 5/min, consistency: eventual", 5, "limits[0].consistency", "`lease`"),
    (REDIS, "rate: 5/min, on_failure: pass", 5, "limits[0].on_failure", "`local`"),
    (REDIS, "rate: 5/min, consistency: local, on_failure: open", 5, "limits[0].on_failure", "no store can fail it"),
    (REDIS, "rate: 5/min, warmup: { for: 1h, factor: 2 }", 5, "limits[0].warmup", "a limit with a warm-up is not shared"),
    ("store: {}", "rate: 5/min, consistency: strict", 5, "limits[0].consistency", "there is no shared store"),
    ("store: {}", "rate: 5/min, consistency: lease", 5, "limits[0].consistency", "there is no shared store"),
    ("store: {}", "rate: 5/min, on_failure: closed", 5, "limits[0].on_failure", "there is no shared store"),
];

#[rustfmt::skip]
const RIGHT: &[(&str, &str)] = &[
    (REDIS, RATE),
    (REDIS, "rate: 5/min, consistency: strict, on_failure: closed"),
    (REDIS, "concurrency: 5, on_failure: open"),
    (REDIS, "rate: 5/min, consistency: local, warmup: { for: 1h, factor: 2 }"),
    ("store: {}", "rate: 5/min, consistency: local"),
    ("store: { redis: { urls: 'rediss://u:hunter2@a:6380/3' } }", RATE),
    ("store: { redis: { urls: 'unix:/run/redis.sock', username: u, password: hunter2 } }", RATE),
    ("store: { redis: { urls: ['redis://a', 'redis://b:26380'], topology: sentinel, sentinel_master: m, sentinel_password: hunter2 } }", RATE),
    ("store: { redis: { urls: ['rediss://a', 'rediss://[::1]:7001'], topology: cluster, tls: { insecure: true } } }", RATE),
];

fn checked(store: &str, limit: &str, format: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.yaml");
    fs::write(&path, FILE.replace("STORE", store).replace("LIMIT", limit)).unwrap();
    let ran = run(&["check", path.to_str().unwrap(), "--format", format], b"", DEADLINE).expect("check ends");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    (ran.status.code(), text)
}

#[test]
fn every_mistake_is_told_with_its_line_its_path_and_what_is_wrong() {
    let mut table = Table::new("mistakes");
    for (store, limit, line, path, said) in WRONG {
        let (code, text) = checked(store, limit, "text");
        let place = |shown: &str| {
            shown.contains(&format!("gateway.yaml:{line}:"))
                && (shown.contains(&format!(" {path}: ")) || shown.contains(&format!(" {path}[")))
                && shown.contains(said)
        };
        let told = code == Some(65) && text.lines().any(place);
        table.row(&format!("{store} {limit}"), if told { String::new() } else { format!("exit {code:?}: {text}") });
    }
}

#[test]
fn what_is_right_is_accepted() {
    let mut table = Table::new("right");
    for (store, limit) in RIGHT {
        let (code, text) = checked(store, limit, "text");
        table.row(&format!("{store} {limit}"), if code == Some(0) { String::new() } else { format!("exit {code:?}: {text}") });
    }
}

/// Excerpts show the line, which is where passwords stand.
#[test]
fn no_diagnostic_shows_a_secret() {
    let mut table = Table::new("secrets");
    for (store, limit, line, path, _) in WRONG {
        for format in ["text", "json"] {
            let (code, text) = checked(store, limit, format);
            let mut problem = String::new();
            if code != Some(65) || text.contains("hunter2") {
                problem = format!("exit {code:?}: {text}");
            }
            if format == "json" {
                let all: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
                let shown = all.to_string();
                if !shown.contains(&format!("\"line\":{line}")) || !shown.contains(path) {
                    problem = format!("no place in {shown}");
                }
            }
            table.row(&format!("{format}: {store} {limit}"), problem);
        }
    }
}
