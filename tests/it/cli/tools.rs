//! `hash-key`, `schema`, `explain` and the usual manners of a command.

use crate::harness::{DEADLINE, hashed, run};
use std::fs;

fn text(args: &[&str], stdin: &[u8]) -> (Option<i32>, String) {
    let output = run(args, stdin, DEADLINE).expect("the command ends");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn hash_key_reads_a_key_and_prints_what_the_file_wants() {
    for stdin in ["k1", "k1\n", "k1\r\n"] {
        let (code, out) = text(&["hash-key"], stdin.as_bytes());
        assert_eq!((code, out.trim()), (Some(0), hashed("k1").as_str()), "{stdin:?}");
    }
    let (code, out) = text(&["hash-key"], b"");
    assert!(code != Some(0) && !out.contains("sha256:"), "an empty key is no key: {code:?} {out}");
}

#[test]
fn the_schema_is_json_and_knows_the_sections() {
    let (code, out) = text(&["schema"], b"");
    let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, Some(0));
    for section in ["listeners", "limits", "routes", "upstreams", "identity", "clients"] {
        assert!(schema["properties"][section].is_object(), "{section} is missing");
    }
}

#[test]
fn explain_names_route_identity_and_limits() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    let key = hashed("k1");
    let yaml = format!(
        "listeners: [{{ name: public, address: 127.0.0.1:0 }}]
tiers: [free, gold]
clients: [{{ id: acme, api_keys: ['{key}'], tier: gold }}]
limits:
- {{ name: everybody, per: global, rate: 1000/s }}
- {{ name: plan, per: client, rate: {{ free: 1/s, gold: 77/min }} }}
- {{ name: uploads, match: {{ path: /image/analyze, methods: [POST] }}, per: client, rate: 10/min }}
- {{ name: elsewhere, match: {{ path: /elsewhere }}, per: client, rate: 10/min }}
routes:
- {{ name: images, match: {{ path: '/image/{{*rest}}' }}, upstream: api }}
- {{ name: rest, match: {{ path: '/{{*rest}}' }}, upstream: api }}
upstreams: {{ api: {{ endpoints: ['http://127.0.0.1:1'] }} }}
"
    );
    fs::write(&file, yaml).unwrap();
    let file = file.to_str().unwrap();
    let (code, out) = text(
        &[
            "explain",
            "--config",
            file,
            "--method",
            "POST",
            "--path",
            "/image/analyze",
            "--header",
            "x-api-key: k1",
            "--ip",
            "1.2.3.4",
        ],
        b"",
    );
    assert_eq!(code, Some(0), "{out}");
    for wanted in ["images", "acme", "gold", "everybody", "plan", "77", "uploads"] {
        assert!(out.contains(wanted), "{wanted:?} is missing in\n{out}");
    }
    assert!(!out.contains("k1"), "the key itself is printed:\n{out}");
    let (code, out) = text(&["explain", "--config", file, "--method", "GET", "--path", "/other", "--ip", "1.2.3.4"], b"");
    assert_eq!(code, Some(0));
    assert!(out.contains("1.2.3.4") && out.contains("free") && out.contains("rest"), "{out}");
}

#[test]
fn help_and_version_exit_0_and_unknown_commands_do_not() {
    assert_eq!(text(&["--help"], b"").0, Some(0));
    let (code, version) = text(&["--version"], b"");
    assert!(code == Some(0) && version.starts_with("tollgate "), "{version}");
    assert_eq!(text(&["frobnicate"], b"").0, Some(2));
}
