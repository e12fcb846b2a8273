//! How evenly each algorithm of `balance` spreads requests, how much moves when an endpoint leaves, and what a pick costs.
//!
//! ```sh
//! cargo bench --bench balance               100 000 picks each, a few seconds
//! cargo bench --bench balance -- --quick    a tenth of them
//! ```
//!
//! Requests: the most that an endpoint was picked, over its share by weight. Load: a hundred requests are under way and one that is chosen at
//! random ends whenever another begins; the most that an endpoint ever had, over the mean. Keys are as many as picks, or one request in five has
//! the same key. Moved: which part of 100 000 keys has another endpoint when one of them has left, none being busy.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
#![allow(clippy::print_stdout, reason = "a command line program: the table is its output")]

#[path = "../common/machine.rs"]
mod machine;

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use tollgate::snapshot::{Balance, HashBy};
use tollgate::upstream::balance::{Balancer, Candidate, Candidates, FULL, endpoint_hash};

/// Measures how endpoints are chosen.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench balance --")]
struct Options {
    /// Picks for each figure
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    picks: u64,
    /// Seconds for each price
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// A tenth of both
    #[arg(long)]
    quick: bool,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let mut options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` executes benchmarks too, without cargo bench's `--bench`.
        println!("a benchmark: run it with `cargo bench --bench balance`");
        return Ok(());
    }
    if options.quick {
        options.picks /= 10;
        options.seconds /= 10.0;
    }
    let length = Duration::from_secs_f64(options.seconds);
    println!("{}, {ENDPOINTS} endpoints, {} picks\n", machine::machine(), options.picks);
    println!(
        "| algorithm | requests, max/share | with weights 1 to 4 | load, max/mean | with a hot key | moved | ns, 1 | ns, 10 | ns, 100 |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (name, balance) in algorithms() {
        let [equal, weighted] = [|_| 1, |index| 1 + index % 4]
            .map(|weight: fn(u64) -> u64| requests(&balance, &Fleet::new(ENDPOINTS, weight), options.picks));
        let [load, hot] = [Keys::Many, Keys::Hot].map(|keys| load(&balance, options.picks, keys));
        let moved = match balance {
            Balance::Hash { .. } => format!("{:.1} %", 100.0 * moved(&balance)?),
            _ => "–".to_owned(),
        };
        let [one, ten, hundred] = [1, 10, 100].map(|endpoints| price(&balance, endpoints, length));
        println!(
            "| {name} | {:.3} | {:.3} | {:.2} | {:.2} | {moved} | {one:.1} | {ten:.0} | {hundred:.0} |",
            equal?, weighted?, load?, hot?
        );
    }
    Ok(())
}

fn algorithms() -> Vec<(&'static str, Balance)> {
    let hash = |load_bound| Balance::Hash { by: HashBy::Client, load_bound };
    vec![
        ("round_robin", Balance::RoundRobin),
        ("random", Balance::Random),
        ("least_requests", Balance::LeastRequests),
        ("hash, load_bound 1.25", hash(1.25)),
        ("hash, load_bound 2", hash(2.0)),
        ("hash, load_bound 1000", hash(1000.0)),
    ]
}

/// Endpoints as a worker sees them: loads are atomics here too.
struct Fleet {
    endpoints: Vec<(u64, AtomicU32, u64)>,
    left: Option<usize>,
}

impl Fleet {
    fn new(endpoints: u64, weight: fn(u64) -> u64) -> Self {
        let endpoint = |index| {
            (weight(index) * FULL, AtomicU32::new(0), endpoint_hash(&format!("10.0.{}.{}:8080", index / 200, index % 200)))
        };
        Self { endpoints: (0..endpoints).map(endpoint).collect(), left: None }
    }

    fn begin(&self, index: usize) -> Option<u32> {
        Some(self.endpoints.get(index)?.1.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn end(&self, index: usize) {
        if let Some((_, load, _)) = self.endpoints.get(index) {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn balancer(&self, balance: &Balance) -> Balancer {
        Balancer::new(balance, self.endpoints.len())
    }
}

impl Candidates for Fleet {
    fn count(&self) -> usize {
        self.endpoints.len()
    }

    fn at(&self, index: usize) -> Option<Candidate> {
        let (weight, load, hash) = self.endpoints.get(index)?;
        (self.left != Some(index)).then(|| Candidate { weight: *weight, load: load.load(Ordering::Relaxed), hash: *hash })
    }
}

/// What requests have in common.
#[derive(Clone, Copy)]
enum Keys {
    /// Nothing.
    Many,
    /// One in five has the same key.
    Hot,
}

impl Keys {
    fn of(self, request: u64) -> Option<NonZeroU64> {
        let hot = matches!(self, Self::Hot) && request.is_multiple_of(5);
        NonZeroU64::new(if hot { mix(7) } else { mix(request) } | 1)
    }
}

/// The most picks of an endpoint over its share, none being under way.
fn requests(balance: &Balance, fleet: &Fleet, picks: u64) -> Result<f64> {
    let balancer = fleet.balancer(balance);
    let mut picked = vec![0_u64; fleet.endpoints.len()];
    for request in 0..picks {
        let index = balancer.pick(fleet, Keys::Many.of(request)).context("nobody was picked")?;
        *picked.get_mut(index).context("no such endpoint")? += 1;
    }
    let total: u64 = fleet.endpoints.iter().map(|(weight, ..)| weight).sum();
    let ratios = picked
        .iter()
        .zip(&fleet.endpoints)
        .map(|(picked, (weight, ..))| float(*picked) * float(total) / (float(picks) * float(*weight)));
    Ok(ratios.fold(0.0, f64::max))
}

/// The most that an endpoint has under way, over the mean.
fn load(balance: &Balance, picks: u64, keys: Keys) -> Result<f64> {
    let fleet = Fleet::new(ENDPOINTS, |_| 1);
    let balancer = fleet.balancer(balance);
    let (mut under_way, mut most) = (Vec::new(), 0);
    for request in 0..picks {
        if under_way.len() >= UNDER_WAY {
            let chosen = usize::try_from(mix(request ^ (1 << 40)) % u64::try_from(under_way.len())?)?;
            fleet.end(under_way.swap_remove(chosen));
        }
        let index = balancer.pick(&fleet, keys.of(request)).context("nobody was picked")?;
        let load = fleet.begin(index).context("no such endpoint")?;
        under_way.push(index);
        // Only when the mean is what it is meant to be.
        most = most.max(if under_way.len() >= UNDER_WAY { load } else { 0 });
    }
    Ok(f64::from(most) * float(ENDPOINTS) / float(u64::try_from(UNDER_WAY)?))
}

/// Which part of the keys has another endpoint when one has left; no key of another one may.
fn moved(balance: &Balance) -> Result<f64> {
    let mut fleet = Fleet::new(ENDPOINTS, |_| 1);
    let balancer = fleet.balancer(balance);
    let before: Vec<_> = (0..KEYS).map(|key| balancer.pick(&fleet, Keys::Many.of(key))).collect();
    fleet.left = Some(3);
    let after = (0..KEYS).map(|key| balancer.pick(&fleet, Keys::Many.of(key)));
    let moved = before.iter().zip(after).filter(|(before, after)| *before != after).count();
    let share = float(u64::try_from(moved)?) / float(KEYS);
    ensure!(share <= 1.0 / float(ENDPOINTS) + 0.05, "{share} of the keys have moved");
    Ok(share)
}

/// Nanoseconds of a pick among so many endpoints that are a little busy.
fn price(balance: &Balance, endpoints: u64, length: Duration) -> f64 {
    let fleet = Fleet::new(endpoints, |_| 1);
    for index in 0..fleet.count() {
        let _ = fleet.begin(index);
    }
    let balancer = fleet.balancer(balance);
    let (started, mut picks) = (Instant::now(), 0_u64);
    while started.elapsed() < length {
        for request in 0..1000 {
            black_box(balancer.pick(black_box(&fleet), Keys::Many.of(picks + request)));
        }
        picks += 1000;
    }
    float(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)) / float(picks)
}

/// A bijection that leaves no pattern (the finalizer of SplitMix64): random numbers out of a count, the same in every run.
fn mix(count: u64) -> u64 {
    let x = count.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people: three digits of them")]
fn float(n: u64) -> f64 {
    n as f64
}

const ENDPOINTS: u64 = 10;
const UNDER_WAY: usize = 100;
const KEYS: u64 = 100_000;
