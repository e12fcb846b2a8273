//! Where the keys in force hang, and how whoever misses one asks for newer ones. Fetching is somebody else's: `issuer`.
//!
//! Rings outlive configurations, so a reload while the issuer is down loses no key.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use tokio::sync::{Notify, watch};

use super::{KeyDigest, KeySet};
use crate::clock::{Nanos, SECOND};

/// Where a key set is fetched from, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// The URL without its query, for people.
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

impl Remote {
    fn is_at(&self, other: &Self) -> bool {
        (self.tls, &self.authority, &self.target) == (other.tls, &other.authority, &other.target)
    }
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
    /// Tells the fetcher how long to wait with the next one.
    wanted: Notify,
    questions: Mutex<Questions>,
}

/// What came of the question for newer keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newer {
    /// A fetch has ended: it is worth another look.
    Ended,
    /// The last fetch was also for this key, and has not brought it.
    Absent,
    /// A fetch that will also be for this key is due in so many nanoseconds.
    Due(Nanos),
}

/// What was asked for. Keys are known by [`named_key`](super::named_key), and forgotten with the next fetch: somebody who has named
/// a key before its issuer introduced it can keep its owners out no longer than that.
#[derive(Debug, Default)]
struct Questions {
    /// When a fetch was last made because somebody asked, or when it is due; 0 means never.
    asked: Nanos,
    /// How long the fetcher is to wait; `None` when no fetch is due.
    queued: Option<Nanos>,
    /// Keys that the next fetch is for.
    missed: HashSet<KeyDigest>,
    /// Keys that the fetch on its way is for.
    sought: HashSet<KeyDigest>,
    /// Keys that the last fetch was for and has not brought.
    absent: HashSet<KeyDigest>,
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
            questions: Mutex::default(),
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
        let has_succeeded = keys.is_some();
        let new = keys.filter(is_new);
        let changed = new.is_some();
        let is_first = new.is_some_and(|keys| self.keys.swap(Some(Arc::new(keys))).is_none());
        let mut questions = self.questions();
        if is_first {
            // Whoever asked before there were any keys has not used up what a new key needs.
            questions.asked = 0;
        }
        let sought = std::mem::take(&mut questions.sought);
        if has_succeeded {
            questions.absent = sought;
        } else {
            let room = MAX_MISSED.saturating_sub(questions.missed.len());
            questions.missed.extend(sought.into_iter().take(room));
        }
        drop(questions);
        // In this order: who finds no fetch pending finds its keys, and who finds one hears of its end.
        self.pending.store(false, Ordering::SeqCst);
        self.ended.send_modify(|ended| *ended += 1);
        changed
    }

    /// Waits until somebody wants a fetch before it is due, and until one may be made for him.
    pub async fn wanted(&self) {
        loop {
            self.wanted.notified().await;
            let queued = self.questions().queued;
            if let Some(pause) = queued {
                return tokio::time::sleep(Duration::from_nanos(pause)).await;
            }
        }
    }

    /// Says that a fetch is on its way.
    pub fn begins(&self) {
        self.pending.store(true, Ordering::SeqCst);
        let mut questions = self.questions();
        questions.queued = None;
        questions.absent.clear();
        questions.sought = std::mem::take(&mut questions.missed);
    }

    /// Waits for the fetch that is on its way, or asks for one for this key and waits for that. At most one in ten seconds is made because
    /// somebody asked, whoever it is and however often; who asks within that time is told when the next is due and does not wait. The
    /// caller sets the deadline.
    pub async fn newer(&self, key: KeyDigest, now: Nanos) -> Newer {
        if self.remote.is_none() {
            return Newer::Absent;
        }
        let mut ended = self.ended.subscribe();
        if let Some(answer) = self.ask(key, now) {
            return answer;
        }
        // The sender is ours, so this ends with a fetch and in no other way.
        let _ = ended.changed().await;
        Newer::Ended
    }

    /// `None` if there is a fetch to wait for.
    fn ask(&self, key: KeyDigest, now: Nanos) -> Option<Newer> {
        let mut questions = self.questions();
        let may_ask = questions.asked == 0 || now >= questions.asked.saturating_add(ASK_EVERY);
        if !may_ask && questions.absent.contains(&key) {
            return Some(Newer::Absent);
        }
        if questions.missed.len() < MAX_MISSED {
            questions.missed.insert(key);
        }
        if self.pending.load(Ordering::SeqCst) {
            return None;
        }
        if may_ask && questions.queued.is_none() {
            questions.asked = now.max(1);
            questions.queued = Some(0);
            self.pending.store(true, Ordering::SeqCst);
            self.wanted.notify_one();
            return None;
        }
        if questions.queued.is_none() {
            // A fetch that was due may have been made already, with those that are made anyway; its time is not used up then.
            if questions.asked <= now {
                questions.asked = questions.asked.saturating_add(ASK_EVERY);
            }
            questions.queued = Some(questions.asked.saturating_sub(now));
            self.wanted.notify_one();
        }
        Some(Newer::Due(questions.asked.saturating_sub(now)))
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
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
        let is_of_the_same_place = |ring: &&Arc<KeyRing>| ring.remote.as_ref().is_some_and(|other| other.is_at(&remote));
        let known = alive.iter().find(is_of_the_same_place).and_then(|ring| ring.keys.load_full());
        let ring = Arc::new(KeyRing::new(Some(remote), known));
        rings.push(Arc::downgrade(&ring));
        ring
    }
}

/// Strangers can ask with any made-up key id; an issuer must not feel them.
const ASK_EVERY: Nanos = 10 * SECOND;
/// Keys that a fetch is for at most, of 32 bytes each. Whoever comes later is told to come again all the same.
const MAX_MISSED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(url: &str, refresh: u64) -> Remote {
        Remote {
            url: url.into(),
            tls: false,
            host: "a".into(),
            port: 80,
            authority: url.into(),
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

    fn key(name: &str) -> KeyDigest {
        KeyDigest::of(name.as_bytes())
    }

    /// A ring with keys and no fetch on its way.
    fn quiet() -> Arc<KeyRing> {
        let ring = KeyRings::default().ring(remote("x", 1));
        ring.fetched(Some(keys("k")));
        ring
    }

    #[test]
    fn one_question_in_ten_seconds_is_passed_on() {
        let ring = quiet();
        let fetch = || {
            ring.begins();
            ring.fetched(Some(keys("k")));
        };
        let at = |second: u64| second * SECOND;
        assert_eq!(ring.ask(key("a"), at(1)), None, "the first is asked for at once");
        fetch();
        assert_eq!(ring.ask(key("a"), at(2)), Some(Newer::Absent));
        assert_eq!(ring.ask(key("b"), at(2)), Some(Newer::Due(at(9))));
        assert_eq!(ring.ask(key("c"), at(4)), Some(Newer::Due(at(7))), "one fetch for both");
        assert_eq!(ring.ask(key("a"), at(10)), Some(Newer::Absent));
        fetch();
        // That was at 11, so the next is due at 21.
        assert_eq!(ring.ask(key("b"), at(12)), Some(Newer::Absent));
        assert_eq!(ring.ask(key("c"), at(12)), Some(Newer::Absent));
        assert_eq!(ring.ask(key("a"), at(12)), Some(Newer::Due(at(9))), "forgotten with the next fetch");
        // Made with one that was made anyway.
        fetch();
        assert_eq!(ring.ask(key("d"), at(15)), Some(Newer::Due(at(6))));
        fetch();
        assert_eq!(ring.ask(key("d"), at(31)), None, "long enough ago: asked for at once, known to be absent or not");
    }

    #[test]
    fn a_fetch_that_failed_says_nothing_of_a_key() {
        let ring = quiet();
        assert_eq!(ring.ask(key("a"), SECOND), None);
        ring.begins();
        // It may be too late for this fetch.
        assert_eq!(ring.ask(key("b"), SECOND), None);
        ring.fetched(None);
        assert_eq!(ring.ask(key("a"), 2 * SECOND), Some(Newer::Due(9 * SECOND)));
        ring.begins();
        ring.fetched(Some(keys("k")));
        assert_eq!(["a", "b"].map(|name| ring.ask(key(name), 12 * SECOND)), [Some(Newer::Absent); 2]);
    }

    #[test]
    fn a_flood_of_names_is_not_remembered() {
        let ring = quiet();
        for n in 0..10 * MAX_MISSED {
            ring.ask(KeyDigest::of(&n.to_be_bytes()), SECOND);
        }
        assert_eq!(ring.questions().missed.len(), MAX_MISSED);
        ring.begins();
        ring.fetched(Some(keys("k")));
        assert_eq!(ring.questions().absent.len(), MAX_MISSED);
        assert!(matches!(ring.ask(key("late"), 2 * SECOND), Some(Newer::Due(_))));
    }

    #[tokio::test]
    async fn who_asks_hears_of_the_end_of_the_fetch() {
        let ring = KeyRings::default().ring(remote("x", 1));
        ring.fetched(None);
        let fetcher = async {
            ring.wanted().await;
            ring.begins();
            ring.fetched(Some(keys("k")));
        };
        let heard = tokio::join!(ring.newer(key("a"), SECOND), ring.newer(key("b"), SECOND), fetcher);
        assert_eq!((heard.0, heard.1), (Newer::Ended, Newer::Ended));
        assert!(ring.current().is_some());
        // The first keys begin a new count.
        let fetcher = async {
            ring.wanted().await;
            ring.begins();
            ring.fetched(None);
        };
        tokio::join!(ring.newer(key("a"), 2 * SECOND), fetcher);
        // Neither due nor on its way: not waited for.
        assert_eq!(ring.newer(key("a"), 3 * SECOND).await, Newer::Due(9 * SECOND));
        // On its way: waited for.
        ring.begins();
        let ended = async { ring.fetched(None) };
        assert_eq!(tokio::join!(ring.newer(key("a"), 60 * SECOND), ended).0, Newer::Ended);
        assert_eq!(KeyRing::fixed(keys("k")).newer(key("a"), SECOND).await, Newer::Absent);
    }
}
