//! tollgate: a reverse-proxy gateway with exact rate limiting built in.

pub mod body;
pub mod clock;
pub mod config;
pub mod limit;
pub mod request;
pub mod units;
