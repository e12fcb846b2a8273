//! What becomes of an upstream under more than it can bear, with and without `adaptive_concurrency`.
//!
//! ```sh
//! cargo bench --bench overload                      20 requests at a time of 10 ms each, under three times that, 10 s
//! cargo bench --bench overload -- --service-ms 40   a slower one, for a machine that has little to spare
//! ```
//!
//! The upstream works on so many requests at once and queues the others; what it has begun to do, and what has come to it, it does, though
//! nobody waits for it any more. Clients come at a rate of their own, whatever becomes of those before them, and leave after a while: that is how a queue
//! becomes a collapse, in which upstream is busy with requests whose clients have left. Goodput is what was answered with 200 in time.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]
#![allow(clippy::print_stdout, reason = "a command line program: the table is its output")]

#[path = "../common/machine.rs"]
mod machine;

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Measures an upstream under overload.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench overload --")]
struct Options {
    /// Requests the upstream works on at once
    #[arg(long, default_value_t = 20)]
    servers: u32,
    /// How long on each
    #[arg(long, default_value_t = 10)]
    service_ms: u32,
    /// How many times its capacity is asked of it
    #[arg(long, default_value_t = 3.0)]
    factor: f64,
    /// How many service times clients wait
    #[arg(long, default_value_t = 20)]
    patience: u32,
    /// Seconds of each measurement, behind three to get going
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// What `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// Tiers, lowest first, and what share of the requests is whose.
const TIERS: [(&str, f64); 3] = [("free", 0.6), ("pro", 0.3), ("enterprise", 0.1)];

fn main() -> Result<()> {
    let options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` executes benchmarks too, without cargo bench's `--bench`.
        println!("a benchmark: run it with `cargo bench --bench overload`");
        return Ok(());
    }
    let capacity = capacity(&options)?;
    println!(
        "{}, {} requests of {} ms at a time ({capacity:.0}/s), offered {:.1} times that by clients who wait {} ms\n",
        machine::machine(),
        options.servers,
        options.service_ms,
        options.factor,
        options.patience * options.service_ms
    );
    println!("| adaptive_concurrency | goodput, of capacity | p50, ms | p99, ms | free | pro | enterprise | shed | timed out |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (name, settings) in [("none", ""), ("default", ", adaptive_concurrency: {}")] {
        let origin = origin(&options)?;
        let gateway = Gateway::start(origin, settings)?;
        let all = measure(&options, gateway.address, capacity * options.factor)?;
        print_row(name, &all, capacity, &options);
    }
    Ok(())
}

/// What became of a request, when it was answered.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    tier: usize,
    status: Option<u16>,
    after: Duration,
}

fn print_row(name: &str, all: &[Outcome], capacity: f64, options: &Options) {
    let mut good: Vec<_> = all.iter().filter(|outcome| outcome.status == Some(200)).map(|outcome| outcome.after).collect();
    good.sort_unstable();
    let at = |share: usize| good.get((good.len() * share / 100).min(good.len().saturating_sub(1))).copied().unwrap_or_default();
    let share = |tier: usize| {
        let of: Vec<_> = all.iter().filter(|outcome| outcome.tier == tier).collect();
        percent(of.iter().filter(|outcome| outcome.status == Some(200)).count(), of.len())
    };
    let with = |status| percent(all.iter().filter(|outcome| outcome.status == status).count(), all.len());
    let goodput = count(good.len()) / f64::from(options.seconds) / capacity * 100.0;
    println!(
        "| {name} | {goodput:.1} % | {:.1} | {:.1} | {} | {} | {} | {} | {} |",
        at(50).as_secs_f64() * 1000.0,
        at(99).as_secs_f64() * 1000.0,
        share(0),
        share(1),
        share(2),
        with(Some(503)),
        with(None)
    );
}

fn percent(part: usize, of: usize) -> String {
    format!("{:.1} %", count(part) * 100.0 / count(of).max(1.0))
}

fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// An upstream of known capacity, on a thread of its own for as long as the process lives.
fn origin(options: &Options) -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let (servers, service) = (options.servers as usize, Duration::from_millis(options.service_ms.into()));
    std::thread::spawn(move || {
        run_locally(async move {
            let servers = Arc::new(Semaphore::new(servers));
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(serve(stream, Arc::clone(&servers), service));
            }
        })
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream, servers: Arc<Semaphore>, service: Duration) {
    while let Ok(true) = skip_head(&mut stream).await {
        // The queue is the semaphore's, which is fair, and nobody leaves it.
        let permit = servers.acquire().await;
        tokio::time::sleep(service).await;
        drop(permit);
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.is_err() {
            return;
        }
    }
}

/// Reads a request without a body; false at the end.
async fn skip_head(stream: &mut TcpStream) -> std::io::Result<bool> {
    let mut head = Vec::with_capacity(1024);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What the upstream does when it is asked, without a gateway, by as many as it works on at once: timers are coarse, so that is less than its numbers say.
fn capacity(options: &Options) -> Result<f64> {
    let (origin, servers, length) = (origin(options)?, options.servers, Duration::from_secs(3));
    let answers = run_locally(async move {
        let (answers, end) = (Rc::new(Cell::new(0_usize)), Instant::now() + length);
        let clients: Vec<_> = (0..servers)
            .map(|_| {
                let answers = Rc::clone(&answers);
                tokio::task::spawn_local(async move {
                    let Ok(mut stream) = TcpStream::connect(origin).await else { return };
                    while Instant::now() < end && ask(&mut stream, 0).await.is_some() {
                        answers.set(answers.get() + 1);
                    }
                })
            })
            .collect();
        for client in clients {
            drop(client.await);
        }
        answers.get()
    });
    Ok(count(answers) / length.as_secs_f64())
}

fn measure(options: &Options, gateway: SocketAddr, rate: f64) -> Result<Vec<Outcome>> {
    let patience = Duration::from_millis((options.patience * options.service_ms).into());
    let (warm, length) = (Duration::from_secs(3), Duration::from_secs(options.seconds.into()));
    run_locally(async move {
        let idle: Rc<RefCell<Vec<TcpStream>>> = Rc::default();
        let outcomes: Rc<RefCell<Vec<Outcome>>> = Rc::default();
        let started = Instant::now();
        for n in 0_u32.. {
            let due = Duration::from_secs_f64(f64::from(n) / rate);
            if due >= warm + length {
                break;
            }
            let early = due.saturating_sub(started.elapsed());
            if !early.is_zero() {
                // Timers tick in milliseconds: who comes within one comes at its end.
                tokio::time::sleep(early).await;
            }
            let (idle, outcomes) = (Rc::clone(&idle), Rc::clone(&outcomes));
            let tier = tier_of(n);
            tokio::task::spawn_local(async move {
                let asked = Instant::now();
                let asking = async {
                    let known = idle.borrow_mut().pop();
                    let mut stream = match known {
                        Some(stream) => stream,
                        None => TcpStream::connect(gateway).await.ok()?,
                    };
                    let status = ask(&mut stream, tier).await?;
                    idle.borrow_mut().push(stream);
                    Some(status)
                };
                let status = tokio::time::timeout(patience, asking).await.ok().flatten();
                if due >= warm {
                    outcomes.borrow_mut().push(Outcome { tier, status, after: asked.elapsed() });
                }
            });
        }
        tokio::time::sleep(patience * 2).await;
        let all = outcomes.borrow().clone();
        Ok(all)
    })
}

/// In turn, so that shares are exact: the golden ratio leaves no pattern.
fn tier_of(n: u32) -> usize {
    let unit = f64::from(n.wrapping_mul(0x9e37_79b9)) / f64::from(u32::MAX);
    let mut sum = 0.0;
    TIERS
        .iter()
        .take_while(|(_, share)| {
            sum += share;
            sum < unit
        })
        .count()
        .min(TIERS.len() - 1)
}

async fn ask(stream: &mut TcpStream, tier: usize) -> Option<u16> {
    let (name, _) = TIERS.get(tier)?;
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: {name}\r\n\r\n").as_bytes()).await.ok()?;
    let mut response = Vec::with_capacity(512);
    loop {
        if stream.read_buf(&mut response).await.ok()? == 0 {
            return None;
        }
        let text = std::str::from_utf8(&response).ok()?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        if body.len() >= length.unwrap_or(0_usize) {
            return head.split(' ').nth(1)?.parse().ok();
        }
    }
}

fn run_locally<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    #[expect(clippy::expect_used, reason = "without threads and sockets there is nothing to measure")]
    tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime can be made"), work)
}

/// The gateway as a process of its own.
struct Gateway {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Gateway {
    fn start(origin: SocketAddr, settings: &str) -> Result<Self> {
        let dir = tempfile::TempDir::new()?;
        let file = dir.path().join("gateway.yaml");
        let client = |(name, _): &(&str, f64)| {
            let digest = Sha256::digest(name).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            format!("{{ id: {name}, api_keys: ['sha256:{digest}'], tier: {name} }}")
        };
        fs::write(
            &file,
            format!(
                "listeners: [{{ name: public, address: '127.0.0.1:0', max_connections_per_ip: 0 }}]\nadmin: {{ address: '127.0.0.1:0' }}\n\
                 access_log: {{ format: off }}\ntiers: [{}]\nclients: [{}]\nroutes: [{{ name: all, upstream: origin }}]\n\
                 upstreams: {{ origin: {{ endpoints: ['http://{origin}'], max_connections: 100000{settings} }} }}\n",
                TIERS.map(|(name, _)| name).join(", "),
                TIERS.iter().map(client).collect::<Vec<_>>().join(", ")
            ),
        )?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        let mut child = command.args(["run", "--config"]).arg(&file).stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("stderr")?).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.trim().strip_prefix("listening on public")?.trim().strip_prefix("http://")?.parse().ok());
        // What else it says nobody reads, but it must be able to say it.
        std::thread::spawn(move || lines.for_each(drop));
        let Some(address) = address else {
            drop(child.kill());
            bail!("the gateway did not start");
        };
        Ok(Self { child, address, _dir: dir })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
