//! The PROXY protocol towards upstreams.

use super::shown;
use crate::harness::{Client, Gateway, Table, run, until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What came on each connection.
type Connections = Arc<Mutex<Vec<Vec<u8>>>>;

/// A server that answers every head, and keeps what came.
fn serve() -> (SocketAddr, Connections) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, all) = (listener.local_addr().unwrap(), Connections::default());
    let theirs = Arc::clone(&all);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let place = {
                let mut all = theirs.lock().unwrap();
                all.push(Vec::new());
                all.len() - 1
            };
            let (mut stream, all): (TcpStream, _) = (stream.unwrap(), Arc::clone(&theirs));
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let mut all = all.lock().unwrap();
                    all[place].extend(&buffer[..length]);
                    if all[place].ends_with(b"\r\n\r\n") && buffer[..length].windows(8).any(|part| part == b"HTTP/1.1") {
                        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
                    }
                }
            });
        }
    });
    (addr, all)
}

/// An address that nobody uses at the moment.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.9:0").unwrap().local_addr().unwrap()
}

fn gateway(addr: SocketAddr, keys: &str) -> Gateway {
    Gateway::start(&format!("upstreams: {{ origin: {{ endpoints: ['http://{addr}'], {keys} }} }}"))
}

#[test]
fn a_connection_speaks_for_one_client_connection() {
    let (addr, connections) = serve();
    let gateway = gateway(addr, "proxy_protocol: v1");
    let port = gateway.addr().port();
    let own = free_address();
    let mut first = Client::connect_from(own, gateway.addr());
    for _ in 0..3 {
        assert_eq!(first.get("/a").response().status, 200);
    }
    assert_eq!(gateway.get("/b").status, 200);
    assert_eq!(first.get("/a").response().status, 200);
    let connections = connections.lock().unwrap();
    assert_eq!(connections.len(), 2, "one for each client's connection");
    let text = String::from_utf8(connections[0].clone()).unwrap();
    assert!(text.starts_with(&format!("PROXY TCP4 127.0.0.9 127.0.0.1 {} {port}\r\nGET /a HTTP/1.1\r\n", own.port())), "{text}");
    assert_eq!(text.matches("PROXY").count(), 1);
    assert_eq!((text.matches("GET /a").count(), text.matches("GET /b").count()), (4, 0));
}

#[test]
fn the_binary_form_names_the_same() {
    let (addr, connections) = serve();
    let gateway = gateway(addr, "proxy_protocol: v2");
    assert_eq!(gateway.get("/").status, 200);
    let seen = connections.lock().unwrap()[0].clone();
    assert_eq!(seen[..24], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01");
    assert_eq!(seen[26..28], gateway.addr().port().to_be_bytes());
    assert!(seen[28..].starts_with(b"GET / HTTP/1.1\r\n"));
}

#[test]
fn checks_speak_for_the_gateway() {
    let mut table = Table::new("a check begins with");
    for (version, header) in
        [("v1", &b"PROXY UNKNOWN\r\nGET /healthz"[..]), ("v2", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0GET /healthz")]
    {
        let (addr, connections) = serve();
        let gateway = gateway(addr, &format!("proxy_protocol: {version}, health: {{ path: /healthz, interval: 20ms }}"));
        until("a check has come", || connections.lock().unwrap().iter().any(|seen| seen.ends_with(b"\r\n\r\n")));
        let seen = connections.lock().unwrap().iter().find(|seen| seen.ends_with(b"\r\n\r\n")).unwrap().clone();
        table.outcome(version, "true", &seen.starts_with(header).to_string());
        assert_eq!(shown(&gateway)["endpoints"][0]["healthy"], true);
    }
}

#[test]
fn what_can_not_go_together_is_refused() {
    let mut table = Table::new("with proxy_protocol");
    for (keys, place) in [
        ("proxy_protocol: v1, protocol: http2", "upstreams.origin.proxy_protocol"),
        ("proxy_protocol: v2, min_connections: 1", "upstreams.origin.min_connections"),
        ("proxy_protocol: v3", "upstreams.origin.proxy_protocol"),
        ("min_connections: 20, max_connections: 10", "upstreams.origin.min_connections"),
        ("timeouts: { max_age: 0s }", "upstreams.origin.timeouts.max_age"),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let yaml = "listeners: [{ name: a, address: '127.0.0.1:0' }]\nroutes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin }]";
        let upstream = format!("upstreams: {{ origin: {{ endpoints: ['http://127.0.0.1:1'], {keys} }} }}");
        std::fs::write(file.path(), format!("{yaml}\n{upstream}")).unwrap();
        let output = run(&["check", file.path().to_str().unwrap()], b"", Duration::from_secs(8)).unwrap();
        let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        table.outcome(keys, "65 true", &format!("{} {}", output.status.code().unwrap(), told.contains(place)));
    }
}
