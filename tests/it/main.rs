//! Black-box tests: the real binary, exact bytes at both ends.
//!
//! Each module is one promise of the gateway; `standards` follows the RFCs, the others the attack and fault catalogue.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "test code: a panic is a failing test, and deadlines need the real clock"
)]

mod addresses;
mod cli;
mod clients;
mod discovery;
mod floods;
mod forwarding;
mod grpc;
mod harness;
mod http2_clients;
mod http2_upstream;
mod isolation;
mod jwt;
mod lifecycle;
mod limits;
mod logs;
mod mirror;
mod overload;
mod pictures;
mod redis;
mod regressions;
mod repository;
mod retry;
mod shared;
mod smuggling;
mod split;
mod spoofing;
mod standards;
mod tls;
mod upgrade;
mod upstreams;
