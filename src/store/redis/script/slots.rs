//! Slots of concurrency limits across gateways: every gateway says how many it has, as a whole number that expires.

use std::time::Duration;

use redis::Value;

use super::{Args, Garbled, Invocation, Script, StoreKey, script};

/// What one gateway says of one limit's key.
#[derive(Debug, Clone)]
pub struct Slots<'i> {
    /// The limit's key.
    pub key: StoreKey,
    /// The gateway. Another process is another gateway.
    pub instance: &'i str,
    /// How many it has from now on, in all; 0 gives them back.
    pub count: u32,
    /// For how long unless they are renewed.
    pub lease: Duration,
    /// Larger than in everything that this gateway has said of this key before.
    pub sequence: u64,
}

/// The store's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotsAnswer {
    /// The gateway has them.
    Taken {
        /// How many the others have.
        others: u64,
    },
    /// There is not room for so many; nothing has changed.
    Full {
        /// How many the others have.
        others: u64,
    },
    /// Something with a larger sequence has been said already, and holds.
    Overtaken,
}

/// Says it if with the others' there are no more than `max`. Replied to with [`said_slots`].
#[must_use]
pub fn take_slots(slots: &Slots<'_>, max: u32, server_now: Option<u64>) -> Invocation {
    say_slots(slots, u64::from(max), server_now)
}

/// Says it whatever the others have: to keep what was taken, or to have less.
#[must_use]
pub fn renew_slots(slots: &Slots<'_>, server_now: Option<u64>) -> Invocation {
    say_slots(slots, ANY, server_now)
}

/// The answer.
///
/// # Errors
/// When the reply is not one.
pub fn said_slots(reply: &Value) -> Result<SlotsAnswer, Garbled> {
    let Value::Array(numbers) = reply else { return Err(Garbled) };
    let [Value::Int(said), Value::Int(others)] = numbers.as_slice() else { return Err(Garbled) };
    let others = u64::try_from(*others).map_err(|_| Garbled)?;
    match said {
        0 => Ok(SlotsAnswer::Full { others }),
        1 => Ok(SlotsAnswer::Taken { others }),
        2 => Ok(SlotsAnswer::Overtaken),
        _ => Err(Garbled),
    }
}

fn say_slots(slots: &Slots<'_>, max: u64, server_now: Option<u64>) -> Invocation {
    let Slots { key, instance, count, lease, sequence } = slots;
    let mut args = Args::starting_with(server_now);
    args.text(instance);
    args.number(u64::from(*count));
    args.number(max);
    args.number(u64::try_from(lease.as_micros()).unwrap_or(ANY).min(ANY));
    args.number(*sequence);
    Invocation { script: &SLOTS, keys: vec![key.clone()], args }
}

static SLOTS: Script = script!("slots.lua");
/// More than there can be, and still exact in the script.
const ANY: u64 = 1 << 50;
