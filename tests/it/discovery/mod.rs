//! Where endpoints are: names, services, files and sockets, and that no request is lost when that changes.

mod connections;
mod files;
mod leaks;
mod names;
mod proxy_protocol;
mod services;
mod sockets;

use crate::harness::{Gateway, Next, Origin, until};
use serde_json::Value;
use std::net::SocketAddr;

pub(super) use crate::upstreams::admin;

/// Servers at one port of several addresses; each answers with its address.
pub(super) fn servers_at<const N: usize>(addresses: [&str; N]) -> (u16, [Origin; N]) {
    let port_of = |origin: &Origin| origin.addr().port();
    let start = |address: &str, port: u16| {
        let (at, says): (SocketAddr, _) = (SocketAddr::new(address.parse().unwrap(), port), address.to_owned());
        Origin::at(at, move |call| answer(call, &says))
    };
    let first = start(addresses[0], 0);
    let port = port_of(&first);
    let mut first = Some(first);
    let origins = std::array::from_fn(|place| match place {
        0 => first.take().unwrap(),
        place => start(addresses[place], port),
    });
    (port, origins)
}

pub(super) fn answer(call: &mut crate::harness::Exchange, says: &str) -> Next {
    call.answer(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{says}", says.len()).as_bytes())
}

/// What the admin listener says of the upstream `origin`.
pub(super) fn shown(gateway: &Gateway) -> Value {
    admin(gateway, "GET /upstreams/origin").1
}

/// The addresses of its endpoints, in order.
pub(super) fn addresses(gateway: &Gateway) -> Vec<String> {
    let shown = shown(gateway);
    let addresses =
        shown["endpoints"].as_array().unwrap().iter().map(|endpoint| endpoint["address"].as_str().unwrap().to_owned());
    addresses.collect()
}

pub(super) fn until_addresses<S: Into<String>>(gateway: &Gateway, expected: impl IntoIterator<Item = S>) {
    let expected: Vec<String> = expected.into_iter().map(Into::into).collect();
    until(&format!("the endpoints are {expected:?}"), || addresses(gateway) == expected);
}
