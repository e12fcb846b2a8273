//! The stores at the start of the process: what it counts for itself, and what with others.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Nanos, SECOND};
use crate::compile::Ground;
use crate::limit::KeyHasher;
use crate::snapshot::{Process, Snapshot};
use crate::store::redis::link::{Link, Settings};
use crate::store::redis::{SharedStore, StoreKey};
use crate::store::{Budget, MemoryStore, Store};

/// Makes counters' keys. Gateways that share counters must call them the same; keys of one that counts alone are nobody's business.
pub(super) fn hasher(process: &Process) -> KeyHasher {
    process.shared_store.as_ref().map(|shared| KeyHasher::keyed(shared.key)).unwrap_or_default()
}

/// Starts them. Waits for the shared one, but not for long: whoever counts with others should do so from the first request on.
pub(super) fn start(ground: &Ground, snapshot: &Snapshot, clock: &Clock) -> io::Result<Arc<Store>> {
    let memory = MemoryStore::new(ground.quotas.clone());
    memory.arrange(&budgets(snapshot));
    let shared = snapshot.process.shared_store.as_ref().map(|shared| {
        let settings = Settings { instance: instance_name(), ..shared.settings.clone() };
        let link = Link::start(settings, clock.clone(), &ground.registry)?;
        wait_for(&link, clock);
        Ok::<_, io::Error>(SharedStore::new(link, &ground.quotas, MAX_LEASES, clock.clone(), &ground.registry))
    });
    let store = Arc::new(Store { memory, shared: shared.transpose()? });
    SharedStore::start_tending(&store);
    Ok(store)
}

fn wait_for(link: &Link, clock: &Clock) {
    let name = StoreKey::named(&link.settings().key_prefix, "instances");
    let deadline = clock.now().saturating_add(STORE_PATIENCE);
    while !link.is_up(&name) && clock.now() < deadline {
        std::thread::sleep(LOOK_EVERY);
    }
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

/// A store that is there answers within milliseconds. Without it the gateway starts after this long.
const STORE_PATIENCE: Nanos = SECOND;
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Busy counters of limits that are shared; what is beyond is asked of the store each time.
const MAX_LEASES: usize = 65_536;
