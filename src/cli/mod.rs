//! The command line: verbs and exit codes. The only home of `anyhow` and of printing.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line prints")]

mod explain;

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::app::{App, Listening, StartError, Stopped, environment};
use crate::compile::{Ground, compile};
use crate::config::diagnostic::Diagnostic;
use crate::config::{Config, MainFile};
use crate::identity::KeyDigest;
use crate::snapshot::Snapshot;
use crate::socket::Address;

/// A reverse-proxy gateway with exact rate limiting built in.
#[derive(Debug, Parser)]
#[command(version, about, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    run: RunArguments,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the gateway (what happens without a command).
    Run(RunArguments),
    /// Check a configuration and report every problem.
    Check {
        /// The file.
        #[arg(default_value = "gateway.yaml")]
        file: PathBuf,
        /// How problems are reported.
        #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
        format: ReportFormat,
    },
    /// Say which route, identity and limits a request would meet, and why.
    Explain(explain::Arguments),
    /// Print the JSON Schema of gateway.yaml.
    Schema,
    /// Read an API key from standard input and print the form that `api_keys` wants.
    HashKey,
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// The configuration; followed while running.
    #[arg(long, short, default_value = "gateway.yaml")]
    config: PathBuf,
    /// How the gateway's own log is written to standard error. RUST_LOG selects what.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { verb, run: arguments } = Cli::parse();
    let done = match verb.unwrap_or(Verb::Run(arguments)) {
        Verb::Run(arguments) => run(&arguments),
        Verb::Check { file, format } => check(&file, format),
        Verb::Explain(arguments) => explain::explain(&arguments),
        Verb::Schema => schema(),
        Verb::HashKey => hash_key(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("tollgate: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    start_logging(arguments.log_format);
    let app = match App::start(&arguments.config) {
        Ok(app) => app,
        Err(StartError::Config(diagnostics)) => return Ok(refuse(&diagnostics)),
        Err(error) => return Err(error.into()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let served = app.run(|listening| greet(&arguments.config, listening));
    match runtime.block_on(served).context("cannot handle signals")? {
        Stopped::Drained => Ok(ExitCode::SUCCESS),
        // Not a failure of ours: whoever set the drain's limit or sent the second signal wanted this.
        Stopped::Forced => Ok(ExitCode::from(EXIT_FORCED)),
    }
}

fn start_logging(format: LogFormat) {
    let chosen = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let filter = EnvFilter::try_new(format!("{LIBRARIES},{chosen}")).unwrap_or_else(|_| EnvFilter::new(LIBRARIES));
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter);
    // A second start in one process would find a logger already; it then logs there.
    let _ = match format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
}

/// The HTTP/2 library warns of every frame that makes no sense, and a peer can send many: only who asks for it gets that. What the resolver says of every
/// attempt is said here once for each name.
const LIBRARIES: &str = "info,h2=error,hickory_resolver=error,hickory_net=error,hickory_proto=error";

/// What is listened on, and what to try. Tests read the addresses from here.
fn greet(config: &Path, listening: &[Listening]) {
    eprintln!("tollgate {} runs {} and follows its changes", env!("CARGO_PKG_VERSION"), config.display());
    for Listening { name, address, scheme } in listening {
        eprintln!("  listening on {name}  {}", url(address, scheme));
    }
    if let (Some(public), Some(admin)) = (listening.first(), listening.last()) {
        eprintln!("try:  curl -i {}", reachable(public, "/"));
        eprintln!("      curl {}", reachable(admin, "/metrics"));
    }
}

fn url(address: &Address, scheme: &str) -> String {
    match address {
        Address::Tcp(address) => format!("{scheme}://{address}"),
        Address::Unix(_) => address.to_string(),
    }
}

/// What curl takes. `0.0.0.0` is everywhere; from here it is reached at loopback.
fn reachable(Listening { address, scheme, .. }: &Listening, path: &str) -> String {
    let address = match address {
        Address::Unix(socket) => return format!("--unix-socket {} {scheme}://localhost{path}", socket.display()),
        Address::Tcp(address) => address,
    };
    let ip = match address.ip() {
        std::net::IpAddr::V4(ip) if ip.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::V6(ip) if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("{scheme}://{}{path}", std::net::SocketAddr::new(ip, address.port()))
}

fn check(file: &Path, format: ReportFormat) -> anyhow::Result<ExitCode> {
    match (load(file), format) {
        (Ok(snapshot), ReportFormat::Text) => {
            let (routes, limits) = (snapshot.policy.routes.iter().count(), snapshot.policy.limits.len());
            print(&format!("{}: ok ({routes} routes, {limits} limits)\n", file.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        (Ok(_), ReportFormat::Json) => {
            print("[]\n")?;
            Ok(ExitCode::SUCCESS)
        }
        (Err(diagnostics), ReportFormat::Text) => Ok(refuse(&diagnostics)),
        (Err(diagnostics), ReportFormat::Json) => {
            print(&format!("{}\n", serde_json::json!(diagnostics)))?;
            Ok(ExitCode::from(EXIT_DATA))
        }
    }
}

/// Reads and compiles a file that nothing will run.
fn load(file: &Path) -> Result<Snapshot, Vec<Diagnostic>> {
    let source = MainFile::read(file, &environment)?.with_clients(&environment);
    compile(&source, &Ground::default(), 1)
}

/// Writes to standard output, which may be full or closed.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

fn refuse(diagnostics: &[Diagnostic]) -> ExitCode {
    for diagnostic in diagnostics {
        eprintln!("{}", diagnostic.with_excerpt());
    }
    let problems = if diagnostics.len() == 1 { "1 problem".to_owned() } else { format!("{} problems", diagnostics.len()) };
    eprintln!("{problems}");
    ExitCode::from(EXIT_DATA)
}

fn schema() -> anyhow::Result<ExitCode> {
    let schema = schemars::schema_for!(Config);
    print(&format!("{}\n", serde_json::to_string_pretty(&schema)?))?;
    Ok(ExitCode::SUCCESS)
}

fn hash_key() -> anyhow::Result<ExitCode> {
    let mut key = Vec::new();
    std::io::stdin().take(MAX_KEY + 1).read_to_end(&mut key).context("cannot read the key from standard input")?;
    let key = key.strip_suffix(b"\n").unwrap_or(&key);
    let key = key.strip_suffix(b"\r").unwrap_or(key);
    anyhow::ensure!(!key.is_empty(), "no key on standard input");
    anyhow::ensure!(key.len() as u64 <= MAX_KEY, "a key is at most {MAX_KEY} bytes");
    anyhow::ensure!(
        key.iter().all(u8::is_ascii_graphic),
        "a key has visible ASCII characters only, since it travels in a header"
    );
    print(&format!("{}\n", KeyDigest::of(key)))?;
    Ok(ExitCode::SUCCESS)
}

/// EX_DATAERR of sysexits.h: the configuration is refused.
const EXIT_DATA: u8 = 65;
/// The drain was cut short.
const EXIT_FORCED: u8 = 3;
const MAX_KEY: u64 = 4096;
