//! Who is measured: our store, and governor's keyed limiters.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as GovernorClock, DefaultClock, FakeRelativeClock};
use governor::middleware::{NoOpMiddleware, RateLimitingMiddleware, StateInformationMiddleware, StateSnapshot};
use governor::state::keyed::DashMapStateStore;
use governor::{Quota as GovernorQuota, RateLimiter};
use tollgate::clock::{Clock, ManualClock};
use tollgate::limit::{Algorithm, Charge, Interned, Quota, Quotas, SpaceId};
use tollgate::store::{Budget, MemoryStore, Outcomes};

use crate::common::{ClientKey, key};
use crate::load::{BATCH, Load};

/// Can be measured.
pub(crate) trait Contender: Sync {
    /// How long each batch of one thread's decisions took.
    fn decide(&self, load: &Load, thread: u64) -> Vec<Duration>;
}

/// The product.
pub(crate) struct Tollgate {
    store: MemoryStore,
    limits: Vec<Interned>,
    clock: Clock,
    hand: ManualClock,
}

impl Tollgate {
    /// With all counters in place, in four fifths of the room at most.
    pub(crate) fn new(keys: u64, algorithm: Algorithm) -> Self {
        let quotas = Quotas::default();
        let quota = |limit| quotas.intern(quota(limit, algorithm)).expect("there are ids for a million quotas");
        let limits: Vec<Interned> = (0..LIMITS).map(quota).collect();
        let store = MemoryStore::new(quotas.clone());
        let max_keys = usize::try_from(keys / 4 * 5).unwrap_or(usize::MAX).max(LEAST_ROOM);
        store.arrange(&(0..LIMITS).map(|limit| Budget { space: space(limit), max_keys }).collect::<Vec<_>>());
        let (clock, hand) = Clock::manual();
        let tollgate = Self { store, limits, clock, hand };
        for client in 0..keys {
            for charge in (0..LIMITS).filter_map(|limit| tollgate.charge(limit, client)) {
                // Time stands still, so every counter stays in use and has its place.
                assert!(tollgate.store.charge(&[charge], 1).conforms, "the first of many");
            }
        }
        tollgate
    }

    /// The same on the machine's clock.
    pub(crate) fn on_time(self) -> Self {
        Self { clock: Clock::system(), ..self }
    }

    fn charge(&self, limit: usize, client: u64) -> Option<Charge<'_>> {
        let quota = self.limits.get(limit)?;
        Some(Charge {
            key: key(limit, client),
            space: space(limit),
            quota,
            cost: 1,
            limit: 0,
            queue: 0,
            warmup: None,
            sharing: None,
        })
    }
}

impl Contender for Tollgate {
    fn decide(&self, load: &Load, thread: u64) -> Vec<Duration> {
        let charge = |limit, client| self.charge(limit, client).expect("a case has no more limits than there are");
        let fill = |asked: &mut _, limit, client| *asked = charge(limit, client);
        load.decide_batches(thread, charge(0, 0), fill, |batch| {
            self.hand.advance(BATCH_TAKES);
            let mut outcomes = Outcomes::new();
            let mut conforms = |charges| black_box(self.store.charge_into(charges, black_box(&mut outcomes), self.clock.now()));
            batch.chunks_exact(load.case.limits).all(&mut conforms)
        })
    }
}

/// A limiter for each limit.
pub(crate) struct Governed<K: ClientKey, C: GovernorClock, A: Answer<C> = NoOpMiddleware<<C as GovernorClock>::Instant>> {
    limiters: Vec<Limiter<K, C, A>>,
    hand: FakeRelativeClock,
}

type Limiter<K, C, A> = RateLimiter<K, Counters<K>, C, A>;
type Counters<K> = DashMapStateStore<K, <K as ClientKey>::Hashing>;

/// What governor says besides yes or no.
pub(crate) trait Answer<C: GovernorClock>: RateLimitingMiddleware<C::Instant> + Send + Sync {
    /// Cells that remain, where it says so.
    fn remaining(told: Self::PositiveOutcome) -> u32;
}

impl<C: GovernorClock> Answer<C> for NoOpMiddleware<C::Instant>
where
    C::Instant: Send + Sync,
{
    fn remaining((): ()) -> u32 {
        0
    }
}

impl<C: GovernorClock> Answer<C> for StateInformationMiddleware {
    fn remaining(told: StateSnapshot) -> u32 {
        told.remaining_burst_capacity()
    }
}

impl<K: ClientKey, A: Answer<FakeRelativeClock>> Governed<K, FakeRelativeClock, A> {
    pub(crate) fn by_hand(keys: u64) -> Self {
        let hand = FakeRelativeClock::default();
        Self::new(keys, &hand.clone(), hand)
    }
}

impl<K: ClientKey> Governed<K, DefaultClock> {
    pub(crate) fn on_time(keys: u64) -> Self {
        Self::new(keys, &DefaultClock::default(), FakeRelativeClock::default())
    }
}

impl<K: ClientKey, C: GovernorClock + Clone, A: Answer<C>> Governed<K, C, A> {
    /// With all counters in place.
    fn new(keys: u64, clock: &C, hand: FakeRelativeClock) -> Self {
        let quota = GovernorQuota::per_second(NonZeroU32::new(PER_SECOND).expect("not zero"));
        let limiter =
            |_| RateLimiter::dashmap_with_clock_and_hasher(quota, clock.clone(), K::Hashing::default()).with_middleware::<A>();
        let limiters: Vec<_> = (0..LIMITS).map(limiter).collect();
        let mut key = K::default();
        for client in 0..keys {
            for (limit, limiter) in limiters.iter().enumerate() {
                key.become_key(limit, client);
                assert!(limiter.check_key(&key).is_ok(), "the first of many");
            }
        }
        Self { limiters, hand }
    }
}

impl<K: ClientKey, C: GovernorClock + Send + Sync, A: Answer<C>> Contender for Governed<K, C, A> {
    fn decide(&self, load: &Load, thread: u64) -> Vec<Duration> {
        load.decide_batches(thread, K::default(), K::become_key, |batch| {
            self.hand.advance(BATCH_TAKES);
            let passes = |(key, limiter): (&K, &Limiter<K, C, A>)| black_box(limiter.check_key(key).map(A::remaining)).is_ok();
            batch.chunks_exact(load.case.limits).all(|keys| keys.iter().zip(&self.limiters).all(passes))
        })
    }
}

fn space(limit: usize) -> SpaceId {
    SpaceId(u32::try_from(limit).unwrap_or(0))
}

/// Never reached, however fast it is asked for.
fn quota(limit: usize, algorithm: Algorithm) -> Quota {
    let second = Duration::from_secs(1);
    let (count, period) = match algorithm {
        // As much as its state can count.
        Algorithm::SlidingWindow => (PER_SECOND / 100, second),
        // At the pace of `BATCH_TAKES` each of 1000 keys has about 100 cells in its log.
        Algorithm::SlidingLog => (4000, Duration::from_millis(10)),
        _ => (PER_SECOND, second),
    };
    // No two limits have the same numbers.
    let count = u64::from(count) - u64::try_from(limit).unwrap_or(0);
    Quota::new(count, period, None, algorithm).expect("numbers that can be counted")
}

/// Limits that everybody has counters for.
const LIMITS: usize = 5;
/// What each of five limits gets of the default room.
const LEAST_ROOM: usize = 200_000;
/// And as much at once: a thread that loses its core goes on with an old time, and finds cells used in its future.
const PER_SECOND: u32 = 100_000_000;
/// By how much a thread moves the clock when it begins a batch: 100 ns a decision.
const BATCH_TAKES: Duration = Duration::from_nanos(100 * BATCH as u64);
