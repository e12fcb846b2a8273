//! Unix sockets: the file's life, and who the peer is.

use super::{ONE, get, v1, v2};
use crate::harness::{DEADLINE, Gateway, Origin, Table, happens, run, until};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory for sockets, and a path in it.
fn place(name: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

fn listener(path: &Path, more: &str) -> String {
    format!("listeners: [{{ name: local, address: 'unix:{}'{more} }}]", path.display())
}

/// What these bytes are answered: the status, or `closed`.
fn send(path: &Path, bytes: &[u8]) -> String {
    let Ok(mut stream) = UnixStream::connect(path) else { return "unreachable".into() };
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let _gone = stream.write_all(bytes);
    let mut answer = vec![0; 12];
    match stream.read_exact(&mut answer) {
        Ok(()) => String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or("garbage").to_owned(),
        Err(_) => "closed".into(),
    }
}

fn ask(path: &Path, fields: &str) -> String {
    send(path, &get(fields))
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_peer_is_a_trusted_proxy_without_an_address() {
    let (_dir, path) = place("s");
    let origin = Origin::ok();
    let rest = "trusted_proxies: [10.0.0.0/8]\nidentity: { user: { header: x-user-id } }\nlimits: [{ name: one, per: client, rate: 1/hour }]";
    let gateway = Gateway::before(&origin, &format!("{}\n{rest}", listener(&path, "")));
    let mut table = Table::new("over a unix socket");
    for (name, fields, expected) in [
        ("no list: the loopback address", "", "200"),
        ("again", "", "429"),
        ("a client in a list", "X-Forwarded-For: 198.51.100.1\n", "200"),
        ("the same over a trusted hop", "X-Forwarded-For: 9.9.9.9, 198.51.100.1, 10.0.0.1\n", "429"),
        ("garbage: the peer itself", "X-Forwarded-For: 198.51.100.2, bad\n", "429"),
        ("a user", "X-User-Id: u1\n", "200"),
        ("the same user elsewhere", "X-User-Id: u1\nX-Forwarded-For: 198.51.100.3\n", "429"),
    ] {
        table.outcome(name, expected, &ask(&path, fields));
    }
    let lists: Vec<String> = origin.seen().iter().map(|seen| seen.all("x-forwarded-for").join(" | ")).collect();
    assert_eq!(lists, ["127.0.0.1", "198.51.100.1, 127.0.0.1", "127.0.0.1"]);
    gateway.stop();
}

#[test]
fn hops_begin_with_the_peer() {
    let (_dir, path) = place("s");
    let origin = Origin::ok();
    let _gateway = Gateway::before(&origin, &format!("{}\ntrusted_proxies: {{ hops: 2 }}\n{ONE}", listener(&path, "")));
    assert_eq!(ask(&path, "X-Forwarded-For: 9.9.9.9, 198.51.100.1, 10.0.0.1\n"), "200");
    assert_eq!(ask(&path, "X-Forwarded-For: 198.51.100.1, 10.0.0.2\n"), "429");
}

#[test]
fn with_the_proxy_protocol_the_source_is_the_peer() {
    let (_dir, path) = place("s");
    let origin = Origin::ok();
    let more = ", proxy_protocol: required, max_connections_per_ip: 1";
    let _gateway = Gateway::before(&origin, &format!("{}\n{ONE}", listener(&path, more)));
    let list = get("X-Forwarded-For: 198.51.100.1\n");
    assert_eq!(send(&path, &[v1("203.0.113.1"), get("")].concat()), "200");
    assert_eq!(send(&path, &[v1("203.0.113.1"), list.clone()].concat()), "429", "its list is not believed");
    assert_eq!(send(&path, &[v2(0x20, 0, &[]), list.clone()].concat()), "200", "the local peer's is");
    assert_eq!(send(&path, &[b"PROXY UNKNOWN\r\n".to_vec(), list].concat()), "429");
    assert_eq!(ask(&path, ""), "closed");
}

#[test]
fn the_file_comes_and_goes_with_the_listener() {
    let (dir, path) = place("s");
    let origin = Origin::ok();
    // Left behind by a process that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let gateway = Gateway::before(&origin, &listener(&path, ""));
    assert!(gateway.log().contains(&format!("listening on local  unix:{}", path.display())), "{}", gateway.log());
    assert_eq!((ask(&path, "").as_str(), mode(&path)), ("200", 0o660));
    let next = dir.path().join("next");
    let two = format!(
        "listeners: [{{ name: local, address: 'unix:{}', mode: '0600' }}, {{ name: next, address: 'unix:{}', mode: '0666' }}]",
        path.display(),
        next.display()
    );
    gateway.reload(&two);
    assert_eq!((ask(&path, ""), ask(&next, "")), ("200".into(), "200".into()));
    assert_eq!((mode(&path), mode(&next)), (0o600, 0o666));
    gateway.reload(&listener(&next, ""));
    assert!(!path.exists() && mode(&next) == 0o660, "the one that was taken out is gone");
    assert_eq!((ask(&path, "").as_str(), ask(&next, "").as_str()), ("unreachable", "200"));
    gateway.stop();
    assert!(!next.exists(), "removed at the stop");
}

#[test]
fn a_place_that_is_taken_is_left_alone() {
    let (dir, path) = place("s");
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &listener(&path, ""));
    let plain = dir.path().join("plain");
    fs::write(&plain, "x").unwrap();
    for (taken, said) in [(&path, "in use"), (&plain, "no socket"), (&dir.path().join("none/s"), "No such file")] {
        let file = dir.path().join("gateway.yaml");
        fs::write(&file, gateway.complete(&listener(taken, ""))).unwrap();
        let output = run(&["run", "--config", file.to_str().unwrap()], b"", DEADLINE).expect("it does not start");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && text.contains("listener local") && text.contains(said), "{said}: {text}");
    }
    assert_eq!(fs::read(&plain).unwrap(), b"x");
    assert_eq!(ask(&path, ""), "200", "the first goes on");
    // A reload that can't have an address changes nothing.
    gateway.replace(&format!(
        "listeners: [{{ name: local, address: 'unix:{}' }}, {{ name: new, address: 'unix:{}' }}]",
        dir.path().join("new").display(),
        plain.display()
    ));
    until("the reload is refused", || gateway.metric("tollgate_config_reloads_total", &[("result", "failure")]) > 0.0);
    assert!(!dir.path().join("new").exists());
    assert_eq!(ask(&path, ""), "200");
}

#[test]
fn all_workers_serve_it_and_a_drain_finishes_what_is_under_way() {
    let (_dir, path) = place("s");
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("workers: 2\n{}", listener(&path, "")));
    let mut open: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let on = |worker| gateway.metric("tollgate_worker_connections", &[("worker", worker)]);
    until("both workers have their share", || on("0") == 4.0 && on("1") == 4.0);
    for stream in &mut open {
        stream.write_all(&get("")).unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
    }
    gateway.signal("TERM");
    assert!(happens(DEADLINE, || UnixStream::connect(&path).is_err()), "it no longer listens");
    let mut gateway = gateway;
    until("it ends", || gateway.exit_code() == Some(0));
}

#[test]
fn the_admin_listener_may_be_one() {
    let (_dir, path) = place("admin");
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("admin: {{ address: 'unix:{}' }}", path.display()));
    assert_eq!(mode(&path), 0o600);
    for (request, expected) in [
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
        ("POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "200"),
    ] {
        assert_eq!(send(&path, request.as_bytes()), expected, "{request}");
    }
    gateway.stop();
    assert!(!path.exists(), "removed at the stop");
}
