//! How long to wait before the next try: as the configuration says, or as the response asks. Pure functions.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

/// What a response says about trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing.
    Nothing,
    /// Not before that.
    After(Duration),
    /// Don't.
    Never,
}

/// The pause before a retry, the first being 1: by chance from the shortest to a longest that doubles each time, up to its bound. So requests
/// that failed together don't come back together (full jitter, as in "Exponential Backoff And Jitter", AWS 2015).
pub(super) fn backoff((shortest, longest): (Duration, Duration), retry: u32, random: u64) -> Duration {
    let doubled = shortest.saturating_mul(1 << retry.min(16));
    let longest = if shortest.is_zero() { longest } else { doubled.min(longest) };
    let spread = u64::try_from(longest.saturating_sub(shortest).as_micros()).unwrap_or(u64::MAX);
    shortest + Duration::from_micros(random % spread.saturating_add(1).max(1))
}

/// A number that nobody can foresee: the standard library's keys differ at every call.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// What `Retry-After` says: seconds, or a date (RFC 9110 §10.2.3). What is neither says nothing.
pub(super) fn asked(headers: &HeaderMap, now: SystemTime) -> Asked {
    let Some(text) = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::trim) else { return Asked::Nothing };
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Asked::After(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let Ok(date) = jiff::fmt::rfc2822::parse(text) else { return Asked::Nothing };
    let seconds = u64::try_from(date.timestamp().as_second()).unwrap_or(0);
    Asked::After((SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).duration_since(now).unwrap_or_default())
}

/// What gRPC's pushback says: milliseconds, and anything else is a no (gRPC proposal A6).
pub(super) fn pushed_back(headers: &HeaderMap) -> Asked {
    match headers.get(PUSHBACK).map(HeaderValue::as_bytes) {
        None => Asked::Nothing,
        Some(value) => match std::str::from_utf8(value).ok().and_then(|text| text.trim().parse().ok()) {
            Some(millis) => Asked::After(Duration::from_millis(millis)),
            None => Asked::Never,
        },
    }
}

const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(from: u64, to: u64) -> (Duration, Duration) {
        (Duration::from_millis(from), Duration::from_millis(to))
    }

    #[test]
    fn pauses_double_up_to_their_bound_and_are_spread_over_all_of_it() {
        for (bounds, retry, expected) in [
            (millis(25, 250), 1, millis(25, 50)),
            (millis(25, 250), 2, millis(25, 100)),
            (millis(25, 250), 3, millis(25, 200)),
            (millis(25, 250), 4, millis(25, 250)),
            (millis(25, 250), 99, millis(25, 250)),
            (millis(0, 250), 1, millis(0, 250)),
            (millis(0, 0), 1, millis(0, 0)),
            (millis(100, 100), 2, millis(100, 100)),
            (millis(60_000, 60_000), 10, millis(60_000, 60_000)),
        ] {
            let spread = u64::try_from((expected.1 - expected.0).as_micros()).unwrap();
            assert_eq!(backoff(bounds, retry, 0), expected.0, "{bounds:?} {retry}");
            assert_eq!(backoff(bounds, retry, spread), expected.1, "{bounds:?} {retry}");
            assert!((0..1000).map(|_| backoff(bounds, retry, random())).all(|pause| (expected.0..=expected.1).contains(&pause)));
        }
        let (few, many) = millis(0, 100);
        let halves = (0..1000).filter(|_| backoff((few, many), 1, random()) > many / 2).count();
        assert!((300..700).contains(&halves), "{halves} of 1000 are longer than half");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let after = |seconds| Asked::After(Duration::from_secs(seconds));
        for (text, expected) in [
            ("0", after(0)),
            (" 120 ", after(120)),
            ("99999999999999999999999", after(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", after(10)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", after(0)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", after(0)),
            ("", Asked::Nothing),
            ("-1", Asked::Nothing),
            ("1.5", Asked::Nothing),
            ("soon", Asked::Nothing),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(asked(&headers, now), expected, "{text:?}");
        }
        assert_eq!(asked(&HeaderMap::new(), now), Asked::Nothing);
    }

    #[test]
    fn pushback_is_milliseconds_or_a_no() {
        for (text, expected) in [
            ("0", Asked::After(Duration::ZERO)),
            ("150", Asked::After(Duration::from_millis(150))),
            ("-1", Asked::Never),
            ("soon", Asked::Never),
            ("", Asked::Never),
        ] {
            assert_eq!(pushed_back(&HeaderMap::from_iter([(PUSHBACK, text.parse().unwrap())])), expected, "{text:?}");
        }
        assert_eq!(pushed_back(&HeaderMap::new()), Asked::Nothing);
    }
}
