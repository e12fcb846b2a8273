//! What another implementation thinks of it: OpenSSL's commands, with the development certificates.

use super::{listener, outcome};
use crate::harness::{Gateway, Leaf, Origin, until};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

const CERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/certs");

fn development() -> String {
    let pair = format!("{{ cert: '{CERTS}/dev.crt', key: '{CERTS}/dev.key' }}");
    listener(&format!("certificates: {pair}, client_certificates: {{ ca: '{CERTS}/ca.crt', mode: optional }}"), "")
}

/// What `openssl s_client` says of a request with `Connection: close`.
fn s_client(gateway: &Gateway, arguments: &[&str]) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &gateway.addr().to_string(), "-servername", "localhost", "-ign_eof"])
        .args(["-verify_return_error", "-CAfile", &format!("{CERTS}/ca.crt")])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command `openssl` is there");
    let mut stdin = child.stdin.take().unwrap();
    // It may have ended already.
    drop(stdin.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn it_gets_its_answer_in_either_version() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &development());
    for (arguments, expected) in [
        (&["-tls1_3"][..], "TLSv1.3"),
        (&["-tls1_2"][..], "TLSv1.2"),
        (&["-tls1_3", "-alpn", "http/1.1"][..], "ALPN protocol: http/1.1"),
        (&["-cert", &format!("{CERTS}/dev.crt"), "-key", &format!("{CERTS}/dev.key")][..], "TLSv1.3"),
    ] {
        let said = s_client(&gateway, arguments);
        assert!(said.contains("HTTP/1.1 200") && said.contains(expected), "{arguments:?}: {said}");
        assert!(said.contains("Verification: OK") && !said.contains("unexpected eof"), "{arguments:?}: {said}");
    }
}

#[test]
fn it_gets_nowhere_with_an_old_version() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &development());
    for version in ["-tls1", "-tls1_1"] {
        let said = s_client(&gateway, &[version, "-cipher", "ALL:@SECLEVEL=0"]);
        assert!(!said.contains("HTTP/1.1"), "{said}");
    }
    let how = crate::harness::Dial::anybody("localhost");
    assert_eq!(outcome(&gateway, &how), "200");
}

/// `openssl s_server -www`, which answers each request with a page and closes.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-www"])
            .args(["-cert", &format!("{CERTS}/dev.crt"), "-key", &format!("{CERTS}/dev.key")])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command `openssl` is there");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| line.unwrap().strip_prefix("ACCEPT 127.0.0.1:")?.parse().ok()).unwrap();
        // Its reports are read to their end, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn it_answers_us_in_either_version() {
    for version in ["-tls1_2", "-tls1_3"] {
        let server = Server::start(&[version, "-Verify", "1", "-verify_return_error", "-CAfile", &format!("{CERTS}/ca.crt")]);
        let tls = format!("ca: '{CERTS}/ca.crt', client_cert: {{ cert: '{CERTS}/dev.crt', key: '{CERTS}/dev.key' }}");
        let endpoint = format!("endpoints: ['https://localhost:{}']", server.port);
        let gateway = Gateway::start(&format!("upstreams: {{ origin: {{ {endpoint}, tls: {{ {tls} }} }} }}"));
        // Its page ends with the connection, which it announces.
        let mut page = String::new();
        until("it answers", || {
            let reply = gateway.get("/");
            page = reply.text();
            reply.status == 200 && !reply.cut
        });
        let expected = version.replace("-tls1_", "TLSv1.");
        assert!(page.contains("</pre>") && page.to_lowercase().contains(&expected.to_lowercase()), "{page}");
    }
    // And not a client that has no certificate, or one of somebody else.
    let server = Server::start(&["-Verify", "1", "-verify_return_error", "-CAfile", &format!("{CERTS}/ca.crt")]);
    let strangers = crate::harness::Authority::new("strangers");
    let pair = strangers.issue("leaf", &Leaf::of(&["c"]));
    for client_cert in [String::new(), format!(", client_cert: {pair}")] {
        let endpoint = format!("endpoints: ['https://localhost:{}']", server.port);
        let gateway =
            Gateway::start(&format!("upstreams: {{ origin: {{ {endpoint}, tls: {{ ca: '{CERTS}/ca.crt'{client_cert} }} }} }}"));
        assert_eq!(gateway.get("/").status, 502);
    }
}

/// TLS-4: what comes before the handshake is over may have been recorded and sent again. No ticket allows it, so nobody sends any.
#[test]
fn it_is_offered_no_early_data_and_sends_none() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &development());
    let dir = tempfile::TempDir::new().unwrap();
    let (session, early) = (dir.path().join("session"), dir.path().join("early"));
    std::fs::write(&early, "GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let said = s_client(&gateway, &["-tls1_3", "-sess_out", session.to_str().unwrap()]);
    assert!(said.contains("Max Early Data: 0") && !said.contains("Max Early Data: 1"), "{said}");
    let said = s_client(&gateway, &["-sess_in", session.to_str().unwrap(), "-early_data", early.to_str().unwrap()]);
    assert!(
        said.contains("Reused, TLSv1.3") && said.contains("HTTP/1.1 200") && !said.contains("Early data was accepted"),
        "{said}"
    );
    assert!(origin.lines().iter().all(|line| !line.contains("early")), "{:?}", origin.lines());
}

/// A star is no name of a host (RFC 6066 §3, RFC 1123 §2.1), and what can't be right in a hello is an illegal parameter (RFC 8446 §6.2):
/// no client that anybody uses asks for it. Not being answered with a wildcard's certificate for its own pattern is as it should be.
#[test]
fn a_name_that_is_no_hosts_ends_the_handshake_and_nothing_else() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &development());
    for name in ["*.b.example", "a b", "a..b"] {
        let said = s_client(&gateway, &["-servername", name]);
        assert!(said.to_lowercase().contains("illegal parameter") && !said.contains("HTTP/1.1"), "{name}: {said}");
    }
    assert!(s_client(&gateway, &[]).contains("HTTP/1.1 200"));
    assert_eq!(gateway.metric("tollgate_tls_handshake_failures_total", &[("listener", "public")]), 3.0);
}
