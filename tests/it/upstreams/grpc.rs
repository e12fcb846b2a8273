//! Health checks over gRPC, against a server that writes HTTP/2 frames by hand.

use crate::harness::{DEADLINE, Gateway, Table, flag, hpack, kind, until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the server answers.
#[derive(Clone)]
struct Answer {
    head: Vec<(&'static str, &'static str)>,
    body: Option<Vec<u8>>,
    trailers: Vec<(&'static str, &'static str)>,
}

const OK: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];

impl Answer {
    /// A `HealthCheckResponse` with this status.
    fn says(status: u8) -> Self {
        Self::with_body(&[0, 0, 0, 0, 2, 8, status])
    }

    fn with_body(body: &[u8]) -> Self {
        Self { head: OK.to_vec(), body: Some(body.to_vec()), trailers: vec![("grpc-status", "0")] }
    }

    fn head_only(head: &[(&'static str, &'static str)]) -> Self {
        Self { head: head.to_vec(), body: None, trailers: Vec::new() }
    }
}

/// A request as the server saw it.
#[derive(Clone, Default)]
struct Asked {
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

struct Server {
    addr: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (answer, asked) = (Arc::new(Mutex::new(answer)), Arc::new(Mutex::new(Vec::new())));
        let (answers, log) = (Arc::clone(&answer), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answers, log) = (Arc::clone(&answers), Arc::clone(&log));
                // A peer that leaves ends the connection: that is its own affair.
                thread::spawn(move || drop(serve(stream, &answers, &log)));
            }
        });
        Self { addr, answer, asked }
    }

    fn set(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }
}

fn serve(mut stream: TcpStream, answers: &Mutex<Answer>, log: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let mut preface = [0; 24];
    stream.read_exact(&mut preface)?;
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame(&mut stream, kind::SETTINGS, 0, 0, &[])?;
    let mut asked = Asked::default();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, frame_kind, flags, id @ ..] = head;
        let mut payload = vec![0; usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)];
        stream.read_exact(&mut payload)?;
        match frame_kind {
            kind::SETTINGS if flags & flag::ACK == 0 => frame(&mut stream, kind::SETTINGS, flag::ACK, 0, &[])?,
            kind::HEADERS => asked.fields = hpack::decode(&payload),
            kind::DATA => asked.body.extend_from_slice(&payload),
            _ => {}
        }
        if matches!(frame_kind, kind::HEADERS | kind::DATA) && flags & flag::END_STREAM != 0 {
            log.lock().unwrap().push(std::mem::take(&mut asked));
            let answer = answers.lock().unwrap().clone();
            reply(&mut stream, u32::from_be_bytes(id), &answer)?;
        }
    }
}

fn reply(stream: &mut TcpStream, id: u32, answer: &Answer) -> std::io::Result<()> {
    if answer.head.is_empty() {
        return Ok(());
    }
    let ends = if answer.body.is_none() { flag::END_STREAM } else { 0 };
    frame(stream, kind::HEADERS, flag::END_HEADERS | ends, id, &hpack::encode(&answer.head))?;
    let Some(body) = &answer.body else { return Ok(()) };
    frame(stream, kind::DATA, 0, id, body)?;
    frame(stream, kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, id, &hpack::encode(&answer.trailers))
}

fn frame(stream: &mut TcpStream, kind: u8, flags: u8, id: u32, payload: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(payload);
    stream.write_all(&bytes)
}

fn before(server: &Server, keys: &str) -> Gateway {
    let health = format!("health: {{ type: grpc, interval: 20ms, unhealthy_after: 2, healthy_after: 2, {keys} }}");
    Gateway::start(&format!("upstreams: {{ origin: {{ endpoints: ['http://{}'], {health} }} }}", server.addr))
}

fn is_healthy(gateway: &Gateway) -> bool {
    gateway.metric("tollgate_endpoint_healthy", &[("upstream", "origin")]) > 0.0
}

fn count(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("tollgate_health_checks_total", &[("result", result)])
}

#[test]
fn a_service_is_asked_by_name_and_followed() {
    let server = Server::start(Answer::says(1));
    let gateway = before(&server, "timeout: 2s, service: shop.Cart, host: 'cart.example'");
    until("three good checks", || count(&gateway, "success") >= 3.0);
    let asked = server.asked.lock().unwrap()[0].clone();
    let field = |name: &str| crate::harness::field(&asked.fields, name);
    assert_eq!(
        [":method", ":path", ":authority", "content-type", "te"].map(field),
        ["POST", "/grpc.health.v1.Health/Check", "cart.example", "application/grpc", "trailers"].map(Some)
    );
    assert_eq!(asked.body, b"\0\0\0\0\x0b\x0a\x09shop.Cart");

    server.set(Answer::says(2));
    until("it is unhealthy", || !is_healthy(&gateway));
    until("the reason is said", || gateway.log().contains("the service is NOT_SERVING"));
    assert_eq!(gateway.get("/").status, 503);
    server.set(Answer::says(1));
    until("it is healthy again", || is_healthy(&gateway));
}

#[test]
fn without_a_service_the_whole_server_is_asked() {
    let server = Server::start(Answer::says(1));
    let gateway = before(&server, "timeout: 2s");
    until("a good check", || count(&gateway, "success") >= 1.0);
    let asked = server.asked.lock().unwrap()[0].clone();
    assert_eq!(asked.body, [0; 5]);
    assert_eq!(crate::harness::field(&asked.fields, ":authority"), Some(server.addr.to_string().as_str()));
}

#[test]
fn whatever_is_not_serving_is_unhealthy() {
    let broken = Answer { trailers: vec![("grpc-status", "13")], ..Answer::says(1) };
    let unsaid = Answer { trailers: vec![("x-other", "1")], ..Answer::says(1) };
    let unknown_service = Answer::head_only(&[(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5")]);
    let cases = [
        ("unknown", "grpc", Answer::says(0)),
        ("not serving", "grpc", Answer::says(2)),
        ("service unknown", "grpc", Answer::says(3)),
        ("an empty message", "grpc", Answer::with_body(&[0; 5])),
        ("no message", "grpc", Answer::with_body(&[])),
        ("a compressed message", "grpc", Answer::with_body(&[1, 0, 0, 0, 2, 8, 1])),
        ("a large answer", "grpc", Answer::with_body(&[0; 10_000])),
        ("an error behind the message", "grpc", broken),
        ("no status", "grpc", unsaid),
        ("no such service", "grpc", unknown_service),
        ("no gRPC", "status", Answer::head_only(&[(":status", "404")])),
        ("no answer", "timeout", Answer::head_only(&[])),
    ];
    let mut table = Table::new("gRPC answers");
    for (name, result, answer) in cases {
        let server = Server::start(answer);
        let gateway = before(&server, if result == "timeout" { "timeout: 50ms" } else { "timeout: 4s" });
        until(name, || !is_healthy(&gateway));
        let (such, good) = (count(&gateway, result), count(&gateway, "success"));
        table.row(name, if such >= 2.0 && good == 0.0 { String::new() } else { gateway.metrics() });
    }
}

#[test]
fn a_server_that_speaks_no_http2_is_unhealthy() {
    let origin = crate::harness::Origin::ok();
    let health = "health: { type: grpc, interval: 20ms, unhealthy_after: 2, timeout: 2s }";
    let gateway = Gateway::before(&origin, &format!("upstreams: {{ origin: {{ endpoints: ['http://ORIGIN'], {health} }} }}"));
    until("it is unhealthy", || !is_healthy(&gateway));
    assert_eq!(count(&gateway, "success"), 0.0);
    // However many checks have failed: none leaves a connection behind.
    until("ten checks", || gateway.metric("tollgate_health_checks_total", &[]) >= 10.0);
    until("few connections are open", || origin.open() <= 2);
}
