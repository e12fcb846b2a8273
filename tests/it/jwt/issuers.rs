//! Keys from a URL: an issuer that is not there yet or not there any more, and one that changes its keys.

use super::signer::{Kind, Signer, key_set};
use super::{jwt, present, result};
use crate::harness::{Gateway, Next, Origin, Unreachable, happens, together, until};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An issuer whose answer can be changed at any time.
struct Issuer {
    origin: Origin,
    answer: Arc<Mutex<Answer>>,
}

#[derive(Debug, Clone)]
enum Answer {
    Keys(String),
    Bytes(Vec<u8>),
    HangUp,
    Nothing,
}

impl Issuer {
    fn new(answer: Answer) -> Self {
        let answer = Arc::new(Mutex::new(answer));
        let theirs = Arc::clone(&answer);
        let origin = Origin::new(move |call| {
            let answer = theirs.lock().unwrap().clone();
            match answer {
                Answer::Keys(keys) => {
                    call.answer(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{keys}", keys.len()).as_bytes())
                }
                Answer::Bytes(bytes) => {
                    call.answer(&bytes);
                    Next::Close
                }
                Answer::HangUp => Next::Close,
                Answer::Nothing => call.stall(),
            }
        });
        Self { origin, answer }
    }

    fn of(signers: &[&Signer]) -> Self {
        Self::new(Answer::Keys(key_set(signers)))
    }

    fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn has(&self, signers: &[&Signer]) {
        self.answer(Answer::Keys(key_set(signers)));
    }

    /// Keys fetched from here, and more about them.
    fn config(&self, keys: &str, more: &str) -> String {
        jwt(
            &format!("{{ jwks_url: 'http://{}/jwks.json?x=y', {keys} }}", self.origin.addr()),
            &format!("algorithms: ES256, {more}"),
        )
    }

    fn fetches(&self) -> usize {
        self.origin.seen().len()
    }
}

fn signer(kid: &'static str) -> Signer {
    Signer::new(Kind::P256, kid)
}

fn status(gateway: &Gateway, signer: &Signer) -> u16 {
    present(gateway, &signer.token("ES256", json!({ "sub": "u-1" }))).status
}

fn fetched(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("tollgate_jwks_fetches_total", &[("result", result)])
}

#[test]
fn keys_are_fetched_when_the_gateway_starts() {
    let (origin, a) = (Origin::ok(), signer("a"));
    let issuer = Issuer::of(&[&a]);
    let gateway = Gateway::before(&origin, &issuer.config("refresh: 1h", ""));
    // The first request may be there before the first keys; it waits for them.
    assert_eq!(status(&gateway, &a), 200);
    let seen = issuer.origin.wait(1);
    assert_eq!(seen.line, "GET /jwks.json?x=y HTTP/1.1");
    assert_eq!(seen.header("host"), Some(issuer.origin.addr().to_string().as_str()));
    assert_eq!(fetched(&gateway, "success"), 1.0);
}

#[test]
fn without_keys_tokens_are_503_until_the_issuer_is_there() {
    let (origin, a) = (Origin::ok(), signer("a"));
    let issuer = Issuer::new(Answer::HangUp);
    let gateway = Gateway::before(&origin, &issuer.config("", ""));
    let response = present(&gateway, &a.token("ES256", json!({})));
    assert_eq!((response.status, response.header("retry-after")), (503, Some("1")));
    assert_eq!(response.header("www-authenticate"), None);
    assert_eq!(response.json()["error"], "service_unavailable");
    // Who has no token is not concerned.
    assert_eq!(gateway.get("/").status, 200);
    issuer.has(&[&a]);
    until("the issuer's keys are in force", || status(&gateway, &a) == 200);
    assert!(fetched(&gateway, "http") >= 1.0);
    assert!(result(&gateway, "no_keys") >= 1.0);
}

#[test]
fn without_keys_tokens_are_as_good_as_none_if_invalid_ones_are() {
    let (origin, a) = (Origin::ok(), signer("a"));
    let issuer = Issuer::new(Answer::HangUp);
    let gateway = Gateway::before(&origin, &issuer.config("", "invalid: anonymous"));
    assert_eq!(status(&gateway, &a), 200);
    assert_eq!(result(&gateway, "no_keys"), 1.0);
}

#[test]
fn a_silent_issuer_is_not_waited_for_long() {
    let (origin, a) = (Origin::ok(), signer("a"));
    let silent = Issuer::new(Answer::Nothing);
    let unreachable = Unreachable::new();
    let urls =
        [silent.config("timeout: 1s", ""), jwt(&format!("{{ jwks_url: 'http://{}/', timeout: 1s }}", unreachable.addr), "")];
    for config in urls {
        let gateway = Gateway::before(&origin, &config);
        let start = Instant::now();
        assert_eq!(status(&gateway, &a), 503);
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        until("the fetch times out", || fetched(&gateway, "timeout") >= 1.0);
        assert_eq!(gateway.get("/").status, 200);
    }
}

#[test]
fn keys_in_force_stay_while_the_issuer_is_down_and_over_a_reload() {
    let (origin, a) = (Origin::ok(), signer("a"));
    let issuer = Issuer::of(&[&a]);
    let config = issuer.config("refresh: 1s", "");
    let gateway = Gateway::before(&origin, &config);
    assert_eq!(status(&gateway, &a), 200);
    let ok = b"HTTP/1.1 200 OK\r\n".to_vec();
    let huge =
        [ok.clone(), format!("Content-Length: {}\r\n\r\n{{\"keys\":[{}", 3 << 20, " ".repeat(3 << 20)).into_bytes()].concat();
    let wrongs = [
        ("http", Answer::HangUp),
        ("status", Answer::Bytes(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_vec())),
        ("status", Answer::Bytes(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_vec())),
        ("invalid", Answer::Bytes([ok.clone(), b"Content-Length: 5\r\n\r\nhello".to_vec()].concat())),
        ("too_large", Answer::Bytes(huge)),
        ("empty", Answer::Keys("{\"keys\":[]}".to_owned())),
        ("empty", Answer::Keys("{\"keys\":[{\"kty\":\"AKP\",\"kid\":\"a\"}]}".to_owned())),
        ("http", Answer::Bytes([ok, b"Content-Length: 50\r\n\r\n{\"keys\":[]}".to_vec()].concat())),
    ];
    for (result, wrong) in wrongs {
        let before = fetched(&gateway, result);
        issuer.answer(wrong);
        until(&format!("a fetch ends with {result}"), || fetched(&gateway, result) > before);
        assert_eq!(status(&gateway, &a), 200, "while the issuer answers with {result}");
    }
    gateway.reload(&config.replace("ES256, ", "[ES256, ES384], "));
    assert_eq!(status(&gateway, &a), 200, "after a reload");
    gateway.reload(&config.replace("refresh: 1s", "refresh: 2s"));
    assert_eq!(status(&gateway, &a), 200, "after a reload with another pace");
}

#[test]
fn an_issuer_changes_its_keys_and_no_request_fails() {
    let (origin, a, b) = (Origin::ok(), signer("a"), signer("b"));
    let issuer = Issuer::of(&[&a]);
    let gateway = Gateway::before(&origin, &format!("workers: 2\n{}", issuer.config("refresh: 1h", "")));
    assert_eq!(status(&gateway, &a), 200);
    issuer.has(&[&a, &b]);
    let statuses = together(16, |i| status(&gateway, if i % 2 == 0 { &a } else { &b }));
    assert_eq!(statuses, [200; 16]);
    assert_eq!(issuer.fetches(), 2, "one fetch at the start and one for all that missed the key");
    // Strangers with made-up key ids do not get through to the issuer, and don't wait.
    let start = Instant::now();
    for kid in 0..10 {
        let response = present(&gateway, &forged(&b, kid));
        let seconds: u64 = response.header("retry-after").expect("when to come again").parse().unwrap();
        assert_eq!((response.status, response.json()["error"].as_str()), (503, Some("service_unavailable")));
        assert!((1..=10).contains(&seconds), "{seconds}");
        assert_eq!(response.header("www-authenticate"), None);
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(issuer.fetches(), 2);
    assert_eq!(result(&gateway, "key_pending"), 10.0);
}

fn forged(signer: &Signer, kid: usize) -> String {
    signer.token_with(&json!({ "alg": "ES256", "kid": format!("made-up-{kid}") }), json!({ "sub": "u-1" }))
}

#[test]
fn a_made_up_key_id_does_not_get_a_new_keys_tokens_refused() {
    let (origin, a, b) = (Origin::ok(), signer("a"), signer("b"));
    let issuer = Issuer::of(&[&a]);
    let gateway = Gateway::before(&origin, &issuer.config("refresh: 1h", ""));
    assert_eq!(status(&gateway, &a), 200);
    // The issuer is asked, and doesn't have it.
    assert_eq!(present(&gateway, &forged(&a, 0)).status, 401);
    assert_eq!(present(&gateway, &forged(&a, 0)).status, 401);
    assert_eq!(issuer.fetches(), 2);
    issuer.has(&[&a, &b]);
    // Not before ten seconds are over; a flood in between makes it neither earlier nor later.
    let mut seen = Vec::new();
    let is_believed = happens(Duration::from_secs(20), || {
        present(&gateway, &forged(&a, 1 + seen.len()));
        seen.push(status(&gateway, &b));
        seen.last() == Some(&200)
    });
    assert!(is_believed && seen.iter().all(|status| [200, 503].contains(status)), "{seen:?}");
    assert!(seen.contains(&503), "{seen:?}");
    assert_eq!(issuer.fetches(), 3);
    // That fetch was for this one too.
    assert_eq!(present(&gateway, &forged(&a, 1)).status, 401);
}

#[test]
fn while_the_issuer_is_down_an_unknown_key_is_not_the_clients_fault() {
    let (origin, a, b) = (Origin::ok(), signer("a"), signer("b"));
    let issuer = Issuer::of(&[&a]);
    let gateway = Gateway::before(&origin, &issuer.config("refresh: 1h", ""));
    assert_eq!(status(&gateway, &a), 200);
    issuer.answer(Answer::HangUp);
    assert_eq!(status(&gateway, &b), 503);
    assert_eq!(status(&gateway, &a), 200);
    issuer.has(&[&a, &b]);
    until("the issuer is asked again", || status(&gateway, &b) == 200);
}

#[test]
fn the_query_of_an_issuers_url_is_not_logged() {
    let (origin, a) = (Origin::ok(), signer("a"));
    let issuer = Issuer::new(Answer::HangUp);
    let gateway = Gateway::before(&origin, &issuer.config("", "").replace("x=y", "code=canary"));
    until("the fetch fails", || gateway.log().contains("cannot fetch token keys"));
    issuer.has(&[&a]);
    until("the keys are in force", || status(&gateway, &a) == 200);
    // Said by another thread, a moment later.
    until("the log says so", || gateway.log().contains("token keys in force"));
    let log = gateway.log();
    assert!(log.contains("/jwks.json") && !log.contains("canary"), "{log}");
    assert!(issuer.origin.seen().iter().all(|seen| seen.line == "GET /jwks.json?code=canary HTTP/1.1"));
}

#[test]
fn a_key_that_the_issuer_has_withdrawn_is_believed_no_longer() {
    let (origin, a, b) = (Origin::ok(), signer("a"), signer("b"));
    let issuer = Issuer::of(&[&a]);
    let gateway = Gateway::before(&origin, &issuer.config("refresh: 1s", ""));
    let token = a.token("ES256", json!({ "sub": "u-1" }));
    for _ in 0..3 {
        assert_eq!(present(&gateway, &token).status, 200);
    }
    assert!(result(&gateway, "cached") >= 1.0);
    issuer.has(&[&b]);
    until("the withdrawn key is believed no longer", || present(&gateway, &token).status == 401);
    assert_eq!(status(&gateway, &b), 200);
    // The same answer again is no news: what is known stays known.
    let (cached, fetches) = (result(&gateway, "cached"), issuer.fetches());
    let token = b.token("ES256", json!({ "sub": "u-2" }));
    assert_eq!(present(&gateway, &token).status, 200);
    until("two more fetches", || issuer.fetches() > fetches + 1);
    assert_eq!(present(&gateway, &token).status, 200);
    assert!(result(&gateway, "cached") > cached);
}

/// `openssl s_server` with the development certificate.
struct TlsIssuer {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl TlsIssuer {
    fn of(signer: &Signer) -> Self {
        let dir = tempfile::TempDir::new().unwrap();
        let keys = key_set(&[signer]);
        // With -HTTP a file is a whole answer.
        std::fs::write(dir.path().join("jwks.json"), format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{keys}", keys.len()))
            .unwrap();
        let certs = concat!(env!("CARGO_MANIFEST_DIR"), "/certs");
        let (cert, key) = (format!("{certs}/dev.crt"), format!("{certs}/dev.key"));
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-HTTP", "-cert", &cert, "-key", &key])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command `openssl` is there: see .ci/install");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines
            .find_map(|line| line.unwrap().strip_prefix("ACCEPT 127.0.0.1:")?.parse().ok())
            .expect("it says where it listens");
        // Its reports are read to their end, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port, _dir: dir }
    }
}

impl Drop for TlsIssuer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn keys_come_over_https_from_whom_the_certificate_is_for() {
    let (origin, a) = (Origin::ok(), signer("a"));
    let issuer = TlsIssuer::of(&a);
    let ca = concat!(env!("CARGO_MANIFEST_DIR"), "/certs/ca.crt");
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("https://{host}:{}/jwks.json", issuer.port);
        let gateway = Gateway::before(&origin, &jwt(&format!("{{ jwks_url: '{url}', ca: '{ca}' }}"), "algorithms: ES256"));
        until("the keys have come over TLS", || status(&gateway, &a) == 200);
    }
    // Nobody public has signed the development certificate, and it is for no other name.
    for (host, ca) in [("127.0.0.1", String::new()), ("127.0.0.2", format!(", ca: '{ca}'"))] {
        let url = format!("https://{host}:{}/jwks.json", issuer.port);
        let gateway = Gateway::before(&origin, &jwt(&format!("{{ jwks_url: '{url}'{ca} }}"), "algorithms: ES256"));
        until("the fetch fails", || fetched(&gateway, "tls") + fetched(&gateway, "connect") >= 1.0);
        assert_eq!(status(&gateway, &a), 503);
    }
}
