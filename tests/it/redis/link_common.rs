//! What the tests of the link have in common: a link used as a library, and a script that counts how often it ran.

use crate::harness::{happens, until};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tollgate::clock::Clock;
use tollgate::store::redis::link::{Fault, Link, Server, Settings, Topology};
use tollgate::store::redis::{Args, Invocation, Script, StoreKey};
use tollgate::telemetry::metrics::Registry;

/// A link and the numbers it counts.
pub(super) struct Linked {
    pub(super) link: Arc<Link>,
    registry: Registry,
    runtime: tokio::runtime::Runtime,
}

/// Settings for one server.
pub(super) fn single(url: &str) -> Settings {
    settings(Topology::Single(Server::parse(url).unwrap()))
}

/// Settings with a budget that a busy machine keeps, too.
pub(super) fn settings(topology: Topology) -> Settings {
    let mut settings = Settings::new(topology, "one".to_owned());
    settings.timeout = BUDGET;
    settings
}

impl Linked {
    pub(super) fn start(settings: Settings) -> Self {
        let registry = Registry::new(1);
        let link = Link::start(settings, Clock::system(), &registry).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { link, registry, runtime }
    }

    /// The same, once it is connected.
    pub(super) fn connected(settings: Settings) -> Self {
        let linked = Self::start(settings);
        linked.comes_up("k");
        linked
    }

    pub(super) fn comes_up(&self, key: &str) {
        until(&format!("the shard of {key} is up: {:?}", self.link.health()), || self.link.is_up(&name(key)));
    }

    /// Waits until a shard that is able again is in use again.
    pub(super) fn comes_back(&self, key: &str) {
        assert!(happens(RECOVERY, || self.link.is_up(&name(key))), "not within {RECOVERY:?}: {:?}", self.link.health());
    }

    /// What is wrong with the first node.
    pub(super) fn trouble(&self) -> String {
        self.link.health().nodes.first().and_then(|node| node.last_error.clone()).unwrap_or_default()
    }

    pub(super) fn goes_down(&self, key: &str) {
        until("the shard is down", || !self.link.is_up(&name(key)));
    }

    /// Counts one under a key.
    pub(super) fn count(&self, key: &str) -> Result<i64, Fault> {
        self.run(&counting(key))
    }

    pub(super) fn run(&self, invocation: &Invocation) -> Result<i64, Fault> {
        let lane = self.registry.lane(0);
        self.runtime.block_on(self.link.run(lane, invocation)).map(|value| match value {
            ::redis::Value::Int(number) => number,
            other => panic!("not a number: {other:?}"),
        })
    }

    /// Runs it so many times at once.
    pub(super) fn run_all(&self, invocation: &Invocation, times: usize) -> Vec<Result<::redis::Value, Fault>> {
        let lane = self.registry.lane(0);
        self.runtime.block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..times {
                let (link, invocation) = (Arc::clone(&self.link), invocation.clone());
                tasks.push(tokio::spawn(async move { link.run(lane, &invocation).await }));
            }
            let mut results = Vec::new();
            for task in tasks {
                results.push(task.await.unwrap());
            }
            results
        })
    }

    pub(super) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(super) fn lane(&self) -> tollgate::telemetry::metrics::Lane {
        self.registry.lane(0)
    }

    /// The value of a line of the metrics; 0 if there is none.
    pub(super) fn metric(&self, line: &str) -> u64 {
        let text = self.registry.render(&self.link.samples());
        text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        self.link.stop();
    }
}

/// The script that counts.
pub(super) fn counting(key: &str) -> Invocation {
    Invocation { script: &COUNT, keys: vec![name(key)], args: Args::default() }
}

/// A script's name, computed here once more.
pub(super) fn sha(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    digest.as_ref().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

pub(super) fn name(key: &str) -> StoreKey {
    StoreKey::named("t", key)
}

pub(super) static COUNT: Script = Script { text: COUNT_TEXT, sha: LazyLock::new(|| sha(COUNT_TEXT)) };
const COUNT_TEXT: &str = "return redis.call('INCR', KEYS[1])";

/// The budget of a decision in tests: the machine may be busy.
pub(super) const BUDGET: Duration = Duration::from_millis(400);
/// What an answer may take beyond the budget before it is late.
pub(super) const SLACK: Duration = Duration::from_millis(1500);
/// Within this a server that is able again is used again; the promise is five seconds, and the machine may be busy.
pub(super) const RECOVERY: Duration = Duration::from_secs(8);
