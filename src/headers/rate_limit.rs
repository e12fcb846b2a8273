//! The fields that tell a client where it stands: `X-RateLimit-*`, `RateLimit` and `RateLimit-Policy`.
//!
//! `draft-ietf-httpapi-ratelimit-headers-10` has the lists, -03 the three numbers. Where a field is a list, ours is added behind
//! upstream's own; where it is one number and upstream has said one, upstream's stays.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::clock::{Nanos, SECOND};
use crate::limit::Quota;

/// A family of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `X-RateLimit-*`, reset in seconds from now.
    XRateLimit,
    /// `RateLimit` and `RateLimit-Policy` (draft-10).
    Ietf,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` (draft-03).
    Ietf03,
    /// `X-RateLimit-*`, reset in seconds since 1970.
    GitHub,
}

/// What is reported: one window of one limit.
pub struct Numbers<'w> {
    /// Cells at once from idle.
    pub limit: Cow<'w, HeaderValue>,
    /// Cells left.
    pub remaining: u64,
    /// Until all are there again.
    pub reset_after: Nanos,
    /// On a refusal, until the charge conforms.
    pub retry_after: Option<Nanos>,
    /// The item of `RateLimit-Policy`.
    pub policy: Cow<'w, HeaderValue>,
    /// Its name, with quotes.
    pub policy_name: &'w str,
    /// Now, in seconds since 1970; asked only where a field wants it.
    pub unix_now: &'w dyn Fn() -> u64,
}

/// The item of `RateLimit-Policy` for a quota: `q` cells in `w` seconds are the burst and the time it takes to refill, so that `r` never
/// exceeds `q` and `q/w` is the rate.
#[must_use]
pub fn rate_limit_policy(name: &str, quota: &Quota) -> Option<HeaderValue> {
    let burst = quota.burst();
    let seconds = seconds_rounded_up(quota.time_of(burst)?).max(1);
    HeaderValue::from_str(&format!("{name};q={burst};w={seconds}")).ok()
}

/// Adds the fields.
pub fn add_rate_limit(headers: &mut HeaderMap, families: &[Family], numbers: &Numbers<'_>) {
    let reset = seconds_rounded_up(numbers.reset_after);
    for family in families {
        match family {
            Family::XRateLimit => add_three(headers, &X_RATELIMIT, numbers, reset),
            Family::Ietf03 => add_three(headers, &RATELIMIT_03, numbers, reset),
            Family::GitHub => add_three(headers, &X_RATELIMIT, numbers, (numbers.unix_now)().saturating_add(reset)),
            Family::Ietf => {
                let more_in = numbers.retry_after.map_or(reset, seconds_rounded_up);
                let mut digits = itoa::Buffer::new();
                let mut item = String::with_capacity(numbers.policy_name.len() + 32);
                item.push_str(numbers.policy_name);
                item.push_str(";r=");
                item.push_str(digits.format(numbers.remaining));
                item.push_str(";t=");
                item.push_str(digits.format(more_in));
                if let Ok(item) = HeaderValue::from_maybe_shared(bytes::Bytes::from(item)) {
                    headers.append(RATELIMIT, item);
                    headers.append(RATELIMIT_POLICY, numbers.policy.clone().into_owned());
                }
            }
        }
    }
}

fn add_three(headers: &mut HeaderMap, [limit, remaining, until]: &[HeaderName; 3], numbers: &Numbers<'_>, reset: u64) {
    if headers.contains_key(limit) {
        return;
    }
    headers.insert(limit, numbers.limit.clone().into_owned());
    headers.insert(remaining, HeaderValue::from(numbers.remaining));
    headers.insert(until, HeaderValue::from(reset));
}

/// Whole seconds for `Retry-After`: rounded up, so that waiting that long succeeds, and at least 1.
#[must_use]
pub fn retry_after_seconds(wait: Nanos) -> u64 {
    seconds_rounded_up(wait).max(1)
}

fn seconds_rounded_up(wait: Nanos) -> u64 {
    wait.div_ceil(SECOND)
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];
const RATELIMIT_03: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(families: &[Family], mut headers: HeaderMap, retry_after: Option<Nanos>) -> Vec<String> {
        let policy = HeaderValue::from_static("\"plan\";q=5;w=60");
        let limit = HeaderValue::from(5);
        let numbers = Numbers {
            limit: Cow::Borrowed(&limit),
            remaining: 3,
            reset_after: 24 * SECOND + 1,
            retry_after,
            policy: Cow::Borrowed(&policy),
            policy_name: "\"plan\"",
            unix_now: &|| 1_000_000,
        };
        add_rate_limit(&mut headers, families, &numbers);
        let mut lines: Vec<_> = headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn each_family_has_its_form() {
        assert_eq!(
            fields(&[Family::XRateLimit, Family::Ietf], HeaderMap::new(), None),
            [
                "ratelimit-policy: \"plan\";q=5;w=60",
                "ratelimit: \"plan\";r=3;t=25",
                "x-ratelimit-limit: 5",
                "x-ratelimit-remaining: 3",
                "x-ratelimit-reset: 25"
            ]
        );
        assert_eq!(fields(&[Family::GitHub], HeaderMap::new(), None)[2], "x-ratelimit-reset: 1000025");
        assert_eq!(
            fields(&[Family::Ietf03], HeaderMap::new(), None),
            ["ratelimit-limit: 5", "ratelimit-remaining: 3", "ratelimit-reset: 25"]
        );
        assert_eq!(fields(&[Family::Ietf], HeaderMap::new(), Some(2 * SECOND))[1], "ratelimit: \"plan\";r=3;t=2");
    }

    #[test]
    fn what_upstream_says_is_kept() {
        let mut upstream = HeaderMap::new();
        upstream.insert(RATELIMIT, HeaderValue::from_static("\"theirs\";r=1"));
        upstream.insert("x-ratelimit-limit", HeaderValue::from_static("7"));
        let lines = fields(&[Family::XRateLimit, Family::Ietf], upstream, None);
        assert!(
            lines.contains(&"ratelimit: \"theirs\";r=1".to_owned()) && lines.contains(&"ratelimit: \"plan\";r=3;t=25".to_owned())
        );
        assert!(
            lines.contains(&"x-ratelimit-limit: 7".to_owned()) && !lines.iter().any(|l| l.starts_with("x-ratelimit-remaining"))
        );
    }

    #[test]
    fn retry_after_is_rounded_up_and_never_zero() {
        assert_eq!([0, 1, SECOND, SECOND + 1].map(retry_after_seconds), [1, 1, 1, 2]);
    }
}
