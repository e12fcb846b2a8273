//! Conditions on the text of keys, and exemptions and blocks by header.

use super::{ask, ask_from};
use crate::harness::{Gateway, Origin, Table, hashed};

fn keys(unknown: &str) -> String {
    let client = |id: &str, key: &str| format!("{{ id: {id}, api_keys: ['{}'] }}", hashed(key));
    let clients = [client("test", "sk_test_1"), client("live", "sk_live_1"), client("other", "pk_1")].join(", ");
    format!(
        "identity: {{ api_key: {{ sources: [{{ header: x-api-key }}, {{ query: key }}], unknown: {unknown} }} }}\nclients: [{clients}]"
    )
}

/// The limits that counted a request, by what it has left.
fn limited(gateway: &Gateway, target: &str, fields: &str) -> bool {
    super::get(gateway, target, fields).header("x-ratelimit-limit").is_some()
}

#[test]
fn a_prefix_matches_known_keys_alone() {
    let origin = Origin::ok();
    let rows: &[(&str, &str, &str, bool)] = &[
        ("a test key", "/", "x-api-key: sk_test_1\n", true),
        ("a live key", "/", "x-api-key: sk_live_1\n", false),
        ("another key", "/", "x-api-key: pk_1\n", false),
        ("an unknown key with the prefix", "/", "x-api-key: sk_test_2\n", false),
        ("no key", "/", "", false),
        ("a key in the query", "/?key=sk_test_1", "", true),
        ("an encoded one", "/?key=sk%5Ftest_1", "", true),
        ("a prefix elsewhere", "/?other=sk_test_1", "x-other: sk_test_1\n", false),
    ];
    let gateway = Gateway::before(
        &origin,
        &format!(
            "{}\nlimits: [{{ name: test, match: {{ key_prefix: sk_test_ }}, per: global, rate: 100/hour }}]",
            keys("anonymous")
        ),
    );
    let unless = Gateway::before(
        &origin,
        &format!(
            "{}\nlimits: [{{ name: test, unless: {{ key_prefix: [sk_test_, nothing] }}, per: global, rate: 100/hour }}]",
            keys("anonymous")
        ),
    );
    let mut table = Table::new("prefixes of keys");
    for (name, target, fields, expected) in rows {
        table.outcome(name, &expected.to_string(), &limited(&gateway, target, fields).to_string());
        table.outcome(&format!("unless: {name}"), &(!expected).to_string(), &limited(&unless, target, fields).to_string());
    }
}

#[test]
fn any_of_several_prefixes_is_enough_and_blocks_and_exemptions_know_them() {
    let origin = Origin::ok();
    let more = "blocked: [{ key_prefix: pk_ }]\nexempt: [{ key_prefix: [sk_test_, zz] }]\nlimits: [{ name: sk, match: { key_prefix: [sk_live_, sk_test_] }, per: client, rate: 1/hour }]";
    let gateway = Gateway::before(&origin, &format!("{}\n{more}", keys("reject")));
    let twice = |key: &str| [0, 1].map(|_| ask(&gateway, &format!("x-api-key: {key}\n")).status);
    assert_eq!([twice("sk_test_1"), twice("sk_live_1"), twice("pk_1")], [[200, 200], [200, 429], [403, 403]]);
}

const HEADERS: &str = "trusted_proxies: 127.0.0.9\nexempt: [{ header: { x-internal: '1' } }]\nblocked: [{ header: { user-agent: badbot } }, { header: { x-scan: '*' }, path: /scan }]\nlimits: [{ name: one, per: ip, rate: 1/hour }]";

#[test]
fn an_exemption_by_header_is_for_trusted_proxies_and_a_block_for_everybody() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, HEADERS);
    let twice = |from: &str, fields: &str| [0, 1].map(|_| ask_from(from, &gateway, fields).status);
    for (name, from, fields, expected) in [
        ("a client claims it", "127.0.0.1", "x-internal: 1\n", [200, 429]),
        ("a proxy says so", "127.0.0.9", "x-internal: 1\nx-forwarded-for: 203.0.113.1\n", [200, 200]),
        ("a proxy says otherwise", "127.0.0.9", "x-internal: 0\nx-forwarded-for: 203.0.113.2\n", [200, 429]),
        ("a proxy and its client", "127.0.0.9", "x-internal: 1\nx-internal: 1\nx-forwarded-for: 203.0.113.3\n", [200, 429]),
        ("a look-alike", "127.0.0.9", "x_internal: 1\nx-forwarded-for: 203.0.113.4\n", [200, 429]),
        ("a blocked agent", "127.0.0.2", "user-agent: badbot\n", [403, 403]),
        ("one of two lines", "127.0.0.2", "user-agent: a\nuser-agent: badbot\n", [403, 403]),
        ("blocked though exempt", "127.0.0.9", "user-agent: badbot\nx-internal: 1\n", [403, 403]),
        ("another agent", "127.0.0.3", "user-agent: goodbot\n", [200, 429]),
    ] {
        assert_eq!(twice(from, fields), expected, "{name}");
    }
    assert_eq!(super::get(&gateway, "/scan", "x-scan: anything\n").status, 403);
    assert_eq!(super::get(&gateway, "/", "x-scan: anything\n").status, 429, "all conditions must hold");
}
