//! Known clients: their file, keys that expire, conditions on keys and headers, what upstream is told of them, and what nobody is.

mod conditions;
mod counting;
mod expiry;
mod file;
mod forward;
mod hidden;
mod privacy;
mod strip;

use crate::harness::{Client, Gateway, Response, crlf};

/// `GET /` with these fields, each of which ends in a newline.
fn ask(gateway: &Gateway, fields: &str) -> Response {
    get(gateway, "/", fields)
}

fn get(gateway: &Gateway, target: &str, fields: &str) -> Response {
    gateway.client().ask(crlf(&format!("GET {target} HTTP/1.1\nHost: a\n{fields}\n"))).response()
}

/// The same from another address of this machine.
fn ask_from(from: &str, gateway: &Gateway, fields: &str) -> Response {
    let mut client = Client::connect_from(format!("{from}:0").parse().unwrap(), gateway.addr());
    client.ask(crlf(&format!("GET / HTTP/1.1\nHost: a\n{fields}\n"))).response()
}
