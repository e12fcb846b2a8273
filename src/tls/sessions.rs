//! What clients need to come back without a whole handshake.
//!
//! Kept apart from certificates, so that a new certificate or another configuration doesn't make every client start over. A session
//! remembers the client's certificate as it was checked; so whoever asks for certificates in another way, or believes other
//! authorities, has other sessions.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::aws_lc_rs::Ticketer;
use tokio_rustls::rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};

use super::files::Digest;

/// The sessions of a listener.
pub(super) struct Sessions {
    /// For clients that keep them themselves. Its keys change every six hours.
    pub(super) tickets: Arc<dyn ProducesTickets>,
    /// For those of TLS 1.2 that don't.
    pub(super) by_id: Arc<dyn StoresServerSessions>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// The sessions that some configuration uses.
#[derive(Debug, Clone, Default)]
pub struct SessionCache(Arc<Mutex<Vec<Known>>>);

type Known = (Digest, Weak<Sessions>);

impl SessionCache {
    /// Those of this name, for as long as somebody uses them.
    pub(super) fn sessions(&self, name: Digest) -> Result<Arc<Sessions>, rustls::Error> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, sessions)| sessions.strong_count() > 0);
        if let Some(sessions) = known.iter().find(|(known, _)| *known == name).and_then(|(_, sessions)| sessions.upgrade()) {
            return Ok(sessions);
        }
        let sessions = Arc::new(Sessions { tickets: Ticketer::new()?, by_id: ServerSessionMemoryCache::new(MAX_BY_ID) });
        known.push((name, Arc::downgrade(&sessions)));
        Ok(sessions)
    }
}

/// Few clients have no tickets.
const MAX_BY_ID: usize = 1024;
