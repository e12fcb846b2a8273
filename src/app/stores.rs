//! The stores at the start of the process: what it counts for itself, and what with others.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;

use crate::clock::Clock;
use crate::compile::Ground;
use crate::limit::KeyHasher;
use crate::snapshot::{Process, Snapshot};
use crate::store::redis::SharedStore;
use crate::store::redis::link::{Link, Settings};
use crate::store::{Budget, MemoryStore, Store};

/// Makes counters' keys. Gateways that share counters must call them the same; keys of one that counts alone are nobody's business.
pub(super) fn hasher(process: &Process) -> KeyHasher {
    process.shared_store.as_ref().map(|shared| KeyHasher::keyed(shared.key)).unwrap_or_default()
}

/// Starts them. Does not wait for the shared one.
pub(super) fn start(ground: &Ground, snapshot: &Snapshot, clock: &Clock) -> io::Result<Arc<Store>> {
    let memory = MemoryStore::new(ground.quotas.clone());
    memory.arrange(&budgets(snapshot));
    let shared = snapshot.process.shared_store.as_ref().map(|shared| {
        let settings = Settings { instance: instance_name(), ..shared.settings.clone() };
        let link = Link::start(settings, clock.clone(), &ground.registry)?;
        Ok::<_, io::Error>(SharedStore::new(link, &ground.quotas, MAX_LEASES, clock.clone(), &ground.registry))
    });
    let store = Arc::new(Store { memory, shared: shared.transpose()? });
    SharedStore::start_tending(&store);
    Ok(store)
}

/// How much room each limit has in memory.
pub(super) fn budgets(snapshot: &Snapshot) -> Vec<Budget> {
    snapshot.rooms.iter().map(|room| room.budget.clone()).collect()
}

/// What this process is called among the gateways of a store. Another start is another gateway.
fn instance_name() -> String {
    let random = |seed: u8| RandomState::new().hash_one(seed);
    format!("{:016x}{:016x}", random(1), random(2))
}

/// Busy counters of limits that are shared; what is beyond is asked of the store each time.
const MAX_LEASES: usize = 65_536;
