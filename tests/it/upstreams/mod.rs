//! Many endpoints: which of them a request goes to, which are left out, and what an operator has to say about it.

mod admin;
mod balance;
mod failures;
mod grpc;
mod hash;
mod health;
mod http2;
mod outlier;
mod reload;
mod secure;

use crate::harness::{Client, Gateway, Latch, Next, Origin, exchange, until};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// An upstream's server: answers with its place, and with the statuses a test sets.
pub(super) struct Server {
    pub(super) origin: Origin,
    health: Arc<AtomicU16>,
    status: Arc<AtomicU16>,
}

/// A status that is no answer at all.
pub(super) const SILENT: u16 = 0;
pub(super) const RESET: u16 = 1;
/// Half a body, then the end.
pub(super) const CUT: u16 = 2;

impl Server {
    /// Requests for `/wait` are answered when `door` is open.
    fn new(place: usize, door: &Latch) -> Self {
        let (health, status) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicU16::new(200)));
        let (healths, statuses, door) = (Arc::clone(&health), Arc::clone(&status), door.clone());
        let origin = Origin::new(move |call| {
            let status = if call.target() == "/healthz" { &healths } else { &statuses };
            if call.target() == "/wait" {
                door.wait();
            }
            let body = place.to_string();
            match status.load(Ordering::SeqCst) {
                SILENT => call.stall(),
                RESET => {
                    call.body();
                    call.reset()
                }
                CUT => {
                    call.body();
                    call.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nha");
                    Next::Close
                }
                status => call.answer(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()),
            }
        });
        Self { origin, health, status }
    }

    /// What health checks get from now on.
    pub(super) fn set_health(&self, status: u16) {
        self.health.store(status, Ordering::SeqCst);
    }

    /// What everybody else gets from now on.
    pub(super) fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    pub(super) fn address(&self) -> String {
        self.origin.addr().to_string()
    }

    /// Requests other than health checks.
    pub(super) fn hits(&self) -> usize {
        self.origin.lines().iter().filter(|line| !line.contains("/healthz")).count()
    }

    pub(super) fn checks(&self) -> usize {
        self.origin.lines().iter().filter(|line| line.contains("/healthz")).count()
    }
}

pub(super) fn servers(n: usize) -> Vec<Server> {
    servers_behind(n, &Latch::default())
}

pub(super) fn servers_behind(n: usize, door: &Latch) -> Vec<Server> {
    (0..n).map(|place| Server::new(place, door)).collect()
}

/// An upstream of these servers, with these keys besides.
pub(super) fn upstream<'s>(servers: impl IntoIterator<Item = &'s Server>, keys: &str) -> String {
    let urls: Vec<_> = servers.into_iter().map(|server| format!("'http://{}'", server.address())).collect();
    format!("upstreams: {{ origin: {{ endpoints: [{}], {keys} }} }}", urls.join(", "))
}

/// How many requests each has had.
pub(super) fn hits(servers: &[Server]) -> Vec<usize> {
    servers.iter().map(Server::hits).collect()
}

/// A request of the admin listener with this line, and the status and document it gets.
pub(super) fn admin(gateway: &Gateway, line: &str) -> (u16, Value) {
    let reply = exchange(gateway.admin(), format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")).response();
    (reply.status, reply.json())
}

/// What the gateway says of a server.
pub(super) fn state(gateway: &Gateway, server: &Server) -> Value {
    let (_, upstream) = admin(gateway, "GET /upstreams/origin");
    let endpoints = upstream["endpoints"].as_array().unwrap();
    let found = endpoints.iter().find(|endpoint| endpoint["address"] == server.address());
    found.unwrap_or_else(|| panic!("{} is not in {upstream}", server.address())).clone()
}

pub(super) fn until_used(gateway: &Gateway, server: &Server, used: bool) {
    let what = format!("{} is {}", server.address(), if used { "in use" } else { "out of use" });
    until(&what, || state(gateway, server)["used"] == used);
}

/// The body of `GET path`: the place of the server that answered.
pub(super) fn place(client: &mut Client, path: &str, fields: &str) -> usize {
    let response = client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).response();
    assert_eq!(response.status, 200, "{}", response.text());
    response.text().parse().unwrap()
}
