//! Ten times as many keys as there is room for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tollgate::clock::{Clock, Nanos, SECOND, saturating_nanos};
use tollgate::limit::{Algorithm, Charge, Interned, Key, Quota, Quotas, SpaceId};
use tollgate::store::{Budget, MemoryStore, Occupancy, Sweep};

use crate::common::key;
use crate::pauses::Pauses;
use crate::process;

/// What came of it.
pub(crate) struct Flood {
    /// New keys that came.
    pub(crate) entered: u64,
    pub(crate) blocked: Blocked,
    /// Busy keys whose counts are what they were.
    pub(crate) busy: usize,
    /// Bytes in memory: before there was a store, after the flood, and after everything expired and was swept.
    pub(crate) resident: [u64; 3],
    /// After the flood.
    pub(crate) occupancy: Occupancy,
    pub(crate) pauses: [(&'static str, Pauses); 4],
}

/// How the key fared that was over its limit before.
#[derive(Default)]
pub(crate) struct Blocked {
    pub(crate) asked: u64,
    pub(crate) refused: u64,
    /// For comparison, how many of the flood's keys were admitted.
    pub(crate) newcomers: u64,
}

struct Site {
    store: MemoryStore,
    quota: Interned,
    clock: Clock,
}

impl Flood {
    pub(crate) fn run(room: u64, round: u64) -> Result<Self> {
        let clock = Clock::system();
        let busy: Vec<Key> = (0..BUSY).map(|client| key(1, client)).collect();
        let blocked = key(2, 0);
        let visited = || {
            let site = Site::new(room, clock.clone())?;
            site.use_up(blocked, PER_DAY, SECOND);
            busy.iter().for_each(|busy| site.use_up(*busy, PER_DAY / 2, SECOND));
            anyhow::Ok(site)
        };
        // Nothing is ever pushed out of this one.
        let undisturbed = visited()?;
        let before = process::resident()?;
        let site = visited()?;

        let first = round << 40;
        let mut fate = Blocked::default();
        let is_over = AtomicBool::new(false);
        let (growth, flood, slices) = std::thread::scope(|scope| {
            let sweeper = scope.spawn(|| site.sweep_until(&is_over));
            let growth = site.send(first..first + room, blocked, &mut fate);
            let flood = site.send(first + room..first + room * TIMES, blocked, &mut fate);
            is_over.store(true, Ordering::Relaxed);
            (growth, flood, sweeper.join().expect("a sweep that panics fails the benchmark"))
        });

        let now = site.clock.now() + SECOND;
        let kept = busy.iter().filter(|busy| site.stands(**busy, now) == undisturbed.stands(**busy, now)).count();
        let full = process::settled()?;
        let occupancy = *site.store.occupancy().first().context("no space")?;
        let last = site.sweep_everything(now + 2 * saturating_nanos(DAY));
        let swept = process::settled()?;
        let pauses = [
            ("charge, the table grows", growth),
            ("charge, the table is full", flood),
            ("sweep, a slice, meanwhile", slices),
            ("sweep, a slice, all expired", last),
        ];
        Ok(Self { entered: room * TIMES, blocked: fate, busy: kept, resident: [before, full, swept], occupancy, pauses })
    }
}

impl Site {
    fn new(room: u64, clock: Clock) -> Result<Self> {
        let quotas = Quotas::default();
        let quota = quotas.intern(Quota::new(PER_DAY, DAY, None, Algorithm::Gcra)?).context("no id")?;
        let store = MemoryStore::new(quotas);
        store.arrange(&[Budget { space: SpaceId(0), max_keys: usize::try_from(room)? }]);
        Ok(Self { store, quota, clock })
    }

    fn charge(&self, key: Key, cost: u64) -> [Charge<'_>; 1] {
        [Charge { key, space: SpaceId(0), quota: &self.quota, cost, limit: 0, queue: 0, warmup: None, sharing: None }]
    }

    fn use_up(&self, key: Key, cells: u64, now: Nanos) {
        assert!(self.store.charge(&self.charge(key, cells), now).conforms, "the first to come");
    }

    /// Until when a counter is in use: what its state says, exactly.
    fn stands(&self, key: Key, now: Nanos) -> Option<Nanos> {
        let asked = self.store.peek(&self.charge(key, 0), now);
        asked.outcomes.first().map(|outcome| outcome.reset_after)
    }

    /// A cell for each of these, and now and then one for the blocked key.
    fn send(&self, clients: impl Iterator<Item = u64>, blocked: Key, fate: &mut Blocked) -> Pauses {
        let mut pauses = Pauses::new();
        for (at, client) in clients.enumerate() {
            let charge = self.charge(key(0, client), 1);
            fate.newcomers += u64::from(self.timed(&charge, &mut pauses));
            if at % ASK_EVERY == 0 {
                fate.asked += 1;
                fate.refused += u64::from(!self.timed(&self.charge(blocked, 1), &mut pauses));
            }
        }
        pauses
    }

    fn timed(&self, charge: &[Charge<'_>], pauses: &mut Pauses) -> bool {
        let now = self.clock.now();
        let charged = self.store.charge(charge, now + SECOND);
        pauses.note(self.clock.now() - now);
        charged.conforms
    }

    /// As the gateway does it.
    fn sweep_until(&self, is_over: &AtomicBool) -> Pauses {
        let mut pauses = Pauses::new();
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(SWEEP_EVERY);
            self.sweep(self.clock.now() + SECOND, &mut pauses);
        }
        pauses
    }

    fn sweep_everything(&self, now: Nanos) -> Pauses {
        let mut pauses = Pauses::new();
        (0..SLICES).for_each(|_| self.sweep(now, &mut pauses));
        pauses
    }

    fn sweep(&self, now: Nanos, pauses: &mut Pauses) {
        let begin = self.clock.now();
        self.store.sweep(Sweep::Slice, now);
        pauses.note(self.clock.now() - begin);
    }
}

/// Keys that have used half of what they may.
pub(crate) const BUSY: u64 = 100;
/// A cell comes back every 14 minutes: not while the flood lasts.
const PER_DAY: u64 = 100;
const DAY: Duration = Duration::from_secs(86_400);
/// So many times the room.
const TIMES: u64 = 10;
const ASK_EVERY: usize = 1000;
const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// So many slices come round.
const SLICES: usize = 100;
