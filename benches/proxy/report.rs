//! From samples to a Markdown table: medians, medians of the ratios to the peers, and the machine they were measured on.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::Run;
use crate::load::{Latency, Outcome};
use crate::machine::machine;
use crate::options::{Options, find_tool};
use crate::process::{Cpu, ratio};
use crate::proxies::{Case, Proxy};

/// One measurement.
pub(crate) struct Sample {
    pub(crate) outcome: Outcome,
    pub(crate) cpu: Cpu,
    pub(crate) peak_rss_kib: u64,
    /// The share of one core that went to something else meanwhile.
    pub(crate) disturbed: f64,
}

impl Sample {
    /// Whether other processes took so much that the numbers should not be trusted.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.disturbed > NOISY
    }

    fn cpu_micros_per_request(&self) -> f64 {
        self.cpu.total().as_secs_f64() * 1e6 / ratio(self.outcome.requests, 1)
    }

    fn requests_per_second(&self) -> f64 {
        ratio(self.outcome.requests, 1) / self.outcome.duration.as_secs_f64()
    }

    fn peak_rss_mib(&self) -> f64 {
        ratio(self.peak_rss_kib, 1024)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:6.2} µs CPU per request {:8.0} req/s", self.cpu_micros_per_request(), self.requests_per_second())?;
        if self.is_disturbed() {
            write!(f, "   (other processes used {:.0} % of a core)", self.disturbed * 100.0)?;
        }
        Ok(())
    }
}

/// All measurements, printed when they are complete.
pub(crate) struct Report {
    heading: String,
    tables: BTreeMap<(Case, u32), BTreeMap<Proxy, Vec<Sample>>>,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let versions: Vec<_> =
            options.proxies().filter(|proxy| !proxy.writes_access_log()).map(|proxy| version(proxy, options)).collect();
        let heading = format!(
            "{}, {}; {}. One worker on core {}, load and origin on core {}; {} × {} s.",
            machine(),
            first_line(Command::new("uname").args(["-s", "-r"])).unwrap_or_default(),
            versions.join(", "),
            options.proxy_core,
            options.load_core,
            options.rounds,
            options.seconds,
        );
        Ok(Self { heading, tables: BTreeMap::new() })
    }

    pub(crate) fn add(&mut self, run: Run, sample: Sample) {
        self.tables.entry((run.case, run.connections)).or_default().entry(run.proxy).or_default().push(sample);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.heading)?;
        for ((case, connections), rows) in &self.tables {
            writeln!(f, "\n### {}, {connections} connections\n", title(*case))?;
            writeln!(
                f,
                "| proxy | CPU µs/request (range) | ÷ HAProxy | ÷ nginx | system share | requests/s | p50 | p99 | peak RSS |"
            )?;
            writeln!(f, "|---|---:|---:|---:|---:|---:|---:|---:|---:|")?;
            for (proxy, samples) in rows {
                write_row(f, *proxy, samples, rows)?;
            }
        }
        let disturbed =
            self.tables.values().flat_map(BTreeMap::values).flatten().map(|sample| sample.disturbed).fold(0.0, f64::max);
        if disturbed > NOISY {
            writeln!(f, "\nNot a quiet machine: other processes used up to {:.0} % of a core during a run.", disturbed * 100.0)?;
        }
        Ok(())
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, proxy: Proxy, samples: &[Sample], rows: &BTreeMap<Proxy, Vec<Sample>>) -> fmt::Result {
    let cost = median(samples, Sample::cpu_micros_per_request);
    let (least, most) = range(samples, Sample::cpu_micros_per_request);
    let against = |peer| match rows.get(&peer) {
        Some(peer) => format!("{:.2}", middle(relative_costs(samples, peer))),
        None => "–".to_owned(),
    };
    let percentile = |pick: fn(&Latency) -> Duration| {
        let known = samples.iter().all(|sample| sample.outcome.latency.is_some());
        let micros =
            median(samples, |sample| sample.outcome.latency.as_ref().map_or(0.0, |latency| pick(latency).as_secs_f64() * 1e6));
        if known { format!("{micros:.0} µs") } else { "–".to_owned() }
    };
    writeln!(
        f,
        "| {proxy} | {cost:.1} ({least:.1}–{most:.1}) | {} | {} | {:.0} % | {:.0} | {} | {} | {:.0} MiB |",
        against(Proxy::Haproxy),
        against(Proxy::Nginx),
        median(samples, |sample| sample.cpu.system_share() * 100.0),
        median(samples, Sample::requests_per_second),
        percentile(|latency| latency.p50),
        percentile(|latency| latency.p99),
        median(samples, Sample::peak_rss_mib),
    )
}

const fn title(case: Case) -> &'static str {
    match case {
        Case::Pass => "Pass path (HTTP/1.1, 100-byte answers)",
        Case::Deny => "429 path (no upstream)",
        Case::Large => "Answers of 256 KiB",
        Case::H2c => "Pass path over cleartext HTTP/2, 8 streams a connection",
    }
}

/// Cost relative to a peer, round by round: what slows a whole round down cancels out.
fn relative_costs(samples: &[Sample], peer: &[Sample]) -> Vec<f64> {
    samples.iter().zip(peer).map(|(own, peer)| own.cpu_micros_per_request() / peer.cpu_micros_per_request()).collect()
}

fn median(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    middle(samples.iter().map(value).collect())
}

/// The median; of an even number of values, the mean of the two in the middle.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN);
    f64::midpoint(lower, upper)
}

fn range(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> (f64, f64) {
    samples.iter().map(value).fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(value), most.max(value)))
}

/// `nginx 1.22.1` out of whatever the program prints about itself.
fn version(proxy: Proxy, options: &Options) -> String {
    let (program, flag) = match proxy.tool() {
        Some(tool) => (find_tool(tool).unwrap_or_default(), "-v"),
        None => (options.tollgate.clone(), "--version"),
    };
    let line = first_line(Command::new(program).arg(flag)).unwrap_or_default();
    let number = line.split([' ', '/', '-']).find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    format!("{proxy} {}", number.unwrap_or("of unknown version"))
}

/// The first line that a command prints; nginx reports its version on stderr.
fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let printed = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&printed).lines().next().map(str::to_owned)
}

/// With more of one core than this in other hands, caches and queues are no longer the proxy's own: costs rise by a third.
const NOISY: f64 = 0.1;
