//! Endpoints: where they come from, what is known of them, and the threads that look for them and after them.
//!
//! All changes go through here, one after the other on the main thread: a reload, a name that stands for other addresses, a file that has others.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::info;

use super::endpoint_files::EndpointFiles;
use crate::clock::Clock;
use crate::discovery::{self, Discovery, Expanded, Names};
use crate::snapshot::{Current, Endpoint, EndpointSet, Origin, Query, Snapshot, Upstream, UpstreamKind};
use crate::telemetry::metrics::Registry;
use crate::upstream::{Shared, Watch};

/// All together: they follow the same configuration.
#[derive(Debug)]
pub(super) struct Endpoints {
    pub(super) shared: Arc<Shared>,
    watch: Watch,
    discovery: Discovery,
    files: EndpointFiles,
}

impl Endpoints {
    /// `config` is the configuration's file, where paths of others begin.
    pub(super) fn start(registry: &Registry, clock: &Clock, config: &Path, snapshot: &Snapshot) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(registry.clone(), clock.clone()));
        let mut endpoints = Self {
            watch: Watch::start(Arc::clone(&shared))?,
            discovery: Discovery::start(registry.clone(), clock.clone())?,
            files: EndpointFiles::new(registry.clone(), config),
            shared,
        };
        endpoints.follow(snapshot);
        Ok(endpoints)
    }

    /// What is known of names.
    pub(super) fn names(&self) -> &Arc<Names> {
        self.discovery.names()
    }

    /// Before workers follow: they look for the standing of endpoints that are there. Names that are new are waited for, but not for long: who has no
    /// endpoint then says so to clients until there is one.
    pub(super) fn follow(&mut self, snapshot: &Snapshot) {
        self.files.follow(snapshot);
        let queries = self.ask(snapshot);
        self.names().wait(&queries, snapshot.dns.timeout.min(LONGEST_WAIT));
        for (upstream, set) in sets(snapshot) {
            set.replace(Arc::new(self.expanded(upstream, set).endpoints));
        }
        self.shared.follow(snapshot);
        self.watch.follow(snapshot);
    }

    /// Looks at the files of endpoints.
    pub(super) fn look(&mut self, current: &Current) {
        if self.files.look() {
            let snapshot = current.load();
            self.ask(&snapshot);
            self.renew(current);
        }
    }

    /// Puts in force what lists and names stand for now.
    pub(super) fn renew(&self, current: &Current) {
        let snapshot = current.load();
        let mut is_new = false;
        for (upstream, set) in sets(&snapshot) {
            let Expanded { endpoints, is_complete } = self.expanded(upstream, set);
            let before = set.current();
            // A list with a name that is still being asked for does not yet take the place of one that works.
            if *before != endpoints && (is_complete || before.is_empty()) {
                say(upstream, &before, &endpoints);
                self.shared.renew(upstream, &endpoints);
                set.replace(Arc::new(endpoints));
                is_new = true;
            }
        }
        if is_new {
            self.watch.follow(&snapshot);
            current.touch();
        }
    }

    fn ask(&self, snapshot: &Snapshot) -> BTreeSet<Query> {
        let queries =
            sets(snapshot).flat_map(|(upstream, set)| discovery::queries(set.listed.iter().chain(self.in_file(upstream))));
        let queries: BTreeSet<_> = queries.collect();
        self.discovery.follow(&snapshot.dns, queries.clone());
        queries
    }

    fn expanded(&self, upstream: &Upstream, set: &EndpointSet) -> Expanded {
        discovery::endpoints(&set.listed, self.in_file(upstream), self.names())
    }

    fn in_file(&self, upstream: &Upstream) -> &[Origin] {
        self.files.origins(&upstream.name)
    }
}

fn sets(snapshot: &Snapshot) -> impl Iterator<Item = (&Upstream, &EndpointSet)> {
    snapshot.upstreams.iter().filter_map(|upstream| match &upstream.kind {
        UpstreamKind::Endpoints(set) => Some((upstream, set)),
        UpstreamKind::Echo => None,
    })
}

fn say(upstream: &Upstream, before: &[Endpoint], after: &[Endpoint]) {
    let lacks = |endpoints: &[Endpoint], one: &&Endpoint| !endpoints.iter().any(|other| other.authority == one.authority);
    let (added, gone) =
        (after.iter().filter(|one| lacks(before, one)).count(), before.iter().filter(|one| lacks(after, one)).count());
    info!(upstream = &*upstream.name, endpoints = after.len(), added, gone, "endpoints in force");
}

/// As long as a start or a reload waits for a name server that does not answer.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
