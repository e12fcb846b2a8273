//! Counters that several gateways share: a Redis or Valkey server, alone, with Sentinel, or a cluster.

pub mod lease;
pub mod link;
pub mod script;
