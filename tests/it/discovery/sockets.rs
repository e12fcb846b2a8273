//! Endpoints that are Unix sockets.

use super::shown;
use crate::harness::{Gateway, Table, until};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;

/// A server at a socket that answers every bodiless request with its head; the heads it has seen.
fn serve(path: &Path) -> Arc<Mutex<Vec<String>>> {
    let listener = UnixListener::bind(path).unwrap();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, seen) = (stream.unwrap(), Arc::clone(&seen));
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    seen.lock().unwrap().push(head.clone());
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len());
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    heads
}

#[test]
fn requests_and_checks_go_over_a_socket() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("api.sock");
    let keys = "health: { path: /healthz, interval: 20ms, unhealthy_after: 1, healthy_after: 1 }";
    let yaml = format!("upstreams: {{ origin: {{ endpoints: 'unix:{}', {keys} }} }}", socket.display());
    let gateway = Gateway::start(&yaml);
    until("nobody is there", || gateway.get("/").status == 503);
    assert_eq!(shown(&gateway)["endpoints"][0]["address"], format!("unix:{}", socket.display()));
    let heads = serve(&socket);
    until("it is healthy", || gateway.get("/").status == 200);
    let mut table = Table::new("Host");
    let mut client = gateway.client();
    let with_host = client.ask("GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n").response().text();
    table.outcome("the client's", "true", &with_host.to_ascii_lowercase().contains("\r\nhost: example.com\r\n").to_string());
    let none = gateway.client().ask("GET /b HTTP/1.0\r\n\r\n").response().text();
    table.outcome("none", "true", &none.to_ascii_lowercase().contains("\r\nhost: localhost\r\n").to_string());
    let check = heads.lock().unwrap().iter().find(|head| head.starts_with("GET /healthz")).unwrap().to_ascii_lowercase();
    table.outcome("a check's", "true", &check.contains("\r\nhost: localhost\r\n").to_string());
}

#[test]
fn a_socket_that_is_made_anew_is_found() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("api.sock");
    let _first = serve(&socket);
    let gateway = Gateway::start(&format!("upstreams: {{ origin: {{ endpoints: ['unix:{}'] }} }}", socket.display()));
    let mut big = gateway.client();
    assert_eq!(big.get("/").response().status, 200);
    std::fs::remove_file(&socket).unwrap();
    // Kept connections go on; who needs a new one is told.
    assert_eq!(big.get("/").response().status, 200);
    let second = serve(&socket);
    until("requests come to the new one", || {
        assert_eq!(gateway.get("/").status, 200);
        // One connection at rest is the old one's, so two at once need another.
        let mut clients = [gateway.client(), gateway.client(), gateway.client()];
        clients.iter_mut().for_each(|client| {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        });
        clients.iter_mut().for_each(|client| assert_eq!(client.receive().outcome(), "200"));
        !second.lock().unwrap().is_empty()
    });
}
