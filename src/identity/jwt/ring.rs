//! Where the keys in force hang, and how whoever misses one asks for newer ones. Fetching is somebody else's: `issuer`.
//!
//! Rings outlive configurations, so a reload while the issuer is down loses no key.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use tokio::sync::{Notify, watch};

use super::KeySet;
use crate::clock::{Nanos, SECOND};

/// Where a key set is fetched from, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The whole URL, for people.
    pub url: Box<str>,
    /// `https` rather than `http`.
    pub tls: bool,
    /// A name or an address, without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// What `Host` says.
    pub authority: Box<str>,
    /// Path and query.
    pub target: Box<str>,
    /// Certificates in PEM form that are trusted instead of the usual ones.
    pub ca: Option<Arc<[u8]>>,
    /// How often.
    pub refresh: Duration,
    /// How long one fetch may take.
    pub timeout: Duration,
}

/// The key set in force.
#[derive(Debug)]
pub struct KeyRing {
    /// Where newer ones come from; `None` for keys that only a reload changes.
    pub remote: Option<Remote>,
    keys: ArcSwapOption<KeySet>,
    /// Fetches that have ended.
    ended: watch::Sender<u64>,
    /// One is due or on its way.
    pending: AtomicBool,
    wanted: Notify,
    /// When somebody last asked; 0 means never.
    asked: AtomicU64,
}

impl KeyRing {
    /// Keys that don't change.
    #[must_use]
    pub fn fixed(keys: KeySet) -> Self {
        Self::new(None, Some(Arc::new(keys)))
    }

    fn new(remote: Option<Remote>, keys: Option<Arc<KeySet>>) -> Self {
        Self {
            pending: AtomicBool::new(remote.is_some()),
            remote,
            keys: ArcSwapOption::new(keys),
            ended: watch::Sender::new(0),
            wanted: Notify::new(),
            asked: AtomicU64::new(0),
        }
    }

    /// The keys in force; `None` until the first fetch has succeeded.
    #[must_use]
    pub fn current(&self) -> Guard<Option<Arc<KeySet>>> {
        self.keys.load()
    }

    /// Ends a fetch. New keys are in force from now on; without any, the old ones stay. Says whether something has changed.
    pub fn fetched(&self, keys: Option<KeySet>) -> bool {
        let is_new = |keys: &KeySet| !self.keys.load().as_ref().is_some_and(|old| old.is_same(keys));
        let new = keys.filter(is_new);
        let changed = new.is_some();
        if let Some(keys) = new
            && self.keys.swap(Some(Arc::new(keys))).is_none()
        {
            // Whoever asked before there were any keys has not used up what a new key needs.
            self.asked.store(0, Ordering::Relaxed);
        }
        // In this order: who finds no fetch pending finds its keys, and who finds one hears of its end.
        self.pending.store(false, Ordering::SeqCst);
        self.ended.send_modify(|ended| *ended += 1);
        changed
    }

    /// Waits until somebody wants a fetch before it is due.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Says that a fetch is on its way.
    pub fn begins(&self) {
        self.pending.store(true, Ordering::SeqCst);
    }

    /// Waits for the fetch that is on its way, or asks for one and waits for that. At most one in ten seconds is made because somebody
    /// asked, whoever it is and however often; who asks in vain does not wait. The caller sets the deadline.
    pub async fn newer(&self, now: Nanos) {
        if self.remote.is_none() {
            return;
        }
        let mut ended = self.ended.subscribe();
        if !self.pending.load(Ordering::SeqCst) && self.may_ask(now) {
            self.pending.store(true, Ordering::SeqCst);
            self.wanted.notify_one();
        }
        if self.pending.load(Ordering::SeqCst) {
            // The sender is ours, so this ends with a fetch and in no other way.
            let _ = ended.changed().await;
        }
    }

    fn may_ask(&self, now: Nanos) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        let is_due = asked == 0 || now.saturating_sub(asked) >= ASK_EVERY;
        is_due && self.asked.compare_exchange(asked, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// The rings that some configuration uses.
#[derive(Debug, Clone, Default)]
pub struct KeyRings(Arc<Mutex<Vec<Weak<KeyRing>>>>);

impl KeyRings {
    /// The ring for this place. One for the same URL that is fetched at another pace or with other trust hands on its keys.
    #[must_use]
    pub fn ring(&self, remote: Remote) -> Arc<KeyRing> {
        let mut rings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rings.retain(|ring| ring.strong_count() > 0);
        let alive: Vec<_> = rings.iter().filter_map(Weak::upgrade).collect();
        if let Some(same) = alive.iter().find(|ring| ring.remote.as_ref() == Some(&remote)) {
            return Arc::clone(same);
        }
        let is_of_the_same_place = |ring: &&Arc<KeyRing>| ring.remote.as_ref().is_some_and(|other| other.url == remote.url);
        let known = alive.iter().find(is_of_the_same_place).and_then(|ring| ring.keys.load_full());
        let ring = Arc::new(KeyRing::new(Some(remote), known));
        rings.push(Arc::downgrade(&ring));
        ring
    }
}

/// Strangers can ask with any made-up key id; an issuer must not feel them.
const ASK_EVERY: Nanos = 10 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(url: &str, refresh: u64) -> Remote {
        Remote {
            url: url.into(),
            tls: false,
            host: "a".into(),
            port: 80,
            authority: "a".into(),
            target: "/".into(),
            ca: None,
            refresh: Duration::from_secs(refresh),
            timeout: Duration::from_secs(1),
        }
    }

    fn keys(secret: &str) -> KeySet {
        KeySet::from_secret(secret.as_bytes()).unwrap()
    }

    #[test]
    fn a_ring_keeps_its_keys_as_long_as_somebody_uses_it() {
        let rings = KeyRings::default();
        let first = rings.ring(remote("x", 1));
        assert!(first.current().is_none());
        assert!(first.fetched(Some(keys("k"))));
        assert!(Arc::ptr_eq(&first, &rings.ring(remote("x", 1))));
        let id = |ring: &KeyRing| ring.current().as_ref().map(|keys| keys.id());
        let slower = rings.ring(remote("x", 2));
        assert_eq!(id(&slower), id(&first));
        assert!(rings.ring(remote("y", 1)).current().is_none());
        drop((first, slower));
        assert!(rings.ring(remote("x", 1)).current().is_none());
    }

    #[test]
    fn a_fetch_without_news_changes_nothing() {
        let ring = KeyRings::default().ring(remote("x", 1));
        assert!(ring.fetched(Some(keys("k"))));
        let id = ring.current().as_ref().map(|keys| keys.id());
        assert!(!ring.fetched(Some(keys("k"))));
        assert!(!ring.fetched(None));
        assert_eq!(ring.current().as_ref().map(|keys| keys.id()), id);
        assert!(ring.fetched(Some(keys("other"))));
        assert_ne!(ring.current().as_ref().map(|keys| keys.id()), id);
    }

    #[test]
    fn one_question_in_ten_seconds_is_passed_on() {
        let ring = KeyRings::default().ring(remote("x", 1));
        let asked: Vec<_> = [0, 1, 5, 10, 10, 11, 20, 21].into_iter().map(|second| ring.may_ask(second * SECOND + 1)).collect();
        assert_eq!(asked, [true, false, false, true, false, false, true, false]);
    }

    #[tokio::test]
    async fn who_asks_hears_of_the_end_of_the_fetch() {
        let ring = KeyRings::default().ring(remote("x", 1));
        ring.fetched(None);
        let fetcher = async {
            ring.wanted().await;
            ring.fetched(Some(keys("k")));
        };
        tokio::join!(ring.newer(SECOND), ring.newer(SECOND), fetcher);
        assert!(ring.current().is_some());
        // The first keys begin a new count.
        let fetcher = async {
            ring.wanted().await;
            ring.fetched(None);
        };
        tokio::join!(ring.newer(2 * SECOND), fetcher);
        // Neither due nor on its way: not waited for.
        ring.newer(3 * SECOND).await;
        // On its way: waited for, and no other asked for.
        ring.begins();
        let ended = async { ring.fetched(None) };
        tokio::join!(ring.newer(60 * SECOND), ended);
        assert!(ring.may_ask(60 * SECOND));
    }
}
