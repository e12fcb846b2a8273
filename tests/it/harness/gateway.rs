//! The gateway under test: the real binary with a configuration file of its own, on free ports.

use super::{Client, DEADLINE, H2Origin, Origin, Response, Skew, happens, until};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) struct Gateway {
    child: Child,
    dir: TempDir,
    /// Everything written to stderr so far.
    stderr: Arc<Mutex<String>>,
    /// The same for stdout.
    stdout: Arc<Mutex<String>>,
    /// The upstream that `ORIGIN` in a rewritten configuration stands for.
    origin: String,
}

/// What a configuration has unless it says otherwise. `ORIGIN` becomes the address of the test's upstream.
#[rustfmt::skip]
const DEFAULTS: &[(&str, &str)] = &[
    ("listeners", "[{ name: public, address: '127.0.0.1:0' }]"),
    ("admin", "{ address: '127.0.0.1:0' }"),
    ("workers", "1"),
    ("access_log", "{ format: off }"),
    ("routes", "[{ name: all, match: { path: '/{*rest}' }, upstream: origin }]"),
    ("upstreams", "{ origin: { endpoints: ['http://ORIGIN'] } }"),
];

impl Gateway {
    /// Starts with exactly this configuration plus [`DEFAULTS`] for the sections it lacks.
    pub(crate) fn start(yaml: &str) -> Self {
        Self::launch(yaml, String::new())
    }

    /// Starts in front of `origin`: `yaml` has only the sections that matter to the test.
    pub(crate) fn before(origin: &Origin, yaml: &str) -> Self {
        Self::launch(yaml, origin.addr().to_string())
    }

    /// Starts in front of an upstream that speaks HTTP/2.
    pub(crate) fn before_http2(origin: &H2Origin, yaml: &str) -> Self {
        Self::launch(&over_http2(yaml), origin.addr().to_string())
    }

    /// The same, in a process that may have this many files open.
    pub(crate) fn before_with_files(origin: &Origin, yaml: &str, files: u32) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), binary()]);
        let (dir, config) = written(&complete(yaml, &origin.addr().to_string()));
        Self::run(shell, dir, &config, origin.addr().to_string())
    }

    /// The same as [`Self::before`], with a clock that is wrong.
    pub(crate) fn before_at(origin: &Origin, yaml: &str, skew: Skew) -> Self {
        let origin = origin.addr().to_string();
        let (dir, config) = written(&complete(yaml, &origin));
        let mut command = Command::new(binary());
        skew.apply(&mut command);
        Self::run(command, dir, &config, origin)
    }

    fn launch(yaml: &str, origin: String) -> Self {
        let (dir, config) = written(&complete(yaml, &origin));
        Self::spawn(dir, &config, origin)
    }

    /// Starts with a file that is already in `dir`.
    pub(crate) fn spawn(dir: TempDir, config: &Path, origin: String) -> Self {
        Self::run(Command::new(binary()), dir, config, origin)
    }

    fn run(mut command: Command, dir: TempDir, config: &Path, origin: String) -> Self {
        let mut child = command
            .args(["run", "--config"])
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = collect(child.stderr.take().unwrap());
        let stdout = collect(child.stdout.take().unwrap());
        let mut gateway = Self { child, dir, stderr, stdout, origin };
        let ready =
            happens(DEADLINE, || gateway.child.try_wait().unwrap().is_some() || gateway.log().contains("listening on admin "));
        assert!(ready && gateway.child.try_wait().unwrap().is_none(), "the gateway did not start:\n{}", gateway.log());
        gateway
    }

    /// Where the listener named `public` is.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener("public")
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.listener("admin")
    }

    pub(crate) fn listener(&self, name: &str) -> SocketAddr {
        until(&format!("`listening on {name}` is printed"), || self.listening().contains_key(name));
        self.listening()[name]
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.addr())
    }

    /// `GET path` on a connection of its own.
    pub(crate) fn get(&self, path: &str) -> Response {
        self.client().get(path).response()
    }

    /// Statuses of `n` requests for `path`, one after the other on one connection where that stays open.
    pub(crate) fn statuses(&self, n: usize, path: &str) -> Vec<u16> {
        (0..n).map(|_| self.get(path).status).collect()
    }

    /// What has been logged to stderr.
    pub(crate) fn log(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// What has been written to stdout: the access log.
    pub(crate) fn access_log(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    pub(crate) fn metrics(&self) -> String {
        let mut client = Client::connect(self.admin());
        client.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").response().text()
    }

    /// The sum of a metric's samples that carry all these labels; 0 when there are none.
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let sample = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let (found, rest) = series.split_once('{').unwrap_or((series, ""));
            (found == name && wanted.iter().all(|label| rest.contains(label))).then(|| value.parse::<f64>().unwrap())
        };
        self.metrics().lines().filter_map(sample).sum()
    }

    /// Resident memory in bytes.
    pub(crate) fn rss(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("gateway.yaml")
    }

    /// What [`Self::reload`] would write for `yaml`.
    pub(crate) fn complete(&self, yaml: &str) -> String {
        complete(yaml, &self.origin)
    }

    /// Puts a new file in place by rename, as editors and deployments do.
    pub(crate) fn replace(&self, yaml: &str) {
        let new = self.dir.path().join("new");
        fs::write(&new, self.complete(yaml)).unwrap();
        fs::rename(new, self.config()).unwrap();
    }

    /// Replaces the file and waits until the gateway runs with it.
    pub(crate) fn reload(&self, yaml: &str) {
        let generation = self.generation();
        self.replace(yaml);
        until("the new configuration is in force", || self.generation() > generation);
    }

    pub(crate) fn generation(&self) -> f64 {
        self.metric("tollgate_config_generation", &[])
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Whether the process has ended, and how.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    /// Ends it as an operator would; it must drain and exit 0.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        until("the gateway exits after SIGTERM", || self.exit_code().is_some());
        assert_eq!(self.exit_code(), Some(0), "exit code after SIGTERM");
    }

    fn listening(&self) -> BTreeMap<String, SocketAddr> {
        let parse = |line: &str| {
            let (name, url) = line.trim().strip_prefix("listening on ")?.split_once(' ')?;
            Some((name.to_owned(), url.trim().split_once("://")?.1.parse().ok()?))
        };
        self.log().lines().filter_map(parse).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if thread::panicking() {
            eprintln!("--- the gateway's stderr ---\n{}", self.log());
        }
    }
}

/// `yaml` with an upstream `origin` that speaks HTTP/2, unless it has its own.
pub(crate) fn over_http2(yaml: &str) -> String {
    if yaml.lines().any(|line| line.starts_with("upstreams:")) {
        return yaml.to_owned();
    }
    format!("{yaml}\nupstreams: {{ origin: {{ endpoints: ['http://ORIGIN'], protocol: http2 }} }}")
}

/// The binary under test.
fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_tollgate")
}

/// Runs a command of the binary to its end, at most `limit`; `None` when it had to be killed.
pub(crate) fn run(args: &[&str], stdin: &[u8], limit: Duration) -> Option<Output> {
    let pipe = Stdio::piped;
    let mut child = Command::new(binary()).args(args).stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    drop(child.stdin.take().unwrap().write_all(stdin));
    let (out, err) = (drain(child.stdout.take().unwrap()), drain(child.stderr.take().unwrap()));
    let ended = happens(limit, || child.try_wait().unwrap().is_some());
    if !ended {
        drop(child.kill());
    }
    let status = child.wait().unwrap();
    let (stdout, stderr) = (out.join().unwrap(), err.join().unwrap());
    ended.then_some(Output { status, stdout, stderr })
}

fn drain(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        drop(pipe.read_to_end(&mut all));
        all
    })
}

/// A directory with this configuration in it.
fn written(yaml: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let config = dir.path().join("gateway.yaml");
    fs::write(&config, yaml).unwrap();
    (dir, config)
}

/// `yaml` plus the defaults for the sections it lacks.
fn complete(yaml: &str, origin: &str) -> String {
    let mut whole = yaml.to_owned();
    for (section, default) in DEFAULTS {
        if !yaml.lines().any(|line| line.strip_prefix(section).is_some_and(|rest| rest.starts_with(':'))) {
            whole.push_str(&format!("\n{section}: {default}"));
        }
    }
    whole.push('\n');
    whole.replace("ORIGIN", origin)
}

/// Gathers a pipe's lines in the background.
fn collect(pipe: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let lines = Arc::new(Mutex::new(String::new()));
    let theirs = Arc::clone(&lines);
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            theirs.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    lines
}
