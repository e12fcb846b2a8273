//! Asks endpoints how they are: [`Watch`], one thread for all, so that no worker's requests wait for a check and a fleet of workers asks
//! no more often than one.
//!
//! Separate from the workers' way to upstreams: a check has a connection of its own and no permit. It also lets time pass for
//! ejections and slow starts, so that no request has to read a clock for them. What it finds goes into
//! [`Shared`]; it decides nothing about requests.

mod grpc;
mod http2;
mod probe;
mod streak;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use super::pool::{EndpointName, Shared};
use crate::snapshot::{HealthCheck, Snapshot, UpstreamKind};
use crate::telemetry::metrics;

use probe::{CheckError, Target};
pub(super) use streak::{Change, Streak};

/// The thread's handle. The thread ends with it.
#[derive(Debug)]
pub struct Watch {
    follow: UnboundedSender<Duties>,
}

/// What a configuration wants watched.
#[derive(Debug)]
struct Duties {
    checks: HashMap<EndpointName, (HealthCheck, Target)>,
    /// Whether anything depends on time.
    ticks: bool,
}

/// Checks of one endpoint under way. They end with it.
#[derive(Debug)]
struct Running {
    check: HealthCheck,
    /// How the endpoint is spoken to, from the next question on.
    target: watch::Sender<Target>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (follow, followed) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("upstream-health".to_owned()).spawn(move || runtime.block_on(run(followed, shared)))?;
        Ok(Self { follow })
    }

    /// From now on watches what this configuration wants. Checks that stay go on in their rhythm.
    pub fn follow(&self, snapshot: &Snapshot) {
        let ticks = snapshot.upstreams.iter().any(|upstream| upstream.outlier.is_some() || !upstream.slow_start.is_zero());
        let checks = snapshot.upstreams.iter().filter_map(|upstream| match (&upstream.kind, &upstream.health) {
            (UpstreamKind::Endpoints(set), Some(check)) => Some((upstream, set.current(), check)),
            _ => None,
        });
        let checks = checks.flat_map(|(upstream, endpoints, check)| {
            let name = |authority: &Arc<str>| (Arc::clone(&upstream.name), Arc::clone(authority));
            let duty = |endpoint| (check.clone(), Target::new(upstream, endpoint));
            endpoints.iter().map(|endpoint| (name(&endpoint.authority), duty(endpoint))).collect::<Vec<_>>()
        });
        // The thread ends only with this handle.
        let _ = self.follow.send(Duties { checks: checks.collect(), ticks });
    }
}

async fn run(mut followed: UnboundedReceiver<Duties>, shared: Arc<Shared>) {
    let mut running = HashMap::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ticking = false;
    loop {
        tokio::select! {
            told = followed.recv() => {
                let Some(duties) = told else { return };
                ticking = duties.ticks;
                running = replaced(running, duties.checks, &shared);
            }
            _ = ticks.tick(), if ticking => shared.tick(),
        }
    }
}

/// The checks that are wanted: those that run already, and new ones. Dropping the others ends them.
fn replaced(
    mut running: HashMap<EndpointName, Running>,
    wanted: HashMap<EndpointName, (HealthCheck, Target)>,
    shared: &Arc<Shared>,
) -> HashMap<EndpointName, Running> {
    let kept = |(name, (check, target)): (EndpointName, (HealthCheck, Target))| {
        if let Some(before) = running.remove(&name).filter(|before| before.check == check) {
            before.target.send_replace(target);
            return (name, before);
        }
        let (target, targets) = watch::channel(target);
        let task = tokio::spawn(keep_asking(Arc::clone(shared), name.clone(), check.clone(), targets));
        (name, Running { check, target, task })
    };
    wanted.into_iter().map(kept).collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Asks for ever.
async fn keep_asking(shared: Arc<Shared>, name: EndpointName, check: HealthCheck, targets: watch::Receiver<Target>) {
    tokio::time::sleep(check.interval.min(FIRST_WITHIN).mul_f64(chance())).await;
    loop {
        let target = targets.borrow().clone();
        let answer = match tokio::time::timeout(check.timeout, probe::ask(&target, &check.probe)).await {
            Ok(answer) => answer,
            Err(_) => Err(CheckError::Timeout),
        };
        take_note(&shared, &name, &check, answer);
        tokio::time::sleep(pause(check.interval)).await;
    }
}

fn take_note(shared: &Shared, name: &EndpointName, check: &HealthCheck, answer: Result<(), CheckError>) {
    let (upstream, endpoint) = (&*name.0, &*name.1);
    // An endpoint that has just gone must not come back as a number.
    if !shared.has(name) {
        return;
    }
    let result = answer.as_ref().map_or_else(CheckError::label, |()| "success");
    shared.count(metrics::HEALTH_CHECKS, &[("upstream", upstream), ("endpoint", endpoint), ("result", result)]);
    match (shared.checked(name, check, answer.is_ok()), answer) {
        (Some(Change::Unhealthy { after }), Err(reason)) => warn!(upstream, endpoint, %reason, after, "endpoint is unhealthy"),
        (Some(Change::Healthy { after }), Ok(())) => info!(upstream, endpoint, after, "endpoint is healthy again"),
        _ => {}
    }
}

/// The interval give or take a tenth, so that gateways that were started together don't ask together.
fn pause(interval: Duration) -> Duration {
    interval.mul_f64(0.9 + 0.2 * chance())
}

/// From 0 to 1, out of the standard library's own random seeds, without another crate for randomness.
fn chance() -> f64 {
    let random = u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or_default();
    f64::from(random) / f64::from(u32::MAX)
}

/// How late an ejection may end or a weight grow.
const TICK: Duration = Duration::from_millis(100);
/// The first answers should be there soon, and gateways still not ask all at once.
const FIRST_WITHIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_over_a_fifth_of_the_interval() {
        let interval = Duration::from_secs(100);
        let pauses: Vec<_> = (0..200).map(|_| pause(interval).as_secs_f64()).collect();
        assert!(pauses.iter().all(|pause| (90.0..=110.0).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause < 96.0) && pauses.iter().any(|pause| *pause > 104.0), "{pauses:?}");
    }
}
