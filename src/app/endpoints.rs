//! What is known of upstreams' endpoints, and the thread that watches them.

use std::io;
use std::sync::Arc;

use crate::clock::Clock;
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::Registry;
use crate::upstream::{Shared, Watch};

/// Both together: they follow the same configuration.
#[derive(Debug)]
pub(super) struct Endpoints {
    pub(super) shared: Arc<Shared>,
    watch: Watch,
}

impl Endpoints {
    pub(super) fn start(registry: &Registry, clock: &Clock, snapshot: &Snapshot) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(registry.clone(), clock.clone()));
        let endpoints = Self { watch: Watch::start(Arc::clone(&shared))?, shared };
        endpoints.follow(snapshot);
        Ok(endpoints)
    }

    /// Before workers follow: they look for the standing of endpoints that are there.
    pub(super) fn follow(&self, snapshot: &Snapshot) {
        self.shared.follow(snapshot);
        self.watch.follow(snapshot);
    }
}
