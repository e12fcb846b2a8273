//! Asks for one name for ever: when its answer runs out, and after a failure soon, then ever later.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use super::names::Names;
use super::resolver::{Kept, Resolver};
use crate::snapshot::{Dns, Query};

/// See the module. Ends only by being dropped.
pub(super) async fn keep(query: Query, resolver: Arc<Resolver>, names: Arc<Names>) {
    let (mut kept, mut failures) = (Kept::default(), 0_u32);
    loop {
        let answer = resolver.look_up(&query, &mut kept).await;
        failures = if answer.is_ok() { 0 } else { failures.saturating_add(1) };
        let ttl = answer.as_ref().ok().map(|answer| answer.ttl);
        names.note(&query, answer);
        tokio::time::sleep(pause(resolver.dns(), ttl, failures)).await;
    }
}

/// The answer's TTL within its bounds, or after failures the lower bound, twice that, and so on, at most half a minute. A little later, so that
/// gateways that were started together don't ask together.
fn pause(dns: &Dns, ttl: Option<Duration>, failures: u32) -> Duration {
    let longest = dns.max_ttl.max(dns.min_ttl);
    let pause = match ttl {
        Some(ttl) => ttl.clamp(dns.min_ttl, longest),
        None => {
            dns.min_ttl.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE.max(dns.min_ttl)).min(longest)
        }
    };
    // The standard library's own random seeds, without another crate for randomness.
    let random = u32::try_from(RandomState::new().hash_one(failures) >> 32).unwrap_or_default();
    pause.mul_f64(1.0 + 0.1 * f64::from(random) / f64::from(u32::MAX))
}

const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Families;

    #[test]
    fn answers_are_asked_for_when_they_run_out_within_bounds() {
        let seconds = Duration::from_secs;
        let (min_ttl, max_ttl, timeout) = (seconds(1), seconds(300), seconds(2));
        let dns = Dns { servers: Vec::new(), min_ttl, max_ttl, timeout, families: Families::All };
        for (ttl, failures, expected) in [
            (Some(0), 0, 1),
            (Some(60), 0, 60),
            (Some(86_400), 0, 300),
            (None, 1, 1),
            (None, 2, 2),
            (None, 5, 16),
            (None, 6, 30),
            (None, u32::MAX, 30),
        ] {
            let pause = pause(&dns, ttl.map(seconds), failures);
            let expected = seconds(expected);
            assert!(pause >= expected && pause <= expected.mul_f64(1.11), "{ttl:?} {failures}: {pause:?}");
        }
    }
}
