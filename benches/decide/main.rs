//! What does a decision cost? `MemoryStore::charge` beside `governor`'s keyed limiter, in nanoseconds.
//!
//! ```text
//! cargo bench --bench decide               all cases, about a minute
//! cargo bench --bench decide -- --quick    a look that takes seconds: whether it works, not how fast
//! cargo bench --bench decide -- --help
//! ```
//!
//! A decision is over one, three or five limits jointly; governor has a limiter for each of them and is asked as often, one after the other,
//! so its answer is not joint. It keeps its counters in a DashMap, under the same digests with the same trivial hasher
//! or under strings with its own, and reports nothing but the verdict, where we also say what remains and until when.
//!
//! Keys and charges are made outside of the measured time, in batches small enough for the cache, because a request that asks has just
//! made them (`load`). All quotas pass. Clocks are moved by hand between batches, so that nobody pays for reading time,
//! but in the rows that say otherwise: there we read ours once a decision and governor reads its default clock at every check.
//! Contenders take turns (A B C A B C …). A measurement is its median batch, a row shows medians of measurements (least–most) and of the
//! ratios of one round, so that a machine with other work to do slows all of them down, or none. Of two threads, only
//! batches count during which both had a core; `NaN` is what they get who never had.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program: the table is its output")]

#[path = "../common/mod.rs"]
mod common;
mod contenders;
mod load;
mod report;

use std::time::Duration;

use clap::Parser;
use governor::middleware::StateInformationMiddleware;
use tollgate::limit::Algorithm;

use crate::common::Digest;
use crate::contenders::{Contender, Governed, Tollgate};
use crate::load::{Case, Load};
use crate::report::Report;

/// As in the process that this is about.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what a decision over several limits costs, beside governor.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench decide --")]
struct Options {
    /// Length of one measurement
    #[arg(long, default_value_t = 0.1, value_parser = seconds)]
    seconds: f64,
    /// Measurements of each contender in each case, interleaved; the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Short measurements of fewer keys
    #[arg(long)]
    quick: bool,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let mut options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` executes benchmarks too, without cargo bench's `--bench`.
        println!("a benchmark: run it with `cargo bench --bench decide`");
        return;
    }
    if options.quick {
        (options.seconds, options.rounds) = (options.seconds.min(0.02), options.rounds.min(3));
    }
    let length = Duration::from_secs_f64(options.seconds);
    let mut report = Report::new(options.rounds, length);
    for keys in [1, 1000, if options.quick { 100_000 } else { 1_000_000 }] {
        compare_sizes(keys, &options, length, &mut report);
    }
    compare_clocks(&options, length, &mut report);
    compare_algorithms(&options, length, &mut report);
    print!("{report}");
}

/// One, three and five limits, by one thread and by two.
fn compare_sizes(keys: u64, options: &Options, length: Duration, report: &mut Report) {
    let contenders: [&dyn Contender; 3] =
        [&Tollgate::new(keys, Algorithm::Gcra), &Governed::<Digest, _>::by_hand(keys), &Governed::<String, _>::by_hand(keys)];
    for limits in [1, 3, 5] {
        for threads in [1, 2] {
            let case = Case { limits, keys, threads };
            report.compare(&format!("{limits} | {keys} | {threads} | by hand"), case, &race(case, &contenders, options, length));
        }
    }
}

/// With what it costs to ask what time it is.
fn compare_clocks(options: &Options, length: Duration, report: &mut Report) {
    let case = Case { limits: 1, keys: 1000, threads: 1 };
    let contenders: [&dyn Contender; 3] = [
        &Tollgate::new(case.keys, Algorithm::Gcra).on_time(),
        &Governed::<Digest, _>::on_time(case.keys),
        &Governed::<String, _>::on_time(case.keys),
    ];
    for limits in [1, 5] {
        let case = Case { limits, ..case };
        report.compare(&format!("{limits} | {} | 1 | real", case.keys), case, &race(case, &contenders, options, length));
    }
}

/// Every way to count, one limit; and governor as it is when it says what remains, as we do.
fn compare_algorithms(options: &Options, length: Duration, report: &mut Report) {
    let case = Case { limits: 1, keys: 1000, threads: 1 };
    let stores = ALGORITHMS.map(|(_, algorithm)| Tollgate::new(case.keys, algorithm));
    let telling = Governed::<Digest, _, StateInformationMiddleware>::by_hand(case.keys);
    let governor = Governed::<Digest, _>::by_hand(case.keys);
    let governors: [&dyn Contender; 2] = [&telling, &governor];
    let contenders = stores.iter().map(|store| store as &dyn Contender).chain(governors);
    let times = race(case, &contenders.collect::<Vec<_>>(), options, length);
    report.list(ALGORITHMS.iter().map(|(name, _)| *name).chain(GOVERNORS).zip(times));
}

/// Nanoseconds per decision, by contender and round; NaN if there was nothing to measure.
fn race(case: Case, contenders: &[&dyn Contender], options: &Options, length: Duration) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::new(); contenders.len()];
    for round in 0..options.rounds {
        for (contender, times) in contenders.iter().zip(&mut times) {
            times.push(Load::new(case, length, round).measure(*contender).unwrap_or(f64::NAN));
        }
    }
    eprintln!("{case:?}  {:.0?} ns", times.iter().map(|times| report::median(times.iter().copied())).collect::<Vec<_>>());
    times
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=60.0).contains(&seconds) { Ok(seconds) } else { Err("between 0.001 and 60".to_owned()) }
}

const GOVERNORS: [&str; 2] = ["governor, digest key, with what remains", "governor, digest key"];

const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("gcra", Algorithm::Gcra),
    ("token_bucket", Algorithm::TokenBucket),
    ("leaky_bucket", Algorithm::LeakyBucket),
    ("fixed_window", Algorithm::FixedWindow),
    ("sliding_window", Algorithm::SlidingWindow),
    ("sliding_log, 100 cells", Algorithm::SlidingLog),
];
