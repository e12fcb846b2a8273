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
//! can (the clock went back), or that was written under another quota, what it says now is kept, since only then does waiting help. Every key has a time to
//! live, from its own reset and a second more: it collects garbage and decides nothing.
//!
//! Whatever the connection does with an [`Invocation`] twice is charged twice, except what [`renew_slots`], [`take_slots`] and [`beat`] make: those may be repeated.

mod beat;
mod charge;
mod numbers;
mod settle;
mod slots;

use std::fmt::{self, Write as _};

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
        let mut name = Self(SmallVec::new());
        // Into memory: cannot go wrong.
        let _ = write!(name, "{prefix}:{{{entity:016x}}}:{first:016x}{:011x}", second >> 20);
        name
    }
}

impl fmt::Write for StoreKey {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

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

/// Numbers of an answer, in order.
struct Reply<'r>(std::slice::Iter<'r, redis::Value>);

impl<'r> Reply<'r> {
    fn of(reply: &'r redis::Value) -> Result<Self, Garbled> {
        match reply {
            redis::Value::Array(values) => Ok(Self(values.iter())),
            _ => Err(Garbled),
        }
    }

    fn signed(&mut self) -> Result<i64, Garbled> {
        match self.0.next() {
            Some(redis::Value::Int(number)) => Ok(*number),
            _ => Err(Garbled),
        }
    }

    fn next(&mut self) -> Result<u64, Garbled> {
        u64::try_from(self.signed()?).map_err(|_| Garbled)
    }

    fn end(mut self) -> Result<(), Garbled> {
        if self.0.next().is_some() { Err(Garbled) } else { Ok(()) }
    }
}

/// A script made of files, in their order.
macro_rules! script {
    ($($file:literal),+) => {{
        const TEXT: &str = concat!($(include_str!($file)),+);
        Script { text: TEXT, sha: std::sync::LazyLock::new(|| $crate::store::redis::invocation::sha(TEXT)) }
    }};
}
use script;
