//! How often Redis is asked about each counter, by what it says itself.

use crate::harness::{RedisServer, redis::text};
use std::collections::BTreeMap;
use std::thread::{JoinHandle, spawn};

/// Counts scripts by the key that they are about.
pub(super) struct Questions(JoinHandle<BTreeMap<String, u64>>);

impl Questions {
    /// Counts from now on.
    pub(super) fn count(redis: &RedisServer) -> Self {
        let mut monitor = redis.client();
        assert_eq!(text(&monitor.ask(&["MONITOR"])), "OK");
        Self(spawn(move || {
            let mut counts = BTreeMap::new();
            loop {
                let line = text(&monitor.reply());
                let mut words = line.split('"').skip(1).step_by(2);
                match words.next().map(str::to_ascii_lowercase).as_deref() {
                    // Its digest, the number of keys, and the first of them.
                    Some("evalsha") => *counts.entry(words.nth(2).unwrap().to_owned()).or_default() += 1,
                    Some("echo") if line.contains(END) => return counts,
                    _ => {}
                }
            }
        }))
    }

    /// How many there were.
    pub(super) fn end(self, redis: &RedisServer) -> BTreeMap<String, u64> {
        redis.command(&["ECHO", END]);
        self.0.join().unwrap()
    }
}

const END: &str = "that was all";
