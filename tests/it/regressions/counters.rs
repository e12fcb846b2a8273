//! Requests that were counted under the wrong counter, and answers that named the wrong one.

use crate::harness::{Gateway, Origin, crlf, exchange, hashed};

/// What `GET target` with these fields (each ends in a newline) comes to.
fn ask(gateway: &Gateway, target: &str, fields: &str) -> String {
    exchange(gateway.addr(), crlf(&format!("GET {target} HTTP/1.1\nHost: a\n{fields}\n"))).outcome()
}

/// How a part of `per` is named, and how a request carries it once or twice; `<a>` and `<b>` are the values.
type Part = (&'static str, [(&'static str, &'static str); 2]);

const PARTS: &[Part] = &[
    ("{ header: x-k }", [("/", "x-k: <a>\n"), ("/", "x-k: <a>\nx-k: <b>\n")]),
    ("{ query: k }", [("/?k=<a>", ""), ("/?k=<a>&k=<b>", "")]),
    ("{ cookie: k }", [("/", "Cookie: k=<a>\n"), ("/", "Cookie: k=<a>; k=<b>\n")]),
    ("{ cookie: k }", [("/", "Cookie: k=<a>\n"), ("/", "Cookie: k=<a>\nCookie: k=<b>\n")]),
];

#[test]
fn a_second_value_of_a_counted_part_mints_no_counters() {
    for (part, [once, twice]) in PARTS {
        let origin = Origin::ok();
        let limit = format!("limits: [{{ name: three, per: {part}, rate: 3/hour, missing: shared }}]");
        let gateway = Gateway::before(&origin, &limit);
        let send = |(target, fields): &(&str, &str), a: &str, b: &str| {
            let fill = |text: &str| text.replace("<a>", a).replace("<b>", b);
            ask(&gateway, &fill(target), &fill(fields))
        };
        let exhausted: Vec<String> = (0..4).map(|_| send(once, "v", "")).collect();
        assert_eq!(exhausted, ["200", "200", "200", "429"], "{part}");
        let values: Vec<String> = (0..5).map(|i| format!("other-{i}")).collect();
        let pairs = values.iter().flat_map(|value| [("v", value.as_str()), (value, "v"), (value, value), (value, "w")]);
        let outcomes: Vec<String> = pairs.map(|(a, b)| send(twice, a, b)).collect();
        let admitted = outcomes.iter().filter(|outcome| *outcome == "200").count();
        assert!(admitted <= 3, "{part} twice: {admitted} admitted, {outcomes:?}");
        assert!(outcomes.iter().all(|outcome| ["200", "429"].contains(&outcome.as_str())), "{part} twice: {outcomes:?}");
    }
}

#[test]
fn a_better_tier_at_the_same_address_does_not_refill_an_exhausted_one() {
    for (rate, left) in [("10000/s", "9999"), ("1000/hour", "999"), ("1000/hour burst 10", "9")] {
        let origin = Origin::ok();
        let config = format!(
            "
trusted_proxies: loopback
tiers: [anonymous, pro]
identity: {{ order: [user, ip], user: {{ header: x-user-id, tier_header: x-user-tier }} }}
limits: [{{ name: plan, per: ip, rate: {{ anonymous: 2/hour, pro: {rate} }} }}]"
        );
        let gateway = Gateway::before(&origin, &config);
        let anonymous = "X-Forwarded-For: 198.51.100.7\n";
        let pro = "X-Forwarded-For: 198.51.100.7\nX-User-Id: u\nX-User-Tier: pro\n";
        assert_eq!([(); 3].map(|()| ask(&gateway, "/", anonymous)), ["200", "200", "429"], "pro: {rate}");
        let first = exchange(gateway.addr(), crlf(&format!("GET / HTTP/1.1\nHost: a\n{pro}\n"))).response();
        assert_eq!((first.status, first.header("x-ratelimit-remaining")), (200, Some(left)), "pro: {rate}");
        let fields = [anonymous, pro, anonymous, pro, anonymous];
        assert_eq!(fields.map(|fields| ask(&gateway, "/", fields)), ["429", "200", "429", "200", "429"], "pro: {rate}");
    }
}

#[test]
fn users_of_one_key_are_counted_apart_where_the_order_says_user_first() {
    let origin = Origin::ok();
    let key = hashed("k1");
    let config = format!(
        "
trusted_proxies: loopback
identity: {{ order: [user, api_key, ip], user: {{ header: x-user-id }}, api_key: {{ sources: [{{ header: x-api-key }}] }} }}
clients: [{{ id: c1, api_keys: ['{key}'] }}]
limits: [{{ name: two, per: client, rate: 2/hour }}]"
    );
    let gateway = Gateway::before(&origin, &config);
    for who in ["X-User-Id: u1\n", "X-User-Id: u2\n", ""] {
        let fields = format!("X-Forwarded-For: 198.51.100.7\nX-API-Key: k1\n{who}");
        let outcomes: Vec<String> = (0..3).map(|_| ask(&gateway, "/", &fields)).collect();
        assert_eq!(outcomes, ["200", "200", "429"], "{who:?}");
    }
}

#[test]
fn a_problem_body_names_the_policy_that_the_headers_name() {
    let origin = Origin::ok();
    let config = "rejection: { body: problem }\nlimits: [{ name: plan, per: ip, rate: [1/min, 100/day] }]";
    let gateway = Gateway::before(&origin, config);
    assert_eq!(gateway.get("/").status, 200);
    let refused = gateway.get("/");
    assert_eq!((refused.status, &refused.json()["violated-policies"]), (429, &serde_json::json!(["plan/1m"])));
    let policy = refused.header("ratelimit-policy").unwrap();
    assert!(policy.starts_with("\"plan/1m\";"), "{policy}");
}

#[test]
fn what_is_left_for_everybody_is_told_to_nobody() {
    let origin = Origin::ok();
    let config = "limits: [{ name: all, per: global, rate: 3/hour }, { name: own, per: client, rate: 9/hour }]";
    let gateway = Gateway::before(&origin, config);
    for left in ["8", "7", "6"] {
        let response = gateway.get("/");
        let told = ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| response.header(name));
        assert_eq!((response.status, told), (200, [Some("9"), Some(left)]));
        let state = response.header("ratelimit").unwrap();
        assert!(state.starts_with(&format!("\"own\";r={left};")) && !state.contains("all"), "{state}");
    }
    assert_eq!(gateway.get("/").status, 429);
}
