//! Ends of the process that were not announced, took too long, or lost lines of the log.

use crate::harness::{Gateway, H2, Origin, exchange, happens, until};
use std::fs;
use std::path::Path;
use std::time::Duration;

#[test]
fn answers_within_the_shutdown_delay_end_their_connections() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "shutdown: { delay: 3s, drain: 20s }");
    let ready =
        || exchange(gateway.admin(), "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status() == 200;
    let mut known = gateway.client();
    assert_eq!(known.get("/").response().header("connection"), None);
    gateway.signal("TERM");
    until("the delay begins", || !ready());
    for client in [&mut known, &mut gateway.client()] {
        let response = client.get("/").response();
        assert_eq!((response.status, response.header("connection")), (200, Some("close")));
        assert!(client.is_closed());
    }
}

/// Told to end, the gateway does so with exit code 0 long before its drain time and its patience with heads are over.
fn ends_soon(mut gateway: Gateway, how: &str) {
    gateway.signal("TERM");
    assert!(happens(Duration::from_secs(12), || gateway.exit_code().is_some()), "still draining: {how}");
    assert_eq!(gateway.exit_code(), Some(0), "{how}");
}

#[test]
fn clients_that_do_not_answer_do_not_hold_up_the_drain() {
    let origin = Origin::ok();
    let listeners = "listeners: [{ name: public, address: '127.0.0.1:0', timeouts: { header: 60s } }]";
    let start = || Gateway::before(&origin, &format!("{listeners}\nshutdown: {{ delay: 0s, drain: 30s }}"));
    let gateway = start();
    let mut deaf = H2::connect(gateway.addr());
    assert_eq!(deaf.get("/").status(), 200);
    ends_soon(gateway, "an HTTP/2 client acknowledges nothing");
    let gateway = start();
    let mut slow = gateway.client();
    slow.send("GET /half HTTP/1.1\r\nHo");
    assert_eq!(gateway.client().get("/").outcome(), "200");
    ends_soon(gateway, "half a first head");
    let gateway = start();
    let mut slow = gateway.client();
    assert_eq!(slow.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /half HTTP/1.1\r\nHo").outcome(), "200");
    ends_soon(gateway, "half a second head");
}

#[test]
fn a_renamed_access_log_is_opened_anew_and_no_line_is_lost() {
    let origin = Origin::ok();
    let dir = tempfile::TempDir::new().unwrap();
    let (current, rotated) = (dir.path().join("access.log"), dir.path().join("access.log.1"));
    let lines = |file: &Path| fs::read_to_string(file).unwrap_or_default().lines().count();
    let gateway = Gateway::before(&origin, &format!("workers: 2\naccess_log: {{ format: json, to: '{}' }}", current.display()));
    assert_eq!(gateway.statuses(20, "/before"), [200; 20]);
    until("the lines are written", || lines(&current) == 20);
    fs::rename(&current, &rotated).unwrap();
    assert_eq!(gateway.statuses(20, "/after"), [200; 20]);
    until("the new file has the new lines", || lines(&current) == 20);
    assert_eq!(gateway.statuses(30, "/last"), [200; 30]);
    gateway.stop();
    assert_eq!((lines(&rotated), lines(&current)), (20, 50));
}
