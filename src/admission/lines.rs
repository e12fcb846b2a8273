//! Who waits for which counter, and up to where those have filled it who have passed: when nobody waits any more, what lies beyond belongs to
//! requests that have left.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::limit::Key;

/// The lines of those who wait. Cheap to clone; clones agree. As large as the number of counters that somebody waits for.
#[derive(Debug, Clone, Default)]
pub struct Lines(Arc<DashMap<Key, Line>>);

#[derive(Debug)]
struct Line {
    waiting: u32,
    /// The counter's state as those made it who have passed.
    passed: u64,
}

/// A place in a line. Left when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    lines: Lines,
    key: Key,
    is_left: bool,
}

impl Lines {
    /// A place behind those who wait for `key`, unless `max` do. `before` is the counter's state without this request.
    pub(super) fn join(&self, key: Key, max: u32, before: u64) -> Option<Place> {
        match self.0.entry(key) {
            Entry::Occupied(mut line) if line.get().waiting < max => line.get_mut().waiting += 1,
            Entry::Vacant(free) if max > 0 => {
                free.insert(Line { waiting: 1, passed: before });
            }
            _ => return None,
        }
        Some(Place { lines: self.clone(), key, is_left: false })
    }

    /// Requests that wait, over all keys.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.0.iter().map(|line| u64::from(line.waiting)).sum()
    }
}

impl Place {
    /// Its request passes, and has made the counter's state this. What the state is without who has left, if nobody waits any more.
    pub(super) fn pass(self, state: u64) -> Option<u64> {
        if let Some(mut line) = self.lines.0.get_mut(&self.key) {
            line.passed = line.passed.max(state);
        }
        self.leave()
    }

    /// Its request leaves. As for [`Place::pass`].
    pub(super) fn leave(mut self) -> Option<u64> {
        self.end()
    }

    fn end(&mut self) -> Option<u64> {
        if std::mem::replace(&mut self.is_left, true) {
            return None;
        }
        let Entry::Occupied(mut line) = self.lines.0.entry(self.key) else { return None };
        line.get_mut().waiting -= 1;
        (line.get().waiting == 0).then(|| line.remove().passed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
    }
}
