//! The limiter before a simulated upstream: so many requests at a time, the others queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

const MS: Nanos = SECOND / 1000;

/// An upstream, its clients and the limiter between them, in simulated time.
struct World {
    limiter: Limiter,
    rules: Adaptive,
    /// How many requests it works on at once, and how long on each.
    servers: usize,
    service: Nanos,
    /// Whether service times are exponential with that mean.
    random: bool,
    /// Between two requests of each tier.
    gaps: Vec<Nanos>,
    now: Nanos,
    busy: usize,
    queue: VecDeque<Nanos>,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
    dice: u64,
    seen: Seen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// Of a request that was dispatched then.
    Answer(Nanos),
}

/// What has happened since it was last looked at.
#[derive(Debug, Clone, Default)]
struct Seen {
    latencies: Vec<Nanos>,
    served: Vec<u32>,
    shed: Vec<u32>,
}

impl Seen {
    fn slowest_of(&self, share: f64) -> Nanos {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted[((sorted.len() - 1) as f64 * share) as usize]
    }

    fn share_served(&self, tier: usize) -> f64 {
        f64::from(self.served[tier]) / f64::from(self.served[tier] + self.shed[tier])
    }
}

impl World {
    /// With requests per second by tier.
    fn new(servers: usize, service: Nanos, rates: &[u64], rules: Adaptive) -> Self {
        let tiers = rates.len();
        let mut world = Self {
            limiter: Limiter::new(rules.initial),
            rules: Adaptive { tiers, ..rules },
            servers,
            service,
            random: true,
            gaps: rates.iter().map(|rate| SECOND / rate).collect(),
            now: SECOND,
            busy: 0,
            queue: VecDeque::new(),
            events: BinaryHeap::new(),
            dice: 7,
            seen: Seen { served: vec![0; tiers], shed: vec![0; tiers], latencies: Vec::new() },
        };
        for tier in 0..tiers {
            world.events.push(Reverse((SECOND + tier as u64, Event::Arrival(tier))));
        }
        world
    }

    /// Lets time pass; what has happened meanwhile.
    fn run(&mut self, time: Nanos) -> Seen {
        let end = self.now + time;
        while let Some(Reverse((at, event))) = self.events.pop() {
            if at > end {
                self.events.push(Reverse((at, event)));
                break;
            }
            self.now = at;
            match event {
                Event::Arrival(tier) => self.arrive(tier),
                Event::Answer(dispatched) => self.answer(dispatched),
            }
        }
        self.now = end;
        let tiers = self.gaps.len();
        std::mem::replace(&mut self.seen, Seen { served: vec![0; tiers], shed: vec![0; tiers], latencies: Vec::new() })
    }

    fn arrive(&mut self, tier: usize) {
        let gap = self.exponential(self.gaps[tier]);
        self.events.push(Reverse((self.now + gap, Event::Arrival(tier))));
        let room = self.rules.room(self.limiter.limit_within(&self.rules), tier);
        if self.limiter.take(room) {
            self.seen.served[tier] += 1;
        } else {
            self.seen.shed[tier] += 1;
            if self.rules.enforced {
                return;
            }
            self.limiter.take_anyway();
        }
        self.queue.push_back(self.now);
        self.begin();
    }

    fn begin(&mut self) {
        while self.busy < self.servers
            && let Some(dispatched) = self.queue.pop_front()
        {
            self.busy += 1;
            let service = if self.random { self.exponential(self.service) } else { self.service };
            self.events.push(Reverse((self.now + service, Event::Answer(dispatched))));
        }
    }

    fn answer(&mut self, dispatched: Nanos) {
        self.busy = self.busy.saturating_sub(1);
        self.limiter.give_back();
        self.limiter.answered(self.now - dispatched, self.now, &self.rules);
        self.seen.latencies.push(self.now - dispatched);
        self.begin();
    }

    fn exponential(&mut self, mean: Nanos) -> Nanos {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let unit = ((self.dice >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (mean as f64 * -unit.ln()) as Nanos
    }

    fn limit(&self) -> u32 {
        self.limiter.limit_within(&self.rules)
    }
}

const RULES: Adaptive = Adaptive { min: 3, max: 1000, initial: 20, tolerance: 1.5, reserve: 0.2, tiers: 1, enforced: true };

/// Requests per second that so many servers can answer.
fn capacity(servers: usize, service: Nanos) -> f64 {
    servers as f64 * SECOND as f64 / service as f64
}

#[test]
fn under_three_times_its_capacity_an_upstream_stays_busy_and_quick() {
    for (servers, service, random) in
        [(20, 10 * MS, false), (20, 10 * MS, true), (100, 50 * MS, true), (4, 5 * MS, true), (200, 2 * MS, true)]
    {
        let capacity = capacity(servers, service);
        // It is as busy as that from the first moment, so it has to begin with what upstream bears.
        let rules = Adaptive { initial: u32::try_from(servers).unwrap().min(20), ..RULES };
        let mut world = World::new(servers, service, &[(3.0 * capacity) as u64], rules);
        world.random = random;
        world.run(10 * SECOND);
        let seen = world.run(20 * SECOND);
        let goodput = f64::from(seen.served[0]) / 20.0;
        let what = format!("{servers} × {service} ns, limit {}", world.limit());
        assert!(goodput >= 0.95 * capacity, "{goodput} of {capacity}: {what}");
        // Exponential service alone has its 99th percentile at 4.6 times the mean.
        let bound = if random { 8 } else { 3 };
        assert!(seen.slowest_of(0.99) <= bound * service, "{} ns: {what}", seen.slowest_of(0.99));
    }
}

#[test]
fn with_room_nothing_is_shed() {
    let mut world = World::new(50, 10 * MS, &[2000], RULES);
    world.run(2 * SECOND);
    let seen = world.run(60 * SECOND);
    assert!(world.limit() >= 30);
    assert!(seen.share_served(0) > 0.999, "{}", seen.share_served(0));
}

#[test]
fn it_follows_when_capacity_changes() {
    let mut world = World::new(40, 10 * MS, &[12_000], RULES);
    world.run(20 * SECOND);
    for servers in [10, 40, 20, 80] {
        world.servers = servers;
        world.run(5 * SECOND);
        let seen = world.run(10 * SECOND);
        let (goodput, capacity) = (f64::from(seen.served[0]) / 10.0, capacity(servers, 10 * MS));
        assert!(goodput >= 0.95 * capacity, "{goodput} of {capacity} with {servers}, limit {}", world.limit());
        assert!(seen.slowest_of(0.99) <= 90 * MS, "{} ns with {servers}, limit {}", seen.slowest_of(0.99), world.limit());
    }
}

#[test]
fn it_learns_that_an_upstream_has_become_slower_or_faster() {
    let mut world = World::new(40, 10 * MS, &[12_000], RULES);
    world.run(20 * SECOND);
    for service in [25 * MS, 50 * MS, 10 * MS] {
        world.service = service;
        world.run(8 * SECOND);
        let seen = world.run(10 * SECOND);
        let (goodput, capacity) = (f64::from(seen.served[0]) / 10.0, capacity(40, service));
        assert!(goodput >= 0.93 * capacity, "{goodput} of {capacity} at {service} ns, limit {}", world.limit());
        assert!(seen.slowest_of(0.99) <= 15 * service, "{} ns at {service}, limit {}", seen.slowest_of(0.99), world.limit());
    }
}

#[test]
fn there_is_no_dip_now_and_then() {
    let mut world = World::new(20, 10 * MS, &[6000], RULES);
    world.run(10 * SECOND);
    // Minutes, so that whatever comes now and then does come.
    let tenths: Vec<_> = (0..2000).map(|_| (world.run(SECOND / 10).latencies.len(), world.limit())).collect();
    let least = tenths.iter().map(|(answers, _)| *answers).min().unwrap();
    // 200 are expected; six standard deviations of a Poisson variable are 85.
    assert!(least >= 115, "{least}");
    let limits: Vec<_> = tenths.iter().map(|(_, limit)| *limit).collect();
    assert!(limits.iter().all(|limit| (20..=60).contains(limit)), "{:?} to {:?}", limits.iter().min(), limits.iter().max());
}

#[test]
fn the_lowest_tiers_are_shed_first_and_the_highest_hardly_ever() {
    // Three times capacity in all: 2000 per second.
    for rates in [[3000, 2000, 600, 400], [1400, 1400, 2900, 300], [5900, 30, 30, 40], [2000, 2000, 1600, 400]] {
        let mut world = World::new(20, 10 * MS, &rates, RULES);
        world.run(10 * SECOND);
        let seen = world.run(60 * SECOND);
        let shares: Vec<_> = (0..4).map(|tier| seen.share_served(tier)).collect();
        assert!(shares[3] >= 0.99, "{rates:?}: {shares:?}");
        assert!(shares.windows(2).all(|pair| pair[0] <= pair[1] + 0.01), "{rates:?}: {shares:?}");
        let goodput = f64::from(seen.served.iter().sum::<u32>()) / 60.0;
        assert!(goodput >= 0.95 * 2000.0, "{rates:?}: {goodput}, limit {}", world.limit());
    }
}

#[test]
fn shadow_finds_the_same_limit_and_sheds_nobody() {
    let mut world = World::new(20, 10 * MS, &[1500], Adaptive { enforced: false, ..RULES });
    world.run(10 * SECOND);
    world.gaps = vec![SECOND / 2600];
    let seen = world.run(5 * SECOND);
    assert!(seen.shed[0] > 0);
    assert!((18..=45).contains(&world.limit()), "{:?}", world.limiter.state(&world.rules));
    assert!(world.limiter.in_flight.load(Ordering::Relaxed) > 500, "nobody was kept out");
}

#[test]
fn tiers_share_a_limit_in_steps() {
    let room = |tiers, reserve, limit, tier| Adaptive { tiers, reserve, ..RULES }.room(limit, tier);
    assert_eq!([0, 1, 2, 3].map(|tier| room(4, 0.2, 100, tier)), [40, 60, 80, 100]);
    assert_eq!([0, 1].map(|tier| room(2, 0.2, 100, tier)), [80, 100]);
    assert_eq!([0, 1, 2].map(|tier| room(3, 0.5, 100, tier)), [25, 50, 100]);
    assert_eq!(room(1, 0.2, 100, 0), 100);
    assert_eq!([0, 1, 2, 3].map(|tier| room(4, 0.9, 3, tier)), [1, 1, 1, 3], "nobody is shut out for good");
    assert_eq!(room(4, 0.0, 100, 2), 100, "nothing is reserved");
}

#[test]
fn places_come_back() {
    let limiter = Limiter::new(2);
    assert!(limiter.take(2) && limiter.take(2) && !limiter.take(2));
    limiter.give_back();
    assert!(limiter.take(2) && !limiter.take(2));
}
