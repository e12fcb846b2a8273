//! What a counter says, whatever its quota counts by: of a log the entry has only the place.

use super::logs::Logs;
use super::table::Entry;
use crate::clock::Nanos;
use crate::limit::{Algorithm, Quota, share, sliding_log};

/// Whether it says no more than an absent one would; of an unknown quota nobody can say anything.
pub(super) fn is_idle(entry: &Entry, quota: Option<&Quota>, logs: &Logs, now: Nanos) -> bool {
    match quota {
        Some(quota) if quota.algorithm() == Algorithm::SlidingLog => used(entry, quota, logs, now) == 0,
        Some(quota) => quota.is_idle(entry.state, entry.key.phase(), now),
        None => true,
    }
}

/// Cells in use.
pub(super) fn used(entry: &Entry, quota: &Quota, logs: &Logs, now: Nanos) -> u64 {
    match quota.algorithm() {
        Algorithm::SlidingLog => logs.get(entry.state).map_or(0, |log| sliding_log::used(quota, log, now)),
        _ => quota.used(entry.state, entry.key.phase(), now),
    }
}

/// How much of its quota is in use, where 2^16 is all.
pub(super) fn fullness(entry: &Entry, quota: &Quota, logs: &Logs, now: Nanos) -> u64 {
    match quota.algorithm() {
        Algorithm::SlidingLog => share(used(entry, quota, logs, now), quota.count()),
        _ => quota.fullness(entry.state, entry.key.phase(), now),
    }
}

/// Makes its place free.
pub(super) fn free(entry: &mut Entry, quota: Option<&Quota>, logs: &mut Logs) {
    if quota.is_some_and(|quota| quota.algorithm() == Algorithm::SlidingLog) {
        logs.drop(entry.state);
    }
    *entry = Entry::default();
}
