//! Every algorithm with every source of keys that it can have, signed by OpenSSL.

use super::signer::{Kind, Signer, hmac_token, key_set};
use super::{jwt, present, result};
use crate::harness::{Gateway, Origin, Table};
use serde_json::json;
use std::fs;

const ALL: &str = "[RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA]";
const BY_KIND: [(Kind, &[&str]); 4] = [
    (Kind::Rsa, &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]),
    (Kind::P256, &["ES256"]),
    (Kind::P384, &["ES384"]),
    (Kind::Ed25519, &["EdDSA"]),
];

#[test]
fn every_public_key_algorithm_is_believed_with_keys_from_a_set() {
    let origin = Origin::ok();
    let signers = BY_KIND.map(|(kind, algorithms)| (Signer::new(kind, algorithms[0]), algorithms));
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("jwks.json");
    fs::write(&file, key_set(&signers.iter().map(|(signer, _)| signer).collect::<Vec<_>>())).unwrap();
    let keys = format!("{{ jwks_file: '{}' }}", file.display());
    let gateway = Gateway::before(&origin, &jwt(&keys, &format!("algorithms: {ALL}")));
    let mut table = Table::new("algorithms, from a key set");
    for (signer, algorithms) in &signers {
        for algorithm in *algorithms {
            let token = signer.token(algorithm, json!({ "sub": "u-1" }));
            table.outcome(algorithm, "200", &present(&gateway, &token).status.to_string());
            let (message, signature) = token.rsplit_once('.').unwrap();
            let flipped = if signature.starts_with('A') { "B" } else { "A" };
            let forged = format!("{message}.{flipped}{}", &signature[1..]);
            table.outcome(&format!("{algorithm}, forged"), "401", &present(&gateway, &forged).status.to_string());
        }
    }
    assert_eq!(result(&gateway, "verified"), 9.0);
}

#[test]
fn every_public_key_algorithm_is_believed_with_a_key_from_a_pem_file() {
    let origin = Origin::ok();
    let mut table = Table::new("algorithms, from a PEM file");
    for (kind, algorithms) in BY_KIND {
        let signer = Signer::new(kind, "ignored");
        let keys = format!("{{ public_key_file: '{}' }}", signer.pem_file().display());
        let gateway = Gateway::before(&origin, &jwt(&keys, &format!("algorithms: [{}]", algorithms.join(", "))));
        for algorithm in algorithms {
            let token = signer.token(algorithm, json!({ "sub": "u-1" }));
            table.outcome(algorithm, "200", &present(&gateway, &token).status.to_string());
        }
        let other = Signer::new(kind, "ignored").token(algorithms[0], json!({ "sub": "u-1" }));
        table.outcome(&format!("{kind:?}, another key"), "401", &present(&gateway, &other).status.to_string());
    }
}

#[test]
fn secrets_are_text_or_base64() {
    let origin = Origin::ok();
    let secret = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let base64 = "base64:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==";
    let mut table = Table::new("secrets");
    for written in [secret, base64] {
        let gateway = Gateway::before(&origin, &jwt(&format!("{{ secret: '{written}' }}"), "algorithms: [HS256, HS384, HS512]"));
        for algorithm in ["HS256", "HS384", "HS512"] {
            let token = hmac_token(algorithm, secret.as_bytes(), json!({ "sub": "u-1" }));
            table.outcome(algorithm, "200", &present(&gateway, &token).status.to_string());
        }
        let other = hmac_token("HS256", &[7; 32], json!({ "sub": "u-1" }));
        table.outcome("another secret", "401", &present(&gateway, &other).status.to_string());
    }
}
