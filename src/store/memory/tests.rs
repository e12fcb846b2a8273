//! Tests of the whole store, through what it offers.

use std::time::Duration;

use super::*;
use crate::clock::SECOND;
use crate::limit::{Algorithm, Boost, Interned, Key, KeyHasher, Quota, Verdict};
use crate::store::Origin;

struct Fixture {
    store: MemoryStore,
    quotas: Quotas,
    hasher: KeyHasher,
}

fn fixture(max_keys: usize) -> Fixture {
    let quotas = Quotas::default();
    let store = MemoryStore::new(quotas.clone());
    let budget = |space| Budget { space: SpaceId(space), max_keys };
    store.arrange(&[budget(0), budget(1), budget(2)]);
    Fixture { store, quotas, hasher: KeyHasher::default() }
}

impl Fixture {
    fn quota(&self, count: u64, seconds: u64, algorithm: Algorithm) -> Interned {
        self.quotas.intern(Quota::new(count, Duration::from_secs(seconds), None, algorithm).unwrap()).unwrap()
    }

    fn key(&self, name: &str) -> Key {
        self.hasher.start(name).finish()
    }

    /// How many of `tries` single charges pass.
    fn admitted(&self, key: Key, quota: &Interned, tries: u32, now: Nanos) -> usize {
        (0..tries).filter(|_| self.store.charge(&[charge(key, quota, 1)], now).conforms).count()
    }

    fn keys(&self) -> usize {
        self.store.occupancy().iter().map(|space| space.keys).sum()
    }

    fn remaining(&self, key: Key, quota: &Interned, now: Nanos) -> u64 {
        self.store.peek(&[charge(key, quota, 0)], now).outcomes[0].remaining
    }
}

fn charge<'q>(key: Key, quota: &'q Interned, cost: u64) -> Charge<'q> {
    Charge { key, space: SpaceId(0), quota, cost, limit: 0, queue: 0, warmup: None, sharing: None }
}

fn elsewhere<'q>(key: Key, quota: &'q Interned, cost: u64) -> Charge<'q> {
    Charge { space: SpaceId(1), ..charge(key, quota, cost) }
}

const ALL: [Algorithm; 6] = [
    Algorithm::Gcra,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
];

#[test]
fn charges_count_alike_in_any_order_of_rooms_and_however_many() {
    let spaces = |order: &[u32]| order.iter().copied().map(SpaceId).collect::<Vec<_>>();
    // Ascending, as a reload may have left them, several in one room, and more than are decided without a heap.
    for order in [spaces(&[0, 1, 2]), spaces(&[2, 0, 1]), spaces(&[1, 1, 0, 1]), spaces(&(0..12).rev().collect::<Vec<_>>())] {
        let f = fixture(100);
        f.store.arrange(&(0..12).map(|space| Budget { space: SpaceId(space), max_keys: 100 }).collect::<Vec<_>>());
        let (five, three) = (f.quota(5, 3600, Algorithm::Gcra), f.quota(3, 3600, Algorithm::Gcra));
        let keys: Vec<Key> = (0..order.len()).map(|i| f.key(&format!("{i}"))).collect();
        let charges: Vec<Charge<'_>> = order
            .iter()
            .zip(&keys)
            .enumerate()
            .map(|(i, (space, key))| Charge { space: *space, ..charge(*key, if i == 1 { &three } else { &five }, 1) })
            .collect();
        for left in [2, 1, 0] {
            let charged = f.store.charge(&charges, 0);
            let remaining: Vec<u64> = charged.outcomes.iter().map(|outcome| outcome.remaining).collect();
            let expected: Vec<u64> = (0..order.len()).map(|i| if i == 1 { left } else { left + 2 }).collect();
            assert!(charged.conforms);
            assert_eq!(remaining, expected, "{order:?}");
        }
        let refused = f.store.charge(&charges, 0);
        assert!(!refused.conforms && refused.outcomes.len() == order.len());
        assert_eq!(f.store.peek(&charges, 0).outcomes[0].remaining, 1, "{order:?}: 3 used and this one");
    }
}

#[test]
fn all_or_none_whatever_the_algorithm() {
    for algorithm in ALL {
        let f = fixture(100);
        let (wide, narrow) = (f.quota(10, 3600, algorithm), f.quota(2, 3600, algorithm));
        let charges = [charge(f.key("narrow"), &narrow, 1), elsewhere(f.key("wide"), &wide, 1)];
        for left in [1, 0] {
            let charged = f.store.charge(&charges, 0);
            assert!(charged.conforms);
            assert_eq!(charged.outcomes[0].remaining, left);
        }
        for _ in 0..5 {
            assert!(!f.store.charge(&charges, 0).conforms);
        }
        assert_eq!(f.store.peek(&charges, 0).outcomes[1].remaining, 7, "{algorithm:?}: 2 used and this one");
    }
}

#[test]
fn threads_on_shared_and_own_counters_admit_exactly_the_limit() {
    for algorithm in ALL {
        let f = fixture(1000);
        let (own, shared) = (f.quota(50, 3600, algorithm), f.quota(120, 3600, algorithm));
        let shared_key = f.key("shared");
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..64)
                .map(|t| {
                    let (f, own, shared) = (&f, &own, &shared);
                    let key = f.key(&format!("own{}", t % 4));
                    scope.spawn(move || {
                        let charges = [charge(key, own, 1), elsewhere(shared_key, shared, 1)];
                        (0..100).filter(|_| f.store.charge(&charges, 0).conforms).count()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 120, "{algorithm:?}");
        let used: u64 = (0..4).map(|t| 50 - f.remaining(f.key(&format!("own{t}")), &own, 0)).sum();
        assert_eq!(used, 120, "{algorithm:?}: a refused request costs nothing anywhere");
    }
}

#[test]
fn a_changed_quota_keeps_usage_in_cells() {
    for from in ALL {
        for to in ALL {
            let f = fixture(100);
            let key = f.key("k");
            let (five, ten, two) = (f.quota(5, 3600, from), f.quota(10, 3600, to), f.quota(2, 3600, to));
            assert_eq!(f.admitted(key, &five, 20, 0), 5);
            assert_eq!(f.admitted(key, &ten, 20, 0), 5, "{from:?} to {to:?}");
            assert_eq!(f.admitted(key, &two, 20, 0), 0);
        }
    }
}

#[test]
fn a_quota_that_is_lowered_and_raised_again_gives_nothing_back() {
    for from in ALL {
        for to in ALL {
            let f = fixture(100);
            let key = f.key("k");
            let (high, low) = (f.quota(50, 3600, from), f.quota(2, 3600, to));
            assert_eq!(f.admitted(key, &high, 60, 0), 50);
            let refused = f.store.charge(&[charge(key, &low, 1)], SECOND).outcomes[0];
            let Verdict::Exceeds { retry_after } = refused.verdict else { panic!("{from:?} to {to:?}: {refused:?}") };
            assert_eq!(f.store.peek(&[charge(key, &high, 0)], SECOND).outcomes[0].remaining, 0, "{from:?} to {to:?}");
            let then = SECOND + retry_after;
            assert!(!f.store.charge(&[charge(key, &low, 1)], then - 1).conforms, "{from:?} to {to:?}");
            assert!(f.store.charge(&[charge(key, &low, 1)], then).conforms, "{from:?} to {to:?}");
        }
    }
}

#[test]
fn nobody_waits_for_a_slow_quota_under_a_faster_one() {
    for from in ALL {
        for to in ALL {
            let f = fixture(100);
            let key = f.key("k");
            let (slow, fast) = (f.quota(50, 86_400, from), f.quota(20, 60, to));
            assert_eq!(f.admitted(key, &slow, 60, 0), 50);
            let refused = f.store.charge(&[charge(key, &fast, 1)], SECOND).outcomes[0];
            let Verdict::Exceeds { retry_after } = refused.verdict else { panic!("{from:?} to {to:?}: {refused:?}") };
            assert!(retry_after <= 120 * SECOND, "{from:?} to {to:?}: {retry_after}");
            let then = SECOND + retry_after;
            assert!(!f.store.charge(&[charge(key, &fast, 1)], then - 1).conforms, "{from:?} to {to:?}");
            assert!(f.store.charge(&[charge(key, &fast, 1)], then).conforms, "{from:?} to {to:?}");
        }
    }
}

#[test]
fn a_sweep_drops_what_is_idle_and_nothing_else() {
    for algorithm in ALL {
        let f = fixture(100);
        let (slow, fast) = (f.quota(1, 3600, algorithm), f.quota(1, 1, algorithm));
        assert!(f.store.charge(&[charge(f.key("slow"), &slow, 1), charge(f.key("fast"), &fast, 1)], 0).conforms);
        assert_eq!(f.keys(), 2);
        f.store.sweep(Sweep::Whole, 2 * SECOND);
        assert_eq!(f.keys(), 1, "{algorithm:?}");
        assert!(!f.store.charge(&[charge(f.key("slow"), &slow, 1)], 2 * SECOND).conforms);
        f.store.sweep(Sweep::Whole, 7200 * SECOND);
        assert_eq!(f.store.occupancy().iter().map(|space| space.bytes).sum::<usize>(), 0, "memory goes back");
    }
}

#[test]
fn slices_come_round() {
    let f = fixture(100_000);
    let quota = f.quota(1, 1, Algorithm::Gcra);
    for i in 0..5000 {
        assert!(f.store.charge(&[charge(f.key(&format!("{i}")), &quota, 1)], 0).conforms);
    }
    for _ in 0..SLICES {
        f.store.sweep(Sweep::Slice, 10 * SECOND);
    }
    assert_eq!(f.keys(), 0);
}

#[test]
fn a_flood_of_keys_neither_grows_the_store_nor_frees_a_blocked_key() {
    for algorithm in ALL {
        let f = fixture(1024);
        let quota = f.quota(10, 3600, algorithm);
        let blocked = f.key("blocked");
        assert_eq!(f.admitted(blocked, &quota, 20, 0), 10);
        let busy: Vec<Key> = (0..100).map(|i| f.key(&format!("busy{i}"))).collect();
        for key in &busy {
            assert_eq!(f.admitted(*key, &quota, 9, 0), 9);
        }
        for i in 0..10_240 {
            let _ = f.store.charge(&[charge(f.key(&format!("{i}")), &quota, 1)], 0);
            assert!(!f.store.charge(&[charge(blocked, &quota, 1)], 0).conforms, "{algorithm:?} after {i}");
        }
        let space = f.store.occupancy()[0];
        assert!(space.keys <= 1024 && space.bytes <= 1024 * 24, "{space:?}");
        assert!(space.evicted_live > 0 && space.inherited.iter().sum::<u64>() == space.evicted_live, "{space:?}");
        for key in &busy {
            assert!(f.remaining(*key, &quota, 0) <= 1, "{algorithm:?}: what somebody used is never forgotten");
        }
    }
}

#[test]
fn a_flood_in_one_limit_touches_no_other() {
    let f = fixture(512);
    let quota = f.quota(10, 3600, Algorithm::Gcra);
    let quiet = f.key("quiet");
    assert!(f.store.charge(&[elsewhere(quiet, &quota, 3)], 0).conforms);
    for i in 0..5_000 {
        let _ = f.store.charge(&[charge(f.key(&format!("{i}")), &quota, 1)], 0);
    }
    assert_eq!(f.store.peek(&[elsewhere(quiet, &quota, 0)], 0).outcomes[0].remaining, 7);
    assert_eq!(f.store.peek(&[elsewhere(f.key("new"), &quota, 0)], 0).outcomes[0].remaining, 10);
}

#[test]
fn idle_counters_make_room_before_anybody_inherits() {
    let f = fixture(512);
    let quota = f.quota(1, 1, Algorithm::Gcra);
    for round in 0..20 {
        for i in 0..200 {
            let key = f.key(&format!("{round}/{i}"));
            assert!(f.store.charge(&[charge(key, &quota, 1)], round * 10 * SECOND).conforms);
        }
    }
    assert_eq!(f.store.occupancy()[0].evicted_live, 0);
    assert!(f.store.occupancy()[0].evicted_idle > 0);
}

#[test]
fn the_store_takes_nearly_as_many_keys_as_it_may() {
    let f = fixture(100_000);
    let quota = f.quota(2, 3600, Algorithm::Gcra);
    let evicted = |keys: std::ops::Range<u32>| {
        for i in keys {
            let _ = f.store.charge(&[charge(f.key(&format!("{i}")), &quota, 1)], 0);
        }
        f.store.occupancy()[0].evicted_live
    };
    assert_eq!(evicted(0..80_000), 0);
    assert!(evicted(80_000..90_000) < 100);
}

#[test]
fn rearranging_keeps_counters_and_a_removed_limit_loses_them() {
    let f = fixture(1000);
    let quota = f.quota(5, 3600, Algorithm::Gcra);
    let key = f.key("k");
    assert!(f.store.charge(&[charge(key, &quota, 4), elsewhere(key, &quota, 4)], 0).conforms);
    let only = [Budget { space: SpaceId(0), max_keys: 10 }];
    f.store.arrange(&only);
    assert_eq!(f.store.peek(&[elsewhere(key, &quota, 0)], 0).outcomes[0].remaining, 1, "not before nobody uses it any more");
    f.store.retire(&only);
    assert_eq!(f.remaining(key, &quota, 0), 1);
    let charged = f.store.charge(&[charge(key, &quota, 1), elsewhere(key, &quota, 1)], 0);
    assert!(charged.conforms && charged.outcomes[0].remaining == 0 && charged.outcomes[1].remaining == 4, "the other decides");
    assert!(!f.store.charge(&[charge(key, &quota, 1), elsewhere(key, &quota, 1)], 0).conforms);
    f.store.arrange(&[Budget { space: SpaceId(0), max_keys: 10 }, Budget { space: SpaceId(1), max_keys: 10 }]);
    assert_eq!(f.store.peek(&[elsewhere(key, &quota, 0)], 0).outcomes[0].remaining, 5);
}

#[test]
fn a_lowered_budget_is_kept_and_a_raised_one_used() {
    let f = fixture(20_000);
    let quota = f.quota(2, 3600, Algorithm::Gcra);
    let fill = |keys: std::ops::Range<u32>| {
        for i in keys {
            let _ = f.store.charge(&[charge(f.key(&format!("{i}")), &quota, 1)], 0);
        }
        f.store.sweep(Sweep::Whole, 0);
        f.store.occupancy()[0]
    };
    let before = fill(0..12_000);
    assert_eq!((before.keys, before.evicted_live), (12_000, 0));
    f.store.arrange(&[Budget { space: SpaceId(0), max_keys: 8_000 }]);
    assert!(fill(20_000..30_000).keys <= 12_050, "but for a shard that chance left below its share, no newcomer makes it larger");
    f.store.sweep(Sweep::Whole, 7200 * SECOND);
    let lowered = fill(0..20_000);
    assert!(lowered.keys <= lowered.max_keys && lowered.max_keys <= 8_500 && lowered.bytes <= 8_500 * 24, "{lowered:?}");
    f.store.arrange(&[Budget { space: SpaceId(0), max_keys: 38_000 }]);
    let raised = fill(100_000..120_000);
    assert!(raised.keys > 27_000 && raised.evicted_live == lowered.evicted_live, "{raised:?}");
}

#[test]
fn every_shard_has_its_turn() {
    let f = fixture(100_000);
    let quota = f.quota(1, 1, Algorithm::Gcra);
    for round in 1..5 {
        let now = round * 100 * SECOND;
        for i in 0..3000 {
            assert!(f.store.charge(&[charge(f.key(&format!("{i}")), &quota, 1)], now).conforms);
        }
        for _ in 0..=SLICES {
            f.store.sweep(Sweep::Slice, now + 10 * SECOND);
        }
        assert_eq!(f.keys(), 0, "round {round}");
    }
}

#[test]
fn another_memory_makes_nobody_new() {
    let f = fixture(100);
    let (short, long) = (f.quota(1, 86_400, Algorithm::FirstSeen), f.quota(1, 30 * 86_400, Algorithm::FirstSeen));
    let warmup = |memory| Warmup { glide: 3600 * SECOND, factor: Boost(2048), space: SpaceId(2), memory };
    let (before, after) = (warmup(short), warmup(long));
    let quota = f.quota(10, 1, Algorithm::Gcra);
    let visit =
        |warmup, now| f.store.charge(&[Charge { warmup: Some((warmup, f.key("k"))), ..charge(f.key("k"), &quota, 1) }], now);
    assert_eq!(visit(&before, 0).outcomes[0].limit, 20);
    assert_eq!(visit(&after, 3600 * SECOND).outcomes[0].limit, 10);
}

#[test]
fn a_refused_first_request_leaves_no_entry() {
    let f = fixture(100);
    let quota = f.quota(1, 1, Algorithm::Gcra);
    assert!(!f.store.charge(&[charge(f.key("k"), &quota, 2)], 0).conforms);
    assert!(f.store.charge(&[charge(f.key("k"), &quota, 0)], 0).conforms);
    assert_eq!(f.keys(), 0);
}

#[test]
fn a_settlement_takes_and_gives_exactly_the_difference() {
    for algorithm in ALL {
        let f = fixture(100);
        let quota = f.quota(10, 3600, algorithm);
        let key = f.key("k");
        let reserved = charge(key, &quota, 4);
        let take = |now| Taken::of(&reserved, &f.store.charge(&[reserved], now).outcomes[0], Origin::Memory);
        f.store.settle(&take(0), 1, SECOND / 1000);
        assert_eq!(f.remaining(key, &quota, SECOND / 1000), 9, "{algorithm:?} gives back");
        f.store.settle(&take(SECOND / 1000), 7, SECOND / 500);
        assert_eq!(f.remaining(key, &quota, SECOND / 500), 2, "{algorithm:?} takes more");
        f.store.settle(&take(7200 * SECOND), 99, 7200 * SECOND);
        assert_eq!(f.remaining(key, &quota, 7200 * SECOND), 0, "{algorithm:?} takes what it costs");
        assert!(!f.store.charge(&[charge(key, &quota, 1)], 7200 * SECOND).conforms);
    }
}

#[test]
fn a_settlement_after_a_reload_is_in_cells_of_the_quota_in_force() {
    let f = fixture(100);
    let (hourly, daily) = (f.quota(10, 3600, Algorithm::Gcra), f.quota(100, 86_400, Algorithm::SlidingLog));
    let key = f.key("k");
    let taken = Taken::of(&charge(key, &hourly, 5), &f.store.charge(&[charge(key, &hourly, 5)], 0).outcomes[0], Origin::Memory);
    assert!(f.store.charge(&[charge(key, &daily, 1)], 0).conforms);
    f.store.settle(&taken, 0, 0);
    assert_eq!(f.remaining(key, &daily, 0), 99);
}

#[test]
fn only_the_last_place_of_a_queue_is_given_back() {
    let f = fixture(100);
    let quota = Quota::new(1, Duration::from_secs(1), None, Algorithm::LeakyBucket).unwrap();
    let quota = f.quotas.intern(quota.delaying(Duration::from_secs(10), 100).unwrap()).unwrap();
    let one = charge(f.key("k"), &quota, 1);
    let places: Vec<_> = (0..3).map(|_| Taken::of(&one, &f.store.charge(&[one], 0).outcomes[0], Origin::Memory)).collect();
    let next = || f.store.peek(&[one], 0).outcomes[0].delay;
    assert_eq!(next(), 3 * SECOND);
    f.store.settle(&places[1], 0, 0);
    assert_eq!(next(), 3 * SECOND);
    f.store.settle(&places[2], 0, 0);
    assert_eq!(next(), 2 * SECOND);
}

#[test]
fn newcomers_have_more_for_a_while() {
    for algorithm in ALL {
        let f = fixture(100);
        let memory = f.quota(1, 30 * 86_400, Algorithm::FirstSeen);
        let warmup = Warmup { glide: 3600 * SECOND, factor: Boost(2048), space: SpaceId(2), memory };
        let quota = f.quota(10, 1, algorithm);
        let visit = Charge { warmup: Some((&warmup, f.key("k"))), ..charge(f.key("k"), &quota, 1) };
        let admitted = |now| (0..50).filter(|_| f.store.charge(&[visit], now).conforms).count();
        assert_eq!(f.store.peek(&[visit], 0).outcomes[0].limit, 20);
        assert_eq!(admitted(0), 20, "{algorithm:?}");
        assert_eq!(admitted(1800 * SECOND), 15, "{algorithm:?}");
        assert_eq!(admitted(9000 * SECOND), 10, "{algorithm:?}");
    }
}

#[test]
fn a_newcomers_refund_is_what_he_paid() {
    let f = fixture(100);
    let memory = f.quota(1, 30 * 86_400, Algorithm::FirstSeen);
    let warmup = Warmup { glide: 3600 * SECOND, factor: Boost(2048), space: SpaceId(2), memory };
    let quota = f.quota(10, 60, Algorithm::Gcra);
    let visit = Charge { warmup: Some((&warmup, f.key("k"))), ..charge(f.key("k"), &quota, 15) };
    let taken = Taken::of(&visit, &f.store.charge(&[visit], 0).outcomes[0], Origin::Memory);
    f.store.settle(&taken, 5, 0);
    assert_eq!(f.store.peek(&[Charge { cost: 0, ..visit }], 0).outcomes[0].remaining, 15);
}

#[test]
fn what_is_refused_says_when_it_passes() {
    for algorithm in ALL {
        let f = fixture(100);
        let quota = f.quota(3, 10, algorithm);
        let key = f.key("k");
        assert_eq!(f.admitted(key, &quota, 5, SECOND), 3);
        let Verdict::Exceeds { retry_after } = f.store.peek(&[charge(key, &quota, 2)], SECOND).outcomes[0].verdict else {
            panic!("{algorithm:?} refuses");
        };
        assert!(!f.store.peek(&[charge(key, &quota, 2)], SECOND + retry_after - 1).conforms, "{algorithm:?}");
        assert!(f.store.charge(&[charge(key, &quota, 2)], SECOND + retry_after).conforms, "{algorithm:?}");
    }
}
