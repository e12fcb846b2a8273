//! Several gateways with one store, in virtual time: whether what they admit together is what the limit says, and what it costs in questions.
//! The store is the arithmetic of `limit` itself; a question takes half of the round trip to reach it, and its answer the other half.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use super::*;
use crate::clock::SECOND;
use crate::limit::{Algorithm, Key, Quota, SpaceId, Verdict};

const MS: Nanos = SECOND / 1000;
const LIMIT: u64 = 1000;
const ROUND_TRIP: Nanos = MS;

#[derive(Clone, Copy)]
struct Scenario {
    algorithm: Algorithm,
    burst: u64,
    gateways: usize,
    /// Offered load in percent of the limit.
    load: u64,
    /// Whether one gateway has four fifths of it.
    is_skewed: bool,
    seconds: u64,
    /// When the first gateway dies.
    crash: Option<Nanos>,
    reach: Reach,
}

#[derive(Debug, Default)]
struct Report {
    offered: u64,
    admitted: u64,
    /// By window, as the store numbers them.
    windows: BTreeMap<u64, u64>,
    /// When each was admitted.
    times: Vec<Nanos>,
    questions: u64,
    returns: u64,
    /// Refused while the store had a cell.
    wrongly: u64,
    /// The most that was leased and not spent at any tick.
    outstanding: u64,
    /// What the crashed gateway took with it.
    stranded: u64,
}

impl Report {
    /// Of strict's, which asks once per request.
    fn questions_percent(&self) -> f64 {
        100.0 * self.questions as f64 / self.offered as f64
    }

    fn share(&self, seconds: u64) -> f64 {
        self.admitted as f64 / (LIMIT * seconds) as f64
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Request { gateway: usize },
    AtStore { gateway: usize, sent: Nanos, cost: u64, more: u64 },
    Answered { gateway: usize, sent: Nanos, cost: u64, answer: Answer },
    GivenBack(Return),
    Tick,
}

struct World {
    scenario: Scenario,
    quota: Interned,
    state: u64,
    gateways: Vec<Leases>,
    queue: BinaryHeap<Reverse<(Nanos, u64)>>,
    events: Vec<Event>,
    random: u64,
    report: Report,
}

const KEY: Key = Key([0x1234_5678_9abc_def0, 0]);

impl World {
    fn new(scenario: Scenario) -> Self {
        let quotas = Quotas::default();
        let burst = matches!(scenario.algorithm, Algorithm::Gcra).then_some(scenario.burst);
        let quota = Quota::new(LIMIT, Duration::from_secs(1), burst, scenario.algorithm).unwrap();
        let quota = quotas.intern(quota).unwrap();
        let gateways = (0..scenario.gateways).map(|_| Leases::new(quotas.clone(), 1000)).collect();
        Self {
            scenario,
            quota,
            state: 0,
            gateways,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            random: 0x2545_f491_4f6c_dd1d,
            report: Report::default(),
        }
    }

    fn run(mut self) -> Report {
        for gateway in 0..self.scenario.gateways {
            let first = self.until_next(gateway);
            self.at(SECOND + first, Event::Request { gateway });
        }
        self.at(SECOND, Event::Tick);
        let end = SECOND + self.scenario.seconds * SECOND;
        while let Some(Reverse((now, event))) = self.queue.pop() {
            if now >= end {
                break;
            }
            let event = self.events[usize::try_from(event).unwrap()];
            self.happens(event, now);
        }
        self.report
    }

    fn happens(&mut self, event: Event, now: Nanos) {
        match event {
            Event::Request { gateway } => self.request(gateway, now),
            Event::AtStore { gateway, sent, cost, more } => {
                self.report.questions += 1;
                let answer = self.answer(cost, more, now);
                if cost > 0 {
                    self.decided(answer.outcome.verdict, now);
                }
                self.at(now + ROUND_TRIP / 2, Event::Answered { gateway, sent, cost, answer });
            }
            Event::Answered { gateway, .. } if self.is_dead(gateway, now) => {}
            Event::Answered { gateway, sent, cost, answer } => {
                self.gateways[gateway].answered(&self.charge(cost), &answer, 1, sent, now);
            }
            Event::GivenBack(Return { taken, .. }) => {
                self.report.returns += 1;
                self.state = self.quota.quota.refund(self.state, KEY.phase(), Some(taken.mark), now, taken.cost);
            }
            Event::Tick => self.tick(now),
        }
    }

    fn request(&mut self, gateway: usize, now: Nanos) {
        if self.is_dead(gateway, now) {
            return;
        }
        let next = now + self.until_next(gateway);
        self.at(next, Event::Request { gateway });
        self.report.offered += 1;
        let charge = self.charge(1);
        let (reach, instances) = (self.scenario.reach, u32::try_from(self.scenario.gateways).unwrap());
        let leases = &self.gateways[gateway];
        match leases.spend(&charge, 1, now) {
            Spend::Spent { refill, outcome, .. } => {
                assert!(outcome.remaining <= LIMIT.max(self.scenario.burst));
                let more = if refill { leases.refill(&charge, reach, instances, now) } else { 0 };
                if more > 0 {
                    self.at(now + ROUND_TRIP / 2, Event::AtStore { gateway, sent: now, cost: 0, more });
                }
                self.decided(Verdict::Conforms, now);
            }
            Spend::Denied { outcome } => self.decided(outcome.verdict, now),
            Spend::Ask => {
                let more = leases.block(&charge, reach, instances, now);
                self.at(now + ROUND_TRIP / 2, Event::AtStore { gateway, sent: now, cost: 1, more });
            }
        }
    }

    fn decided(&mut self, verdict: Verdict, now: Nanos) {
        if verdict.conforms() {
            self.report.admitted += 1;
            self.report.times.push(now);
            *self.report.windows.entry((now + KEY.phase() % SECOND) / SECOND).or_default() += 1;
        } else if self.quota.quota.decide(self.state, KEY.phase(), now, 1).outcome.verdict.conforms() {
            self.report.wrongly += 1;
        }
    }

    /// As the script does: the charge, then as many more as fit.
    fn answer(&mut self, cost: u64, more: u64, now: Nanos) -> Answer {
        let (quota, phase) = (self.quota.quota, KEY.phase());
        let mut step = quota.decide(self.state, phase, now, cost);
        let mut granted = 0;
        if step.outcome.verdict.conforms() {
            self.state = step.state;
            let grant = more.min(step.outcome.remaining);
            let with_more = quota.decide(step.state, phase, now, grant);
            if grant > 0 && with_more.outcome.verdict.conforms() {
                // As in the script's replies, what is granted is among what remains.
                let remaining = step.outcome.remaining;
                (step, granted, self.state) = (with_more, grant, with_more.state);
                step.outcome.remaining = remaining;
            }
        }
        step.outcome.mark = self.state;
        let shifted = now + phase % SECOND;
        let (until_end, window) = match self.scenario.algorithm {
            Algorithm::Gcra => (Nanos::MAX, 0),
            _ => (SECOND - shifted % SECOND, shifted / SECOND),
        };
        Answer { outcome: step.outcome, granted, until_end, window }
    }

    fn tick(&mut self, now: Nanos) {
        let mut outstanding = 0;
        for gateway in 0..self.gateways.len() {
            if self.is_dead(gateway, now) {
                if self.report.stranded == 0 {
                    self.report.stranded = self.gateways[gateway].occupancy().cells;
                }
                continue;
            }
            for returned in self.gateways[gateway].take_idle(now) {
                self.at(now + ROUND_TRIP / 2, Event::GivenBack(returned));
            }
            outstanding += self.gateways[gateway].occupancy().cells;
        }
        self.report.outstanding = self.report.outstanding.max(outstanding);
        self.at(now + 100 * MS, Event::Tick);
    }

    fn charge(&self, cost: u64) -> Charge<'_> {
        Charge { key: KEY, space: SpaceId(0), quota: &self.quota, cost, limit: 0, queue: 0, warmup: None, sharing: None }
    }

    fn is_dead(&self, gateway: usize, now: Nanos) -> bool {
        gateway == 0 && self.scenario.crash.is_some_and(|crash| now >= crash)
    }

    fn at(&mut self, when: Nanos, event: Event) {
        self.queue.push(Reverse((when, u64::try_from(self.events.len()).unwrap())));
        self.events.push(event);
    }

    /// Evenly distributed around the mean, so that requests come irregularly.
    fn until_next(&mut self, gateway: usize) -> Nanos {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let gateways = u64::try_from(self.scenario.gateways).unwrap();
        let total = LIMIT * self.scenario.load; // per 100 s
        let rate = match (self.scenario.is_skewed, gateway) {
            (false, _) => total / gateways,
            (true, 0) => total * 4 / 5,
            (true, _) => total / 5 / (gateways - 1),
        };
        let mean = 100 * SECOND / rate;
        1 + self.random % (2 * mean)
    }
}

/// Each window's admissions but the last one's, which is cut off.
fn full_windows(report: &Report) -> Vec<u64> {
    let last = *report.windows.keys().last().unwrap();
    report.windows.range(..last).map(|(_, admitted)| *admitted).collect()
}

/// The most above `rate` that came in any stretch of time: what a bucket of this size would just have let through.
fn largest_burst(times: &[Nanos]) -> u64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let (mut level, mut largest, mut last) = (0.0_f64, 0.0_f64, 0);
    for now in times {
        level = (level - (now - last) as f64 * LIMIT as f64 / SECOND as f64).max(0.0) + 1.0;
        largest = largest.max(level);
        last = now;
    }
    largest.ceil() as u64
}

const PLAIN: Scenario = Scenario {
    algorithm: Algorithm::FixedWindow,
    burst: LIMIT,
    gateways: 10,
    load: 500,
    is_skewed: false,
    seconds: 10,
    crash: None,
    reach: Reach::Broad,
};

fn overloads(algorithm: Algorithm) -> impl Iterator<Item = Scenario> {
    [4, 10].into_iter().flat_map(move |gateways| {
        [200, 500, 2000].into_iter().flat_map(move |load| {
            [false, true].into_iter().map(move |is_skewed| Scenario { algorithm, gateways, load, is_skewed, ..PLAIN })
        })
    })
}

fn shown(scenario: &Scenario, report: &Report) -> String {
    format!(
        "{:?} burst {} N={} {}% {}: admitted {:.3} of the limit, {} questions/s ({:.1}% of strict's), {} returns, {} refused wrongly, {} outstanding",
        scenario.algorithm,
        scenario.burst,
        scenario.gateways,
        scenario.load,
        if scenario.is_skewed { "skewed" } else { "even" },
        report.share(scenario.seconds),
        report.questions / scenario.seconds,
        report.questions_percent(),
        report.returns,
        report.wrongly,
        report.outstanding,
    )
}

fn check_questions(scenario: &Scenario, report: &Report) {
    let most = match scenario.load {
        200 => 15.0,
        _ => 5.0,
    };
    assert!(report.questions_percent() <= most, "{}", shown(scenario, report));
}

#[test]
fn fixed_windows_admit_the_limit_and_not_a_cell_more() {
    for scenario in overloads(Algorithm::FixedWindow) {
        let report = World::new(scenario).run();
        println!("{}", shown(&scenario, &report));
        let windows = full_windows(&report);
        assert!(windows.iter().all(|admitted| *admitted <= LIMIT), "{}: {windows:?}", shown(&scenario, &report));
        assert!(windows.iter().all(|admitted| *admitted >= LIMIT * 97 / 100), "{}: {windows:?}", shown(&scenario, &report));
        check_questions(&scenario, &report);
    }
}

#[test]
fn sliding_windows_admit_the_limit_and_not_a_cell_more() {
    for scenario in overloads(Algorithm::SlidingWindow) {
        let report = World::new(scenario).run();
        println!("{}", shown(&scenario, &report));
        let windows = full_windows(&report);
        assert!(windows.iter().all(|admitted| *admitted <= LIMIT), "{}: {windows:?}", shown(&scenario, &report));
        let full = windows.iter().sum::<u64>();
        let windows = u64::try_from(windows.len()).unwrap();
        // The first one has no window before it that still weighs.
        assert!(full * 1000 >= LIMIT * windows * 968, "{}: {full} in {windows} windows", shown(&scenario, &report));
        check_questions(&scenario, &report);
    }
}

#[test]
fn gcra_admits_its_burst_and_its_rate() {
    for burst in [LIMIT, 250] {
        for scenario in overloads(Algorithm::Gcra) {
            let scenario = Scenario { burst, ..scenario };
            let report = World::new(scenario).run();
            println!("{} largest burst {}", shown(&scenario, &report), largest_burst(&report.times));
            let most = burst + LIMIT * scenario.seconds;
            assert!(report.admitted <= most, "{}", shown(&scenario, &report));
            assert!(report.admitted * 100 >= most * 97, "{}", shown(&scenario, &report));
            // In no stretch of time more than burst and rate, and what was leased.
            let largest = largest_burst(&report.times);
            assert!(largest <= burst + report.outstanding, "{}: {largest}", shown(&scenario, &report));
            check_questions(&scenario, &report);
        }
    }
}

#[test]
fn below_the_limit_nobody_is_refused_for_cells_that_are_left() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::Gcra] {
        for (gateways, load, is_skewed) in [(4, 50, false), (10, 50, true), (4, 90, false), (10, 90, false), (10, 90, true)] {
            let scenario = Scenario { algorithm, gateways, load, is_skewed, ..PLAIN };
            let report = World::new(scenario).run();
            let refused = report.offered - report.admitted;
            println!("{}; {refused} refused of {}", shown(&scenario, &report), report.offered);
            // Of a sliding window little is left at this load, so that a burst can meet a denial, and be refused until the next question.
            let most = if algorithm == Algorithm::SlidingWindow { report.outstanding } else { 0 };
            assert!(report.wrongly <= most, "{}", shown(&scenario, &report));
            // What is refused at all is refused for cells that others have leased.
            assert!(refused <= report.outstanding, "{}: {refused} refused", shown(&scenario, &report));
            if load == 50 || algorithm == Algorithm::Gcra {
                assert_eq!(refused, 0, "{}", shown(&scenario, &report));
            }
        }
    }
}

#[test]
fn a_crash_strands_one_lease_until_the_window_ends() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::Gcra] {
        let scenario = Scenario { algorithm, load: 500, crash: Some(3 * SECOND + SECOND / 20), ..PLAIN };
        let report = World::new(scenario).run();
        println!("{} stranded {}, windows {:?}", shown(&scenario, &report), report.stranded, full_windows(&report));
        // A block is at most half of a tenth of the limit, and there is less than one and a half.
        assert!(report.stranded <= LIMIT / 10 * 3 / 4, "{}: {} stranded", shown(&scenario, &report), report.stranded);
        let least = LIMIT * 96 / 100 - report.stranded;
        assert!(full_windows(&report).iter().all(|admitted| *admitted >= least), "{}", shown(&scenario, &report));
    }
}

#[test]
fn a_key_that_is_not_busy_is_decided_by_the_store_alone() {
    let scenario = Scenario { load: 4, gateways: 4, reach: Reach::Narrow, ..PLAIN };
    let report = World::new(scenario).run();
    assert_eq!((report.questions, report.returns, report.outstanding), (report.offered, 0, 0));
}
