//! What the threads that ask and the thread that keeps the connections share.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::map::Map;
use super::node::Node;
use super::settings::{Address, Settings};
use super::tally::Tally;
use crate::clock::Clock;

/// One link's.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    pub(super) tally: Tally,
    pub(super) map: ArcSwap<Map>,
    /// Gateways that count in the store, as last seen.
    pub(super) instances: AtomicU32,
    pub(super) lost_in_queue: AtomicU64,
    pub(super) lost_on_way: AtomicU64,
    /// How often a node has come up.
    pub(super) recoveries: AtomicU64,
    /// Posts that may have arrived or not.
    pub(super) unanswered: AtomicU64,
    /// Told whenever there is a new map.
    changed: Notify,
    /// Told when the topology may no longer be what the map says.
    pub(super) doubt: Notify,
    /// Nodes that were named by another and are not in the map.
    wanted: Mutex<Vec<Address>>,
}

impl Shared {
    pub(super) fn new(settings: Settings, clock: Clock, tally: Tally) -> Self {
        Self {
            settings,
            clock,
            tally,
            map: ArcSwap::default(),
            instances: AtomicU32::new(1),
            lost_in_queue: AtomicU64::new(0),
            lost_on_way: AtomicU64::new(0),
            recoveries: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            changed: Notify::new(),
            doubt: Notify::new(),
            wanted: Mutex::default(),
        }
    }

    pub(super) fn publish(&self, map: Map) {
        self.map.store(Arc::new(map));
        self.changed.notify_waiters();
    }

    /// The node at an address that another one has named. If nobody knew it, it is looked for; the caller sets the deadline.
    pub(super) async fn find(&self, address: &Address) -> Arc<Node> {
        loop {
            // Listening begins before looking, so that no map is missed in between.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(node) = self.map.load().at(address) {
                return Arc::clone(node);
            }
            self.want(address);
            changed.await;
        }
    }

    fn want(&self, address: &Address) {
        let mut wanted = self.wanted.lock();
        if wanted.len() < MOST_WANTED && !wanted.contains(address) {
            wanted.push(address.clone());
        }
        self.doubt.notify_one();
    }

    pub(super) fn take_wanted(&self) -> Vec<Address> {
        std::mem::take(&mut self.wanted.lock())
    }
}

/// A fifth more or less, by chance, so that gateways do not do things at the same moment.
pub(super) fn jittered(about: Duration) -> Duration {
    let chance = u32::try_from(RandomState::new().hash_one(0) >> 32).unwrap_or_default();
    about.mul_f64(0.8 + 0.4 * f64::from(chance) / f64::from(u32::MAX))
}

/// More are not looked for at once.
const MOST_WANTED: usize = 64;
