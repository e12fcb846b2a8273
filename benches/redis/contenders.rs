//! Who decides: the shared store, strictly and with leases, and one script call for each limit as others do it.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tollgate::clock::Clock;
use tollgate::limit::{
    Algorithm, Charge, Consistency, Interned, Key, KeyHasher, OnFailure, Quota, Quotas, Reach, Sharing, SpaceId,
};
use tollgate::store::redis::link::{Link, Server as Address, Settings, Topology};
use tollgate::store::redis::{Args, Asking, Invocation, JointVerdict, Patience, Script, SharedStore, StoreKey};
use tollgate::store::{Budget, MemoryStore, Store};
use tollgate::telemetry::metrics::{Lane, Registry};

use crate::server::Server;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A round trip that decides nothing.
    RoundTrip,
    /// The same by the link of the shared store, on its thread.
    Link,
    /// The shared store, asked every time.
    Strict,
    /// The shared store, with leases.
    Lease,
    /// GCRA in a script, called once for each limit, one after the other.
    Sequence,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round trip",
            Self::Link => "the link's",
            Self::Strict => "strict",
            Self::Lease => "lease",
            Self::Sequence => "script per limit",
        }
    }
}

/// Somebody who decides over some limits together.
#[derive(Clone)]
pub(crate) enum Contender {
    Shared(Arc<Shared>),
    Link(Arc<Shared>),
    Calls(MultiplexedConnection, Arc<Calls>),
}

/// The shared store with everything that a decision needs.
pub(crate) struct Shared {
    store: Arc<Store>,
    clock: Clock,
    lane: Lane,
    limits: Vec<(Key, Interned)>,
    consistency: Consistency,
}

/// Calls of one script.
pub(crate) struct Calls {
    sha: String,
    keys: Vec<String>,
}

impl Contender {
    pub(crate) async fn new(kind: Kind, limits: usize, server: &Server) -> anyhow::Result<Self> {
        match kind {
            Kind::Strict => Shared::new(Consistency::Strict, limits, server).await.map(Self::Shared),
            Kind::Lease => Shared::new(Consistency::Lease, limits, server).await.map(Self::Shared),
            Kind::RoundTrip => Self::calls(NOTHING.text, 1, server).await,
            Kind::Link => Shared::new(Consistency::Strict, 0, server).await.map(Self::Link),
            Kind::Sequence => Self::calls(GCRA, limits, server).await,
        }
    }

    async fn calls(text: &str, limits: usize, server: &Server) -> anyhow::Result<Self> {
        let mut connection = server.connection().await?;
        let sha = redis::cmd("SCRIPT").arg("LOAD").arg(text).query_async(&mut connection).await?;
        let keys = (0..limits).map(|limit| format!("bench:{{entity}}:{limit}")).collect();
        Ok(Self::Calls(connection, Arc::new(Calls { sha, keys })))
    }

    /// One decision; all pass.
    pub(crate) async fn decide(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Shared(shared) => shared.decide().await,
            Self::Link(shared) => shared.round_trip().await,
            Self::Calls(connection, calls) => {
                for key in &calls.keys {
                    let mut call = redis::cmd("EVALSHA");
                    call.arg(&calls.sha).arg(1).arg(key).arg(EMISSION_US).arg(TOLERANCE_US);
                    let passes: u8 = call.query_async(connection).await?;
                    anyhow::ensure!(passes == 1, "refused");
                }
                Ok(())
            }
        }
    }

    /// Ends what runs in the background.
    pub(crate) fn end(&self) {
        if let Self::Shared(shared) | Self::Link(shared) = self
            && let Some(store) = &shared.store.shared
        {
            store.stop();
        }
    }
}

impl Shared {
    async fn new(consistency: Consistency, limits: usize, server: &Server) -> anyhow::Result<Arc<Self>> {
        let (clock, registry, quotas) = (Clock::system(), Registry::new(1), Quotas::default());
        let mut settings = Settings::new(Topology::Single(Address::parse(&server.url())?), "bench".to_owned());
        settings.timeout = Duration::from_secs(1);
        settings.key_prefix = "tollgate".to_owned();
        let link = Link::start(settings, clock.clone(), &registry)?;
        let memory = MemoryStore::new(quotas.clone());
        memory.arrange(&[Budget { space: SpaceId(0), max_keys: 1000 }]);
        let shared = SharedStore::new(link, &quotas, 1000, clock.clone(), &registry);
        let store = Arc::new(Store { memory, shared: Some(shared) });
        SharedStore::start_tending(&store);
        // So much that everything passes.
        let quota = Quota::new(1_000_000, Duration::from_secs(1), Some(50_000_000), Algorithm::Gcra)?;
        let quota = quotas.intern(quota).ok_or_else(|| anyhow::anyhow!("no room for a quota"))?;
        let hasher = KeyHasher::keyed([7; 16]);
        let limits = (0..limits).map(|limit| (hasher.start(&format!("limit-{limit}")).finish(), quota)).collect();
        let bench = Self { store, clock, lane: registry.lane(0), limits, consistency };
        for _ in 0..JOINING {
            if bench.store.shared.as_ref().is_some_and(|store| store.link().health().nodes.iter().any(|node| node.up)) {
                return Ok(Arc::new(bench));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::bail!("the link does not come up")
    }

    /// What a question costs that decides nothing.
    async fn round_trip(&self) -> anyhow::Result<()> {
        let Some(store) = &self.store.shared else { anyhow::bail!("no shared store") };
        let (asked, lane) = (Arc::clone(&self.store), self.lane);
        let question = async move {
            let call = Invocation { script: &NOTHING, keys: vec![StoreKey::named("bench", "{entity}:0")], args: Args::default() };
            match &asked.shared {
                Some(store) => store.link().run(lane, &call).await.is_ok(),
                None => false,
            }
        };
        anyhow::ensure!(store.link().runtime().spawn(question).await?, "no answer");
        Ok(())
    }

    async fn decide(&self) -> anyhow::Result<()> {
        let Some(store) = &self.store.shared else { anyhow::bail!("no shared store") };
        let sharing = Sharing {
            entity: 1,
            reach: Reach::Broad,
            consistency: self.consistency,
            // What is kept warm is part of what it costs.
            on_failure: OnFailure::Local,
            comes_back: false,
        };
        let charges: Vec<_> = self
            .limits
            .iter()
            .map(|(key, quota)| Charge {
                key: *key,
                space: SpaceId(0),
                quota,
                cost: 1,
                limit: 0,
                queue: 1,
                warmup: None,
                sharing: Some(sharing),
            })
            .collect();
        let patience = Patience::default();
        let asking = Asking { store: &self.store, generation: 1, lane: self.lane, now: self.clock.now(), patience: &patience };
        let joint = store.charge(&asking, &charges).await;
        anyhow::ensure!(joint.verdict == JointVerdict::Conforms, "refused");
        Ok(())
    }
}

/// As `SCRIPT LOAD` names it.
static NOTHING: Script =
    Script { text: "return 1", sha: LazyLock::new(|| "e0e1f9fabfc9d4800c877a703b823ac0578ff8db".to_owned()) };
/// GCRA as redis-cell computes it, in one script for one limit: emission interval and tolerance in microseconds.
const GCRA: &str = "local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1])) or now
if tat < now then tat = now end
local new = tat + ARGV[1]
if new - ARGV[2] > now then return 0 end
redis.call('SET', KEYS[1], string.format('%.3f', new), 'PX', math.ceil((new - now) / 1000) + 1000)
return 1";
const EMISSION_US: f64 = 0.001;
const TOLERANCE_US: u64 = 1_000_000;
/// Attempts, ten milliseconds apart.
const JOINING: u32 = 500;
