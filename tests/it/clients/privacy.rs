//! Keys, tokens and whole addresses are nowhere to be read.

use super::{ask_from, get};
use crate::harness::{DEADLINE, Gateway, Origin, Table, exchange, hashed, run, until};
use crate::jwt::signer::hmac_token;
use std::fs;

const KEY: &str = "canarykey7f3a91";
const WRONG_KEY: &str = "canarywrong55d0";
const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canarytokensignature";
const SECRET: &str = "canary-secret-of-thirty-two-bytes-or-so";
const ADDRESS: &str = "203.0.113.77";

fn config(format: &str) -> String {
    format!(
        "trusted_proxies: 127.0.0.9
identity:
  api_key: {{ sources: [{{ header: x-api-key }}, {{ query: key }}, {{ cookie: key }}] }}
  user: {{ jwt: {{ keys: {{ secret: {SECRET} }} }} }}
  ip: {{ ipv4_prefix: 24 }}
clients:
- {{ id: acme, api_keys: ['{}'] }}
- {{ id: old, api_keys: [{{ key: '{}', expires: 2020-01-01 }}] }}
limits: [{{ name: plan, per: client, rate: 3/hour }}, {{ name: address, per: ip, rate: 1000/hour }}]
routes: [{{ name: dead, match: {{ path: /dead }}, upstream: dead }}, {{ name: all, match: {{ path: '/{{*rest}}' }}, upstream: origin }}]
upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'] }}, dead: {{ endpoints: ['http://127.0.0.1:1'] }} }}
access_log: {{ format: {format} }}",
        hashed(KEY),
        hashed("canaryexpired21"),
    )
}

#[test]
fn canaries_appear_nowhere() {
    let mut said = Vec::new();
    for format in ["json", "text"] {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &config(format));
        let from = format!("x-forwarded-for: {ADDRESS}\n");
        let fields = [
            format!("x-api-key: {KEY}\n"),
            format!("x-api-key: {WRONG_KEY}\n"),
            "x-api-key: canaryexpired21\n".to_owned(),
            format!("x-api-key: {KEY}\nx-api-key: {WRONG_KEY}\n"),
            format!("authorization: Bearer {TOKEN}\n"),
            format!("authorization: Bearer {TOKEN}x.y\nauthorization: Bearer {TOKEN}\n"),
            format!("cookie: key={KEY}\n"),
            format!("cookie: key={WRONG_KEY}\n"),
        ];
        for fields in &fields {
            said.push(ask_from("127.0.0.9", &gateway, &format!("{from}{fields}")));
        }
        for target in [
            format!("/?key={KEY}"),
            format!("/dead?key={KEY}"),
            format!("/?key={WRONG_KEY}"),
            format!("/?key={KEY}&key={KEY}"),
            format!("/nowhere?key={KEY}%"),
        ] {
            said.push(get(&gateway, &target, ""));
        }
        let token = hmac_token("HS256", SECRET.as_bytes(), serde_json::json!({ "sub": "u-1" }));
        let believed = get(&gateway, "/", &format!("authorization: Bearer {token}\n"));
        assert_eq!(believed.status, 200, "{}", believed.text());
        said.push(believed);
        let refused = said.iter().filter(|response| response.status == 401).count();
        assert!(refused >= 7, "{refused} of {}", said.len());
        until("the key's short digest is in the access log", || gateway.access_log().contains(&hashed(KEY)[7..19]));
        until("every request is in the access log", || gateway.access_log().lines().count() >= 14);
        let answers: String = said.iter().map(|response| format!("{:?} {}", response.headers, response.text())).collect();
        let admin = ["/metrics", "/healthz", "/readyz", "/"].map(|path| {
            exchange(gateway.admin(), format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
                .response()
                .text()
        });
        let all = [gateway.log(), gateway.access_log(), answers, admin.concat()].concat();
        for canary in [KEY, WRONG_KEY, "canaryexpired21", "canarytokensignature", "eyJzdWIi", "canary-secret", ADDRESS, &*token] {
            assert!(!all.contains(canary), "{canary} in {all}");
        }
        assert!(all.contains("203.0.113.0"), "the network is there: {all}");
        assert!(!gateway.access_log().contains(&hashed(KEY)[7..20]), "no more than twelve digits");
    }
}

#[test]
fn the_key_of_a_line_is_that_of_a_known_key_only() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config("json"));
    for (fields, key) in [
        (format!("x-api-key: {KEY}\n"), Some(&hashed(KEY)[7..19])),
        (format!("x-api-key: {WRONG_KEY}\n"), None),
        (String::new(), None),
    ] {
        let before = gateway.access_log().lines().count();
        get(&gateway, "/", &fields);
        until("the request is in the access log", || gateway.access_log().lines().count() > before);
        let line: serde_json::Value = serde_json::from_str(gateway.access_log().lines().last().unwrap()).unwrap();
        assert_eq!(line["key"].as_str(), key, "{line}");
    }
}

const REST: &str = "listeners: [{ name: a, address: '127.0.0.1:0' }]\nroutes: [{ name: r, match: { path: / }, respond: {} }]\n";

/// Mistakes with a secret, which is `canary…` or 31415926535, in them.
#[rustfmt::skip]
const MISTAKES: &[&str] = &[
    "clients: [{ id: a, api_keys: [canaryplain] }]",
    "clients: [{ id: a, api_keys: canaryplain, teir: x }]",
    "clients:\n- id: a\n  api_keys:\n  - canaryplain\n  - [canaryplain]\n",
    "clients: [{ id: a, api_keys: [{ key: canaryplain, expires: canaryplain }] }]",
    "clients: [{ id: a, api_keys: [{ key: [canaryplain] }] }]",
    "clients: [{ id: a, api_keys: [",
    "clients: [{ id: a, api_keys: [canaryplain",
    "clients: [{ id: a, api_keys: ['sha256:canaryplain'] }]",
    "clients: [{ id: a, api_keys: { canaryplain: 1 } }]",
    "clients: [{ id: a, api_keys: [{ canaryplain: 1 }] }]",
    "clients: [{ id: a, api_keys: [31415926535] }]",
    "clients: [{ id: a, api_key: canaryplain }]",
    "clients: [{ id: a, apikeys: [canaryplain] }]",
    "clients: [{ id: a, key: canaryplain }]",
    "clients: [{ id: a, keys: { canaryplain: canaryplain } }]",
    "clients: canaryplain",
    "clients: [canaryplain]",
    "clients: { canaryplain }",
    "clients: [{ id: a, canaryplain: 1 }]",
    "identity: { order: [canaryplain] }",
    "identity: { user: { jwt: { keys: { secret: canaryplain } } } }",
    "identity: { user: { jwt: { keys: { secret: [canaryplain] } } } }",
    "identity: { user: { jwt: { keys: { secret: 31415926535 } } } }",
    "identity: { user: { jwt: { keys: { secret: 31415926535897932384626433832795028841971 } } } }",
    "clients: [{ id: a, x: 314159265358979323846264338327950288419 }]",
    "clients: [{ id: a, api_keys: { canaryplain: 1, canaryplain: 2 } }]",
    "identity: { user: { jwt: { keys: { secrett: canaryplain } } } }",
    "identity: { user: { jwt: { keys: { canaryplain: 1 } } } }",
    "identity: { user: { jwt: { keys: canaryplain } } }",
    "identity: { user: { jwt: { key: canaryplain, keys: { secret: 31415926535 } } } }",
    "identity: { user: { jwt: canaryplain } }",
    "identity: { api_key: canaryplain }",
    "identity: { api_key: { sources: [canaryplain] } }",
    "identity: { api_key: { unknown: canaryplain } }",
    "identity: canaryplain",
    "identity: { user: { jwt: { keys: { jwks_url: 'https://u:canary@idp.example/' } } } }",
    "identity: { user: { jwt: { keys: { jwks_url: 'https://idp.example/?canary#x' } } } }",
    "upstreams: { a: { endpoints: ['http://u:canary@127.0.0.1:1'] } }",
    "admin: { token: [canaryplain] }",
    "admin: { token: canaryplain, adress: x }",
    "admin: { tokenn: canaryplain }",
    "admin: { Token: canaryplain }",
    "admin: { token: 31415926535, x: 1 }",
    "admin: canaryplain",
    "access_log: { hash_key: canaryplain }",
    "access_log: { hash_key: [canaryplain] }",
    "admin: { token: &a canaryplain }\nworkers: *a",
    "exempt: [{ key_prefix: canaryplän }]",
    "nonsense: { token: canaryplain }",
    "token: canaryplain",
];

fn is_told(told: &str) -> bool {
    told.contains("canary") || told.contains("31415926535")
}

fn checked(file: &std::path::Path, format: &str) -> (Option<i32>, String) {
    let output = run(&["check", "--format", format, file.to_str().unwrap()], b"", DEADLINE).expect("check ends");
    (output.status.code(), [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat())
}

#[test]
fn a_plain_key_or_a_secret_in_a_file_is_not_repeated() {
    let dir = tempfile::TempDir::new().unwrap();
    let main = dir.path().join("gateway.yaml");
    let mut table = Table::new("secrets in a file");
    for mistake in MISTAKES {
        fs::write(&main, format!("{REST}{mistake}\n")).unwrap();
        for format in ["text", "json"] {
            let (code, told) = checked(&main, format);
            let is_right = code == Some(65) && !is_told(&told);
            table.row(&format!("{mistake} as {format}"), if is_right { String::new() } else { format!("{code:?} {told}") });
        }
    }
    let output = run(&["explain", "--path", "/", "--header", "x-api-key canary"], b"", DEADLINE).expect("explain ends");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("canary"));
}

#[test]
fn a_clients_file_that_is_none_is_not_repeated() {
    let dir = tempfile::TempDir::new().unwrap();
    let (main, clients) = (dir.path().join("gateway.yaml"), dir.path().join("clients.yaml"));
    fs::write(&main, format!("{REST}clients_file: {}\n", clients.display())).unwrap();
    let mut table = Table::new("secrets in a clients' file");
    for text in [
        "id,key\nacme,canaryplain\n",
        "canaryplain\n",
        "acme: canaryplain\n",
        "- canaryplain\n",
        "- [canaryplain]\n",
        "- id: a\n  api_keys: [canaryplain\n",
        "- id: a\n  api_keys: { canaryplain: 1, canaryplain: 2 }\n",
        "- { canaryplain: 1, canaryplain: 2 }\n",
        "- id: a\n  apikey: canaryplain\n",
        "- id: a\n  api_keys: 'sha256:canary'\n",
        "\"canaryplain",
        "[{\"id\": \"a\", \"api_keys\": [\"canaryplain\"]}]",
        "[{\"id\": \"a\", \"api_keys\": {\"canaryplain\": 1}}]",
        "{\"canaryplain\"}",
    ] {
        fs::write(&clients, text).unwrap();
        for format in ["text", "json"] {
            let (code, told) = checked(&main, format);
            let is_right = code == Some(65) && !is_told(&told);
            table.row(&format!("{text:?} as {format}"), if is_right { String::new() } else { format!("{code:?} {told}") });
        }
    }
}

#[test]
fn a_value_of_the_environment_is_not_repeated() {
    // One that every process has and that nothing else here says.
    let value = std::env::var("PATH").unwrap();
    let dir = tempfile::TempDir::new().unwrap();
    let (main, clients) = (dir.path().join("gateway.yaml"), dir.path().join("clients.yaml"));
    let mut table = Table::new("values of the environment");
    for mistake in [
        "identity: { user: { jwt: { keys: '${PATH}' } } }",
        "identity: { user: { jwt: { keys: { jwks_file: '${PATH}' } } } }",
        "identity: { user: { jwt: { keys: { jwks_url: 'http://${PATH}' } } } }",
        "workers: '${PATH}'",
        "limits: [{ name: a, per: ip, rate: '${PATH}' }]",
        "limits: [{ name: a, per: '${PATH}', rate: 1/s }]",
        "limits: [{ name: '${PATH}', per: ip, rate: 1/s }]",
        "trusted_proxies: '${PATH}'",
        "clients: [{ id: a, tier: '${PATH}' }]",
        "clients: [{ id: '${PATH}' }, { id: '${PATH}' }]",
        "upstreams: { a: { endpoints: ['${PATH}'] } }",
        "CLIENTS",
    ] {
        fs::write(&clients, "- { id: a, tier: '${PATH}' }\n- { id: b, exempt: '${PATH}' }\n").unwrap();
        let sections = mistake.replace("CLIENTS", &format!("clients_file: {}", clients.display()));
        fs::write(&main, format!("{REST}{sections}\n")).unwrap();
        let (code, told) = checked(&main, "text");
        let is_right = code == Some(65) && !told.contains(&value);
        table.row(mistake, if is_right { String::new() } else { format!("{code:?} {told}") });
    }
}

#[test]
fn a_running_gateway_does_not_repeat_secrets_of_a_file_it_refuses() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    for mistake in MISTAKES.iter().filter(|mistake| !mistake.starts_with("admin") && !mistake.starts_with("access_log")) {
        gateway.replace(mistake);
        let reply = exchange(gateway.admin(), "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").response();
        assert!(reply.status >= 400, "{mistake}: {}", reply.status);
        assert!(!is_told(&reply.text()), "{mistake}: {}", reply.text());
    }
    assert!(!is_told(&gateway.log()), "{}", gateway.log());
    assert!(gateway.log().contains("gateway.yaml"), "it says what is wrong all the same: {}", gateway.log());
}

/// A network, and which of its clients only for who has the key.
#[test]
fn the_access_log_has_networks_and_pseudonyms() {
    let keyed = "access_log: { format: json, hash_key: a-key-of-sixteen-bytes-or-more }";
    let line = |config: &str, from: &str, address: &str| {
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &format!("trusted_proxies: 127.0.0.9\n{config}"));
        ask_from(from, &gateway, &format!("x-forwarded-for: {address}\n"));
        until("the request is in the access log", || gateway.access_log().ends_with('\n'));
        (serde_json::from_str::<serde_json::Value>(gateway.access_log().lines().next().unwrap()).unwrap(), gateway.access_log())
    };
    let proxied = |config: &str, address: &str| {
        let (line, text) = line(config, "127.0.0.9", address);
        (line["address"].as_str().unwrap().to_owned(), line["client_hash"].as_str().map(str::to_owned), text)
    };
    let (network, hash, text) = proxied(keyed, ADDRESS);
    let hash = hash.expect("a hash stands for the rest");
    assert_eq!(network, "203.0.113.0/24");
    assert!(hash.len() == 12 && hash.bytes().all(|digit| digit.is_ascii_hexdigit()), "{hash}");
    assert!(!text.contains(ADDRESS), "{text}");
    // Of this client and of no other, after a restart too.
    assert_eq!(proxied(keyed, ADDRESS).1.as_ref(), Some(&hash));
    assert_ne!(proxied(keyed, "203.0.113.78").1.as_ref(), Some(&hash));
    // Without the key nobody can make it.
    assert_ne!(proxied("access_log: { format: json }", ADDRESS).1.as_ref(), Some(&hash));
    for (config, address, network, has_hash) in [
        ("", "2001:db8:1:2:3::4", "2001:db8:1:2::/64", false),
        ("identity: { ip: { ipv6_prefix: 128 } }", "2001:db8:1:2:3::4", "2001:db8:1:2::/64", true),
        ("identity: { ip: { ipv4_prefix: 24 } }", ADDRESS, "203.0.113.0/24", false),
        ("identity: { ip: { ipv4_prefix: 16 } }", ADDRESS, "203.0.0.0/16", false),
    ] {
        let (told, hash, _) = proxied(&format!("access_log: {{ format: json }}\n{config}"), address);
        assert_eq!((told.as_str(), hash.is_some()), (network, has_hash), "{config} {address}");
    }
    // The peer of a request that was refused before anybody looked at it is one too.
    let (refused, _) = line(keyed, "127.0.0.5", "x");
    assert_eq!(refused["address"], "127.0.0.0/24");
    let whole = "access_log: { format: json, addresses: full }";
    assert_eq!(proxied(whole, ADDRESS).0, "203.0.113.77/32");
    assert_eq!(proxied(whole, "2001:db8:1:2:3::4").0, "2001:db8:1:2:3::4/128");
    assert_eq!(proxied(whole, ADDRESS).1, None);
}

#[test]
fn a_reload_keeps_pseudonyms() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "access_log: { format: text }");
    let hash = |n: usize| {
        gateway.get("/");
        until("the request is in the access log", || gateway.access_log().lines().count() == n);
        gateway.access_log().lines().last().unwrap().rsplit_once("client_hash=").expect("a hash").1.to_owned()
    };
    let before = hash(1);
    gateway.reload("access_log: { format: text }\ntiers: [a]");
    assert_eq!(hash(2), before);
}
