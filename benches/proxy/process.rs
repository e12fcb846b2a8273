//! Processes of the benchmark: pinned, accounted for, and never left behind.
//!
//! Accounts come from `/proc`, over the whole process tree (nginx is a master and a worker). Nothing here knows which proxy it
//! is looking at.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// A program and its arguments, before it is pinned.
pub(crate) struct Invocation {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
}

/// A started proxy; dropping it ends it.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts `what` on one core, with stdout discarded and stderr in `log`.
    pub(crate) fn spawn(what: &Invocation, core: usize, log: &Path) -> Result<Self> {
        let stderr = File::create(log).with_context(|| log.display().to_string())?;
        // Both wrappers exec, so the child's id is the proxy's. The death signal covers a benchmark that is killed itself.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "taskset", "--cpu-list", &core.to_string()])
            .arg(&what.program)
            .args(&what.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("start {}", what.program.display()))?;
        Ok(Self { child, log: log.to_owned() })
    }

    pub(crate) fn ensure_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("ended by itself, {status}\n{}", self.log_tail()),
        }
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }

    /// CPU time used so far by all threads of the process and its children.
    pub(crate) fn cpu(&self) -> Result<Cpu> {
        self.tree()?.into_iter().try_fold(Cpu::default(), |sum, pid| Ok(sum + Cpu::of(&pid.to_string())?))
    }

    /// Peak resident memory of the largest process in the tree: a sum would count shared pages twice.
    pub(crate) fn peak_rss_kib(&self) -> Result<u64> {
        let peaks: Result<Vec<_>> = self.tree()?.into_iter().map(peak_rss_kib).collect();
        peaks?.into_iter().max().context("no process left")
    }

    fn tree(&self) -> Result<Vec<u32>> {
        let main = self.child.id();
        let children = read_proc(&format!("{main}/task/{main}/children"))?;
        let mut tree = vec![main];
        for pid in children.split_ascii_whitespace() {
            tree.push(pid.parse()?);
        }
        Ok(tree)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let deadline = Instant::now() + STOP_WITHIN;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        eprintln!("process {} ignored SIGTERM for {STOP_WITHIN:?}: killed", self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time in clock ticks, user and system apart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    user: u64,
    system: u64,
}

impl Cpu {
    /// The account of a process (`self` or a number), without the children it has not waited for.
    fn of(pid: &str) -> Result<Self> {
        let [user, system, ..] = stat_fields(pid)?;
        Ok(Self { user, system })
    }

    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self { user: self.user - earlier.user, system: self.system - earlier.system }
    }

    pub(crate) fn total(self) -> Duration {
        Duration::from_millis((self.user + self.system) * TICK_MILLIS)
    }

    /// The kernel's part, 0 to 1. It is sampled, unlike the total.
    pub(crate) fn system_share(self) -> f64 {
        ratio(self.system, self.user + self.system)
    }
}

impl std::ops::Add for Cpu {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }
}

/// How much of the machine went to processes that are not part of the benchmark, or to other guests of the host.
pub(crate) struct Disturbance {
    began: Instant,
    busy: u64,
    ours: u64,
}

impl Disturbance {
    pub(crate) fn start() -> Result<Self> {
        Ok(Self { began: Instant::now(), busy: machine_busy()?, ours: own_ticks()? })
    }

    /// The share of one core, 0 for a quiet machine; `proxy` is what the proxy used meanwhile.
    pub(crate) fn share(&self, proxy: Duration) -> Result<f64> {
        let ticks = (machine_busy()? - self.busy).saturating_sub(own_ticks()? - self.ours);
        let foreign = Duration::from_millis(ticks * TICK_MILLIS).saturating_sub(proxy);
        Ok(foreign.as_secs_f64() / self.began.elapsed().as_secs_f64())
    }
}

/// Keeps this process, and whatever it starts without saying otherwise, on one core.
pub(crate) fn pin_self(core: usize) -> Result<()> {
    let output = Command::new("taskset")
        .args(["--all-tasks", "--cpu-list", "--pid", &core.to_string(), &std::process::id().to_string()])
        .output()
        .context("taskset")?;
    ensure!(output.status.success(), "taskset: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// `a / b`, and 0 for nothing out of nothing.  Exact below 2^53.
pub(crate) fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

fn peak_rss_kib(pid: u32) -> Result<u64> {
    let status = read_proc(&format!("{pid}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(peak.trim().trim_end_matches(" kB").parse()?)
}

/// This process and the load generators it has waited for, in ticks.
fn own_ticks() -> Result<u64> {
    Ok(stat_fields("self")?.iter().sum())
}

/// Everything but idle and waiting for disks, in ticks over all cores. `guest` is part of `user` already.
fn machine_busy() -> Result<u64> {
    let stat = read_proc("stat")?;
    let line = stat.lines().next().context("empty /proc/stat")?;
    let fields: Result<Vec<u64>, _> = line.split_ascii_whitespace().skip(1).map(str::parse).collect();
    let busy = fields?.into_iter().take(8).enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, ticks)| ticks).sum();
    Ok(busy)
}

/// utime, stime, cutime and cstime: fields 14 to 17 of `/proc/PID/stat`.
fn stat_fields(pid: &str) -> Result<[u64; 4]> {
    let stat = read_proc(&format!("{pid}/stat"))?;
    // The second field is the program's name in parentheses and may contain anything, so count from its end.
    let (_, after_name) = stat.rsplit_once(')').context("odd /proc/PID/stat")?;
    let fields: Result<Vec<u64>, _> = after_name.split_ascii_whitespace().skip(11).take(4).map(str::parse).collect();
    fields?.try_into().ok().context("short /proc/PID/stat")
}

fn read_proc(path: &str) -> Result<String> {
    fs::read_to_string(Path::new("/proc").join(path)).with_context(|| format!("read /proc/{path}"))
}

/// Linux reports CPU time in hundredths of a second to user space on every architecture we run on (USER_HZ).
const TICK_MILLIS: u64 = 10;
const STOP_WITHIN: Duration = Duration::from_secs(5);
