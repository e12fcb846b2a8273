//! Corrections: what a response turned out to cost, leases that come back.

use super::charge::PHASE;
use super::numbers::Numbers;
use super::{Args, Invocation, Script, StoreKey, script};
use crate::clock::Nanos;
use crate::limit::{Boost, Quota};

/// A correction of one counter.
#[derive(Debug, Clone)]
pub struct Correction<'q> {
    /// The counter.
    pub key: StoreKey,
    /// The numbers it was charged under. If the counter has another quota by now, that one is what counts.
    pub quota: &'q Quota,
    /// As it was charged.
    pub boost: Boost,
    /// As it was charged.
    pub phase: u64,
    /// The charge's mark, or a lease's window; `None` (or 0, which is no mark) if the cells come back whatever has happened since.
    pub mark: Option<u64>,
    /// How many cells are taken, whether they fit or not; less than 0: how many come back, as far as they still count.
    pub delta: i64,
}

/// Corrects. `now` and `server_now` as in [`charge`](super::charge).
#[must_use]
pub fn settle(correction: &Correction<'_>, now: Nanos, server_now: Option<u64>) -> Invocation {
    let Correction { key, quota, boost, phase, mark, delta } = correction;
    let mut args = Args::starting_with(server_now);
    args.quota(quota, &Numbers::of(quota));
    let boosted = quota.boosted(*boost);
    args.quota(&boosted, &Numbers::of(&boosted));
    args.number(phase & PHASE);
    match mark.filter(|mark| *mark > 0) {
        Some(mark) => args.number(mark),
        None => args.end(),
    }
    args.signed((*delta).clamp(-MOST, MOST));
    if let Some(calendar) = quota.calendar() {
        let window = calendar.unix_window(now);
        [window.number, window.start, window.end, window.next_end].into_iter().for_each(|number| args.number(number));
    }
    Invocation { script: &SETTLE, keys: vec![key.clone()], args }
}

static SETTLE: Script = script!("cells.lua", "quotas.lua", "settle.lua");
/// More is all there is.
const MOST: i64 = 1 << 52;
