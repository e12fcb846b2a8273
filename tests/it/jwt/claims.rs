//! Who somebody is by a token: user, tier, tenant and whatever a limit counts by.

use super::signer::{Kind, Signer};
use super::{ask, present};
use crate::harness::{DEADLINE, Gateway, Origin, hashed, run};
use serde_json::{Value, json};

/// Statuses of requests with these header lines, one after the other.
fn statuses(gateway: &Gateway, fields: &[&str]) -> Vec<u16> {
    fields.iter().map(|fields| ask(gateway, fields).status).collect()
}

fn config(signer: &Signer, more: &str) -> String {
    format!(
        "identity: {{ user: {{ header: x-user-id, tier_header: x-user-tier, jwt: {{ keys: {{ public_key_file: '{}' }}, algorithms: ES256, claims: {{ tier: plan, tenant: realm_access.tenant }} }} }} }}
trusted_proxies: loopback
tiers: [anonymous, free, pro]
{more}",
        signer.pem_file().display()
    )
}

fn bearer(signer: &Signer, claims: Value) -> String {
    format!("Authorization: Bearer {}", signer.token("ES256", claims))
}

#[test]
fn a_user_is_counted_whichever_token_names_it_and_as_one_that_a_proxy_names() {
    let origin = Origin::ok();
    let signer = Signer::new(Kind::P256, "a");
    let gateway = Gateway::before(&origin, &config(&signer, "limits: [{ name: two, per: user, rate: 2/hour }]"));
    let (one, again) = (bearer(&signer, json!({ "sub": "u-1", "jti": 1 })), bearer(&signer, json!({ "sub": "u-1", "jti": 2 })));
    assert_eq!(statuses(&gateway, &[&one, "X-User-Id: u-1", &again, &one]), [200, 200, 429, 429]);
    // The token says who it is, whatever the proxy says.
    assert_eq!(statuses(&gateway, &[&format!("{one}\nX-User-Id: u-2")]), [429]);
    // Numbers are their text; without a user a token is nobody's, and the limit is not about it.
    let number = bearer(&signer, json!({ "sub": 7 }));
    assert_eq!(statuses(&gateway, &[&number, "X-User-Id: 7", &number]), [200, 200, 429]);
    // Those that are rounded are none: two users would become one.
    for large in ["18446744073709551616", "18446744073709551617", "1e3", "0.5"] {
        let claims: Value = serde_json::from_str(&format!("{{\"sub\":{large}}}")).unwrap();
        assert_eq!(statuses(&gateway, &[bearer(&signer, claims).as_str(); 3]), [200; 3], "{large}");
    }
    let largest = bearer(&signer, json!({ "sub": u64::MAX }));
    assert_eq!(statuses(&gateway, &[largest.as_str(); 3]), [200, 200, 429]);
    let nobody = bearer(&signer, json!({ "sub": "" }));
    assert_eq!(statuses(&gateway, &[&nobody, &nobody, &nobody]), [200, 200, 200]);
}

#[test]
fn a_users_client_gives_its_rate_and_a_key_wins_over_the_token() {
    let origin = Origin::ok();
    let signer = Signer::new(Kind::P256, "a");
    let more = format!(
        "clients: [{{ id: acme, users: u-812, limits: {{ plan: 3/hour }} }}, {{ id: keyed, api_keys: ['{}'], tier: free }}]
limits: [{{ name: plan, per: client, rate: {{ anonymous: 1/hour, free: 2/hour, pro: 4/hour }} }}]",
        hashed("k1")
    );
    let gateway = Gateway::before(&origin, &config(&signer, &more));
    let acme = bearer(&signer, json!({ "sub": "u-812", "plan": "pro" }));
    assert_eq!(statuses(&gateway, &[acme.as_str(); 4]), [200, 200, 200, 429]);
    let keyed = format!("X-Api-Key: k1\n{}", bearer(&signer, json!({ "sub": "u-1", "plan": "pro" })));
    assert_eq!(statuses(&gateway, &[keyed.as_str(); 3]), [200, 200, 429]);
    let pro = bearer(&signer, json!({ "sub": "u-2", "plan": "pro" }));
    assert_eq!(statuses(&gateway, &[pro.as_str(); 5]), [200, 200, 200, 200, 429]);
    // A tier that is not configured is none, and so is what a proxy says about somebody who has a token.
    let gold = format!("{}\nX-User-Tier: pro", bearer(&signer, json!({ "sub": "u-3", "plan": "gold" })));
    assert_eq!(statuses(&gateway, &[gold.as_str(); 2]), [200, 429]);
}

#[test]
fn a_token_without_a_user_does_not_share_the_counter_of_its_address_at_another_rate() {
    let origin = Origin::ok();
    let signer = Signer::new(Kind::P256, "a");
    let more = "limits: [{ name: plan, per: client, rate: { anonymous: 1/hour, free: 2/hour, pro: 3/hour } }]";
    let gateway = Gateway::before(&origin, &config(&signer, more));
    let pro = bearer(&signer, json!({ "plan": "pro" }));
    assert_eq!(statuses(&gateway, &["", "", &pro, &pro, &pro, &pro, ""]), [200, 429, 200, 200, 200, 429, 429]);
}

#[test]
fn tenants_and_claims_have_counters_of_their_own() {
    let origin = Origin::ok();
    let signer = Signer::new(Kind::P256, "a");
    let more = "clients: [{ id: acme, users: u-9, tenant: t-1 }]
limits:
- { name: tenant, per: tenant, rate: 2/hour }
- { name: device, per: [{ claim: device.id }, route], rate: 1/hour }";
    let gateway = Gateway::before(&origin, &config(&signer, more));
    let tenant = |user: &str, tenant: &str| bearer(&signer, json!({ "sub": user, "realm_access": { "tenant": tenant } }));
    assert_eq!(
        statuses(&gateway, &[&tenant("a", "t-1"), &tenant("b", "t-1"), &tenant("c", "t-1"), &tenant("c", "t-2")]),
        [200, 200, 429, 200]
    );
    // The client's own tenant, whatever the token says.
    assert_eq!(statuses(&gateway, &[&tenant("u-9", "t-3")]), [429]);
    let device = |id: Value| bearer(&signer, json!({ "sub": "d", "device": { "id": id } }));
    assert_eq!(statuses(&gateway, &[&device(json!("x")), &device(json!("x")), &device(json!("y"))]), [200, 429, 200]);
    // A list is no value, and whoever lacks a part is not counted.
    let listed = device(json!(["x"]));
    assert_eq!(statuses(&gateway, &[&listed, &listed, "", ""]), [200, 200, 200, 200]);
}

#[test]
fn explain_says_what_a_token_comes_to() {
    let signer = Signer::new(Kind::P256, "a");
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    let more = "listeners: [{ name: a, address: '127.0.0.1:1' }]\nroutes: [{ name: all, match: { path: '/{*rest}' }, respond: { status: 200 } }]\n";
    std::fs::write(&file, config(&signer, more)).unwrap();
    let explain = |header: &str| {
        let args = ["explain", "--config", file.to_str().unwrap(), "--path", "/", "--header", header];
        String::from_utf8(run(&args, b"", DEADLINE).expect("explain ends").stdout).unwrap()
    };
    let good = explain(&bearer(&signer, json!({ "sub": "u-1", "plan": "pro" })));
    for line in ["token     believed", "client    user u-1 (by the user of its token)", "tier      pro"] {
        assert!(good.lines().any(|l| l == line), "{line} in\n{good}");
    }
    let expired = explain(&bearer(&signer, json!({ "sub": "u-1", "exp": 1 })));
    assert!(expired.contains("token     not believed: expired\nidentity  refused with 401"), "{expired}");
}

#[test]
fn a_token_is_forwarded_as_it_came() {
    let origin = Origin::ok();
    let signer = Signer::new(Kind::P256, "a");
    let gateway = Gateway::before(&origin, &config(&signer, ""));
    let token = signer.token("ES256", json!({ "sub": "u-1" }));
    assert_eq!(present(&gateway, &token).status, 200);
    assert_eq!(origin.wait(1).header("authorization"), Some(format!("Bearer {token}").as_str()));
}
