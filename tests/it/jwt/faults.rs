//! Tokens that are not believed: refused in the words of RFC 6750, or as good as none, and never shown anywhere.

use super::signer::{Kind, Signer, base64url, hmac_token, message, now};
use super::{ask, jwt, present, result};
use crate::harness::{DEADLINE, Gateway, H2, Origin, Table, hashed, run};
use serde_json::{Value, json};
use std::fs;

const RULES: &str = "algorithms: [RS256, PS256], issuer: 'https://idp.example/', audience: [api, api-2], leeway: 5s";

fn claims() -> Value {
    json!({ "sub": "u-1", "iss": "https://idp.example/", "aud": "api" })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

fn pem_keys(signer: &Signer) -> String {
    format!("{{ public_key_file: '{}' }}", signer.pem_file().display())
}

#[test]
fn what_is_wrong_with_a_token_is_401_and_a_metric_says_what() {
    let origin = Origin::ok();
    let (signer, stranger) = (Signer::new(Kind::Rsa, "a"), Signer::new(Kind::Rsa, "a"));
    let gateway = Gateway::before(&origin, &jwt(&pem_keys(&signer), RULES));
    let rs256 = |claims| signer.token("RS256", claims);
    let unsigned = |alg: &str| format!("{}.", message(&json!({ "alg": alg }), claims()));
    let stolen_signature = {
        let (mine, theirs) = (rs256(claims()), rs256(with("sub", json!("admin"))));
        format!("{}.{}", theirs.rsplit_once('.').unwrap().0, mine.rsplit_once('.').unwrap().1)
    };
    // The attack of CVE-2015-9235: the public key, which anybody can have, used as a shared secret.
    let confused = hmac_token("HS256", &signer.pem(), claims());
    let long = format!("{}.{}.{}", "a".repeat(3000), "b".repeat(3000), "c".repeat(3000));
    let rows = [
        ("good", rs256(claims()), "verified"),
        ("the other algorithm", signer.token("PS256", claims()), "verified"),
        ("audiences", rs256(with("aud", json!(["x", "api-2"]))), "verified"),
        ("expired within the leeway", rs256(with("exp", json!(now() - 2))), "verified"),
        ("begins within the leeway", rs256(with("nbf", json!(now() + 2))), "verified"),
        ("expired", rs256(with("exp", json!(now() - 60))), "expired"),
        ("not yet valid", rs256(with("nbf", json!(now() + 60))), "not_yet_valid"),
        ("exp is text", rs256(with("exp", json!("9999999999"))), "malformed"),
        ("exp is null", rs256(with("exp", Value::Null)), "malformed"),
        ("wrong issuer", rs256(with("iss", json!("https://idp.example"))), "issuer"),
        ("no issuer", rs256(without("iss")), "issuer"),
        ("wrong audience", rs256(with("aud", json!("API"))), "audience"),
        ("wrong audiences", rs256(with("aud", json!(["x", "y"]))), "audience"),
        ("no audience", rs256(without("aud")), "audience"),
        ("an algorithm that is not allowed", signer.token("RS512", claims()), "algorithm"),
        ("key confusion", confused, "algorithm"),
        ("key confusion, unsigned", unsigned("HS256"), "algorithm"),
        ("none", unsigned("none"), "malformed"),
        ("nOnE", unsigned("nOnE"), "malformed"),
        ("none with a signature", format!("{}c2ln", unsigned("none")), "malformed"),
        ("another key", stranger.token("RS256", claims()), "signature"),
        ("another token's signature", stolen_signature, "signature"),
        ("no signature", unsigned("RS256"), "signature"),
        ("critical extension", signer.token_with(&json!({ "alg": "RS256", "crit": ["x"], "x": 1 }), claims()), "malformed"),
        ("claims are a list", signer.token("RS256", json!(["sub"])), "malformed"),
        ("oversize", long, "too_large"),
        ("garbage", "k1".to_owned(), "malformed"),
        ("more garbage", "a.b.c".to_owned(), "malformed"),
        ("five parts", "a.b.c.d.e".to_owned(), "malformed"),
        ("a blank in it", "a.b.c d".to_owned(), "ambiguous"),
    ];
    let mut table = Table::new("tokens");
    for (name, token, expected) in rows {
        let before = result(&gateway, expected);
        let response = present(&gateway, &token);
        table.outcome(name, if expected == "verified" { "200" } else { "401" }, &response.status.to_string());
        let counted = result(&gateway, expected) - before;
        table.row(name, if counted == 1.0 { String::new() } else { format!("{counted} counted as {expected}") });
        let challenge = response.header("www-authenticate").unwrap_or_default();
        let description = match expected {
            "verified" => continue,
            "expired" => "the token has expired",
            "not_yet_valid" => "the token is not valid yet",
            "ambiguous" => "more than one token was sent, or one that can be read in two ways",
            _ => "the token is not valid",
        };
        let wanted = format!("Bearer realm=\"tollgate\", error=\"invalid_token\", error_description=\"{description}\"");
        table.row(name, if challenge == wanted { String::new() } else { format!("challenged with {challenge}") });
        let shown = [response.text(), gateway.log(), gateway.metrics()].concat();
        table.row(name, if token.len() > 10 && shown.contains(&token) { "the token is shown" } else { "" });
    }
}

/// RFC 7515 section 4.1.11: what is critical must be understood, and nothing is.
#[test]
fn no_critical_extension_is_understood_and_only_the_claims_that_are_asked_for_matter() {
    let origin = Origin::ok();
    let signer = Signer::new(Kind::Rsa, "a");
    let gateway = Gateway::before(&origin, &jwt(&pem_keys(&signer), &format!("{RULES}, claims: {{ user: uid }}")));
    let header = |more: Value| {
        let mut header = json!({ "alg": "RS256" });
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        signer.token_with(&header, claims())
    };
    let rs256 = |claims| signer.token("RS256", claims);
    let rows = [
        ("b64", header(json!({ "crit": ["b64"], "b64": true })), 401),
        ("null", header(json!({ "crit": null })), 401),
        ("an empty list", header(json!({ "crit": [] })), 401),
        ("text", header(json!({ "crit": "x" })), 401),
        ("an extension that is not critical", header(json!({ "x": 1 })), 200),
        ("sub is a list", rs256(with("sub", json!(["u-1"]))), 200),
        ("sub is an object", rs256(with("sub", json!({ "id": "u-1" }))), 200),
        ("sub is null", rs256(with("sub", Value::Null)), 200),
        ("jti and iat are objects", rs256(with("iat", json!({ "jti": {} }))), 200),
        ("the user is a list", rs256(with("uid", json!(["u-1"]))), 200),
    ];
    let mut table = Table::new("extensions and claims");
    for (name, token, status) in rows {
        table.outcome(name, &status.to_string(), &present(&gateway, &token).status.to_string());
    }
}

#[test]
fn no_token_is_no_error_and_several_in_one_place_are() {
    let origin = Origin::ok();
    let signer = Signer::new(Kind::Rsa, "a");
    let token = &signer.token("RS256", claims());
    let sources = "sources: [bearer, { header: x-token }, { cookie: session }, { query: token }]";
    let config = |invalid: &str| jwt(&pem_keys(&signer), &format!("{RULES}, {sources}, invalid: {invalid}"));
    for (invalid, garbage) in [("reject", "401"), ("anonymous", "200")] {
        let gateway = Gateway::before(&origin, &config(invalid));
        let mut table = Table::new(if invalid == "reject" { "sources, reject" } else { "sources, anonymous" });
        let rows = [
            ("nothing", String::new(), "200"),
            ("another scheme", "Authorization: Basic YTpi".into(), "200"),
            ("empty", "Authorization: Bearer\nX-Token:\nCookie: session=; a=b".into(), "200"),
            ("bearer", format!("Authorization: bEARER  {token}"), "200"),
            ("header", format!("X-Token: {token}"), "200"),
            ("cookie", format!("Cookie: a=b; session={token}"), "200"),
            ("garbage in a header", "X-Token: nonsense".into(), garbage),
            ("garbage in a cookie", "Cookie: session=nonsense".into(), garbage),
            ("the first source counts", format!("Authorization: Bearer {token}\nX-Token: nonsense"), "200"),
            ("the first source counts, the other way", format!("Authorization: Bearer nonsense\nX-Token: {token}"), garbage),
            ("two lines", format!("Authorization: Bearer {token}\nAuthorization: Bearer {token}"), "401"),
            ("two headers", format!("X-Token: {token}\nX-Token: {token}"), "401"),
            ("two cookies", format!("Cookie: session={token}; session={token}"), "401"),
        ];
        for (name, fields, expected) in rows {
            table.outcome(name, expected, &ask(&gateway, &fields).status.to_string());
        }
        let query = |query: String| gateway.get(&format!("/?{query}")).status.to_string();
        table.outcome("query", "200", &query(format!("token={token}")));
        table.outcome("query, forged", garbage, &query(format!("token={token}x")));
        table.outcome("query, twice", "401", &query(format!("token={token}&token={token}")));
        assert!(result(&gateway, "cached") >= 4.0, "the same token is verified once");
        assert_eq!(result(&gateway, "verified"), 1.0);
    }
}

#[test]
fn a_bearer_value_is_a_token_or_a_key_by_its_shape() {
    let origin = Origin::ok();
    let signer = Signer::new(Kind::Rsa, "a");
    let shaped = "key.with.dots";
    let config = format!(
        "identity: {{ api_key: {{ sources: bearer }}, user: {{ jwt: {{ keys: {}, {RULES} }} }} }}
clients: [{{ id: c1, api_keys: ['{}', '{}'] }}]",
        pem_keys(&signer),
        hashed("k1"),
        hashed(shaped)
    );
    let gateway = Gateway::before(&origin, &config);
    let challenge = |token: &str| {
        let response = present(&gateway, token);
        (response.status, response.header("www-authenticate").map(|value| value.split(' ').next().unwrap().to_owned()))
    };
    assert_eq!(challenge(&signer.token("RS256", claims())), (200, None));
    assert_eq!(challenge("k1"), (200, None));
    assert_eq!(challenge("k2"), (401, Some("ApiKey".into())));
    assert_eq!(challenge("a.b.c"), (401, Some("Bearer".into())));
    // A key that looks like a token is looked at as one.
    assert_eq!(challenge(shaped), (401, Some("Bearer".into())));
}

#[test]
fn tokens_are_the_same_over_http_2() {
    let origin = Origin::ok();
    let signer = Signer::new(Kind::Rsa, "a");
    let gateway = Gateway::before(&origin, &jwt(&pem_keys(&signer), RULES));
    let status = |token: &str| {
        let authorization = format!("Bearer {token}");
        let fields =
            [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/"), ("authorization", &authorization)];
        H2::connect(gateway.addr()).ask(&fields, None).outcome()
    };
    assert_eq!(status(&signer.token("RS256", claims())), "200");
    assert_eq!(status("a.b.c"), "401");
}

#[test]
fn check_says_what_is_wrong_with_keys() {
    let dir = tempfile::TempDir::new().unwrap();
    let at = |name: &str, text: &[u8]| {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let (rsa, ec) = (Signer::new(Kind::Rsa, "a"), Signer::new(Kind::P256, "a"));
    let empty = at("empty.json", b"{\"keys\":[]}");
    let text = at("text.json", b"nothing");
    let private = rsa.key();
    let public = rsa.pem_file().display().to_string();
    let set = at("set.json", json!({ "keys": [ec.jwk()] }).to_string().as_bytes());
    let short = base64url(&[0; 31]);
    let two = at("two.pem", &[rsa.pem(), ec.pem()].concat());
    let rows = [
        ("{}", "", "keys: write exactly one of jwks_url, jwks_file, public_key_file and secret"),
        (&format!("{{ secret: x, jwks_file: '{set}' }}"), "", "keys: write exactly one of"),
        (&format!("{{ public_key_file: '{two}' }}"), "", "two.pem: more than one key or certificate"),
        ("{ jwks_file: /nowhere }", "", "keys.jwks_file: /nowhere: No such file"),
        ("{ jwks_file: / }", "", "keys.jwks_file: /: not a regular file"),
        (&format!("{{ jwks_file: '{text}' }}"), "", "text.json: not a JSON Web Key Set"),
        (&format!("{{ jwks_file: '{empty}' }}"), "", "keys.jwks_file: no key here is good for any of `algorithms`"),
        (&format!("{{ jwks_file: '{set}' }}"), "algorithms: [RS256]", "no key here is good for any of `algorithms`"),
        (&format!("{{ jwks_file: '{set}' }}"), "algorithms: [ES256, HS256]", "algorithms: HS algorithms are for secrets"),
        (&format!("{{ jwks_file: '{set}' }}"), "algorithms: []", "algorithms: without an algorithm"),
        (&format!("{{ jwks_file: '{set}' }}"), "algorithms: [none]", "algorithms[0]: expected one of `RS256`"),
        (&format!("{{ jwks_file: '{set}' }}"), "algorithms: [ES265]", "unknown variant `ES265`, expected one of"),
        (&format!("{{ public_key_file: '{private}' }}"), "", "this is a private key"),
        (&format!("{{ public_key_file: '{set}' }}"), "", "not a public key in PEM form"),
        (&format!("{{ public_key_file: '{public}' }}"), "algorithms: [HS256]", "no key here is good for any of `algorithms`"),
        (&format!("{{ secret: 'base64:{short}' }}"), "", "keys.secret: HS256 needs a secret of 32 bytes or more; this has 31"),
        ("{ secret: 'base64:!' }", "", "keys.secret: after base64: there must be base64"),
        (&format!("{{ secret: '{}' }}", "x".repeat(40)), "algorithms: [HS256, HS512]", "HS512 needs a secret of 64 bytes"),
        (&format!("{{ secret: '{}' }}", "x".repeat(40)), "algorithms: [RS256]", "no key here is good for any of `algorithms`"),
        ("{ jwks_url: idp.example }", "", "keys.jwks_url: write http://host/path or https://host/path"),
        ("{ jwks_url: 'https://u:p@idp.example/' }", "", "without a user"),
        ("{ jwks_url: 'https://idp.example/' }", "algorithms: [HS256]", "keys at a URL are public"),
        ("{ jwks_url: 'https://idp.example/', refresh: 10ms }", "", "keys.refresh: must be at least a second"),
        (&format!("{{ jwks_url: 'https://idp.example/', ca: '{set}' }}"), "", "set.json: not a list of certificates"),
        (&format!("{{ jwks_file: '{set}', ca: '{set}' }}"), "", "keys.ca: this is about `jwks_url`"),
        (&format!("{{ jwks_file: '{set}' }}"), "claims: { user: '' }", "claims.user: write the name of a claim"),
        (&format!("{{ jwks_file: '{set}' }}"), "audience: ['']", "audience[0]: empty text"),
        (&format!("{{ jwks_file: '{set}' }}"), "sources: { claim: x }", "neither a key nor a token comes in a claim"),
    ];
    let mut table = Table::new("configurations");
    for (keys, more, expected) in rows {
        let whole = format!("listeners: [{{ name: a, address: '127.0.0.1:1' }}]\nroutes: []\n{}\n", jwt(keys, more));
        let output = run(&["check", &at("gateway.yaml", whole.as_bytes())], b"", DEADLINE).expect("check ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        table.row(
            &format!("{keys} {more}"),
            if said.contains(expected) { String::new() } else { format!("no {expected:?} in {said}") },
        );
    }
    let claim =
        "listeners: [{ name: a, address: '127.0.0.1:1' }]\nroutes: []\nlimits: [{ name: a, per: { claim: x }, rate: 1/s }]\n";
    let output = run(&["check", &at("gateway.yaml", claim.as_bytes())], b"", DEADLINE).expect("check ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    table.row("a claim without tokens", if said.contains("without `identity.user.jwt` none is read") { "" } else { &said });
}
