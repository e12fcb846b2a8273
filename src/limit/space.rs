//! Rooms of the store by name: every limit has its own, so that what happens in one cannot crowd out another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Names a room in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SpaceId(pub u32);

/// Every room that was ever named in this process. Outlives reloads, so that a limit that keeps its name keeps its counters.
#[derive(Debug, Clone, Default)]
pub struct Spaces(Arc<Mutex<HashMap<Box<str>, SpaceId>>>);

impl Spaces {
    /// The id of a name; the same for ever.
    #[must_use]
    pub fn intern(&self, name: &str) -> SpaceId {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = SpaceId(u32::try_from(names.len()).unwrap_or(u32::MAX));
        *names.entry(name.into()).or_insert(next)
    }
}
