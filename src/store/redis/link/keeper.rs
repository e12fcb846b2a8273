//! Keeps one node's connections: makes them, tries them, makes them anew. One task per node, on the link's thread.
//!
//! A client that only times out never recovers by itself: a timeout does not tell a slow server from a dead one, so the
//! connections stay. Hence the watchdog here: a node that was down for [`REBUILD_AFTER`] gets new connections, again and again,
//! beside what the `topology` finds out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use super::dial::{DialError, Purpose, dial};
use super::fault::{Fault, Refusal, Reply};
use super::node::{Node, Probe, Trouble, Wire, Wires};
use super::settings::Access;
use super::shared::{Shared, jittered};
use crate::clock::{Nanos, SECOND, saturating_nanos};

/// Keeps a node until the task is ended.
pub(super) async fn keep(shared: Arc<Shared>, node: Arc<Node>, access: Access) {
    Keeper { shared, node, access, drivers: JoinSet::new(), redial_after: REDIAL_AFTER, said: None }.run().await;
}

struct Keeper {
    shared: Arc<Shared>,
    node: Arc<Node>,
    access: Access,
    /// What moves the bytes of the connections in use.
    drivers: JoinSet<()>,
    /// How long a node that is down is left alone.
    redial_after: Duration,
    /// What was logged last, and when.
    said: Option<(Said, Nanos)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Up,
    Down,
}

impl Keeper {
    async fn run(mut self) {
        loop {
            self.rebuild().await;
            self.node.tried.send_replace(true);
            let began = self.shared.clock.now();
            self.watch(began).await;
            if self.shared.clock.now().saturating_sub(began) < saturating_nanos(LEAST_LIFE) {
                // A server that lets everybody in and out again is not worth more than this.
                sleep(jittered(LEAST_LIFE)).await;
            }
        }
    }

    /// Makes all connections anew. Those in use serve until the new ones are there.
    async fn rebuild(&mut self) {
        let made = self.dial_all().await;
        self.shared.tally.rebuilt(made.is_ok());
        match made {
            Ok((wires, drivers)) => {
                self.node.wires.store(Some(Arc::new(Wires(wires))));
                retire(std::mem::replace(&mut self.drivers, drivers));
                self.probe().await;
            }
            // One of them is silent and the others are not, but the server lets nobody in now.
            Err(_) if self.node.is_up() && !self.drivers.is_empty() => {}
            Err(error) => {
                // Nothing comes of connections that answer no more, and what is sent to them piles up.
                self.node.wires.store(None);
                retire(std::mem::take(&mut self.drivers));
                self.open(Trouble::Unreachable(error.to_string()));
            }
        }
        // Gateways that lost the same server do not all come back in the same moment.
        let next = if self.node.is_up() { REDIAL_AFTER } else { (self.redial_after * 2).min(REDIAL_AFTER_MOST) };
        self.redial_after = jittered(next);
        self.announce();
    }

    async fn dial_all(&self) -> Result<(Vec<Wire>, JoinSet<()>), DialError> {
        let settings = &self.shared.settings;
        let (mut wires, mut drivers) = (Vec::new(), JoinSet::new());
        for _ in 0..settings.connections.max(1) {
            let limit = settings.connect_timeout;
            let (connection, driver) =
                dial(&self.node.address, &self.access, settings.tls.as_ref(), Purpose::Decide, limit).await?;
            wires.push(Wire::new(connection));
            drivers.spawn(driver);
        }
        Ok((wires, drivers))
    }

    /// Returns when the connections are to be made anew.
    async fn watch(&mut self, began: Nanos) {
        loop {
            let pause = self.pause();
            tokio::select! {
                Some(_ended) = self.drivers.join_next() => {
                    self.note_break();
                    return;
                }
                () = self.node.attention.notified() => {}
                () = sleep(pause) => self.probe().await,
            }
            self.announce();
            if self.is_due(began) {
                return;
            }
        }
    }

    /// One connection is broken. The others serve until there are new ones, if they are not broken too.
    fn note_break(&mut self) {
        while self.drivers.try_join_next().is_some() {}
        if self.drivers.is_empty() {
            self.open(Trouble::Fault(Fault::Lost));
        }
        retire(std::mem::take(&mut self.drivers));
    }

    /// Whether connections made at `began` are to be made anew.
    fn is_due(&self, began: Nanos) -> bool {
        let now = self.shared.clock.now();
        let past = |since: Nanos, limit: Duration| now.saturating_sub(since) > saturating_nanos(limit);
        if self.node.is_up() {
            return self.node.has_stuck_wire() && past(began, REBUILD_AFTER);
        }
        if self.node.trouble() == Some(Trouble::Fault(Fault::Refused(Refusal::ReadOnly))) {
            // Its name may lead to another server by now.
            return past(began, PROBE_EVERY);
        }
        let patience = if self.drivers.is_empty() { self.redial_after } else { self.redial_after.max(REBUILD_AFTER) };
        past(began.max(self.node.since()), patience)
    }

    fn pause(&self) -> Duration {
        if !self.node.is_up() {
            jittered(PROBE_EVERY)
        } else if self.node.breaker.is_clean() {
            jittered(PULSE_EVERY)
        } else {
            // What failed once is asked again soon, so that idle gateways notice a dead server as fast as busy ones.
            jittered(PULSE_AGAIN)
        }
    }

    /// Tries every connection. All must do, within the budget of a decision: a server that needs longer is of no use.
    async fn probe(&mut self) {
        let Some(wires) = self.node.wires.load_full() else { return };
        let command = probe_command(&self.node.probe.lock());
        let limit = self.shared.settings.timeout.max(LEAST_PROBE);
        let mut attempts = JoinSet::new();
        for index in 0..wires.0.len() {
            let (wires, command) = (Arc::clone(&wires), command.clone());
            attempts.spawn(async move {
                let wire = wires.0.get(index)?;
                Some((index, wire.send(&command, limit).await))
            });
        }
        let mut first_fault = None;
        while let Some(attempt) = attempts.join_next().await {
            let Ok(Some((index, result))) = attempt else { continue };
            let fault = self.judge(result);
            first_fault = first_fault.or(fault);
            if let Some(wire) = wires.0.get(index).filter(|_| self.node.is_up()) {
                self.shared.note(&self.node, wire, fault, self.shared.tally.own);
            }
        }
        match first_fault {
            None if !self.node.is_up() => {
                self.node.close(self.shared.clock.now());
                self.shared.recoveries.fetch_add(1, Ordering::Relaxed);
            }
            Some(fault) if !self.node.is_up() => self.open(Trouble::Fault(fault)),
            _ => {}
        }
    }

    fn judge(&self, result: Result<Reply, Fault>) -> Option<Fault> {
        match result {
            // Whoever says something else is no store, however fine it sounds.
            Ok(Reply::Answer(answer)) => (!is_expected(&answer)).then_some(Fault::Garbled),
            Ok(Reply::NoScript) => None,
            // It answers; only the probe's key has gone elsewhere.
            Ok(Reply::Moved(_) | Reply::Ask(_)) => {
                self.shared.doubt.notify_one();
                None
            }
            Ok(Reply::Refused(refusal)) => Some(Fault::Refused(refusal)).filter(|fault| !fault.is_sound()),
            Err(fault) => Some(fault),
        }
    }

    fn open(&self, trouble: Trouble) {
        if self.node.open(trouble, self.shared.clock.now()) {
            self.shared.tally.opened(self.shared.tally.own);
        }
        self.shared.doubt.notify_one();
    }

    /// Logs a change, at most once in [`QUIET`]: what flaps is seen in the metrics.
    fn announce(&mut self) {
        let now = self.shared.clock.now();
        let said = if self.node.is_up() { Said::Up } else { Said::Down };
        let is_news = match self.said {
            None => true,
            Some((before, at)) => before != said && now.saturating_sub(at) >= saturating_nanos(QUIET),
        };
        if !is_news || self.node.retired.load(Ordering::Relaxed) {
            return;
        }
        self.said = Some((said, now));
        let node = &self.node.address;
        match said {
            Said::Up => info!(%node, "the shared store decides"),
            Said::Down => {
                let reason = self.node.trouble().map_or_else(String::new, |trouble| trouble.to_string());
                warn!(%node, reason, "the shared store is down; limits do what on_failure says");
            }
        }
    }
}

/// Connections that are no longer used have a moment left for what is under way on them.
fn retire(mut drivers: JoinSet<()>) {
    if drivers.is_empty() {
        return;
    }
    tokio::spawn(async move {
        sleep(GRACE).await;
        drivers.abort_all();
    });
}

fn probe_command(probe: &Probe) -> Cmd {
    match probe {
        Probe::Ping => redis::cmd("PING"),
        // A script, as decisions are; and a write, since a replica or a full server answers everything else.
        Probe::Write(key) => {
            let mut command = redis::cmd("EVAL");
            command.arg(PROBE).arg(1).arg(key.as_slice()).arg(PROBE_TTL_MS);
            command
        }
    }
}

/// What a store answers to a probe.
fn is_expected(answer: &Value) -> bool {
    match answer {
        Value::Int(number) => *number == PROBED,
        Value::SimpleString(word) => word == "PONG",
        _ => false,
    }
}

const PROBE: &str = "redis.call('SET', KEYS[1], '1', 'PX', ARGV[1]) return 4711";
const PROBED: i64 = 4711;
const PROBE_TTL_MS: u32 = 60_000;
/// Between probes of a node that is down.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// Between probes of a node that is up.
const PULSE_EVERY: Duration = Duration::from_secs(1);
/// After one that failed.
const PULSE_AGAIN: Duration = Duration::from_millis(100);
/// A probe is given this long even where decisions have less: nobody waits for it.
const LEAST_PROBE: Duration = Duration::from_millis(5);
/// How long a node is down before connections that only time out are made anew.
const REBUILD_AFTER: Duration = Duration::from_secs(1);
/// Between attempts where there is no connection at all; doubled while they fail …
const REDIAL_AFTER: Duration = Duration::from_millis(125);
/// … up to this, so that a server is back in use well within five seconds of being able.
const REDIAL_AFTER_MOST: Duration = Duration::from_secs(2);
/// Between attempts whose connections break at once.
const LEAST_LIFE: Duration = Duration::from_millis(100);
const GRACE: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_nanos(SECOND);
