//! How the store's room is shared out: every limit has its own, so that a flood of keys in one cannot crowd out another.
//!
//! A limit gets what its `max_keys` says, or an equal share of the rest for each of its windows. All sizes are in entries of the
//! store, which a key of a `sliding_log` needs several of.

use super::Compiler;
use crate::config;
use crate::config::diagnostic::Path;
use crate::limit::{Algorithm, SpaceId};
use crate::policy::{Amount, Limit};
use crate::snapshot::Room;
use crate::store::Budget;

/// What a limit needs room for.
pub(super) struct Need {
    name: String,
    space: SpaceId,
    path: Path,
    /// Counters per key.
    windows: u64,
    /// Entries per counter.
    entries: u64,
    /// Counters at most, as written.
    max_keys: Option<u64>,
    /// How many keys there can be at all, if that is fixed.
    known_keys: Option<u64>,
}

impl Need {
    pub(super) fn of(limit: &config::Limit, compiled: &Limit, path: Path) -> Vec<Self> {
        let Amount::Rate { by_tier, by_client, during } = &compiled.amount else { return Vec::new() };
        let all = by_tier.iter().chain(by_client.values()).chain(during.iter().flat_map(|(_, by_tier)| by_tier));
        let windows = all.clone().map(|windows| number(windows.len())).max().unwrap_or(0).max(1);
        let entries = all.flatten().map(|window| {
            let quota = &window.quota.quota;
            let cells = compiled.warmup.as_ref().map_or(quota.count(), |warmup| warmup.factor.of(quota.count()));
            if quota.algorithm() == Algorithm::SlidingLog { 1 + (LOG_BYTES + 8 * cells).div_ceil(ENTRY_BYTES) } else { 1 }
        });
        let need = Self {
            name: limit.name.clone(),
            space: compiled.space,
            path: path.key("max_keys"),
            windows,
            entries: entries.max().unwrap_or(1),
            max_keys: limit.max_keys,
            known_keys: compiled.constant_key.map(|_| 1),
        };
        let warmup = compiled.warmup.as_ref().map(|warmup| Self {
            name: format!("{}/warmup", limit.name),
            space: warmup.space,
            path: path.key("max_keys"),
            windows: 1,
            entries: 1,
            ..need
        });
        std::iter::once(need).chain(warmup).collect()
    }
}

impl Compiler<'_> {
    pub(super) fn rooms(&mut self, needs: Vec<Need>) -> Vec<Room> {
        let total = u64::from(self.config.store.memory.max_keys);
        let written: u64 = needs.iter().filter_map(|need| need.max_keys.map(|keys| keys.saturating_mul(need.entries))).sum();
        if written > total {
            let largest = needs.iter().filter(|need| need.max_keys.is_some()).max_by_key(|need| need.max_keys);
            if let Some(Need { path, .. }) = largest {
                self.problem(
                    &path.clone(),
                    format!("all limits' `max_keys` together are {written} entries; the store has {total}"),
                );
            }
        }
        let sharing = |need: &&Need| need.max_keys.is_none() && need.known_keys.is_none();
        let shares: u64 = needs.iter().filter(sharing).map(|need| need.windows).sum();
        let rest = total.saturating_sub(written);
        let room = |need: Need| {
            let share = u64::try_from(u128::from(rest) * u128::from(need.windows) / u128::from(shares.max(1))).unwrap_or(rest);
            let fixed = need.known_keys.map(|keys| keys.saturating_mul(need.windows));
            let counters = need.max_keys.or(fixed).unwrap_or(share / need.entries).max(1);
            let max_keys = usize::try_from(counters).unwrap_or(usize::MAX);
            Room { limit: need.name.into(), budget: Budget { space: need.space, max_keys } }
        };
        needs.into_iter().map(room).collect()
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

const ENTRY_BYTES: u64 = 24;
/// What a log takes beside its cells.
const LOG_BYTES: u64 = 56;
