//! What upstream is told of who a request is from, and that clients can't tell it themselves.

use super::{ask, ask_from};
use crate::harness::{Gateway, H2, Origin, Seen, Table, crlf, field, fields, hashed};

const TOLD: [&str; 5] = ["x-client-id", "x-client-tier", "x-client-user", "x-client-tenant", "x-client-key"];

fn config() -> String {
    format!(
        "trusted_proxies: 127.0.0.9
identity:
  user: {{ header: x-user-id }}
  forward: {{ client: x-client-id, tier: x-client-tier, user: x-client-user, tenant: x-client-tenant, key_hash: x-client-key }}
tiers: [anonymous, pro]
clients:
- {{ id: \"acme & sönë 100%\", tier: pro, tenant: \"a\\tb\", api_keys: ['{}'] }}
- {{ id: plain, tier: pro, api_keys: ['{}'] }}",
        hashed("k1"),
        hashed("k2"),
    )
}

/// What upstream was told, in the order of [`TOLD`].
fn told(seen: &Seen) -> Vec<Vec<&str>> {
    TOLD.iter().map(|name| fields(&seen.headers, name)).collect()
}

#[test]
fn upstream_is_told_what_is_known_and_nothing_else() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config());
    let short = |key: &str| hashed(key)["sha256:".len()..][..12].to_owned();
    let (k1, k2) = (short("k1"), short("k2"));
    let rows: &[(&str, &str, [&str; 5])] = &[
        ("127.0.0.1", "x-api-key: k1\n", ["acme%20&%20s%C3%B6n%C3%AB%20100%25", "pro", "", "a%09b", &k1]),
        ("127.0.0.1", "x-api-key: k2\n", ["plain", "pro", "", "", &k2]),
        ("127.0.0.1", "", ["", "anonymous", "", "", ""]),
        ("127.0.0.9", "x-user-id: u 7\nx-forwarded-for: 203.0.113.1\n", ["", "anonymous", "u%207", "", ""]),
    ];
    for (from, sent, expected) in rows {
        origin.forget();
        assert_eq!(ask_from(from, &gateway, sent).status, 200, "{sent:?}");
        let expected: Vec<Vec<&str>> =
            expected.iter().map(|value| [*value].into_iter().filter(|v| !v.is_empty()).collect()).collect();
        assert_eq!(told(&origin.wait(1)), expected, "{sent:?}");
    }
}

#[test]
fn nobody_else_can_tell_it() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config());
    let mut table = Table::new("forged identities");
    for name in TOLD {
        let others = "!#$%&'*+.^_`|~".chars().map(|other| name.replace('-', &other.to_string()));
        let spellings = [name.to_owned(), name.to_uppercase(), name.replacen('-', "_", 1)];
        for spelling in spellings.into_iter().chain(others) {
            for (from, more) in [("127.0.0.1", ""), ("127.0.0.9", ""), ("127.0.0.1", &*format!("connection: {name}\n"))] {
                origin.forget();
                ask_from(from, &gateway, &format!("{more}{spelling}: EVIL\n"));
                let seen = origin.wait(1);
                let evil = String::from_utf8_lossy(&seen.wire).contains("EVIL");
                table.row(&format!("{spelling} from {from} {more:?}"), if evil { "it got through" } else { "" });
            }
        }
    }
    let request = "POST / HTTP/1.1\nHost: a\nx-api-key: k2\nTransfer-Encoding: chunked\nTrailer: x-client-id\n\n1\na\n0\nx-client-id: EVIL\nx_client_tier: EVIL\nx-fine: 1\n\n";
    origin.forget();
    assert_eq!(gateway.client().ask(crlf(request)).status(), 200);
    let seen = origin.wait(1);
    table.row("trailers", if String::from_utf8_lossy(&seen.wire).contains("EVIL") { "they got through" } else { "" });
    assert_eq!(field(&seen.trailers, "x-fine"), Some("1"));
    origin.forget();
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
        ("x-client-id", "EVIL"),
        ("x-api-key", "k2"),
    ];
    assert_eq!(H2::connect(gateway.addr()).ask(&fields, None).status(), 200);
    assert_eq!(told(&origin.wait(1))[0], ["plain"], "over HTTP/2");
}

#[test]
fn without_forward_nothing_is_told() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("clients: [{{ id: plain, api_keys: ['{}'] }}]", hashed("k2")));
    ask(&gateway, "x-api-key: k2\n");
    assert!(told(&origin.wait(1)).concat().is_empty());
}

/// CGI makes `HTTP_API_KEY` of both `api_key` and `api-key`.
#[test]
fn a_twin_of_a_key_header_does_not_reach_the_upstream() {
    let origin = Origin::ok();
    let config = format!(
        "identity: {{ api_key: {{ sources: {{ header: api_key }} }} }}\nclients: [{{ id: a, api_keys: ['{}'] }}]",
        hashed("k1")
    );
    let gateway = Gateway::before(&origin, &config);
    for (sent, forwarded) in
        [("api_key: k1\n", vec!["k1"]), ("api-key: EVIL\n", vec![]), ("api.key: EVIL\napi_key: k1\n", vec!["k1"])]
    {
        origin.forget();
        assert_eq!(ask(&gateway, sent).status, 200, "{sent:?}");
        let seen = origin.wait(1);
        assert_eq!(fields(&seen.headers, "api_key"), forwarded, "{sent:?}");
        assert!(!String::from_utf8_lossy(&seen.wire).contains("EVIL"), "{sent:?}");
    }
}
