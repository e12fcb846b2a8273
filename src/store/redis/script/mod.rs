//! What runs in the store: the scripts, their arguments and their answers. Pure: no connections, no clock; a server's time is known in its
//! answers only.
//!
//! **Time.** The store counts whole microseconds of its server's `TIME`, so that all gateways have one clock, and in Lua every number is a
//! double: up to 2^53 microseconds are exact, nanoseconds are not. Only durations cross the border; as [`Nanos`](crate::clock::Nanos)
//! they are those microseconds times 1000. Of the arithmetic in [`limit`](crate::limit), which knows no unit, as much as possible is done
//! here, on integers: the scripts compare and add, and multiply only where they must, on 106 bits if need be.
//!
//! **Values** are text (a log: text and its cells), so that a person can read what is counted: the quota under which it was written, a space, and the state.
//! `g100/6e7 1796083957651169` is a TAT under 100 per 60 s; `f5/36e8 498912:3` is three of five used in that hour. A value of another quota is
//! carried over in cells, as in memory; one that says nothing, or of another type, is as good as none and is written over.
//!
//! **Writing.** A charge that is refused writes nothing, with the exception that memory makes too: if a counter refuses that lies further ahead than it
//! can (the clock went back), what it says now is kept, since only then does waiting help. What was used under another quota stays as it was written
//! until a charge passes. Every key has a time to live, from its own reset and a second more: it collects garbage and decides nothing.
//!
//! **Form.** All scripts begin with `prelude.lua`. What is asked of a counter is two arguments, its quota and its numbers packed, and what is answered
//! is one text: each more would be taken apart by the client, the server and Lua. A log is never read as a whole where a slice will do.
//!
//! Whatever the connection does with an [`Invocation`] twice is charged twice, except what [`renew_slots`], [`take_slots`] and [`beat`] make: those may be repeated.

mod beat;
mod charge;
mod numbers;
mod settle;
mod slots;

use smallvec::SmallVec;

pub use super::Answer;
pub use super::invocation::{Args, Invocation, Script, StoreKey};
use crate::limit::{Key, QuotaId};

pub use beat::{beat, beaten, leave};
pub use charge::{Ask, charge, charged};
pub use settle::{Correction, settle};
pub use slots::{Slots, SlotsAnswer, renew_slots, said_slots, take_slots};

impl StoreKey {
    /// The name of a counter. All counters of one `entity` are in one slot.
    #[must_use]
    pub fn counter(prefix: &str, entity: u64, key: Key) -> Self {
        let [first, second] = key.tagged(QuotaId(0)).0;
        let mut name = SmallVec::with_capacity(prefix.len() + COUNTER);
        name.extend_from_slice(prefix.as_bytes());
        name.extend_from_slice(b":{");
        name.extend(hex::<16>(entity));
        name.extend_from_slice(b"}:");
        name.extend(hex::<16>(first));
        name.extend(hex::<11>(second >> 20));
        Self(name)
    }
}

/// The last `N` digits of a number in hexadecimal. `write!` would take ten times as long, and every decision has some.
fn hex<const N: usize>(number: u64) -> [u8; N] {
    let mut rest = number;
    let mut digits = [b'0'; N];
    for digit in digits.iter_mut().rev() {
        let value = u8::try_from(rest & 0xf).unwrap_or_default();
        *digit = if value < 10 { b'0' + value } else { b'a' + (value - 10) };
        rest >>= 4;
    }
    digits
}

/// Bytes of a counter's name behind the prefix.
const COUNTER: usize = 2 + 16 + 2 + 16 + 11;

impl Args {
    fn starting_with(now: Option<u64>) -> Self {
        let mut args = Self::default();
        match now {
            Some(now) => args.number(now),
            None => args.end(),
        }
        args
    }
}

/// The answer has another shape than the script's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store's answer makes no sense")]
pub struct Garbled;

/// A script made of files, in their order, behind what all begin with.
macro_rules! script {
    ($($file:literal),+) => {{
        const TEXT: &str = concat!(include_str!("prelude.lua"), $(include_str!($file)),+);
        Script { text: TEXT, sha: std::sync::LazyLock::new(|| $crate::store::redis::invocation::sha(TEXT)) }
    }};
}
use script;
