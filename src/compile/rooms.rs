//! How the store's room is shared out: every limit has its own, so that a flood of keys in one cannot crowd out another.
//!
//! Every window of a limit is a room, since only counters that drain at the same speed can be weighed against each other. A room has what
//! the limit's `max_keys` says, or an equal share of the rest. All sizes are in entries of the store, of which a key of a `sliding_log` needs
//! several.

use super::Compiler;
use super::limits::room_name;
use crate::config;
use crate::config::diagnostic::Path;
use crate::limit::{Algorithm, Quota, SpaceId, Warmup};
use crate::policy::{Amount, Limit};
use crate::snapshot::Room;
use crate::store::Budget;

/// What a window of a limit needs room for.
pub(super) struct Need {
    limit: String,
    space: SpaceId,
    path: Path,
    /// Entries per counter.
    entries: u64,
    /// Counters at most, as written.
    max_keys: Option<u64>,
    /// Whether there is but one counter.
    single: bool,
}

impl Compiler<'_> {
    /// What a limit needs: a room for each of its windows, and one to know newcomers by.
    pub(super) fn needs(&self, limit: &config::Limit, compiled: &Limit, path: &Path) -> Vec<Need> {
        let Amount::Rate { by_tier, by_client, during } = &compiled.amount else { return Vec::new() };
        let callers: Vec<_> =
            by_tier.iter().chain(by_client.values()).chain(during.iter().flat_map(|(_, by_tier)| by_tier)).collect();
        let windows = callers.iter().map(|windows| windows.len()).max().unwrap_or(0).max(1);
        let need = |space, entries| Need {
            limit: limit.name.clone(),
            space,
            path: path.key("max_keys"),
            entries,
            max_keys: limit.max_keys,
            single: compiled.constant_key.is_some(),
        };
        let of_window = |ordinal: usize| {
            let same = callers.iter().filter_map(|windows| windows.get(ordinal));
            let entries = same.map(|window| entries_of(&window.quota.quota, compiled.warmup.as_ref())).max();
            need(self.ground.spaces.intern(&room_name(&limit.name, ordinal)), entries.unwrap_or(1))
        };
        let known =
            compiled.warmup.as_ref().map(|warmup| Need { limit: format!("{}/warmup", limit.name), ..need(warmup.space, 1) });
        (0..windows).map(of_window).chain(known).collect()
    }

    pub(super) fn rooms(&mut self, needs: Vec<Need>) -> Vec<Room> {
        let total = u64::from(self.config.store.memory.max_keys);
        let entries = |need: &Need| need.max_keys.map(|keys| keys.saturating_mul(need.entries));
        let written = needs.iter().filter_map(entries).fold(0, u64::saturating_add);
        let sharing = |need: &&Need| need.max_keys.is_none() && !need.single;
        let shares = number(needs.iter().filter(sharing).count());
        let share = total.saturating_sub(written) / shares.max(1);
        let largest = needs.iter().filter(|need| need.max_keys.is_some()).max_by_key(|need| entries(need));
        if let Some(Need { path, .. }) = largest.filter(|_| written > total) {
            let what = format!("all `max_keys` of limits together take {written} entries of the store's {total}");
            self.problem(&path.clone(), format!("{what}; raise `store.memory.max_keys`"));
        } else if let Some(need) = needs.iter().filter(sharing).find(|need| share / need.entries < LEAST_KEYS) {
            let (limit, keys) = (&need.limit, share / need.entries);
            let what =
                format!("limit `{limit}` would have room for {keys} keys; raise this, or give other limits a smaller `max_keys`");
            self.problem(&Path::root("store").key("memory").key("max_keys"), what);
        }
        let room = |need: Need| {
            let counters = if need.single { 1 } else { need.max_keys.unwrap_or(share / need.entries).max(1) };
            let max_keys = usize::try_from(counters).unwrap_or(usize::MAX);
            Room { limit: need.limit.into(), budget: Budget { space: need.space, max_keys } }
        };
        needs.into_iter().map(room).collect()
    }
}

/// A log is paid for as if it were full.
fn entries_of(quota: &Quota, warmup: Option<&Warmup>) -> u64 {
    let cells = warmup.map_or(quota.count(), |warmup| warmup.factor.of(quota.count()));
    if quota.algorithm() == Algorithm::SlidingLog { 1 + (LOG_BYTES + 8 * cells).div_ceil(ENTRY_BYTES) } else { 1 }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// With fewer, strangers would have each other's usage at once.
const LEAST_KEYS: u64 = 8;
const ENTRY_BYTES: u64 = 24;
/// What a log takes beside its cells.
const LOG_BYTES: u64 = 56;
