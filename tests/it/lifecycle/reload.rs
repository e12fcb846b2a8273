//! Every way a new file can arrive, and what a bad one does: nothing.

use crate::harness::{Client, DEADLINE, Gateway, H2, Origin, exchange, happens, together, until};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A route `/which` that answers with `word`: shows which configuration is in force.
fn says(word: &str) -> String {
    format!(
        "routes: [{{ name: which, match: {{ path: /which }}, respond: {{ status: 200, body: {word} }} }}, {{ name: all, match: {{ path: '/{{*rest}}' }}, upstream: origin }}]"
    )
}

fn which(gateway: &Gateway) -> String {
    gateway.get("/which").text()
}

fn reloads(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("tollgate_config_reloads_total", &[("result", result)])
}

#[test]
fn a_renamed_file_a_rewritten_file_and_a_swapped_link_are_noticed() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &says("zero"));
    assert_eq!(which(&gateway), "zero");
    gateway.replace(&says("renamed"));
    until("a renamed file is in force", || which(&gateway) == "renamed");
    fs::write(gateway.config(), gateway.complete(&says("rewritten"))).unwrap();
    until("a rewritten file is in force", || which(&gateway) == "rewritten");
    gateway.replace(&says("again"));
    until("a file renamed over a rewritten one is in force", || which(&gateway) == "again");
}

#[test]
fn a_swapped_link_is_noticed() {
    // Mounted configuration maps look like this: file -> ..data/file, ..data -> a directory that is swapped.
    let origin = Origin::ok();
    let dir = tempfile::TempDir::new().unwrap();
    let root = dir.path().to_path_buf();
    let scratch = Gateway::before(&origin, "");
    for version in ["one", "two"] {
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("gateway.yaml"), scratch.complete(&says(version))).unwrap();
    }
    drop(scratch);
    symlink("one", root.join("..data")).unwrap();
    symlink("..data/gateway.yaml", root.join("gateway.yaml")).unwrap();
    let gateway = Gateway::spawn(dir, &root.join("gateway.yaml"), origin.addr().to_string());
    assert_eq!(which(&gateway), "one");
    symlink("two", root.join("..next")).unwrap();
    fs::rename(root.join("..next"), root.join("..data")).unwrap();
    until("the directory behind the link is in force", || which(&gateway) == "two");
}

#[test]
fn sighup_and_post_reload_read_the_file() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &says("zero"));
    let generation = gateway.generation();
    gateway.signal("HUP");
    until("SIGHUP reloads even an unchanged file", || gateway.generation() > generation || reloads(&gateway, "success") > 0.0);
    gateway.replace(&says("posted"));
    let reply = exchange(gateway.admin(), "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").response();
    assert!((200..300).contains(&reply.status), "{} {}", reply.status, reply.text());
    assert_eq!(which(&gateway), "posted", "POST /reload answers when the new configuration is in force");
}

#[test]
fn post_reload_reports_what_is_wrong() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &says("zero"));
    gateway.replace(&format!("{}\nlimits: [{{ name: x, per: ip, rat: 1/s }}]", says("broken")));
    let reply = exchange(gateway.admin(), "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").response();
    assert!((400..600).contains(&reply.status), "{}", reply.status);
    assert!(reply.text().contains("rat"), "{}", reply.text());
    assert_eq!(which(&gateway), "zero");
    let get = exchange(gateway.admin(), "GET /reload HTTP/1.1\r\nHost: localhost\r\n\r\n").status();
    assert!([404, 405].contains(&get), "GET /reload says {get}");
    let foreign = exchange(gateway.admin(), "POST /reload HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n\r\n").status();
    assert_eq!(foreign, 403, "a page of another site may not reload");
}

#[test]
fn a_burst_of_writes_is_one_reload() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &says("zero"));
    let generation = gateway.generation();
    for i in 0..20 {
        gateway.replace(&says(&format!("burst{i}")));
    }
    until("the last one is in force", || which(&gateway) == "burst19");
    assert!(gateway.generation() <= generation + 2.0, "{} reloads for one burst", gateway.generation() - generation);
}

#[test]
fn a_broken_file_changes_nothing_and_is_reported() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &says("good"));
    let generation = gateway.generation();
    let broken = [
        "routes: [".to_owned(),
        format!("{}\nlimitz: []", says("bad")),
        format!("{}\nlimits: [{{ name: x, per: ip, rate: 0/s }}]", says("bad")),
        says("bad").replace("upstream: origin", "upstream: nowhere"),
        String::from("\u{0}"),
    ];
    for (i, file) in broken.iter().enumerate() {
        let failures = reloads(&gateway, "failure");
        gateway.replace(file);
        until(&format!("broken file {i} is counted"), || reloads(&gateway, "failure") > failures);
        assert_eq!((which(&gateway).as_str(), gateway.generation()), ("good", generation), "file {i}");
    }
    fs::remove_file(gateway.config()).unwrap();
    assert_eq!(which(&gateway), "good");
    gateway.replace(&says("mended"));
    until("a mended file is in force", || which(&gateway) == "mended");
    assert!(gateway.log().contains("limitz"), "the log names the problem:\n{}", gateway.log());
}

#[test]
fn listeners_come_and_go_with_the_file() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &says("zero"));
    let public = gateway.addr();
    let extra = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    gateway.reload(&format!(
        "listeners: [{{ name: public, address: '127.0.0.1:0' }}, {{ name: extra, address: '{extra}' }}]\n{}",
        says("two")
    ));
    assert_eq!(exchange(extra, "GET /which HTTP/1.1\r\nHost: a\r\n\r\n").response().text(), "two");
    assert_eq!(
        exchange(public, "GET /which HTTP/1.1\r\nHost: a\r\n\r\n").response().text(),
        "two",
        "the first listener stays where it is"
    );
    let mut kept = Client::connect(public);
    assert_eq!(kept.get("/which").outcome(), "200");
    gateway.reload(&says("one"));
    until("the removed listener is closed", || std::net::TcpStream::connect(extra).is_err());
    assert_eq!(kept.get("/which").response().text(), "one", "connections of a listener that stays live on");
}

#[test]
fn requests_go_to_the_new_endpoints_and_connections_to_the_old_are_closed() {
    let (old, new) = (Origin::ok(), Origin::ok());
    let gateway = Gateway::before(&old, "");
    let mut client = gateway.client();
    assert_eq!(client.get("/1").outcome(), "200");
    gateway.reload(&format!("upstreams: {{ origin: {{ endpoints: ['http://{}'] }} }}", new.addr()));
    for _ in 0..5 {
        assert_eq!(client.get("/2").outcome(), "200");
    }
    assert_eq!((old.seen().len(), new.seen().len()), (1, 5));
    until("the old endpoint's pooled connections are closed", || old.open() == 0);
}

#[test]
fn a_connection_that_was_open_before_serves_the_new_configuration() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &says("old"));
    let (mut h1, mut h2) = (gateway.client(), H2::connect(gateway.addr()));
    assert_eq!((h1.get("/which").response().text(), h2.get("/which").body), ("old".into(), b"old".to_vec()));
    gateway.reload(&says("new"));
    assert_eq!((h1.get("/which").response().text(), h2.get("/which").body), ("new".into(), b"new".to_vec()));
}

#[test]
fn not_one_request_fails_while_files_come_in() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("workers: 2\n{}", says("first")));
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let outcomes = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            together(4, |who| {
                let (mut client, mut bad) = (gateway.client(), Vec::new());
                for i in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // One client in four connects anew for every request.
                    if who == 0 {
                        client = gateway.client();
                    }
                    let outcome = client.get(if i % 2 == 0 { "/which" } else { "/upstream" }).outcome();
                    if outcome != "200" {
                        bad.push(outcome);
                        client = gateway.client();
                    }
                    served.fetch_add(1, Ordering::Relaxed);
                }
                bad
            })
        });
        for i in 1..=8 {
            let (before, word) = (served.load(Ordering::Relaxed), format!("word{i}"));
            gateway.replace(&format!("workers: 2\n{}", says(&word)));
            let changed = happens(DEADLINE, || which(&gateway) == word);
            until("load goes on", || served.load(Ordering::Relaxed) > before + 50);
            if !changed {
                stop.store(true, Ordering::Relaxed);
                panic!("reload {i} did not happen");
            }
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap()
    });
    assert!(outcomes.concat().is_empty(), "{:?} of {}", outcomes.concat(), served.load(Ordering::Relaxed));
}

#[test]
fn a_hundred_reloads_leak_neither_files_nor_threads() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &says("first"));
    let count = |what: &str| fs::read_dir(format!("/proc/{}/{what}", gateway.pid())).unwrap().count();
    gateway.reload(&says("warm-up"));
    let (files, threads) = (count("fd"), count("task"));
    for i in 0..100 {
        let reply = {
            gateway.replace(&says(&format!("r{i}")));
            exchange(gateway.admin(), "POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").status()
        };
        assert!((200..300).contains(&reply));
    }
    let settled = happens(Duration::from_secs(3), || count("fd") <= files + 4 && count("task") <= threads + 1);
    assert!(settled, "{} files, was {files}; {} threads, was {threads}", count("fd"), count("task"));
}
