//! Heartbeats: how many gateways share the store.

use std::time::Duration;

use super::{Args, Garbled, Invocation, Script, StoreKey, script};

/// Says that this gateway lives, and will say so again after `every`. One that has missed three beats is gone.
#[must_use]
pub fn beat(key: StoreKey, instance: &str, every: Duration, server_now: Option<u64>) -> Invocation {
    say(key, instance, u64::try_from(every.as_micros()).unwrap_or(HOUR).clamp(1, HOUR), server_now)
}

/// Says that it leaves.
#[must_use]
pub fn leave(key: StoreKey, instance: &str, server_now: Option<u64>) -> Invocation {
    say(key, instance, 0, server_now)
}

/// How many gateways live.
///
/// # Errors
/// When the reply is no number.
pub fn beaten(reply: &redis::Value) -> Result<u32, Garbled> {
    match reply {
        redis::Value::Int(live) => u32::try_from(*live).map_err(|_| Garbled),
        _ => Err(Garbled),
    }
}

fn say(key: StoreKey, instance: &str, every: u64, server_now: Option<u64>) -> Invocation {
    let mut args = Args::starting_with(server_now);
    args.text(instance);
    args.number(every);
    Invocation { script: &BEAT, keys: vec![key], args }
}

static BEAT: Script = script!("beat.lua");
const HOUR: u64 = 3_600_000_000;
