//! `clients_file`: what is in it, what is wrong in it, and that it is followed.

use super::ask;
use crate::harness::{DEADLINE, Gateway, Origin, Table, exchange, hashed, run, until};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const LIMIT: &str = "tiers: [free, pro]\nlimits: [{ name: plan, per: client, rate: { free: 1/hour, pro: 3/hour } }]";

fn written(text: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("clients.yaml");
    fs::write(&file, text).unwrap();
    (dir, file)
}

fn config(file: &Path, more: &str) -> String {
    format!("clients_file: {}\n{LIMIT}\n{more}", file.display())
}

fn key(id: &str, key: &str, more: &str) -> String {
    format!("- {{ id: {id}, api_keys: ['{}'], {more} }}\n", hashed(key))
}

fn limit(gateway: &Gateway, key: &str) -> Option<String> {
    ask(gateway, &format!("x-api-key: {key}\n")).header("x-ratelimit-limit").map(str::to_owned)
}

#[test]
fn clients_of_both_files_are_known() {
    let (_dir, file) = written(&[key("a", "ka", "tier: pro"), key("b", "kb", "limits: { plan: 7/hour }")].concat());
    let origin = Origin::ok();
    let inline =
        format!("clients: [{{ id: c, api_keys: ['{}'], tier: pro }}]\nblocked: [{{ client: b, path: /b }}]", hashed("kc"));
    let gateway = Gateway::before(&origin, &config(&file, &inline));
    let limits = ["ka", "kb", "kc", "kd"].map(|key| limit(&gateway, key));
    assert_eq!(limits, [Some("3"), Some("7"), Some("3"), None].map(|limit| limit.map(str::to_owned)));
    assert_eq!(super::get(&gateway, "/b", "x-api-key: kb\n").status, 403, "conditions name clients of the file");
}

#[test]
fn json_is_read_too() {
    let (_dir, file) = written(&format!(r#"[{{"id": "a", "api_keys": ["{}"], "tier": "pro"}}]"#, hashed("ka")));
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config(&file, ""));
    assert_eq!(limit(&gateway, "ka").as_deref(), Some("3"));
}

/// What `check` says of the two files.
fn complaint(clients: &str, more: &str) -> String {
    let (dir, file) = written(clients);
    let main = dir.path().join("gateway.yaml");
    let rest = "listeners: [{ name: a, address: '127.0.0.1:0' }]\nroutes: [{ name: r, match: { path: / }, respond: {} }]";
    fs::write(&main, config(&file, &format!("{rest}\n{more}"))).unwrap();
    let output = run(&["check", main.to_str().unwrap()], b"", DEADLINE).expect("check ends");
    let code = output.status.code();
    format!("exit {code:?} {}", String::from_utf8_lossy(&output.stderr).replace(&format!("{}/", dir.path().display()), ""))
}

#[test]
fn every_mistake_has_its_place_in_its_file() {
    let k = hashed("k");
    let inline = format!("clients: [{{ id: inline, api_keys: ['{k}'], users: u }}]");
    #[rustfmt::skip]
    let rows: &[(&str, &str, &[&str])] = &[
        ("an unknown key", "- id: a\n- id: b\n  teir: pro\n", &["clients.yaml:3:3: [1].teir: unknown key `teir`", "did you mean `tier`?"]),
        ("an unknown tier", "- id: a\n  tier: prp\n", &["clients.yaml:2:9: [0].tier: there is no tier `prp` in `tiers` (did you mean `pro`?)"]),
        ("an unknown limit", "- id: a\n  limits: { plam: 1/s }\n", &["clients.yaml:2:19: [0].limits.plam: there is no limit `plam` in `limits` (did you mean `plan`?)"]),
        ("a wrong rate", "- id: a\n  limits: { plan: 0/s }\n", &["clients.yaml:2:19: [0].limits.plan"]),
        ("two mistakes", "- id: a\n  tier: x\n- tier: y\n- id: b\n  tier: z\n", &["clients.yaml:2:9: [0].tier", "clients.yaml:3:3: [1]: `id` is required here", "clients.yaml:5:9: [2].tier", "3 problems"]),
        ("a key of the other file", &format!("- {{ id: a, api_keys: ['{k}'] }}\n"), &["clients.yaml:1:", "[0].api_keys[0]: this key belongs to the client `inline` already"]),
        ("a user of the other file", "- { id: a, users: u }\n", &["[0].users[0]: the user `u` belongs to the client `inline` already"]),
        ("an id of the other file", "- { id: inline }\n", &["clients.yaml:1:9: [0].id: the id `inline` is taken already"]),
        ("a bad expiry", &format!("- {{ id: a, api_keys: [{{ key: '{}', expires: tomorrow }}] }}\n", hashed("l")), &["clients.yaml:1:", "[0].api_keys[0].expires: write the day"]),
        ("no list", "clients: []\n", &["clients.yaml:1:", "a list of clients is expected here"]),
        ("nothing", "", &["clients.yaml: the file is empty"]),
        ("no YAML", "- id: [\n", &["clients.yaml:"]),
    ];
    let mut table = Table::new("mistakes in a clients' file");
    for (name, clients, expected) in rows {
        let told = complaint(clients, &inline);
        let missing: Vec<_> = expected.iter().filter(|part| !told.contains(**part)).collect();
        let is_right = missing.is_empty() && told.starts_with("exit Some(65)");
        table.row(name, if is_right { String::new() } else { format!("{missing:?} in {told}") });
    }
    assert!(complaint("- { id: a, tier: pro }\n- id: b\n", &inline).starts_with("exit Some(0)"));
}

#[test]
fn problems_of_both_files_come_together_and_a_missing_file_is_one() {
    let told = complaint("- { id: a, tier: x }\n", "nonsense: 1");
    assert!(
        told.contains("gateway.yaml:") && told.contains("nonsense") && told.contains("clients.yaml:1:18: [0].tier"),
        "{told}"
    );
    let (dir, file) = written("");
    fs::remove_file(&file).unwrap();
    let main = dir.path().join("gateway.yaml");
    fs::write(&main, config(&file, "listeners: []\nroutes: []\nblocked: [{ client: a }]")).unwrap();
    let output = run(&["check", main.to_str().unwrap()], b"", DEADLINE).expect("check ends");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("clients.yaml: cannot read the file") && !told.contains("there is no client"), "{told}");
}

#[test]
fn a_flood_of_mistakes_is_cut_short() {
    let clients: String = (0..5000).map(|i| format!("- {{ id: c{i}, tier: nowhere }}\n")).collect();
    let told = complaint(&clients, "");
    assert!(told.contains("[199].tier") && !told.contains("[200].tier") && told.contains("and 4800 more problems"), "{told}");
}

#[test]
fn a_relative_path_starts_at_the_working_directory_as_that_of_every_file() {
    let told = {
        let dir = TempDir::new().unwrap();
        let main = dir.path().join("gateway.yaml");
        fs::write(dir.path().join("clients.yaml"), "- id: a\n").unwrap();
        fs::write(&main, "clients_file: clients.yaml\nlisteners: []\nroutes: []\n").unwrap();
        String::from_utf8_lossy(&run(&["check", main.to_str().unwrap()], b"", DEADLINE).unwrap().stderr).into_owned()
    };
    assert!(told.contains("clients.yaml: cannot read the file"), "{told}");
}

#[test]
fn a_changed_file_is_in_force_and_a_broken_one_changes_nothing() {
    let (dir, file) = written(&key("a", "ka", "tier: pro"));
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config(&file, ""));
    let known = |key: &str| ask(&gateway, &format!("x-api-key: {key}\n")).status != 401;
    assert!(known("ka") && !known("kb"));
    fs::write(&file, [key("a", "ka", ""), key("b", "kb", "")].concat()).unwrap();
    until("a rewritten clients' file is in force", || known("kb"));
    let new = dir.path().join("new");
    fs::write(&new, key("b", "kb", "")).unwrap();
    fs::rename(&new, &file).unwrap();
    until("a renamed clients' file is in force", || !known("ka"));
    let generation = gateway.generation();
    let failures = || gateway.metric("tollgate_config_reloads_total", &[("result", "failure")]);
    for (i, broken) in ["", "- {", "- { id: b, tier: nowhere }\n", "- { id: b }\n- { id: b }\n"].iter().enumerate() {
        let before = failures();
        fs::write(&file, broken).unwrap();
        until(&format!("broken clients' file {i} is counted"), || failures() > before);
        assert!(known("kb") && gateway.generation() == generation, "{broken:?}");
    }
    assert!(gateway.log().contains("clients.yaml:1:18: [0].tier: there is no tier `nowhere`"), "{}", gateway.log());
    fs::remove_file(&file).unwrap();
    fs::write(&file, key("c", "kc", "")).unwrap();
    until("a mended clients' file is in force", || known("kc"));
    let reply = exchange(gateway.admin(), "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").response();
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[test]
fn another_file_is_followed_when_the_main_one_names_it_even_before_it_is_right() {
    let (_a, first) = written(&key("a", "ka", ""));
    let (_b, second) = written("- {");
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config(&first, ""));
    let known = |key: &str| ask(&gateway, &format!("x-api-key: {key}\n")).status != 401;
    gateway.replace(&config(&second, ""));
    until("the broken file is noticed", || gateway.metric("tollgate_config_reloads_total", &[("result", "failure")]) > 0.0);
    assert!(known("ka"));
    fs::write(&second, key("b", "kb", "")).unwrap();
    until("the mended one is in force", || known("kb") && !known("ka"));
}

#[test]
fn many_clients_are_loaded_and_told_apart() {
    let clients: String = (0..20_000).map(|i| key(&format!("c{i}"), &format!("k{i}"), "limits: { plan: 5/hour }")).collect();
    let (_dir, file) = written(&clients);
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config(&file, ""));
    for key in ["k0", "k9999", "k19999"] {
        assert_eq!(limit(&gateway, key).as_deref(), Some("5"), "{key}");
    }
    assert_eq!(limit(&gateway, "k20000"), None);
}
