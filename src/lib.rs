//! tollgate: a reverse-proxy gateway with exact rate limiting built in.

pub mod body;
pub mod clock;
pub mod admission;
pub mod config;
pub mod identity;
pub mod headers;
pub mod limit;
pub mod policy;
pub mod request;
pub mod store;
pub mod units;
