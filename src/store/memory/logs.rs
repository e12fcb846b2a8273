//! The logs of a shard. A counter's entry has room for a number; for a log it is the log's place here.

use crate::limit::Log;

/// Logs by their place, from 1: 0 is an entry's way to say that it has none.
#[derive(Debug, Default)]
pub(super) struct Logs {
    logs: Vec<Log>,
    free: Vec<u64>,
}

impl Logs {
    pub(super) fn get(&self, place: u64) -> Option<&Log> {
        self.logs.get(position(place)?)
    }

    pub(super) fn get_mut(&mut self, place: u64) -> Option<&mut Log> {
        self.logs.get_mut(position(place)?)
    }

    /// Keeps a log and says where.
    pub(super) fn keep(&mut self, log: Log) -> u64 {
        if let Some(place) = self.free.pop()
            && let Some(free) = self.get_mut(place)
        {
            *free = log;
            return place;
        }
        self.logs.push(log);
        u64::try_from(self.logs.len()).unwrap_or(0)
    }

    /// Drops a log; its memory goes back at once.
    pub(super) fn drop(&mut self, place: u64) {
        if let Some(log) = self.get_mut(place) {
            *log = Log::default();
            self.free.push(place);
        }
    }
}

fn position(place: u64) -> Option<usize> {
    usize::try_from(place.checked_sub(1)?).ok()
}
