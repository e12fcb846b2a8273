//! Whose address counts: raw bytes in, counter key out. A limit of one request per hour and address says which two requests are
//! one client's: `200 429` is the same, `200 200` is not.

mod check;
mod connections;
mod emission;
mod forwarded;
mod grouping;
mod headers;
mod hops;
mod proxy_headers;
mod proxy_protocol;
mod unix;

use crate::harness::{Client, Table, crlf, exchange};
use std::net::SocketAddr;

/// What every gateway here counts by.
pub(super) const ONE: &str = "limits: [{ name: one, per: ip, rate: 1/hour }]";
/// What two requests of one client, or of two, come to.
pub(super) const SAME: &str = "200 429";
pub(super) const OTHER: &str = "200 200";

/// A request with these fields, each of which ends in a newline.
pub(super) fn get(fields: &str) -> Vec<u8> {
    crlf(&format!("GET / HTTP/1.1\nHost: a\n{fields}\n"))
}

/// What a request with these fields is answered.
pub(super) fn ask(addr: SocketAddr, fields: &str) -> String {
    exchange(addr, get(fields)).outcome()
}

/// The same from another address of this machine.
pub(super) fn ask_from(from: &str, addr: SocketAddr, fields: &str) -> String {
    Client::connect_from(format!("{from}:0").parse().unwrap(), addr).ask(get(fields)).outcome()
}

/// Name, the fields of two requests, and what they come to.
pub(super) type Row = (&'static str, &'static str, &'static str, &'static str);

/// Sends the two requests of every row. Each row has addresses of its own.
pub(super) fn compare(title: &'static str, addr: SocketAddr, rows: &[Row]) {
    let mut table = Table::new(title);
    for (name, first, second, expected) in rows {
        table.outcome(name, expected, &format!("{} {}", ask(addr, first), ask(addr, second)));
    }
}

/// A version 2 header: command byte, family byte, and what follows the length.
pub(super) fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", [command, family].as_slice(), &length, payload].concat()
}

/// The addresses of a version 2 header over IPv4, source and destination.
pub(super) fn v2_ipv4(source: [u8; 4]) -> Vec<u8> {
    [source.as_slice(), &[192, 0, 2, 1], &[0x10, 0, 0, 80]].concat()
}

/// A version 1 header.
pub(super) fn v1(source: &str) -> Vec<u8> {
    let (family, destination) = if source.contains(':') { ("TCP6", "::1") } else { ("TCP4", "192.0.2.1") };
    format!("PROXY {family} {source} {destination} 4711 80\r\n").into_bytes()
}
