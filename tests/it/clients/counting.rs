//! Whose quota a request spends.

use super::{ask, ask_from, get};
use crate::harness::{Gateway, Origin, hashed};

fn clients(unknown: &str, limit: &str) -> String {
    let client = |id: &str| format!("{{ id: '{id}', api_keys: ['{}'] }}", hashed(&format!("key-{id}")));
    let clients = ["a", "b", "a:b", "c"].map(client).join(", ");
    format!("identity: {{ api_key: {{ unknown: {unknown} }} }}\nclients: [{clients}]\nlimits: [{limit}]")
}

fn statuses(gateway: &Gateway, fields: &str, n: usize) -> Vec<u16> {
    (0..n).map(|_| ask(gateway, fields).status).collect()
}

#[test]
fn two_clients_behind_one_address_do_not_share_a_client_limit() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &clients("reject", "{ name: plan, per: client, rate: 2/hour }"));
    assert_eq!(statuses(&gateway, "x-api-key: key-a\n", 3), [200, 200, 429]);
    assert_eq!(statuses(&gateway, "x-api-key: key-b\n", 3), [200, 200, 429]);
    assert_eq!(statuses(&gateway, "", 3), [200, 200, 429], "and neither spends that of the address");
    assert_eq!(ask_from("127.0.0.2", &gateway, "x-api-key: key-a\n").status, 429, "another address is no other client");
}

#[test]
fn a_forged_address_neither_escapes_a_clients_limit_nor_spends_a_victims() {
    let origin = Origin::ok();
    let limits = "{ name: plan, per: client, rate: 2/hour }";
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: 127.0.0.9\n{}", clients("anonymous", limits)));
    let forged = |i: u32, key: &str| format!("x-api-key: {key}\nx-forwarded-for: 203.0.113.{i}\nforwarded: for=203.0.113.{i}\n");
    let outcomes: Vec<u16> = (1..=4).map(|i| ask(&gateway, &forged(i, "unknown")).status).collect();
    assert_eq!(outcomes, [200, 200, 429, 429]);
    let outcomes: Vec<u16> = (1..=4).map(|i| ask(&gateway, &forged(i, "key-a")).status).collect();
    assert_eq!(outcomes, [200, 200, 429, 429]);
    for i in 1..=4 {
        let victim = format!("x-forwarded-for: 203.0.113.{i}\n");
        assert_eq!([0, 1, 2].map(|_| ask_from("127.0.0.9", &gateway, &victim).status), [200, 200, 429], "victim {i}");
    }
}

#[test]
fn unknown_keys_never_mint_a_quota() {
    let origin = Origin::ok();
    let limits = "{ name: plan, per: client, rate: 2/hour }, { name: key, per: api_key, missing: shared, rate: 2/hour }";
    let gateway = Gateway::before(&origin, &clients("anonymous", limits));
    let outcomes: Vec<u16> = (0..6).map(|i| ask(&gateway, &format!("x-api-key: made-up-{i}\n")).status).collect();
    assert_eq!(outcomes, [200, 200, 429, 429, 429, 429]);
    let keys = gateway.metric("tollgate_store_keys", &[("limit", "key")]);
    assert!(keys <= 1.0, "{keys} counters for keys that nobody has");
    assert_eq!(statuses(&gateway, "x-api-key: key-c\n", 3), [200, 200, 429]);
}

#[test]
fn parts_of_compound_keys_do_not_run_into_each_other() {
    let origin = Origin::ok();
    let limits = "{ name: pair, per: [client, { header: x-a }, { header: x-b }], missing: shared, rate: 1/hour }";
    let gateway = Gateway::before(&origin, &clients("reject", limits));
    let rows = [
        "x-api-key: key-a\nx-a: b:c\nx-b: d\n",
        "x-api-key: key-a\nx-a: b\nx-b: c:d\n",
        "x-api-key: key-a:b\nx-a: c\nx-b: d\n",
        "x-api-key: key-a\nx-a: bc\nx-b: d\n",
        "x-api-key: key-a\nx-a: b\nx-b: cd\n",
        "x-api-key: key-a\nx-a: bcd\n",
        "x-api-key: key-a\nx-b: bcd\n",
        "x-api-key: key-b\nx-a: b:c\nx-b: d\n",
        "x-a: b:c\nx-b: d\n",
        "x-api-key: key-a\nx-a: {b}\nx-b: *\n",
        "x-api-key: key-a\nx-a: *\nx-b: {b}\n",
    ];
    for fields in rows {
        assert_eq!([0, 1].map(|_| ask(&gateway, fields).status), [200, 429], "{fields:?}");
    }
    assert_eq!(get(&gateway, "/", rows[0]).status, 429);
}
