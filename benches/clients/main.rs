//! What many known clients cost: to load, to keep, and to look one up, beside ten.
//!
//! ```sh
//! cargo bench --bench clients               a hundred thousand, a few seconds
//! cargo bench --bench clients -- --quick    ten thousand
//! ```
//!
//! Loading is reading and parsing both files and compiling them, as a start or a reload does it. Memory is what the process has more of
//! when only the compiled configuration is left (`VmRSS`), measured in a process of its own for each row. A look-up is
//! `identity::identify` of a request with a key in a header: the key's SHA-256 included, another key each time.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program: the table is its output")]

#[path = "../common/machine.rs"]
mod machine;
#[path = "../store/process.rs"]
#[allow(dead_code, reason = "shared with the benchmark of the store, which needs more of it")]
mod process;

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use http::Request;
use tollgate::compile::{Ground, compile};
use tollgate::config::MainFile;
use tollgate::identity::{KeyDigest, identify};
use tollgate::request::{ConnInfo, Facts, PathRules};
use tollgate::snapshot::Snapshot;

/// As in the process that this is about.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what known clients cost.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench clients --")]
struct Options {
    /// Clients of the large file
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(10..=400_000))]
    clients: u64,
    /// Seconds for each kind of look-up
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// A tenth of the clients, a twentieth of the time
    #[arg(long)]
    quick: bool,
    /// Measures one row and ends: `yaml 10`
    #[arg(long, hide = true, num_args = 2)]
    row: Vec<String>,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let mut options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` executes benchmarks too, without cargo bench's `--bench`.
        println!("a benchmark: run it with `cargo bench --bench clients`");
        return Ok(());
    }
    if options.quick {
        options.clients /= 10;
        options.seconds /= 20.0;
    }
    if let [form, clients] = options.row.as_slice() {
        return row(form, clients.parse()?, Duration::from_secs_f64(options.seconds));
    }
    println!("{}\n", machine::machine());
    println!("| clients | file | load | compile again | bytes per client | known key | unknown key |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for (form, clients) in [("yaml", 10), ("yaml", options.clients), ("json", options.clients)] {
        let own = std::env::current_exe().context("no path of its own")?;
        let seconds = options.seconds.to_string();
        let status = std::process::Command::new(own)
            .args(["--bench", "--seconds", &seconds, "--row", form, &clients.to_string()])
            .status()?;
        ensure!(status.success(), "a row failed");
    }
    Ok(())
}

fn key(client: u64) -> String {
    format!("sk_live_{client:024x}")
}

/// A client with a key, a user, a tier and a tenant; every hundredth has rates of its own.
fn clients_file(form: &str, clients: u64) -> Result<String> {
    let mut text = String::new();
    for i in 0..clients {
        let (digest, own) = (KeyDigest::of(key(i).as_bytes()), i % 100 == 0);
        if form == "json" {
            let limits = if own { r#", "limits": {"plan": "70/min"}"# } else { "" };
            let begin = if i == 0 { '[' } else { ',' };
            writeln!(
                text,
                r#"{begin}{{"id": "client-{i}", "api_keys": ["{digest}"], "users": ["u-{i}"], "tier": "pro", "tenant": "t-{}"{limits}}}"#,
                i / 10
            )?;
        } else {
            let limits = if own { "  limits: { plan: 70/min }\n" } else { "" };
            write!(
                text,
                "- id: client-{i}\n  api_keys: [\"{digest}\"]\n  users: [u-{i}]\n  tier: pro\n  tenant: t-{}\n{limits}",
                i / 10
            )?;
        }
    }
    if form == "json" {
        text.push(']');
    }
    Ok(text)
}

fn row(form: &str, clients: u64, length: Duration) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("tollgate-clients-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let measured = measure(form, clients, length, &dir);
    std::fs::remove_dir_all(&dir)?;
    measured
}

fn measure(form: &str, clients: u64, length: Duration, dir: &std::path::Path) -> Result<()> {
    let (file, main) = (dir.join("clients"), dir.join("gateway.yaml"));
    std::fs::write(&file, clients_file(form, clients)?)?;
    std::fs::write(&main, format!("clients_file: {}\n{MAIN}", file.display()))?;
    let before = process::settled()?;
    let env = |_: &str| None;
    let started = Instant::now();
    let told = |diagnostics: Vec<_>| anyhow!("the configuration is refused: {diagnostics:?}");
    let source = MainFile::read(&main, &env).map_err(told)?.with_clients(&env);
    let snapshot = compile(&source, &Ground::default(), 1).map_err(told)?;
    let load = started.elapsed();
    let started = Instant::now();
    drop(compile(&source, &Ground::default(), 1).map_err(told)?);
    let again = started.elapsed();
    drop(source);
    let bytes = process::ratio(process::settled()?.saturating_sub(before), clients);
    let bytes = if clients < 1000 { "–".to_owned() } else { format!("{bytes:.0}") };
    let known = look_up(&snapshot, clients, 0, length)?;
    let unknown = look_up(&snapshot, clients, 1 << 40, length)?;
    println!("| {clients} | {form} | {load:.2?} | {again:.2?} | {bytes} | {known:.0} ns | {unknown:.0} ns |");
    Ok(())
}

/// Nanoseconds of one look-up of keys from `first` on.
fn look_up(snapshot: &Snapshot, clients: u64, first: u64, length: Duration) -> Result<f64> {
    let conn = ConnInfo::new("203.0.113.7:5000".parse()?, "http");
    let rules = PathRules { distinct_trailing_slash: false, allow_encoded_slash: false };
    let requests = (0..clients.min(KEYS)).map(|i| {
        // Spread over all clients, so that neighbours in the file are not neighbours here.
        let client = first + i.wrapping_mul(0x9e37_79b9) % clients;
        let request = Request::get("/").header("host", "a").header("x-api-key", key(client)).body(())?;
        Ok(request.into_parts().0)
    });
    let requests: Vec<_> = requests.collect::<Result<_>>()?;
    let facts: Vec<_> = requests.iter().map(|parts| Facts::read(parts, &conn, &rules)).collect::<Result<_, _>>()?;
    let (started, mut rounds, mut found) = (Instant::now(), 0, 0);
    while started.elapsed() < length {
        rounds += 1;
        for facts in &facts {
            let identity = identify(black_box(facts), &snapshot.identity, None)?;
            found += u64::from(identity.client.is_some());
        }
    }
    let asked = rounds * u64::try_from(facts.len())?;
    let elapsed = u64::try_from(started.elapsed().as_nanos())?;
    ensure!(found == if first == 0 { asked } else { 0 }, "{found} of {asked} keys were known");
    Ok(process::ratio(elapsed, asked))
}

/// Requests that are at hand at once: more than any cache has room for the entries of.
const KEYS: u64 = 20_000;
const MAIN: &str = "
listeners: [{ name: public, address: '127.0.0.1:8080' }]
identity: { api_key: { unknown: anonymous } }
tiers: [free, pro]
limits: [{ name: plan, per: client, rate: { free: 10/min, pro: 60/min } }]
routes: [{ name: all, match: { path: '/{*rest}' }, upstream: api }]
upstreams: { api: { endpoints: ['http://127.0.0.1:9001'] } }
";
