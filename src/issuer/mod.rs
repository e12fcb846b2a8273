//! Fetches the keys of token issuers: [`Fetcher`], a thread of its own, so that no request and no reload ever waits for an issuer
//! longer than it chooses to.
//!
//! Separate from `identity`, which knows no socket. It knows nothing of tokens: it brings key sets to the
//! [`KeyRing`] that wants them, every `refresh` and when asked. What can't be fetched changes nothing; the
//! keys in force stay.

mod fetch;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{info, warn};

use crate::identity::jwt::{KeyRing, KeySet, Remote};
use crate::telemetry::metrics::{self, Registry};

pub use fetch::TrustError;
use fetch::{FetchError, Source};

/// Whether a fetch from there can be tried at all.
///
/// # Errors
/// When nobody could be trusted.
pub fn check(remote: &Remote) -> Result<(), TrustError> {
    Source::new(remote).map(drop)
}

/// The thread's handle. The thread ends with it.
#[derive(Debug)]
pub struct Fetcher {
    follow: UnboundedSender<Option<Arc<KeyRing>>>,
}

impl Fetcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn start(registry: Registry) -> io::Result<Self> {
        let (follow, followed) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("token-keys".to_owned()).spawn(move || runtime.block_on(run(followed, registry)))?;
        Ok(Self { follow })
    }

    /// From now on keeps the keys of this ring fresh, and of no other.
    pub fn follow(&self, ring: Option<&Arc<KeyRing>>) {
        // The thread ends only with this handle.
        let _ = self.follow.send(ring.cloned());
    }
}

async fn run(mut followed: UnboundedReceiver<Option<Arc<KeyRing>>>, registry: Registry) {
    let mut ring = None;
    while let Some(next) = keep_until_told(ring.as_ref(), &mut followed, &registry).await {
        ring = next;
    }
}

/// Keeps a ring's keys fresh until another is to be followed, which is returned; `None` when the handle is gone.
async fn keep_until_told(
    ring: Option<&Arc<KeyRing>>,
    followed: &mut UnboundedReceiver<Option<Arc<KeyRing>>>,
    registry: &Registry,
) -> Option<Option<Arc<KeyRing>>> {
    let keeping = async {
        match ring {
            Some(ring) => keep(ring, registry).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(keeping);
    loop {
        let next = tokio::select! {
            next = followed.recv() => next?,
            () = &mut keeping => return None,
        };
        // A reload that changed nothing here must not begin anew.
        if next.is_none() || !next.iter().zip(ring).any(|(next, ring)| Arc::ptr_eq(next, ring)) {
            return Some(next);
        }
    }
}

/// Fetches for ever.
async fn keep(ring: &KeyRing, registry: &Registry) {
    let Some(remote) = &ring.remote else { return std::future::pending().await };
    let source = match Source::new(remote) {
        Ok(source) => source,
        Err(error) => {
            // Compiling has tried this, so it is for the log only.
            warn!(%error, url = &*remote.url, "cannot fetch token keys");
            ring.fetched(None);
            return std::future::pending().await;
        }
    };
    let mut failures = 0_u32;
    loop {
        ring.begins();
        let fetched = match tokio::time::timeout(remote.timeout, source.fetch()).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchError::Timeout),
        };
        let result = fetched.as_ref().map_or_else(FetchError::label, |_| "success");
        registry.counter(metrics::JWKS_FETCHES, &[("result", result)]).one(registry.shared_lane());
        failures = if fetched.is_ok() { 0 } else { failures.saturating_add(1) };
        put_in_force(ring, remote, fetched);
        tokio::select! {
            () = tokio::time::sleep(pause(remote.refresh, failures)) => {}
            () = ring.wanted() => {}
        }
    }
}

fn put_in_force(ring: &KeyRing, remote: &Remote, fetched: Result<KeySet, FetchError>) {
    let url = &*remote.url;
    match fetched {
        Ok(keys) => {
            let (usable, unusable) = (keys.len(), keys.unusable());
            if ring.fetched(Some(keys)) {
                info!(url, usable, unusable, "token keys in force");
            }
        }
        Err(error) => {
            ring.fetched(None);
            let without = ring.current().is_none();
            warn!(%error, url, without, "cannot fetch token keys");
        }
    }
}

/// Until the next fetch: the configured time give or take a tenth, so that a fleet that was started together doesn't ask together. After
/// failures a second, two, four and so on, at most a minute.
fn pause(refresh: Duration, failures: u32) -> Duration {
    let pause = match failures.checked_sub(1) {
        Some(doublings) => Duration::from_secs(1 << doublings.min(6)).min(refresh).min(LONGEST_PAUSE),
        None => refresh,
    };
    // The standard library's own random seeds, without another crate for randomness.
    let random = u32::try_from(RandomState::new().hash_one(failures) >> 32).unwrap_or_default();
    pause.mul_f64(0.9 + 0.2 * f64::from(random) / f64::from(u32::MAX))
}

const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_and_grow_with_failures() {
        let refresh = Duration::from_secs(300);
        for (failures, seconds) in [(0, 300), (1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (99, 60)] {
            let expected = Duration::from_secs(seconds);
            let pauses: Vec<_> = (0..100).map(|_| pause(refresh, failures)).collect();
            assert!(
                pauses.iter().all(|p| *p >= expected.mul_f64(0.899) && *p <= expected.mul_f64(1.101)),
                "{failures}: {pauses:?}"
            );
            assert!(pauses.iter().any(|p| *p != pauses[0]));
        }
        assert!(pause(Duration::from_secs(1), 9) < Duration::from_secs(2));
    }
}
