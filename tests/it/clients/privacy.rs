//! Keys, tokens and whole addresses are nowhere to be read.

use super::{ask_from, get};
use crate::harness::{DEADLINE, Gateway, Origin, exchange, hashed, run, until};
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

#[test]
fn a_plain_key_or_a_secret_in_a_file_is_not_repeated() {
    let rows = [
        "clients: [{ id: a, api_keys: [canaryplain] }]",
        "clients: [{ id: a, api_keys: canaryplain, teir: x }]",
        "clients:\n- id: a\n  api_keys:\n  - canaryplain\n  - [canaryplain]\n",
        "clients: [{ id: a, api_keys: [{ key: canaryplain, expires: canaryplain }] }]",
        "clients: [{ id: a, api_keys: [{ key: [canaryplain] }] }]",
        "clients: [{ id: a, api_keys: [",
        "clients: [{ id: a, api_keys: [canaryplain",
        "identity: { user: { jwt: { keys: { secret: canaryplain } } } }",
        "identity: { user: { jwt: { keys: { secret: [canaryplain] } } } }",
        "admin: { token: [canaryplain] }",
        "admin: { token: canaryplain, adress: x }",
    ];
    let dir = tempfile::TempDir::new().unwrap();
    let main = dir.path().join("gateway.yaml");
    for row in rows {
        fs::write(&main, format!("listeners: [{{ name: a, address: '127.0.0.1:0' }}]\nroutes: [{{ name: r, match: {{ path: / }}, respond: {{}} }}]\n{row}\n")).unwrap();
        for format in ["text", "json"] {
            let output = run(&["check", "--format", format, main.to_str().unwrap()], b"", DEADLINE).expect("check ends");
            let told = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
            assert_eq!(output.status.code(), Some(65), "{row}: {told}");
            assert!(!told.contains("canary"), "{row}: {told}");
        }
    }
    let output = run(&["explain", "--path", "/", "--header", "x-api-key canary"], b"", DEADLINE).expect("explain ends");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("canary"));
}
