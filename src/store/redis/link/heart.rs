//! Says that this gateway is alive, and counts those that are.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::ask::{Place, Terms};
use super::shared::{Shared, jittered};
use crate::store::redis::invocation::StoreKey;
use crate::store::redis::script;

/// Beats until the task is ended.
pub(super) async fn beat(shared: Arc<Shared>) {
    let mut seen = VecDeque::from([1; AGREEING]);
    loop {
        let invocation = script::beat(key(&shared), &shared.settings.instance, EVERY, None);
        let answer = shared.ask(&invocation, terms(&shared)).await;
        if let Some(count) = answer.ok().and_then(|reply| script::beaten(&reply).ok()) {
            seen.pop_front();
            seen.push_back(count);
            // A server that comes back empty hears of all again only in the course of a beat.
            let most = seen.iter().copied().max().unwrap_or(1);
            shared.instances.store(most.max(1), Ordering::Relaxed);
        }
        sleep(jittered(EVERY)).await;
    }
}

/// Says that this gateway is no more.
pub(super) async fn leave(shared: &Shared) {
    // If the store does not hear of it, the entry ends by itself.
    let _ = shared.ask(&script::leave(key(shared), &shared.settings.instance, None), terms(shared)).await;
}

fn key(shared: &Shared) -> StoreKey {
    StoreKey::named(&shared.settings.key_prefix, "instances")
}

fn terms(shared: &Shared) -> Terms {
    let limit = shared.settings.timeout.max(PATIENCE);
    Terms { lane: shared.tally.own, place: Place::Uncounted, limit, started: shared.clock.now() }
}

const EVERY: Duration = Duration::from_secs(1);
/// Beats that must agree before fewer gateways are believed.
const AGREEING: usize = 3;
/// No client waits for a beat.
const PATIENCE: Duration = Duration::from_millis(250);
