//! Certificates, keys and authorities follow their files, by looking at them as often as at the configuration, and without it: they
//! are renewed also while `gateway.yaml` is broken, and nothing else is read or compiled for them.

use std::sync::Arc;

use tracing::{error, info, warn};

use super::watch::Files;
use crate::config::diagnostic::Diagnostic;
use crate::snapshot::Snapshot;
use crate::telemetry::metrics::{self, Counter, Lane, Registry};
use crate::tls::{ClientTls, InUse, Refreshed, ServerTls, Verification};

/// The files of the configuration in force.
#[derive(Debug)]
pub(super) struct Certificates {
    groups: Vec<Group>,
    /// What the shared store is spoken to with, from the start on.
    store: Option<Arc<ClientTls>>,
    lane: Lane,
    succeeded: Counter,
    failed: Counter,
}

/// The files of a listener or of an upstream, whose certificate and key often change one shortly after the other.
#[derive(Debug)]
struct Group {
    of: Arc<str>,
    files: Files,
    side: Side,
}

#[derive(Debug)]
enum Side {
    Server(Arc<ServerTls>),
    Client(Arc<ClientTls>),
}

impl Certificates {
    pub(super) fn start(registry: &Registry, snapshot: &Snapshot, now: u64) -> Self {
        let result = |result| registry.counter(metrics::TLS_FILE_RELOADS, &[("result", result)]);
        let (succeeded, failed) = (result("success"), result("failure"));
        let store = snapshot.process.shared_store.as_ref().and_then(|shared| shared.tls.clone());
        let mut certificates = Self { groups: Vec::new(), store, lane: registry.shared_lane(), succeeded, failed };
        certificates.follow(snapshot, now);
        certificates
    }

    /// From now on follows the files of this configuration, and says what in it is not as safe as it looks.
    pub(super) fn follow(&mut self, snapshot: &Snapshot, now: u64) {
        let servers = snapshot.listeners.iter().filter_map(|listener| {
            let server = Arc::clone(&listener.tls.as_ref()?.server);
            Some(Group { of: Arc::clone(&listener.name), files: Files::new(server.files()), side: Side::Server(server) })
        });
        let clients = snapshot.upstreams.iter().filter_map(|upstream| {
            let client = Arc::clone(upstream.tls.as_ref()?);
            Some(Group { of: Arc::clone(&upstream.name), files: Files::new(client.files()), side: Side::Client(client) })
        });
        let store = self.store.iter().map(|client| Group {
            of: "store.redis".into(),
            files: Files::new(client.files()),
            side: Side::Client(Arc::clone(client)),
        });
        self.groups = servers.chain(clients).chain(store).collect();
        for group in &self.groups {
            // They were read before they were looked at, and may have changed in between.
            self.tell(group, group.side.refresh(now));
            for InUse { file, .. } in group.side.in_use().iter().filter(|in_use| in_use.not_after < now) {
                warn!(of = &*group.of, file = %file.display(), "the certificate has expired");
            }
            if let Side::Client(client) = &group.side
                && client.settings().verification == Verification::None
            {
                warn!(of = &*group.of, "insecure: anybody who answers is believed to be this server");
            }
        }
    }

    /// Puts in force what has changed.
    pub(super) fn look(&mut self, now: u64) {
        let changed = |group: &mut Group| {
            let changed = group.files.changed();
            if changed {
                group.files.settle();
            }
            changed
        };
        let changed: Vec<_> = self.groups.iter_mut().map(changed).collect();
        for (group, _) in self.groups.iter().zip(changed).filter(|(_, changed)| *changed) {
            self.tell(group, group.side.refresh(now));
        }
    }

    fn tell(&self, group: &Group, refreshed: Vec<Refreshed>) {
        for Refreshed { file, result } in refreshed {
            match result {
                Ok(()) => {
                    self.succeeded.one(self.lane);
                    info!(of = &*group.of, file = %file.display(), "new certificate in force");
                }
                Err(fault) => {
                    self.failed.one(self.lane);
                    error!(of = &*group.of, %fault, "new certificate refused; the one before stays in force");
                }
            }
        }
    }
}

impl Side {
    fn refresh(&self, now: u64) -> Vec<Refreshed> {
        match self {
            Self::Server(server) => server.refresh(now),
            Self::Client(client) => client.refresh(now),
        }
    }

    fn in_use(&self) -> Vec<InUse> {
        match self {
            Self::Server(server) => server.in_use(),
            Self::Client(client) => client.in_use().into_iter().collect(),
        }
    }
}

/// A configuration that would put a certificate that has expired in the place of one that has not.
pub(super) fn newly_expired(snapshot: &Snapshot, before: &Snapshot, now: u64) -> Vec<Diagnostic> {
    let valid_before: Vec<_> = in_use(before).into_iter().filter(|old| old.not_after >= now).map(|old| old.file).collect();
    let expired = in_use(snapshot).into_iter().filter(|new| new.not_after < now && valid_before.contains(&new.file));
    let told = |new: InUse| Diagnostic::of_file(&new.file.display().to_string(), "the certificate has expired");
    expired.map(told).collect()
}

fn in_use(snapshot: &Snapshot) -> Vec<InUse> {
    let servers = snapshot.listeners.iter().filter_map(|listener| listener.tls.as_ref()).flat_map(|tls| tls.server.in_use());
    let clients = snapshot.upstreams.iter().filter_map(|upstream| upstream.tls.as_ref()?.in_use());
    servers.chain(clients).collect()
}
