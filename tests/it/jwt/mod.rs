//! Users from tokens: what is believed, what is not, who somebody is then, and where keys come from.

mod algorithms;
mod claims;
mod faults;
mod issuers;
pub(crate) mod signer;

use crate::harness::{Gateway, Response};

/// `identity.user.jwt` with these keys and more of its own.
fn jwt(keys: &str, more: &str) -> String {
    format!("identity: {{ user: {{ jwt: {{ keys: {keys}, {more} }} }} }}")
}

/// `GET /` with these header lines.
fn ask(gateway: &Gateway, fields: &str) -> Response {
    let fields = fields.replace('\n', "\r\n");
    gateway.client().ask(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n")).response()
}

/// `GET /` with this token.
fn present(gateway: &Gateway, token: &str) -> Response {
    ask(gateway, &format!("Authorization: Bearer {token}"))
}

fn result(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("tollgate_jwt_total", &[("result", result)])
}
