//! The load, and the proof that it met what it was meant to meet.
//!
//! HTTP/1.1 comes from wrk, HTTP/2 from h2load. Both run for a fixed time, with one thread. [`probe`] asks once before a run,
//! byte by byte, because a load generator that gets the wrong answer a million times is fast too.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::proxies::{API_KEY, Case};

/// What to send, where to, and over how many connections.
pub(crate) struct Load<'a> {
    pub(crate) case: Case,
    pub(crate) address: SocketAddr,
    pub(crate) connections: u32,
    pub(crate) scratch: &'a Path,
}

/// What a load generator counted. All answers had the expected status: anything else is an error of [`Load::run`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) duration: Duration,
    pub(crate) latency: Option<Latency>,
}

/// Latency percentiles; h2load knows none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Load<'_> {
    pub(crate) fn run(&self, seconds: u64) -> Result<Outcome> {
        match self.case {
            Case::H2c => self.run_h2load(seconds),
            Case::Pass | Case::Deny | Case::Large => self.run_wrk(seconds),
        }
    }

    fn run_wrk(&self, seconds: u64) -> Result<Outcome> {
        let script = self.scratch.join("summary.lua");
        std::fs::write(&script, WRK_SUMMARY)?;
        let output = output_of(
            Command::new("wrk")
                .args(["--threads", "1", "--timeout", "5s", "--latency"])
                .args(["--connections", &self.connections.to_string(), "--duration", &format!("{seconds}s")])
                .args(["--header", &format!("x-api-key: {API_KEY}"), "--script"])
                .arg(&script)
                .arg(self.url()),
        )?;
        let summary = output.lines().find_map(|line| line.strip_prefix("summary ")).context("wrk printed no summary")?;
        let [requests, micros, refused, broken, p50, p99] = numbers(summary)?;
        ensure!(broken == 0, "{broken} connections failed or timed out");
        self.check_statuses(requests, refused)?;
        let latency = Some(Latency { p50: Duration::from_micros(p50), p99: Duration::from_micros(p99) });
        Ok(Outcome { requests, duration: Duration::from_micros(micros), latency })
    }

    fn run_h2load(&self, seconds: u64) -> Result<Outcome> {
        let output = output_of(
            Command::new("h2load")
                .args(["--threads", "1", "--max-concurrent-streams", &STREAMS.to_string()])
                .args(["--clients", &(self.connections / STREAMS).max(1).to_string()])
                .args(["--duration", &seconds.to_string(), "--header", &format!("x-api-key: {API_KEY}")])
                .arg(self.url()),
        )?;
        let counts = line_after(&output, "requests: ")?;
        let requests = counted(counts, "done")?;
        let broken = counted(counts, "errored")? + counted(counts, "timeout")?;
        ensure!(requests > 0 && broken == 0, "h2load: {counts}");
        // Refusals are counted, not successes: 2xx includes answers that had begun but not ended when time was up.
        let statuses = line_after(&output, "status codes: ")?;
        self.check_statuses(requests, counted(statuses, "4xx")? + counted(statuses, "5xx")?)?;
        Ok(Outcome { requests, duration: Duration::from_secs(seconds), latency: None })
    }

    /// `refused` counts the answers with a status above 399.
    fn check_statuses(&self, requests: u64, refused: u64) -> Result<()> {
        ensure!(requests > 0, "no request was answered");
        let unexpected = match self.case {
            // The first requests of a key may pass, depending on how a proxy rounds its burst.
            Case::Deny => requests.saturating_sub(refused + MAY_PASS),
            Case::Pass | Case::Large | Case::H2c => refused,
        };
        ensure!(unexpected == 0, "{unexpected} of {requests} answers did not have status {}", self.case.status());
        Ok(())
    }

    fn url(&self) -> String {
        format!("http://{}{}", self.address, self.case.path())
    }
}

/// Asks once and compares status and body size with what the case is about.
pub(crate) fn probe(case: Case, address: SocketAddr) -> Result<()> {
    match case {
        Case::H2c => probe_http2(address),
        // Under the tiny limit the first answers are still 200.
        Case::Deny => (0..MAY_PASS).find_map(|_| probe_http1(case, address).ok()).map_or_else(|| probe_http1(case, address), Ok),
        Case::Pass | Case::Large => probe_http1(case, address),
    }
}

fn probe_http1(case: Case, address: SocketAddr) -> Result<()> {
    let mut conn = connect(address)?;
    write!(conn, "GET {} HTTP/1.1\r\nhost: {address}\r\nx-api-key: {API_KEY}\r\nconnection: close\r\n\r\n", case.path())?;
    let mut answer = Vec::new();
    conn.read_to_end(&mut answer)?;
    let head_end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").context("no complete answer")?;
    let head = String::from_utf8_lossy(answer.get(..head_end).unwrap_or_default());
    let status = head.split(' ').nth(1).unwrap_or_default();
    ensure!(status == case.status().to_string(), "expected status {}, got:\n{head}", case.status());
    let body = answer.len() - head_end - 4;
    ensure!(case.body_size().is_none_or(|expected| expected == body), "a body of {body} bytes");
    Ok(())
}

/// Sends HTTP/2's preface and waits for the SETTINGS frame that a server must send first (RFC 9113, 3.4).
fn probe_http2(address: SocketAddr) -> Result<()> {
    const EMPTY_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let mut conn = connect(address)?;
    conn.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
    conn.write_all(&EMPTY_SETTINGS)?;
    let mut frame_head = [0; 9];
    conn.read_exact(&mut frame_head)?;
    ensure!(matches!(frame_head, [_, _, _, 4, ..]), "does not speak HTTP/2 by prior knowledge");
    Ok(())
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let conn = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
    conn.set_read_timeout(Some(PROBE_TIMEOUT))?;
    Ok(conn)
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{command:?}: {}\n{stdout}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(stdout)
}

fn numbers<const N: usize>(words: &str) -> Result<[u64; N]> {
    let numbers: Result<Vec<u64>, _> = words.split_ascii_whitespace().map(str::parse).collect();
    numbers?.try_into().ok().with_context(|| format!("expected {N} numbers: {words}"))
}

fn line_after<'a>(output: &'a str, label: &str) -> Result<&'a str> {
    output.lines().find_map(|line| line.strip_prefix(label)).with_context(|| format!("no `{label}` in:\n{output}"))
}

/// The number before `what` in a line such as `100 total, 100 done, 0 errored`.
fn counted(line: &str, what: &str) -> Result<u64> {
    let part = line.split(", ").find_map(|part| part.strip_suffix(what)).with_context(|| format!("no `{what}` in: {line}"))?;
    Ok(part.trim().parse()?)
}

/// Concurrent streams of one HTTP/2 connection.
const STREAMS: u32 = 8;
/// Requests that a limit "refuse everything" may let through.
const MAY_PASS: u64 = 3;
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// wrk's own report rounds and picks units for people. A script that defines nothing but `done` costs nothing per request.
const WRK_SUMMARY: &str = r#"
function done(summary, latency)
  local e = summary.errors
  io.write(string.format("summary %d %d %d %d %d %d\n", summary.requests, summary.duration, e.status,
    e.connect + e.read + e.write + e.timeout, latency:percentile(50), latency:percentile(99)))
end
"#;
