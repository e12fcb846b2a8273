//! tollgate: a reverse-proxy gateway with exact rate limiting built in.

pub mod admin;
pub mod admission;
pub mod app;
pub mod body;
pub mod cli;
pub mod clock;
pub mod compile;
pub mod config;
pub mod discovery;
pub mod headers;
pub mod identity;
pub mod issuer;
pub mod limit;
pub mod policy;
pub mod proxy;
pub mod request;
pub mod respond;
pub mod server;
pub mod snapshot;
pub mod socket;
pub mod store;
pub mod telemetry;
pub mod tls;
pub mod units;
pub mod upstream;
pub mod websocket;
