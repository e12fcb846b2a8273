//! The vectors of RFC 7515 appendix A, others with its payload that OpenSSL 3.0 signed, and what is wrong with each when something is
//! changed.

use super::*;
use http::{HeaderMap, HeaderValue};
use serde_json::json;

use crate::request::{ConnInfo, Facts, PathRules};

/// `{"iss":"joe", "exp":1300819380, "http://example.com/is_root":true}`, with line breaks.
const PAYLOAD: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
const EXPIRES: u64 = 1_300_819_380;

struct Vector {
    algorithm: Algorithm,
    header: &'static str,
    signature: &'static str,
    key: fn() -> KeySet,
}

/// RFC 7515 appendix A.1.
const HS256: Vector = Vector {
    algorithm: Algorithm::HS256,
    header: "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9",
    signature: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    key: || {
        jwk(
            json!({ "kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow" }),
        )
    },
};
/// Appendix A.2.
const RS256: Vector = Vector {
    algorithm: Algorithm::RS256,
    header: "eyJhbGciOiJSUzI1NiJ9",
    signature: "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw",
    key: || {
        jwk(
            json!({ "kty": "RSA", "e": "AQAB", "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ" }),
        )
    },
};
/// Appendix A.3.
const ES256: Vector = Vector {
    algorithm: Algorithm::ES256,
    header: "eyJhbGciOiJFUzI1NiJ9",
    signature: "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    key: || {
        jwk(
            json!({ "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0" }),
        )
    },
};
const EDDSA: Vector = Vector {
    algorithm: Algorithm::EdDSA,
    header: "eyJhbGciOiJFZERTQSJ9",
    signature: "zHNANlmnJfyU8V9lXRIqqUKH8XE0z95oaDnVNtHbPUADSxhwvrbPzsHhinEQ52JJMN7Zs8v2pHrx4dUvw8FOBA",
    key: || pem("MCowBQYDK2VwAyEAuVCZ63tqZCGpp5puf4sTxxQjFgVxnrWoXAzUhp1VpEw="),
};
const PS256: Vector = Vector {
    algorithm: Algorithm::PS256,
    header: "eyJhbGciOiJQUzI1NiJ9",
    signature: "g_GBtPFrcFRynLA4oe_J5Dzdm0oo7OvFGNyo08ddly247i7OQBgYBXSER30EfYZVZAh4sVyHxXDtXiGPoVjTRmK4UzAx31zGOofwGt2EYJi_9ilIoQ9_WyCjQ9YhNIcyo-zaMM5CFa5oTGS4qWKMBVqKLCG2WU1UmKhuOwXDoaiVy6exhQ3V7pCLHp3GZ2xy62-FhQ9erObxjLF3k_8QqpS7wSUNC1BqgURo_kVSD2IzChYH7a0qI_BJg1ggDGH1oZrbd-2nsk7fJMvnfTSZ0XxdfLOIbE9t9KhnO4HHwEHGENT8DCKGsNin1pkriU0Gil4FdffhBnfYD7FXChtduQ",
    key: || {
        pem(
            "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAvf9wpnAb9psjdQJVEfcLsbhVanpuNQvCcI6+z+kBAeMc+eu82nv2OFoatwiSmujfe1SIVWeDEGa5j7CIG+JKz7FhxN4gP9A6F6sP5EZmLzWD4YzuJqA+dB5Y7aYJZt/zYWsxZ1dxRtefaxATNSUI9AlD9SFtjGvRJ6Wh7Ar87V+kSbK2KtcXQc3JbK6wSGWPQJIyCL45sL3Bm8a/iIciw5r1Yw51RSN72FeDEyegeh/kSkdieCP8zs0Ir6KbbhhS4V4EB1BYlJEc/zJ3Co/U7GmN4cSRL7sFIYL4SbfwcoesThk2MBH6+DhJuw04h9w+DwqhSEI9p90/ZupBFJQ/FQIDAQAB",
        )
    },
};
const ES384: Vector = Vector {
    algorithm: Algorithm::ES384,
    header: "eyJhbGciOiJFUzM4NCJ9",
    signature: "VF6Aedd2vVBzDjStRrfjil5g4SOOQYkjQW9zUGHEjlviP8yMoIvukrm1yn6xmyxa6yymEhVrsmLox_jWqS2wRqm-fcyc24SIK6kkkUR013AdhzPWA1ElBwdJbD5rBCOs",
    key: || {
        pem(
            "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAENok7v5eH/jsfB7+HHZGpoK0kaQSley7xYoHpnFeYcNJsobPL4lxQuu0QEcu7hQ4udUnbJdyH55OWNBPvqeM8+oyq+CjBPMcHrlqx4Mogl3DZdGomctxuToSNHY4SIEM3",
        )
    },
};

fn jwk(key: Value) -> KeySet {
    KeySet::from_jwks(json!({ "keys": [key] }).to_string().as_bytes()).unwrap()
}

fn pem(base64: &str) -> KeySet {
    let lines: Vec<_> = base64.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    KeySet::from_pem(format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n")).as_bytes()).unwrap()
}

fn verifier(algorithms: &[Algorithm], keys: KeySet) -> Verifier {
    Verifier {
        sources: vec![KeySource::Bearer],
        keys: Arc::new(KeyRing::fixed(keys)),
        algorithms: algorithms.to_vec(),
        issuers: vec!["joe".into()],
        audiences: Vec::new(),
        leeway: 0,
        claims: ClaimPaths { user: "iss".into(), counted: vec!["http://example.com/is_root".into()], ..ClaimPaths::default() },
        reject_invalid: true,
        strip: false,
        id: Id::default(),
    }
}

impl Vector {
    fn token(&self) -> String {
        [self.header, PAYLOAD, self.signature].join(".")
    }

    fn verifier(&self) -> Verifier {
        verifier(&[self.algorithm], (self.key)())
    }
}

const VECTORS: [Vector; 6] = [HS256, RS256, ES256, EDDSA, PS256, ES384];

fn verify(verifier: &Verifier, token: &str, now: u64) -> Result<Verified, TokenFault> {
    let keys = verifier.keys.current();
    verifier.verify(keys.as_ref().unwrap(), token.as_bytes(), now)
}

#[test]
fn the_vectors_of_the_standards_are_believed_until_they_expire() {
    for vector in VECTORS {
        let verifier = vector.verifier();
        let verified =
            verify(&verifier, &vector.token(), EXPIRES - 1).unwrap_or_else(|fault| panic!("{:?}: {fault:?}", vector.algorithm));
        assert_eq!(verified.expires, EXPIRES);
        assert_eq!(verified.claims.user.as_deref(), Some("joe"));
        assert_eq!(verified.claims.counted(ClaimId(0)), Some("true"));
        assert_eq!(verified.claims.counted(ClaimId(1)), None);
        assert_eq!(verify(&verifier, &vector.token(), EXPIRES).err(), Some(TokenFault::Expired));
    }
}

/// A flipped bit anywhere makes another token, and none of them is believed.
#[test]
fn whatever_is_changed_is_not_believed() {
    for vector in VECTORS {
        let (verifier, token) = (vector.verifier(), vector.token());
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(verify(&verifier, &changed, EXPIRES - 1).is_err(), "{:?} with byte {at} changed", vector.algorithm);
        }
        for cut in 1..token.len() {
            assert!(verify(&verifier, token.split_at(cut).0, EXPIRES - 1).is_err());
        }
    }
}

/// Every token with every key, and with every algorithm allowed: only the own key fits.
#[test]
fn a_key_fits_its_own_kind_only() {
    for vector in &VECTORS {
        for other in &VECTORS {
            let verifier = verifier(&VECTORS.map(|vector| vector.algorithm), (other.key)());
            let result = verify(&verifier, &vector.token(), EXPIRES - 1);
            let (is_own, is_of_a_kind) =
                (vector.algorithm == other.algorithm, vector.algorithm.family() == other.algorithm.family());
            match result {
                Ok(_) => assert!(is_own),
                Err(TokenFault::Signature) => {
                    assert!(!is_own && is_of_a_kind && vector.algorithm.family() != jsonwebtoken::AlgorithmFamily::Ec)
                }
                Err(TokenFault::Algorithm) => assert!(!is_own),
                Err(fault) => panic!("{:?} with the key for {:?}: {fault:?}", vector.algorithm, other.algorithm),
            }
        }
        let allowed = VECTORS.map(|vector| vector.algorithm).into_iter().filter(|algorithm| *algorithm != vector.algorithm);
        let verifier = verifier(&allowed.collect::<Vec<_>>(), (vector.key)());
        assert_eq!(verify(&verifier, &vector.token(), EXPIRES - 1).err(), Some(TokenFault::Algorithm));
    }
}

fn base64url(text: &str) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut encoded = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        encoded.extend((0..=chunk.len()).map(|i| char::from(digits[(bits >> (18 - 6 * i)) as usize & 63])));
    }
    encoded
}

#[test]
fn headers_that_mean_something_else_are_not_believed() {
    for (header, fault) in [
        (r#"{"alg":"none"}"#, TokenFault::Malformed),
        (r#"{"alg":"None"}"#, TokenFault::Malformed),
        (r#"{"alg":"hs256"}"#, TokenFault::Malformed),
        (r#"{"alg":""}"#, TokenFault::Malformed),
        (r#"{"alg":null}"#, TokenFault::Malformed),
        (r#"{"alg":["HS256"]}"#, TokenFault::Malformed),
        (r#"{"alg":"none","alg":"HS256"}"#, TokenFault::Malformed),
        (r#"{"typ":"JWT"}"#, TokenFault::Malformed),
        ("{}", TokenFault::Malformed),
        ("[]", TokenFault::Malformed),
        ("nonsense", TokenFault::Malformed),
        (r#"{"alg":"HS256","kid":7}"#, TokenFault::Malformed),
        (r#"{"alg":"HS256","crit":["exp"]}"#, TokenFault::Malformed),
        (r#"{"alg":"HS256","crit":["b64"],"b64":true}"#, TokenFault::Malformed),
        (r#"{"alg":"HS256","crit":null}"#, TokenFault::Malformed),
        (r#"{"alg":"HS256","crit":[]}"#, TokenFault::Malformed),
        (r#"{"alg":"HS256","b64":false}"#, TokenFault::Malformed),
        (r#"{"alg":"HS256","b64":null}"#, TokenFault::Malformed),
        (r#"{"alg":"HS512"}"#, TokenFault::Algorithm),
        (r#"{"alg":"RS256"}"#, TokenFault::Algorithm),
        (r#"{"alg":"HS256"}"#, TokenFault::Signature),
        (r#"{"alg":"HS256","kid":"any"}"#, TokenFault::Signature),
        (r#"{"alg":"HS256","jwk":{"kty":"oct","k":"AAAA"}}"#, TokenFault::Signature),
    ] {
        let token = [&base64url(header), PAYLOAD, HS256.signature].join(".");
        assert_eq!(verify(&HS256.verifier(), &token, EXPIRES - 1).err(), Some(fault), "{header}");
    }
}

#[test]
fn what_is_not_shaped_like_a_token_is_none() {
    let verifier = HS256.verifier();
    for garbage in ["", ".", "..", "...", "a.b", "a..c", ".b.c", "a.b.c.d", "a b.c.d", "a.b.c=", "a.b+.c", "ä.b.c", "k1"] {
        assert!(!is_shaped_like_a_token(garbage.as_bytes()), "{garbage}");
        assert_eq!(verify(&verifier, garbage, 0).err(), Some(TokenFault::Malformed), "{garbage}");
    }
    for shaped in ["a.b.c", "a.b.", &HS256.token()] {
        assert!(is_shaped_like_a_token(shaped.as_bytes()), "{shaped}");
    }
    let oversize = format!("{}.{}.{}", HS256.header, "a".repeat(8 << 10), HS256.signature);
    assert_eq!(verify(&verifier, &oversize, 0).err(), Some(TokenFault::TooLarge));
}

#[test]
fn a_believed_token_is_known_again_until_it_expires_or_keys_or_rules_change() {
    let mut cache = Cache::default();
    let (verifier, token) = (HS256.verifier(), HS256.token());
    let mut check = |verifier: &Verifier, now| cache.check(verifier, token.as_bytes(), now).map(|(_, checked)| checked);
    assert_eq!(check(&verifier, EXPIRES - 2), Ok(Checked::Verified));
    assert_eq!(check(&verifier, EXPIRES - 1), Ok(Checked::Cached));
    assert_eq!(check(&verifier, EXPIRES), Err(TokenFault::Expired));
    // The same rules, compiled again.
    assert_eq!(check(&HS256.verifier(), EXPIRES - 1), Ok(Checked::Verified));
    assert_eq!(check(&verifier, EXPIRES - 1), Ok(Checked::Verified));
    assert!(verifier.keys.fetched(Some(KeySet::from_secret(b"another").unwrap())));
    assert_eq!(check(&verifier, EXPIRES - 1), Err(TokenFault::Signature));
    assert_eq!(check(&verifier, EXPIRES - 1), Err(TokenFault::Signature), "what is not believed is not known");
    assert!(verifier.keys.fetched(Some((HS256.key)())));
    assert_eq!(check(&verifier, EXPIRES - 1), Ok(Checked::Verified));
}

#[test]
fn where_keys_are_looked_for_too_the_shape_decides() {
    let token = HS256.token();
    let bearer = |value: &str| format!("Bearer {value}");
    let find = |lines: &[String], key_sources: &[KeySource]| {
        let mut request = http::Request::new(());
        *request.headers_mut() = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static("a"))]);
        for line in lines {
            request.headers_mut().append("authorization", HeaderValue::from_str(line).unwrap());
        }
        let (parts, ()) = request.into_parts();
        let conn = ConnInfo::new(([127, 0, 0, 1], 1).into(), "http");
        let facts =
            Facts::read(&parts, &conn, &PathRules { distinct_trailing_slash: false, allow_encoded_slash: false }).unwrap();
        let found = HS256.verifier().find(&facts, key_sources)?;
        Ok(found.map(|found| String::from_utf8(found.into_owned()).unwrap()))
    };
    let shared = [KeySource::Bearer];
    assert_eq!(find(&[], &[]), Ok(None));
    assert_eq!(find(&[bearer(&token)], &[]), Ok(Some(token.clone())));
    assert_eq!(find(&[bearer(&token)], &shared), Ok(Some(token.clone())));
    assert_eq!(find(&[bearer("k1")], &[]), Ok(Some("k1".to_owned())));
    assert_eq!(find(&[bearer("k1")], &shared), Ok(None));
    assert_eq!(find(&["Basic YTpi".to_owned()], &[]), Ok(None));
    assert_eq!(find(&["bearer".to_owned()], &[]), Ok(None));
    assert_eq!(find(&[format!("Bearer\t{token}")], &[]), Ok(Some(token.clone())));
    assert_eq!(find(&[format!("Bearer:{token}")], &[]), Err(TokenFault::Ambiguous));
    assert_eq!(find(&[bearer("k1 k2")], &shared), Err(TokenFault::Ambiguous));
    assert_eq!(find(&[bearer(&token), bearer(&token)], &[]), Err(TokenFault::Ambiguous));
}

proptest::proptest! {
    #[test]
    fn nothing_made_up_is_believed_or_panics(header in "\\PC{0,80}", claims in "\\PC{0,80}", signature in "[A-Za-z0-9_-]{0,90}") {
        let token = [base64url(&header), base64url(&claims), signature].join(".");
        proptest::prop_assert!(verify(&HS256.verifier(), &token, EXPIRES - 1).is_err());
    }

    #[test]
    fn any_header_of_json_is_read_or_refused(
        algorithm in "[A-Za-z0-9]{0,8}|HS256|none|RS256",
        kid in "\\PC{0,20}",
        others in proptest::collection::vec(("[a-z]{1,6}", "\\PC{0,8}"), 0..4),
    ) {
        let mut header = json!({ "alg": algorithm, "kid": kid });
        for (name, value) in others {
            header[name] = value.into();
        }
        let token = [base64url(&header.to_string()), PAYLOAD.to_owned(), HS256.signature.to_owned()].join(".");
        proptest::prop_assert!(verify(&HS256.verifier(), &token, EXPIRES - 1).is_err());
    }

    #[test]
    fn any_bytes_have_a_shape(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        let keys = HS256.verifier().keys.current();
        proptest::prop_assert!(HS256.verifier().verify(keys.as_ref().unwrap(), &bytes, 0).is_err());
    }
}
