//! What is tried again and what is not, what it may cost, and how much of the gateway one upstream may take.

mod bodies;
mod bulkhead;
mod chaos;
mod http2;
mod mistakes;
mod rules;

use crate::harness::{Exchange, Gateway, Next, Origin, exchange};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BUSY: &[u8] = b"HTTP/1.1 503 X\r\nContent-Length: 4\r\n\r\nbusy";

/// Everything there is to say about an upstream of these endpoints.
fn upstream(addrs: &[SocketAddr], keys: &str) -> String {
    let urls: Vec<_> = addrs.iter().map(|addr| format!("'http://{addr}'")).collect();
    format!("upstreams: {{ origin: {{ endpoints: [{}], {keys} }} }}", urls.join(", "))
}

/// `retry` with pauses that no test has to wait for, and as many retries as a test can make.
fn retry(keys: &str) -> String {
    format!("retry: {{ backoff: 1ms..2ms, min_per_second: 1000, {keys} }}")
}

/// In front of one upstream server.
fn before(origin: &Origin, keys: &str) -> Gateway {
    Gateway::start(&upstream(&[origin.addr()], &retry(keys)))
}

/// A server that treats its first `n` requests in one way, and the others well.
fn failing(n: usize, fault: impl Fn(&mut Exchange) -> Next + Send + Sync + 'static) -> Origin {
    let count = Arc::new(AtomicUsize::new(0));
    Origin::new(move |call| if count.fetch_add(1, Ordering::SeqCst) < n { fault(call) } else { call.answer(OK) })
}

fn ask(gateway: &Gateway, method: &str, fields: &str) -> u16 {
    let mut client = gateway.client();
    client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.receive_to(method).status()
}

fn retries(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("tollgate_upstream_retries_total", &[("upstream", "origin"), ("reason", reason)])
}

fn withheld(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("tollgate_upstream_retries_withheld_total", &[("upstream", "origin"), ("reason", reason)])
}

fn errors(gateway: &Gateway, kind: &str) -> f64 {
    gateway.metric("tollgate_upstream_errors_total", &[("upstream", "origin"), ("kind", kind)])
}

/// Whether the endpoint gets requests.
fn is_used(gateway: &Gateway, addr: SocketAddr) -> bool {
    let reply = exchange(gateway.admin(), "GET /upstreams/origin HTTP/1.1\r\nHost: localhost\r\n\r\n").response().json();
    let endpoints = reply["endpoints"].as_array().unwrap();
    endpoints.iter().any(|endpoint| endpoint["address"] == addr.to_string() && endpoint["used"] == true)
}
