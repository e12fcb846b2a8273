//! Says that this gateway is alive, and counts those that are.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::Value;
use tokio::time::sleep;

use super::ask::{Place, Terms};
use super::shared::{Shared, jittered};
use crate::store::redis::invocation::{Args, Invocation, Script, StoreKey, sha};

/// Beats until the task is ended.
pub(super) async fn beat(shared: Arc<Shared>) {
    let mut seen = VecDeque::from([1; AGREEING]);
    loop {
        if let Ok(Value::Int(count)) = shared.ask(&invocation(&shared, &BEAT), terms(&shared)).await {
            seen.pop_front();
            seen.push_back(u32::try_from(count).unwrap_or(1));
            // A server that comes back empty hears of all again only in the course of a beat.
            let most = seen.iter().copied().max().unwrap_or(1);
            shared.instances.store(most.max(1), Ordering::Relaxed);
        }
        sleep(jittered(EVERY)).await;
    }
}

/// Says that this gateway is no more.
pub(super) async fn leave(shared: &Shared) {
    // If the store does not hear of it, the entry ends by itself.
    let _ = shared.ask(&invocation(shared, &LEAVE), terms(shared)).await;
}

fn invocation(shared: &Shared, script: &'static Script) -> Invocation {
    let mut args = Args::default();
    args.text(&shared.settings.instance);
    args.number(u64::try_from((EVERY * BEATS_KEPT).as_micros()).unwrap_or(u64::MAX));
    Invocation { script, keys: vec![StoreKey::named(&shared.settings.key_prefix, "instances")], args }
}

fn terms(shared: &Shared) -> Terms {
    let limit = shared.settings.timeout.max(PATIENCE);
    Terms { lane: shared.tally.own, place: Place::Uncounted, limit, started: shared.clock.now() }
}

/// A set by time of the last beat, in µs of the server's clock, which is the only one that all gateways share.
static BEAT: Script = Script { text: BEAT_TEXT, sha: LazyLock::new(|| sha(BEAT_TEXT)) };
const BEAT_TEXT: &str = "local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kept = tonumber(ARGV[2])
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then redis.call('DEL', KEYS[1]) end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - kept))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + kept), '+inf')
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', kept / 100))
return redis.call('ZCARD', KEYS[1])";

static LEAVE: Script = Script { text: LEAVE_TEXT, sha: LazyLock::new(|| sha(LEAVE_TEXT)) };
const LEAVE_TEXT: &str = "return redis.call('ZREM', KEYS[1], ARGV[1])";

const EVERY: Duration = Duration::from_secs(1);
/// Beats after which a silent gateway is gone.
const BEATS_KEPT: u32 = 3;
/// Beats that must agree before fewer gateways are believed.
const AGREEING: usize = 3;
/// No client waits for a beat.
const PATIENCE: Duration = Duration::from_millis(250);
