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
#[path = "../common/machine.rs"]
mod machine;
mod options;
mod origin;
mod process;
mod proxies;
mod report;

use std::fmt;
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
    let scratch = tempfile::tempdir().context("no temporary directory")?;
    let bench = Bench { options: &options, origin: Origin::start()?, scratch: scratch.path() };

    let outcome = bench.run_all(&mut report);
    // Also after an error: what was measured until then took minutes.
    print!("{report}");
    outcome
}

/// What all runs share.
struct Bench<'a> {
    options: &'a Options,
    origin: Origin,
    scratch: &'a Path,
}

/// One cell of the result: who, doing what, under how much load.
#[derive(Clone, Copy)]
struct Run {
    case: Case,
    connections: u32,
    proxy: Proxy,
}

impl Bench<'_> {
    fn run_all(&self, report: &mut Report) -> Result<()> {
        for case in self.options.cases() {
            for &connections in &self.options.connections {
                for round in 1..=self.options.rounds {
                    for proxy in self.options.proxies_for(case) {
                        let run = Run { case, connections, proxy };
                        let sample = self.measure_quietly(run).with_context(|| format!("{run}, round {round}"))?;
                        eprintln!("{run}  round {round}  {sample}");
                        report.add(run, sample);
                    }
                }
            }
        }
        Ok(())
    }

    /// Measures again while other processes disturb the run, as often as the options allow, and keeps the quietest.
    fn measure_quietly(&self, run: Run) -> Result<Sample> {
        let mut quietest = self.measure(run)?;
        for _ in 0..self.options.retries {
            if !quietest.is_disturbed() {
                break;
            }
            std::thread::sleep(RETRY_AFTER);
            let again = self.measure(run)?;
            if again.disturbed < quietest.disturbed {
                quietest = again;
            }
        }
        Ok(quietest)
    }

    /// One run: start the proxy, see that it answers as it should, warm it up, load it, count.
    fn measure(&self, run: Run) -> Result<Sample> {
        let site = Site::new(run.case, self.origin.address(), self.scratch)?;
        let running = self.start(run.proxy, &site)?;
        let load = Load { case: run.case, address: site.address, connections: run.connections, scratch: self.scratch };
        load.run(WARM_UP_SECONDS)?;

        let served_before = self.origin.served();
        let cpu_before = running.cpu()?;
        let disturbance = Disturbance::start()?;
        let outcome = load.run(self.options.seconds)?;
        let cpu = running.cpu()?.since(cpu_before);
        let disturbed = disturbance.share(cpu.total())?;
        let served = self.origin.served() - served_before;

        run.case.check_origin(outcome.requests, served)?;
        Ok(Sample { outcome, cpu, disturbed, peak_rss_kib: running.peak_rss_kib()? })
    }

    /// Starts a proxy and waits until it gives the answer that `site.case` is about.
    fn start(&self, proxy: Proxy, site: &Site<'_>) -> Result<Running> {
        let command = proxy.command(site, &self.options.tollgate)?;
        let mut running = Running::spawn(&command, self.options.proxy_core, &self.scratch.join(format!("{proxy}.log")))?;
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
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<5}  {:>4} connections  {:<12}", self.case, self.connections, self.proxy)
    }
}

/// Fills pools and caches and finishes every connection's handshake before anything is counted.
const WARM_UP_SECONDS: u64 = 1;
/// Long enough for a compiler's short child processes to go away.
const RETRY_AFTER: Duration = Duration::from_secs(2);
const READY_WITHIN: Duration = Duration::from_secs(10);
