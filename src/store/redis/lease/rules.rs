//! Which charges may be paid from a lease, how large a block is, and for how long a denial is believed.

use super::rate::HORIZON;
use crate::clock::{Nanos, SECOND};
use crate::limit::{Algorithm, Charge, Quota, Reach};

/// How what is left of a quota comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// All of it when the window ends.
    Window,
    /// Steadily, at most `L` cells per period; cells end with their window.
    Fading,
    /// Steadily, at most `L` cells per period; cells don't end.
    Steady,
    /// Nobody can say from an answer: logs, and quotas that let wait.
    Unknown,
}

impl Course {
    pub(super) fn of(quota: &Quota) -> Self {
        match quota.algorithm() {
            _ if quota.max_delay() > 0 => Self::Unknown,
            Algorithm::Gcra | Algorithm::TokenBucket | Algorithm::LeakyBucket => Self::Steady,
            Algorithm::FixedWindow => Self::Window,
            Algorithm::SlidingWindow => Self::Fading,
            Algorithm::SlidingLog | Algorithm::FirstSeen => Self::Unknown,
        }
    }

    /// Whether cells come back before anything ends.
    pub(super) fn is_steady(self) -> bool {
        matches!(self, Self::Fading | Self::Steady)
    }
}

/// Whether cells of this quota may be leased at all. A small limit would be spread so thin over `instances` that requests are refused for cells
/// that others hold; a large cost would find its block too small; a newcomer's quota is another one at every look.
pub(super) fn may_lease(charge: &Charge<'_>, instances: u32) -> bool {
    let quota = &charge.quota.quota;
    Course::of(quota) != Course::Unknown
        && charge.warmup.is_none()
        && quota.burst() >= LEAST_SHARE.saturating_mul(u64::from(instances.max(1)))
        && charge.cost.checked_mul(LARGE_COST).is_some_and(|tenfold| tenfold < quota.burst())
}

/// Whether leasing pays for a key of which this much (in 2^-4ths of a cell per [`HORIZON`]) is asked here. Who is leased stays so until it is
/// half as busy.
pub(super) fn pays(sixteenths: u64, reach: Reach, is_leased: bool) -> bool {
    let least = match reach {
        Reach::Broad => 16,
        Reach::Narrow => BUSY_CELLS * 16,
    };
    sixteenths >= if is_leased { least / 2 } else { least }
}

/// The cells of a block: what is asked here in [`HORIZON`], but no more than a fair part of what is `left`, and nothing that could not be spent before
/// `ends_in`. Of what comes back steadily a part of what comes in [`AHEAD`] is as fair:
/// when nothing is left, that is all there is to share.
pub(super) fn block(quota: &Quota, sixteenths: u64, left: u64, instances: u32, ends_in: Nanos) -> u64 {
    let instances = u64::from(instances.max(1));
    let of_left = left / instances.saturating_mul(2);
    let fair = if Course::of(quota).is_steady() { of_left.max(quota.cells_in(AHEAD) / instances) } else { of_left };
    let expected = if ends_in < HORIZON { sixteenths.saturating_mul(ends_in / 1024) / (HORIZON / 1024) } else { sixteenths };
    (expected / 16).min(fair)
}

/// How long after a denial a leased counter is not asked again although a cell may have come back: while a block gathers, but so that of those who come
/// meanwhile no more than [`REFUSED_AT_ONCE`] are refused. What gathers stays in the store, so it must be far less than what fits there.
/// What has gathered when a sliding window ends is room lost. So the pauses get shorter towards the end, each half of what is left of the window: what
/// gathered in one can be spent after it.
pub(super) fn pause(quota: &Quota, sixteenths: u64, ends_in: Nanos) -> Nanos {
    let longest = match Course::of(quota) {
        Course::Steady => HORIZON.min(quota.capacity() / 4),
        // The last of them is a sixty-fourth, so less than that is lost.
        Course::Fading => (quota.period() / 16).min(HORIZON).min(ends_in / 2).max(quota.period() / 64),
        Course::Window | Course::Unknown => return 0,
    };
    longest.min(HORIZON * 16 * REFUSED_AT_ONCE / sixteenths.max(1))
}

/// For how long a refusal is believed. Cells of leased counters go back when a gateway becomes idle; those that responses settle, and places in a
/// queue, may come back with every request, at any gateway.
pub(super) fn life(charge: &Charge<'_>, is_leased: bool) -> Nanos {
    let comes_back = charge.quota.quota.max_delay() > 0 || charge.sharing.is_some_and(|sharing| sharing.comes_back);
    match (comes_back, is_leased) {
        (true, _) => HORIZON,
        (false, true) => SECOND,
        (false, false) => 5 * SECOND,
    }
}

/// Cells of a limit per instance below which every decision is the store's.
const LEAST_SHARE: u64 = 20;
/// More than a block should last, because load is seldom spread evenly.
const AHEAD: Nanos = 3 * HORIZON;
/// How many requests may be refused on one denial whose cells may have come back: so there is a question for at most one in as many.
const REFUSED_AT_ONCE: u64 = 40;
/// A cost of this part of the limit is the store's to decide.
const LARGE_COST: u64 = 10;
/// 50 cells a second: then a lease saves four calls of five.
const BUSY_CELLS: u64 = 5;
