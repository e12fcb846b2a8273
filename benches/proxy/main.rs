//! tollgate beside nginx and HAProxy, end to end: what does one request cost?
//!
//! ```text
//! cargo bench --bench proxy                                  all cases, about ten minutes
//! cargo bench --bench proxy -- --seconds 2 --rounds 1        a quick look
//! cargo bench --bench proxy -- --only tollgate --cases pass  one proxy, one case
//! cargo bench --bench proxy -- --help
//! ```
//!
//! Every proxy gets the same work: the same origin (`origin`), the same load (`load`), one worker pinned to one core, and a
//! limit per API key (`proxies`). Load generator and origin share the other core. The result is a Markdown table on stdout
//! (`report`); progress goes to stderr.
//!
//! The figure to trust is **CPU time per request**: user + system time of the proxy divided by the requests it answered.
//! Requests per second and latencies are bounded by the load generator, which has to live on one core with the origin. Rounds
//! are interleaved (A B C A B C …) and the table shows medians, so that a machine that slows down slows all of them down. A
//! run during which other processes took much of the machine is repeated, and marked if that did not help. Every run starts
//! a fresh process, and the benchmark fails when an answer had the wrong status.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock; nothing here is simulated")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program: the table is its output")]

mod load;
mod options;
mod origin;
mod process;
mod proxies;
mod report;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::load::Load;
use crate::options::Options;
use crate::origin::Origin;
use crate::process::{Disturbance, Running};
use crate::proxies::{Case, Proxy, Site};
use crate::report::{Report, Sample};

fn main() -> Result<()> {
    let options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` executes benchmarks too, without cargo bench's `--bench`; minutes of load are not what it wants.
        println!("a benchmark: run it with `cargo bench --bench proxy`");
        return Ok(());
    }
    options.check_tools()?;
    let mut report = Report::new(&options)?;
    // Before the origin's thread starts, which inherits it.
    process::pin_self(options.load_core)?;
    let origin = Origin::start()?;
    let scratch = tempfile::tempdir().context("no temporary directory")?;

    for case in options.cases() {
        for &connections in &options.connections {
            for round in 1..=options.rounds {
                for proxy in options.proxies_for(case) {
                    let sample = measure_quietly(&options, &origin, scratch.path(), proxy, case, connections)
                        .with_context(|| format!("{proxy}, case {case}, {connections} connections, round {round}"))?;
                    eprintln!("{case:>5} {connections:>4} conns  round {round}  {proxy:<12} {sample}");
                    report.add(case, connections, proxy, sample);
                }
            }
        }
    }
    print!("{report}");
    Ok(())
}

/// Measures again while other processes disturb the run, as often as the options allow, and keeps the quietest.
fn measure_quietly(
    options: &Options,
    origin: &Origin,
    scratch: &Path,
    proxy: Proxy,
    case: Case,
    connections: u32,
) -> Result<Sample> {
    let mut quietest = measure(options, origin, scratch, proxy, case, connections)?;
    for _ in 0..options.retries {
        if !quietest.is_disturbed() {
            break;
        }
        std::thread::sleep(RETRY_AFTER);
        let again = measure(options, origin, scratch, proxy, case, connections)?;
        if again.disturbed < quietest.disturbed {
            quietest = again;
        }
    }
    Ok(quietest)
}

/// One run: start the proxy, see that it answers as it should, warm it up, load it, count.
fn measure(options: &Options, origin: &Origin, scratch: &Path, proxy: Proxy, case: Case, connections: u32) -> Result<Sample> {
    let site = Site::new(case, origin.address(), scratch)?;
    let running = start(options, proxy, &site)?;
    let load = Load { case, address: site.address, connections, scratch };
    load.run(WARM_UP_SECONDS)?;

    let served_before = origin.served();
    let cpu_before = running.cpu()?;
    let disturbance = Disturbance::start()?;
    let outcome = load.run(options.seconds)?;
    let cpu = running.cpu()?.since(cpu_before);
    let disturbed = disturbance.share(cpu.total())?;
    let served = origin.served() - served_before;

    case.check_origin(outcome.requests, served)?;
    Ok(Sample { outcome, cpu, disturbed, peak_rss_kib: running.peak_rss_kib()? })
}

/// Starts a proxy and waits until it gives the answer that `site.case` is about.
fn start(options: &Options, proxy: Proxy, site: &Site<'_>) -> Result<Running> {
    let command = proxy.command(site, &options.tollgate)?;
    let mut running = Running::spawn(&command, options.proxy_core, &site.scratch.join(format!("{proxy}.log")))?;
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        running.ensure_alive()?;
        let problem = match load::probe(site.case, site.address) {
            Ok(()) => return Ok(running),
            Err(problem) => problem,
        };
        ensure!(Instant::now() < deadline, "not ready after {READY_WITHIN:?}: {problem:#}\n{}", running.log_tail());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Fills pools and caches and finishes every connection's handshake before anything is counted.
const WARM_UP_SECONDS: u64 = 1;
/// Long enough for a compiler's short child processes to go away.
const RETRY_AFTER: Duration = Duration::from_secs(2);
const READY_WITHIN: Duration = Duration::from_secs(10);
