//! The scripts of the shared store, run by a real server: that they answer what the gateway's own arithmetic answers, and what they leave behind.
//!
//! Time is an argument (of the tests, of the scripts); expiry alone follows the server's clock, so nothing here waits for it.

mod contents;
mod joint;
mod link_bounds;
mod link_cluster;
mod link_common;
mod link_entry;
mod link_faults;
mod link_log;
mod link_sentinel;
mod model;
mod settling;
mod slots;

use crate::harness::redis::put;
use crate::harness::{RedisClient, RedisServer};
use ::redis::Value;
use std::borrow::Cow;
use tollgate::limit::{Boost, Outcome, Quota, Verdict};
use tollgate::store::redis::script::{Answer, Ask, Correction, Invocation, StoreKey, charge, charged, settle};

/// A server and a connection to it.
struct Store {
    client: RedisClient,
    /// Ended with this, unless it is somebody else's.
    server: Option<RedisServer>,
}

impl Store {
    fn start() -> Self {
        let server = RedisServer::start();
        let client = server.client();
        Self { client, server: Some(server) }
    }

    /// Runs a script as the gateway does: by its name, and by its text if the server does not know it.
    fn run(&mut self, invocation: &Invocation) -> Value {
        let reply = self.client.ask(&words("EVALSHA", &invocation.script.sha, invocation));
        if !matches!(&reply, Value::SimpleString(text) if text.starts_with("-NOSCRIPT")) {
            return reply;
        }
        self.client.ask(&words("EVAL", invocation.script.text, invocation))
    }

    /// Runs many at once, by name, on one key. Each must leave it with a time to live, if it is there; then, in the same transaction, it gets one
    /// that is longer than the test, whose time is not the server's.
    fn run_lasting(&mut self, invocations: &[Invocation], key: &str) -> Vec<Value> {
        let (mut bytes, mut after) = (Vec::new(), Vec::new());
        put(&mut after, &["PTTL", key]);
        put(&mut after, &["PEXPIRE", key, "1000000"]);
        put(&mut after, &["EXEC"]);
        for invocation in invocations {
            put(&mut bytes, &["MULTI"]);
            put(&mut bytes, &words("EVALSHA", &invocation.script.sha, invocation));
            bytes.extend_from_slice(&after);
        }
        self.client.send_bytes(&bytes);
        let reply_to = |_| {
            // That it begins, and that each of the three is queued.
            (0..4).for_each(|_| drop(self.client.reply()));
            let Value::Array(mut replies) = self.client.reply() else { panic!("a transaction was not run") };
            let left = &replies[1];
            assert!(matches!(left, Value::Int(-2 | 1..)), "a time to live of {left:?}");
            replies.swap_remove(0)
        };
        invocations.iter().map(reply_to).collect()
    }

    /// Charges at a time in microseconds.
    fn charge(&mut self, asks: &[Ask<'_>], now: u64) -> Vec<Answer> {
        let reply = self.run(&charge(asks, 0, Some(now)));
        charged(asks, &reply).unwrap_or_else(|_| panic!("{reply:?} to {asks:?}")).to_vec()
    }

    /// Charges at the server's own time.
    fn charge_now(&mut self, asks: &[Ask<'_>]) -> Vec<Answer> {
        let reply = self.run(&charge(asks, 0, None));
        charged(asks, &reply).unwrap_or_else(|_| panic!("{reply:?} to {asks:?}")).to_vec()
    }

    fn settle(&mut self, correction: &Correction<'_>, now: u64) -> Value {
        self.run(&settle(correction, 0, Some(now)))
    }

    /// A command's reply as text.
    fn command(&mut self, words: &[&str]) -> String {
        crate::harness::redis::text(&self.client.ask(words))
    }

    /// Every key with all that it is.
    fn dump(&mut self) -> Vec<(String, Value)> {
        let mut keys: Vec<String> = self.command(&["KEYS", "*"]).lines().map(ToOwned::to_owned).collect();
        keys.sort();
        keys.into_iter().map(|key| (key.clone(), self.client.ask(&["DUMP", &key]))).collect()
    }

    /// Panics if there is a key that would stay for ever.
    fn assert_all_expire(&mut self) {
        for key in self.command(&["KEYS", "*"]).lines() {
            let time: i64 = self.command(&["PTTL", key]).parse().unwrap();
            assert!(time > 0, "{key} has a time to live of {time}");
        }
    }
}

fn words<'i>(name: &'i str, script: &'i str, invocation: &'i Invocation) -> Vec<Cow<'i, [u8]>> {
    let count = invocation.keys.len().to_string().into_bytes();
    let mut words = vec![name.as_bytes().into(), script.as_bytes().into(), count.into()];
    words.extend(invocation.keys.iter().map(|key| Cow::from(key.as_bytes())));
    words.extend(invocation.args.iter().map(Cow::from));
    words
}

fn key(name: &str) -> StoreKey {
    StoreKey::named("test", name)
}

fn ask<'q>(name: &str, quota: &'q Quota, cost: u64) -> Ask<'q> {
    Ask { key: key(name), quota, boost: Boost::NONE, phase: 0, cost, more: 0 }
}

fn correction<'q>(name: &str, quota: &'q Quota, mark: Option<u64>, delta: i64) -> Correction<'q> {
    Correction { key: key(name), quota, boost: Boost::NONE, phase: 0, mark, delta }
}

/// What is told, in microseconds, so that it can be held against arithmetic in which nanoseconds stand for them.
fn told(outcome: &Outcome) -> Outcome {
    let micros = |nanos: u64| {
        assert!(nanos.is_multiple_of(1000), "{outcome:?} has a fraction of a microsecond");
        nanos / 1000
    };
    let verdict = match outcome.verdict {
        Verdict::Exceeds { retry_after } => Verdict::Exceeds { retry_after: micros(retry_after) },
        other => other,
    };
    Outcome { verdict, reset_after: micros(outcome.reset_after), delay: micros(outcome.delay), mark: 0, ..*outcome }
}
