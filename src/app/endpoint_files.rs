//! Files of endpoints: read when an upstream with one comes into force and whenever one changes. What can't be read, or is wrong, changes nothing; the
//! last good list stays.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{info, warn};

use super::watch::Files;
use crate::compile;
use crate::config;
use crate::snapshot::{Origin, Snapshot, Upstream, UpstreamKind};
use crate::telemetry::metrics::{self, Registry};
use crate::tls::ClientTls;

/// The files of the configuration in force, by upstream.
#[derive(Debug)]
pub(super) struct EndpointFiles {
    registry: Registry,
    base: PathBuf,
    files: HashMap<Arc<str>, EndpointFile>,
}

#[derive(Debug)]
struct EndpointFile {
    path: PathBuf,
    watch: Files,
    tls: Option<Arc<ClientTls>>,
    origins: Vec<Origin>,
}

impl EndpointFiles {
    /// None yet. `config` is the configuration's file, beside which relative paths are.
    pub(super) fn new(registry: Registry, config: &Path) -> Self {
        let base = config.parent().map(Path::to_owned).unwrap_or_default();
        Self { registry, base, files: HashMap::new() }
    }

    /// From now on follows the files of this configuration.
    pub(super) fn follow(&mut self, snapshot: &Snapshot) {
        let mut before = std::mem::take(&mut self.files);
        for upstream in &snapshot.upstreams {
            let Some(path) = self.path_of(upstream) else { continue };
            let known = before.remove(&upstream.name).filter(|known| known.path == path);
            // Watched from before it is read, so that a change in between is not missed.
            let new = || EndpointFile { watch: Files::new(vec![path.clone()]), path, tls: None, origins: Vec::new() };
            let mut file = known.unwrap_or_else(new);
            file.tls.clone_from(&upstream.tls);
            self.read(&upstream.name, &mut file);
            self.files.insert(Arc::clone(&upstream.name), file);
        }
    }

    /// Reads those that have changed and have stopped changing; whether one of them has other endpoints now.
    pub(super) fn look(&mut self) -> bool {
        let mut files = std::mem::take(&mut self.files);
        let mut is_new = false;
        for (name, file) in &mut files {
            if file.watch.changed() {
                file.watch.settle();
                is_new |= self.read(name, file);
            }
        }
        self.files = files;
        is_new
    }

    /// What an upstream's file has.
    pub(super) fn origins(&self, upstream: &Arc<str>) -> &[Origin] {
        self.files.get(upstream).map(|file| file.origins.as_slice()).unwrap_or_default()
    }

    fn path_of(&self, upstream: &Upstream) -> Option<PathBuf> {
        match &upstream.kind {
            UpstreamKind::Endpoints(set) => set.file.as_ref().map(|file| self.base.join(file)),
            UpstreamKind::Echo => None,
        }
    }

    fn read(&self, upstream: &str, file: &mut EndpointFile) -> bool {
        let server_name = file.tls.as_ref().and_then(|tls| tls.settings().server_name.clone());
        let origins = config::read_endpoints(&file.path).and_then(|endpoints| {
            compile::origins(&endpoints, server_name.as_ref()).map_err(|problems| {
                let told = problems.iter().take(MOST_TOLD).map(|(place, problem)| format!("[{place}]: {problem}"));
                told.collect::<Vec<_>>().join("; ")
            })
        });
        self.count(upstream, origins.is_ok());
        let path = file.path.display();
        match origins {
            Ok(origins) => {
                let is_new = file.origins != origins;
                if is_new {
                    info!(upstream, file = %path, entries = origins.len(), "file of endpoints read");
                    file.origins = origins;
                }
                is_new
            }
            Err(error) => {
                warn!(upstream, file = %path, error, kept = file.origins.len(), "file of endpoints refused; what it had before stays in use");
                false
            }
        }
    }

    fn count(&self, upstream: &str, is_ok: bool) {
        let lane = self.registry.shared_lane();
        let result = if is_ok { "success" } else { "failure" };
        self.registry.counter(metrics::ENDPOINT_FILE_READS, &[("upstream", upstream), ("result", result)]).one(lane);
        let ok = self.registry.counter(metrics::ENDPOINT_FILE_OK, &[("upstream", upstream)]);
        match (is_ok, ok.total()) {
            (true, 0) => ok.one(lane),
            (false, 1) => ok.less(lane),
            _ => {}
        }
    }
}

/// Mistakes of a file that one line of the log tells of.
const MOST_TOLD: usize = 5;
