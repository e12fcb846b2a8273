//! Keys that expire.

use super::ask;
use crate::harness::{Gateway, Origin, Table, hashed, until};

/// So many seconds from now, as in RFC 3339.
fn from_now(seconds: i64) -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string()
}

fn config(unknown: &str, expires: &[&str]) -> String {
    let clients: Vec<String> = (0..)
        .zip(expires)
        .map(|(i, expires)| format!("{{ id: c{i}, api_keys: [{{ key: '{}', expires: {expires} }}] }}", hashed(&format!("k{i}"))))
        .collect();
    format!("identity: {{ api_key: {{ unknown: {unknown} }} }}\nclients: [{}]", clients.join(", "))
}

#[test]
fn a_day_and_a_time_decide() {
    let origin = Origin::ok();
    let rows = [
        ("2020-01-01", 401),
        ("2020-01-01T00:00:00Z", 401),
        ("'2020-01-01T09:00:00+09:00'", 401),
        ("2999-01-01", 200),
        ("2999-01-01T00:00:00.5Z", 200),
    ];
    let gateway = Gateway::before(&origin, &config("reject", &rows.map(|(expires, _)| expires)));
    let mut table = Table::new("expiries");
    for (i, (expires, status)) in rows.iter().enumerate() {
        let got = ask(&gateway, &format!("x-api-key: k{i}\n")).status;
        table.outcome(expires, &status.to_string(), &got.to_string());
    }
}

#[test]
fn a_key_expires_while_the_gateway_runs() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config("reject", &[&from_now(3)]));
    assert_eq!(ask(&gateway, "x-api-key: k0\n").status, 200);
    until("the key has expired", || ask(&gateway, "x-api-key: k0\n").status == 401);
    let refused = ask(&gateway, "x-api-key: k0\n");
    assert!(refused.text().contains("\"the API key is not valid any more: it has expired\""), "{}", refused.text());
    assert_eq!(refused.json()["error"], "unauthorized");
    assert!(refused.header("www-authenticate").is_some());
    assert!(gateway.metric("tollgate_refused_total", &[("reason", "unauthorized")]) >= 2.0);
    let unknown = ask(&gateway, "x-api-key: k9\n");
    assert!(unknown.text().contains("\"the API key is not valid\""), "{}", unknown.text());
}

#[test]
fn an_expired_key_is_as_good_as_none_where_unknown_keys_are() {
    let origin = Origin::ok();
    let limits = "limits: [{ name: plan, per: client, rate: 1/hour }]";
    let gateway = Gateway::before(&origin, &format!("{}\n{limits}", config("anonymous", &["2020-01-01", "2999-01-01"])));
    assert_eq!(ask(&gateway, "x-api-key: k0\n").status, 200);
    assert_eq!(ask(&gateway, "").status, 429, "it was counted under the address");
    assert_eq!(ask(&gateway, "x-api-key: k1\n").status, 200);
}
