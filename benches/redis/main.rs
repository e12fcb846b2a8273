//! What does a decision cost that other gateways count too? The library's shared store over a Redis server of the benchmark's own.
//!
//! ```text
//! cargo bench --bench redis               all rows, about half a minute
//! cargo bench --bench redis -- --quick    whether it works, not how fast
//! cargo bench --bench redis -- --help
//! ```
//!
//! Contenders decide over one, three or five limits that count by the same: strictly, from leases, and as is usual elsewhere, by a script
//! for each limit, one after the other over one multiplexed connection. The first two rows are round trips of a script that does nothing: over such a
//! connection, and as the shared store asks, by its link on its thread. What is above those is ours and Redis'.
//! Latencies, and the processor time of this process' threads, are of one task that asks again and again, decisions per second of many. Redis'
//! processor time is what `INFO cpu` says. All of it shares the machine's cores, so ratios say more than numbers, and processor time more than latencies.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
#![allow(clippy::print_stdout, reason = "a command line program: the table is its output")]

mod contenders;
mod server;

use std::time::{Duration, Instant};

use clap::Parser;

use crate::contenders::{Contender, Kind};
use crate::server::{Server, bytes_per_key, work};

/// As in the process that this is about.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures decisions with a shared store.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench redis --")]
struct Options {
    /// Length of one measurement; there are two for each row
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Tasks that ask at the same time where decisions per second are measured
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    tasks: u16,
    /// Short measurements
    #[arg(long)]
    quick: bool,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// One row. Times are in microseconds.
struct Row {
    per_second: f64,
    median: f64,
    p99: f64,
    /// Of the processor, by this process, for one decision.
    own_cpu: f64,
    redis_cpu: f64,
    untouched: f64,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` executes benchmarks too, without cargo bench's `--bench`.
        println!("a benchmark: run it with `cargo bench --bench redis`");
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(&options))
}

async fn run(options: &Options) -> anyhow::Result<()> {
    let seconds = if options.quick { 0.1 } else { options.seconds.clamp(0.01, 60.0) };
    let time = Duration::from_secs_f64(seconds);
    println!(
        "{:<18} {:>6} {:>12} {:>9} {:>9} {:>9} {:>14} {:>10}",
        "", "limits", "decisions/s", "p50 µs", "p99 µs", "CPU µs", "Redis µs/dec.", "no call"
    );
    let (mut base, mut asked) = (None, None);
    for (kind, limits) in ROWS {
        let server = Server::start()?;
        let row = measure(*kind, *limits, &server, time, options.tasks).await?;
        println!(
            "{:<18} {limits:>6} {:>12.0} {:>9.1} {:>9.1} {:>9.1} {:>14.1} {:>9.1}%",
            kind.name(),
            row.per_second,
            row.median,
            row.p99,
            row.own_cpu,
            row.redis_cpu,
            row.untouched * 100.0
        );
        let base = *base.get_or_insert((row.median, row.own_cpu));
        if *kind == Kind::Link {
            asked = Some((row.median, row.own_cpu));
        }
        let asked = asked.unwrap_or(base);
        match kind {
            Kind::Strict => println!(
                "{:>25} above a round trip: {:.1} µs, of which CPU of ours {:.1} (target: 40); above one by the link: {:.1}, {:.1}",
                "",
                row.median - base.0,
                row.own_cpu - base.1,
                row.median - asked.0,
                row.own_cpu - asked.1
            ),
            Kind::Lease => println!("{:>25} targets: p99 below 50 µs, 95 % without a call", ""),
            Kind::RoundTrip | Kind::Link | Kind::Sequence => {}
        }
    }
    Ok(())
}

async fn measure(kind: Kind, limits: usize, server: &Server, time: Duration, tasks: u16) -> anyhow::Result<Row> {
    let mut control = server.connection().await?;
    let mut contender = Contender::new(kind, limits, server).await?;
    // Scripts are loaded, and a lease has found its size.
    let warm = Instant::now();
    while warm.elapsed() < time / 4 + Duration::from_millis(20) {
        contender.decide().await?;
    }
    let (mut latencies, used, begun) = (Vec::new(), cpu_time()?, Instant::now());
    while begun.elapsed() < time {
        let asked = Instant::now();
        contender.decide().await?;
        latencies.push(asked.elapsed());
        // As between requests: what runs in the background is not left waiting.
        tokio::task::yield_now().await;
    }
    let used = cpu_time()?.saturating_sub(used);
    latencies.sort_unstable();
    let (before, begun) = (work(&mut control).await?, Instant::now());
    let runs: Vec<_> = (0..tasks)
        .map(|_| {
            let mut contender = contender.clone();
            tokio::spawn(async move {
                let mut decisions = 0_u64;
                while begun.elapsed() < time {
                    contender.decide().await?;
                    decisions += 1;
                    tokio::task::yield_now().await;
                }
                anyhow::Ok(decisions)
            })
        })
        .collect();
    let mut decisions = 0;
    for run in runs {
        decisions += run.await??;
    }
    let lasted = begun.elapsed();
    let after = work(&mut control).await?;
    if kind == Kind::Strict && limits == 1 {
        println!("{:>25} bytes of a counter in Redis: {}", "", bytes_per_key(&mut control).await?);
    }
    contender.end();
    let at = |share: usize| latencies.get(latencies.len() * share / 100).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    let (decisions, calls, alone) = (decisions as f64, (after.scripts - before.scripts) as f64, latencies.len() as f64);
    Ok(Row {
        per_second: decisions / lasted.as_secs_f64(),
        median: at(50),
        p99: at(99),
        own_cpu: used.as_secs_f64() * 1e6 / alone,
        redis_cpu: (after.cpu - before.cpu) / decisions,
        untouched: (1.0 - calls / decisions).max(0.0),
    })
}

/// Processor time of all threads so far, to the nanosecond: `getrusage` says no more than milliseconds.
fn cpu_time() -> anyhow::Result<Duration> {
    let mut sum = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        sum += stat.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(Duration::from_nanos(sum))
}

const ROWS: &[(Kind, usize)] = &[
    (Kind::RoundTrip, 1),
    (Kind::Link, 1),
    (Kind::Strict, 1),
    (Kind::Strict, 3),
    (Kind::Strict, 5),
    (Kind::Lease, 1),
    (Kind::Lease, 3),
    (Kind::Lease, 5),
    (Kind::Sequence, 1),
    (Kind::Sequence, 3),
    (Kind::Sequence, 5),
];
