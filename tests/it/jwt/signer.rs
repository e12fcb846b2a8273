//! Signs tokens with the `openssl` command: an implementation that shares nothing with the gateway's. A machine without it fails the tests.

use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// A key that signs, in files that go away with it.
pub(crate) struct Signer {
    dir: TempDir,
    kind: Kind,
    kid: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl Signer {
    pub(crate) fn new(kind: Kind, kid: &'static str) -> Self {
        let dir = TempDir::new().unwrap();
        let options: &[&str] = match kind {
            Kind::Rsa => &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            Kind::P256 => &["EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
            Kind::P384 => &["EC", "-pkeyopt", "ec_paramgen_curve:P-384"],
            Kind::Ed25519 => &["ed25519"],
        };
        let key = dir.path().join("key.pem");
        openssl(&[&["genpkey", "-out", key.to_str().unwrap(), "-algorithm"], options].concat());
        Self { dir, kind, kid: Some(kid) }
    }

    /// The public key in a PEM file.
    pub(crate) fn pem_file(&self) -> PathBuf {
        let file = self.dir.path().join("public.pem");
        fs::write(&file, self.pem()).unwrap();
        file
    }

    pub(crate) fn pem(&self) -> Vec<u8> {
        openssl(&["pkey", "-in", &self.key(), "-pubout"])
    }

    /// The private key's file.
    pub(crate) fn key(&self) -> String {
        self.dir.path().join("key.pem").to_str().unwrap().to_owned()
    }

    /// The public key as an element of a key set.
    pub(crate) fn jwk(&self) -> Value {
        let der = openssl(&["pkey", "-in", &self.key(), "-pubout", "-outform", "DER"]);
        let last = |n: usize| &der[der.len() - n..];
        let point = |crv: &str, half: usize| json!({ "kty": "EC", "crv": crv, "x": base64url(&last(2 * half)[..half]), "y": base64url(last(half)) });
        let mut jwk = match self.kind {
            Kind::Rsa => json!({ "kty": "RSA", "n": base64url(&self.modulus()), "e": "AQAB" }),
            Kind::P256 => point("P-256", 32),
            Kind::P384 => point("P-384", 48),
            Kind::Ed25519 => json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(last(32)) }),
        };
        if let Some(kid) = self.kid {
            jwk["kid"] = json!(kid);
        }
        jwk
    }

    fn modulus(&self) -> Vec<u8> {
        let printed = openssl(&["rsa", "-in", &self.key(), "-noout", "-modulus"]);
        let text = String::from_utf8(printed).unwrap();
        let digits = text.trim().strip_prefix("Modulus=").unwrap();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    /// A token with these claims, which `exp` in five minutes is added to unless they have one.
    pub(crate) fn token(&self, algorithm: &str, claims: Value) -> String {
        let mut header = json!({ "alg": algorithm, "typ": "JWT" });
        if let Some(kid) = self.kid {
            header["kid"] = json!(kid);
        }
        self.token_with(&header, claims)
    }

    /// The same with a header of the test's own; its `alg` says how it is signed.
    pub(crate) fn token_with(&self, header: &Value, claims: Value) -> String {
        let message = message(header, claims);
        let signature = self.sign(header["alg"].as_str().unwrap(), &message);
        format!("{message}.{}", base64url(&signature))
    }

    fn sign(&self, algorithm: &str, message: &str) -> Vec<u8> {
        let file = self.dir.path().join(format!("message-{:?}", std::thread::current().id()));
        fs::write(&file, message).unwrap();
        let (key, file) = (self.key(), file.to_str().unwrap().to_owned());
        let hash = format!("-sha{}", algorithm.trim_start_matches(|c: char| c.is_ascii_alphabetic()));
        match algorithm.get(..2).unwrap() {
            "RS" => openssl(&["dgst", &hash, "-sign", &key, &file]),
            "PS" => {
                let pss = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"];
                openssl(&[&["dgst", &hash, "-sign", &key][..], &pss, &[&file]].concat())
            }
            "ES" => raw(&openssl(&["dgst", &hash, "-sign", &key, &file]), if self.kind == Kind::P256 { 32 } else { 48 }),
            "Ed" => openssl(&["pkeyutl", "-sign", "-rawin", "-inkey", &key, "-in", &file]),
            other => panic!("cannot sign {other}"),
        }
    }
}

/// A token signed with a shared secret.
pub(crate) fn hmac_token(algorithm: &str, secret: &[u8], claims: Value) -> String {
    let message = message(&json!({ "alg": algorithm }), claims);
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("message");
    fs::write(&file, &message).unwrap();
    let hash = format!("-sha{}", &algorithm[2..]);
    let key = format!("hexkey:{}", secret.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let signature = openssl(&["dgst", &hash, "-mac", "HMAC", "-macopt", &key, "-binary", file.to_str().unwrap()]);
    format!("{message}.{}", base64url(&signature))
}

/// What is signed: header and claims.
pub(crate) fn message(header: &Value, mut claims: Value) -> String {
    if let Some(claims) = claims.as_object_mut() {
        claims.entry("exp").or_insert_with(|| json!(now() + 300));
    }
    format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(claims.to_string().as_bytes()))
}

/// A key set of these keys.
pub(crate) fn key_set(signers: &[&Signer]) -> String {
    json!({ "keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>() }).to_string()
}

/// Unix seconds.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut encoded = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        encoded.extend((0..=chunk.len()).map(|i| char::from(DIGITS[(bits >> (18 - 6 * i)) as usize & 63])));
    }
    encoded
}

/// OpenSSL's `SEQUENCE { INTEGER, INTEGER }` as the two numbers that RFC 7518 section 3.4 wants.
fn raw(der: &[u8], half: usize) -> Vec<u8> {
    let mut rest = &der[if der[1] < 0x80 { 2 } else { 3 }..];
    let mut signature = Vec::new();
    for _ in 0..2 {
        let (number, behind) = rest[2..].split_at(usize::from(rest[1]));
        let number: Vec<u8> = number.iter().copied().skip_while(|byte| *byte == 0).collect();
        signature.extend(std::iter::repeat_n(0, half - number.len()));
        signature.extend(number);
        rest = behind;
    }
    signature
}

fn openssl(args: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl").args(args).output().expect("the command `openssl` is there: see .ci/install");
    assert!(output.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
