//! What can be asked of the benchmark on its command line.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Parser;

use crate::proxies::{Case, Proxy};

/// Measures tollgate beside nginx and HAProxy: CPU time per request, throughput, latency, memory.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench proxy --")]
pub(crate) struct Options {
    /// Length of one measurement; one second of warm-up comes on top
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Measurements of each proxy in each case, interleaved; the table shows medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// How often to repeat a measurement that other processes disturbed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) retries: u32,
    /// Connections of the load generator; h2c opens an eighth as many, with 8 streams each
    #[arg(long, value_delimiter = ',', default_value = "32,128", value_parser = clap::value_parser!(u32).range(8..=2000))]
    pub(crate) connections: Vec<u32>,
    /// Proxies to measure [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    only: Vec<Proxy>,
    /// Cases to measure [default: all whose load generator is installed]
    #[arg(long, value_delimiter = ',', value_enum)]
    cases: Vec<Case>,
    /// Core of the proxy
    #[arg(long, default_value_t = 0)]
    pub(crate) proxy_core: usize,
    /// Core of the load generator and the origin
    #[arg(long, default_value_t = 1)]
    pub(crate) load_core: usize,
    /// The tollgate to measure, for comparing builds [default: the one cargo has just built]
    #[arg(long, default_value = env!("CARGO_BIN_EXE_tollgate"), hide_default_value = true)]
    pub(crate) tollgate: PathBuf,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}

impl Options {
    pub(crate) fn proxies(&self) -> impl Iterator<Item = Proxy> {
        Proxy::ALL.into_iter().filter(|proxy| self.only.is_empty() || self.only.contains(proxy))
    }

    /// The access log is a variant of the pass path; elsewhere it would only repeat a row.
    pub(crate) fn proxies_for(&self, case: Case) -> impl Iterator<Item = Proxy> {
        self.proxies().filter(move |proxy| case == Case::Pass || !proxy.writes_access_log())
    }

    pub(crate) fn cases(&self) -> impl Iterator<Item = Case> {
        Case::ALL.into_iter().filter(|case| {
            if self.cases.is_empty() { find_tool(case.load_generator()).is_some() } else { self.cases.contains(case) }
        })
    }

    /// Refuses to begin when a program that the options ask for is not installed.
    pub(crate) fn check_tools(&self) -> Result<()> {
        let generators = self.cases.iter().map(|case| case.load_generator()).chain(["wrk"]);
        let needed = ["taskset", "setpriv", "kill"].into_iter().chain(generators).chain(self.proxies().filter_map(Proxy::tool));
        let mut missing: Vec<_> = needed.filter(|tool| find_tool(tool).is_none()).collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            bail!(
                "not installed: {}. On Debian: apt-get install wrk nginx haproxy nghttp2-client util-linux procps. \
                 The peers are optional: --only tollgate",
                missing.join(", ")
            );
        }
        let cores = std::thread::available_parallelism()?.get();
        if self.proxy_core == self.load_core || self.proxy_core.max(self.load_core) >= cores {
            bail!("--proxy-core and --load-core need two different cores out of 0..{cores}");
        }
        Ok(())
    }
}

/// Looks in `PATH` and where Debian keeps servers, which a user's `PATH` often lacks.
pub(crate) fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| Path::is_file(file))
}
