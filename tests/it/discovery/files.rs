//! Endpoints in a file of their own.

use super::{addresses, servers_at, shown, until_addresses};
use crate::harness::{Dns, Gateway, Table, until};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A gateway whose upstream has this file beside its configuration.
fn start(text: Option<&str>, keys: &str, more: &str) -> (Gateway, PathBuf) {
    let dir = TempDir::new().unwrap();
    let (config, file) = (dir.path().join("gateway.yaml"), dir.path().join("endpoints.yaml"));
    if let Some(text) = text {
        fs::write(&file, text).unwrap();
    }
    let yaml = [
        "listeners: [{ name: public, address: '127.0.0.1:0' }]",
        "admin: { address: '127.0.0.1:0' }",
        "workers: 1",
        "access_log: { format: off }",
        "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin }]",
        &format!("upstreams: {{ origin: {{ discover: {{ file: endpoints.yaml }}, {keys} }} }}"),
        more,
    ];
    fs::write(&config, yaml.join("\n")).unwrap();
    (Gateway::spawn(dir, &config, String::new()), file)
}

fn reads(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("tollgate_endpoint_file_reads_total", &[("upstream", "origin"), ("result", result)])
}

fn is_ok(gateway: &Gateway) -> bool {
    gateway.metric("tollgate_endpoint_file_ok", &[("upstream", "origin")]) == 1.0
}

#[test]
fn a_file_is_followed_in_yaml_and_json() {
    let (port, servers) = servers_at(["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let keys = format!("endpoints: ['http://127.0.0.3:{port}'], balance: round_robin");
    let (gateway, file) = start(Some(&format!("- http://127.0.0.1:{port}\n")), &keys, "");
    until_addresses(&gateway, [format!("127.0.0.3:{port}"), format!("127.0.0.1:{port}")]);
    let listed = shown(&gateway);
    assert_eq!((&listed["endpoints"][0]["from"], &listed["endpoints"][1]["from"]), (&"configuration".into(), &"file".into()));
    assert_eq!(listed["file"], "endpoints.yaml");
    fs::write(&file, format!("[{{\"url\": \"http://127.0.0.2:{port}\", \"weight\": 2}}]")).unwrap();
    until_addresses(&gateway, [format!("127.0.0.3:{port}"), format!("127.0.0.2:{port}")]);
    until("requests see it too", || gateway.get("/").text() == "127.0.0.2");
    let before = servers.each_ref().map(|server| server.lines().len());
    assert_eq!(gateway.statuses(9, "/"), [200; 9]);
    let after = servers.each_ref().map(|server| server.lines().len());
    assert_eq!([0, 1, 2].map(|place| after[place] - before[place]), [0, 6, 3]);
    assert!(is_ok(&gateway));
}

#[test]
fn a_file_that_is_bad_or_gone_changes_nothing() {
    let (port, _servers) = servers_at(["127.0.0.1", "127.0.0.2"]);
    let (gateway, file) = start(Some(&format!("[http://127.0.0.1:{port}]")), "", "");
    until_addresses(&gateway, [format!("127.0.0.1:{port}")]);
    let mut table = Table::new("a file with");
    for (name, text) in [
        ("half a list", "[http://127.0.0.2:1, http://127"),
        ("nothing", ""),
        ("a map", "endpoints: [http://127.0.0.2:1]"),
        ("a wrong URL", "[http://127.0.0.2:1/path]"),
        ("no weight", "[{ url: http://127.0.0.2:1, weight: 0 }]"),
        ("an unknown key", "[{ url: http://127.0.0.2:1, weigth: 2 }]"),
        ("the same twice", "[http://127.0.0.2:1, http://127.0.0.2:1]"),
        ("what is no text", "\u{0}\u{1}"),
    ] {
        let failures = reads(&gateway, "failure");
        fs::write(&file, text).unwrap();
        until(&format!("{name} is refused"), || reads(&gateway, "failure") > failures);
        table.outcome(name, "200", &gateway.client().get("/").outcome());
        assert!(!is_ok(&gateway), "{name}");
    }
    let failures = reads(&gateway, "failure");
    fs::remove_file(&file).unwrap();
    until("its absence is noticed", || reads(&gateway, "failure") > failures);
    assert_eq!(addresses(&gateway), [format!("127.0.0.1:{port}")]);
    assert!(gateway.log().contains("file of endpoints refused"));
    fs::write(&file, format!("http://127.0.0.2:{port}")).unwrap();
    until_addresses(&gateway, [format!("127.0.0.2:{port}")]);
    assert!(is_ok(&gateway));
    fs::write(&file, "[]").unwrap();
    until_addresses(&gateway, Vec::<String>::new());
    until("requests see it too", || gateway.get("/").status == 503);
}

#[test]
fn a_file_that_comes_later_is_read_then() {
    let (port, _servers) = servers_at(["127.0.0.1"]);
    let (gateway, file) = start(None, "", "");
    assert_eq!(gateway.get("/").status, 503);
    fs::write(&file, format!("[http://127.0.0.1:{port}]")).unwrap();
    until("it is in force", || gateway.get("/").status == 200);
}

#[test]
fn names_in_a_file_take_the_place_of_addresses_when_they_resolve() {
    let dns = Dns::start();
    let (port, _servers) = servers_at(["127.0.0.1", "127.0.0.2"]);
    dns.addresses("api.internal", &["127.0.0.2"]);
    let (gateway, file) = start(Some(&format!("[http://127.0.0.1:{port}]")), "", &dns.settings());
    until_addresses(&gateway, [format!("127.0.0.1:{port}")]);
    fs::write(&file, format!("[http://api.internal:{port}]")).unwrap();
    // Never without an endpoint in between.
    until("the name's address is in force", || {
        let response = gateway.get("/");
        assert_eq!(response.status, 200);
        response.text() == "127.0.0.2"
    });
    let endpoint = &shown(&gateway)["endpoints"][0];
    assert_eq!((&endpoint["from"], &endpoint["resolved_from"]), (&"file".into(), &"api.internal".into()));
}
