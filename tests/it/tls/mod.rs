//! TLS with clients and upstreams: what is shown, asked for and refused, and what a connection's end means.

mod client_certificates;
mod faults;
mod files;
mod handshakes;
mod names;
mod negotiation;
mod openssl;
mod protocols;
mod upstreams;

use crate::harness::{Authority, Client, Dial, Gateway, Origin, Reply};

/// A listener with this in its `tls` and at its end.
fn listener(tls: &str, more: &str) -> String {
    format!("listeners: [{{ name: public, address: '127.0.0.1:0', tls: {{ {tls} }}{more} }}]")
}

/// An authority, and a gateway in front of `origin` that shows a certificate of it for `localhost`.
fn gateway(origin: &Origin, more: &str) -> (Authority, Gateway) {
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &crate::harness::Leaf::of(&["localhost"]));
    let gateway = Gateway::before(origin, &format!("{}\n{more}", listener(&format!("certificates: {pair}"), "")));
    (authority, gateway)
}

/// A connection on which hands have been shaken.
fn dial(gateway: &Gateway, dial: &Dial) -> Result<Client, String> {
    gateway.client().secure(dial)
}

/// `GET /` on a connection of its own; what became of it, be it in the handshake.
fn outcome(gateway: &Gateway, how: &Dial) -> String {
    match dial(gateway, how) {
        Ok(mut client) => match client.get("/") {
            Reply::Response(response) => response.status.to_string(),
            other => other.outcome(),
        },
        Err(_) => "refused".to_owned(),
    }
}

fn failures(gateway: &Gateway, kind: &str) -> f64 {
    gateway.metric("tollgate_tls_handshake_failures_total", &[("listener", "public"), ("kind", kind)])
}

fn handshakes(gateway: &Gateway, kind: &str) -> f64 {
    gateway.metric("tollgate_tls_handshakes_total", &[("listener", "public"), ("kind", kind)])
}
