//! The way to the servers: connections, deadlines, what happens when one is slow or gone. Knows no limits.
//!
//! A [`Link`] is shared by all threads. Whoever asks ([`Link::run`]) hands the bytes to a connection and waits for the answer on its
//! own thread; the connections themselves, and everything that keeps them alive, run on one thread of the link's, `store`.
//!
//! * Every decision has one deadline, for all it does: asking, asking with the text of the script where it is not known, and asking
//!   another node where slots have moved. What may have run is never sent a second time.
//! * Each node has a `breaker`. While it is open nobody is sent there; a `keeper` finds out when that changes.
//! * The `topology` is followed: sentinels are asked who the master is, a cluster's nodes who has which slot. The client
//!   library's own cluster and sentinel clients are not used: they repeat what may have run, hold one connection per node, and do not
//!   recover from a master that is frozen.
//! * A start does not wait for the servers: the link begins down and joins when they appear.
//!
//! A dropped future is no harm: the answer is read and thrown away, and the place it held is free.

mod ask;
mod breaker;
mod cluster;
mod dial;
mod fault;
mod health;
mod heart;
mod keeper;
mod map;
mod node;
mod post;
mod sentinel;
mod settings;
mod shared;
mod slot;
mod tally;
mod topology;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;
use tokio::time::timeout;

pub use fault::{Fault, Refusal};
pub use health::{Health, NodeHealth};
pub use settings::{Access, Address, Credentials, Server, Settings, Tls, Topology, UrlError};

use super::invocation::{Invocation, StoreKey};
use crate::clock::Clock;
use crate::telemetry::metrics::{Lane, Registry, Sample};
use ask::{Place, Terms};
use post::Post;
use shared::Shared;
use tally::Tally;

/// The way to the shared store.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
    posts: mpsc::Sender<Post>,
    runtime: Handle,
}

#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Link {
    /// Starts the thread `store`. Does not wait for any server.
    ///
    /// # Errors
    /// When the system has no thread or no timers for it.
    pub fn start(settings: Settings, clock: Clock, registry: &Registry) -> io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(RESOLVERS).build()?;
        let (posts, queue) = mpsc::channel(settings.posts.max(1));
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let shared = Arc::new(Shared::new(settings, clock, Tally::new(registry)));
        let on_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            runtime.block_on(serve(on_thread, queue, stopped));
            // A name that is being resolved can't be interrupted.
            runtime.shutdown_timeout(Duration::from_millis(50));
        })?;
        Ok(Arc::new(Self { shared, running: Mutex::new(Some(Running { thread, stop })), posts, runtime: handle }))
    }

    /// Runs a script on the shard of its first key. Ends within [`Settings::timeout`], whatever happens, and has run at most once.
    ///
    /// # Errors
    /// When there is no answer; [`Fault::may_have_run`] says whether it may have run.
    pub async fn run(&self, lane: Lane, invocation: &Invocation) -> Result<Value, Fault> {
        self.ask(lane, invocation, self.shared.settings.timeout, |reply| Ok::<_, Infallible>(reply.clone())).await
    }

    /// The same for who waits no longer than `limit`, and what is read in the reply. One that can't be read is [`Fault::Garbled`].
    ///
    /// # Errors
    /// As for [`Link::run`].
    pub async fn ask<T, E>(
        &self,
        lane: Lane,
        invocation: &Invocation,
        limit: Duration,
        read: impl FnOnce(&Value) -> Result<T, E>,
    ) -> Result<T, Fault> {
        let Shared { clock, settings, tally, .. } = &*self.shared;
        let started = clock.now();
        let terms = Terms { lane, place: Place::Counted, limit: limit.min(settings.timeout), started };
        let result = match self.shared.ask(invocation, terms).await {
            Ok(reply) => read(&reply).map_err(|_unreadable| self.shared.garbled(invocation, lane)),
            Err(fault) => Err(fault),
        };
        tally.asked(lane, &result, clock.now().saturating_sub(started));
        result
    }

    /// Counts a question that isn't worth asking, because the shard is down.
    pub fn declined(&self, lane: Lane) {
        self.shared.tally.asked::<()>(lane, &Err(Fault::Down), 0);
    }

    /// Sends a script without waiting for its answer. What is posted for a key arrives in order, except in the moment in which a
    /// server hears of a script for the first time; what finds no room or no server is lost, and counted.
    pub fn post(&self, invocation: Invocation) {
        self.queue(Post { invocation, if_lost: None });
    }

    /// Likewise; `if_lost` is called if there was no answer, so that it can be said again. It may have run all the same.
    pub fn post_or(&self, invocation: Invocation, if_lost: impl FnOnce() + Send + 'static) {
        self.queue(Post { invocation, if_lost: Some(Box::new(if_lost)) });
    }

    fn queue(&self, post: Post) {
        if let Err(TrySendError::Full(post) | TrySendError::Closed(post)) = self.posts.try_send(post) {
            post.lose(&self.shared.lost_in_queue);
        }
    }

    /// How often a node has come up: what was said before that, it may not know.
    #[must_use]
    pub fn recoveries(&self) -> u64 {
        self.shared.recoveries.load(Ordering::Relaxed)
    }

    /// Whether a key's shard is worth asking now.
    #[must_use]
    pub fn is_up(&self, key: &StoreKey) -> bool {
        self.shared.map.load().owner(slot::slot(key.as_bytes())).is_some_and(|node| node.is_up())
    }

    /// Gateways that count in the store, this one included: as last seen, while it is down.
    #[must_use]
    pub fn instances(&self) -> u32 {
        self.shared.instances.load(Ordering::Relaxed)
    }

    /// How the link is.
    #[must_use]
    pub fn health(&self) -> Health {
        health::health(&self.shared)
    }

    /// What is only known when asked for, for the metrics.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        health::samples(&self.shared)
    }

    /// Where to run what goes with the link; it ends when the link does.
    #[must_use]
    pub fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// What the link goes by.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Sends what was posted, takes this gateway from the list and ends the thread: within a second, whatever happens. Later decisions
    /// find the store down and later posts are lost.
    pub fn stop(&self) {
        let Some(Running { thread, stop }) = self.running.lock().take() else { return };
        let _ = stop.send(());
        // A thread that has panicked has nothing left to send.
        let _ = thread.join();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread does.
async fn serve(shared: Arc<Shared>, queue: mpsc::Receiver<Post>, stopped: oneshot::Receiver<()>) {
    let topology = tokio::spawn(topology::follow(Arc::clone(&shared)));
    let beats = tokio::spawn(heart::beat(Arc::clone(&shared)));
    let (close, closed) = oneshot::channel();
    let posts = tokio::spawn(post::deliver(Arc::clone(&shared), queue, closed));
    let _ = stopped.await;
    beats.abort();
    let _ = close.send(());
    let _ = timeout(LAST_POSTS, posts).await;
    let _ = timeout(LAST_POSTS, heart::leave(&shared)).await;
    topology.abort();
    shared.publish(map::Map::default());
}

/// Threads that resolve names.
const RESOLVERS: usize = 4;
/// What the last posts have, and then the farewell.
const LAST_POSTS: Duration = Duration::from_millis(400);
