//! What is seen from outside: [`metrics`], and the [`access_log`]. Knows no requests and no configuration, only names,
//! numbers and lines.

pub mod access_log;
pub mod metrics;
