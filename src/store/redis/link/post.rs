//! What is sent without waiting for an answer: corrections, leases and slots that go back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::ask::{Place, Terms};
use super::shared::Shared;
use crate::store::redis::invocation::Invocation;

/// What is sent, and what is done if nobody answers.
pub(super) struct Post {
    pub(super) invocation: Invocation,
    pub(super) if_lost: Option<Box<dyn FnOnce() + Send>>,
}

impl Post {
    /// Nobody answered. What will be said again isn't lost.
    pub(super) fn lose(self, lost: &AtomicU64) {
        match self.if_lost {
            Some(if_lost) => if_lost(),
            None => {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Sends what comes until it is told to close, then what is left, and waits for the last answers. Tasks begin in the order they are
/// made, and a key's connection is always the same: what is posted for a key arrives in order.
pub(super) async fn deliver(shared: Arc<Shared>, mut posts: mpsc::Receiver<Post>, mut close: oneshot::Receiver<()>) {
    let places = Arc::new(Semaphore::new(UNDER_WAY));
    let mut is_open = true;
    loop {
        let post = tokio::select! {
            _ = &mut close, if is_open => {
                is_open = false;
                posts.close();
                continue;
            }
            post = posts.recv() => post,
        };
        let Some(post) = post else { break };
        // Never closed, so there is always a place in the end.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let limit = shared.settings.timeout.max(PATIENCE);
            let terms = Terms { lane: shared.tally.own, place: Place::Uncounted, limit, started: shared.clock.now() };
            if let Err(fault) = shared.ask(&post.invocation, terms).await {
                post.lose(if fault.may_have_run() { &shared.unanswered } else { &shared.lost_on_way });
            }
            drop(place);
        });
    }
    let all = u32::try_from(UNDER_WAY).unwrap_or(u32::MAX);
    let _ = timeout(PATIENCE, places.acquire_many(all)).await;
}

/// Posts that wait for an answer at the same time; they come on top of decisions, and both fit a connection's buffer.
const UNDER_WAY: usize = 512;
/// No client waits for a post.
const PATIENCE: Duration = Duration::from_millis(250);
