//! What names and services of endpoints stand for: [`Discovery`], one thread for all names, so that neither a worker nor a reload ever waits
//! for a name server longer than it chooses to.
//!
//! Separate from `upstream`, which sees addresses only. It knows nothing of requests, connections and health: it keeps the answers in
//! [`Names`], asks again when they run out, and says when one has changed. What can't be resolved changes nothing; the last good answer
//! stays. [`endpoints`] makes a list of endpoints of what is configured and of what is known.

mod expand;
mod lookup;
mod names;
mod resolver;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::snapshot::{Dns, Query};
use crate::telemetry::metrics::Registry;

pub use expand::{Expanded, endpoints, queries};
pub use names::{NameState, Names};

use resolver::Resolver;

/// The thread's handle. The thread ends with it.
#[derive(Debug)]
pub struct Discovery {
    follow: UnboundedSender<Wanted>,
    names: Arc<Names>,
}

/// What a configuration wants to know.
#[derive(Debug)]
struct Wanted {
    dns: Dns,
    queries: BTreeSet<Query>,
}

impl Discovery {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn start(registry: Registry, clock: Clock) -> io::Result<Self> {
        let (follow, followed) = unbounded_channel();
        let names = Arc::new(Names::new(registry, clock));
        let theirs = Arc::clone(&names);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("upstream-names".to_owned()).spawn(move || runtime.block_on(run(followed, theirs)))?;
        Ok(Self { follow, names })
    }

    /// From now on keeps these answers fresh, and no others. What is known of a name that stays is kept.
    pub fn follow(&self, dns: &Dns, queries: BTreeSet<Query>) {
        self.names.want(&queries);
        // The thread ends only with this handle.
        let _ = self.follow.send(Wanted { dns: dns.clone(), queries });
    }

    /// What is known.
    #[must_use]
    pub fn names(&self) -> &Arc<Names> {
        &self.names
    }
}

async fn run(mut followed: UnboundedReceiver<Wanted>, names: Arc<Names>) {
    let mut asking: HashMap<Query, Asking> = HashMap::new();
    let mut resolver: Option<Arc<Resolver>> = None;
    while let Some(Wanted { dns, queries }) = followed.recv().await {
        if resolver.as_ref().is_none_or(|resolver| *resolver.dns() != dns) {
            resolver = Some(Arc::new(Resolver::new(dns)));
            asking.clear();
        }
        let Some(resolver) = &resolver else { continue };
        asking.retain(|query, _| queries.contains(query));
        for query in queries {
            let ask = || Asking(tokio::spawn(lookup::keep(query.clone(), Arc::clone(resolver), Arc::clone(&names))));
            asking.entry(query.clone()).or_insert_with(ask);
        }
    }
}

/// A name that is asked for again and again, until dropped.
struct Asking(JoinHandle<()>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.abort();
    }
}
