//! `align: calendar`: windows that end when a day, week or month does in some time zone.

use super::{DAY, number, remaining, reset, retry_after};
use crate::harness::{Gateway, Origin};
use std::time::{SystemTime, UNIX_EPOCH};

fn unix() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Time zones whose clocks never change, and how far they are ahead of UTC in seconds.
const ZONES: &[(&str, i64)] = &[
    ("", 0),
    (", timezone: UTC", 0),
    (", timezone: Asia/Tokyo", 9 * 3600),
    (", timezone: asia/seoul", 9 * 3600),
    (", timezone: Asia/Kolkata", 19_800),
    (", timezone: America/Phoenix", -7 * 3600),
    (", timezone: Pacific/Kiritimati", 14 * 3600),
];

/// Seconds from this moment until the window ends.
fn left(unit: &str, ahead: i64, unix: i64) -> i64 {
    let local = unix + ahead;
    let (day, second) = (local.div_euclid(DAY as i64), local.rem_euclid(DAY as i64));
    let days = match unit {
        "day" => 1,
        // 1970 began on a Thursday, three days after a Monday.
        "week" => 7 - (day + 3).rem_euclid(7),
        _ => days_left_of_month(day),
    };
    days * DAY as i64 - second
}

/// Days until the first of the next month, this one included.
fn days_left_of_month(day: i64) -> i64 {
    let (mut first, mut month) = (0, 0);
    loop {
        let year = 1970 + month / 12;
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let february = if leap { 29 } else { 28 };
        let length = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][(month % 12) as usize];
        if day < first + length {
            return first + length - day;
        }
        (first, month) = (first + length, month + 1);
    }
}

#[test]
fn the_months_arithmetic_of_this_test_is_right() {
    // 1970-01-31, 1972-02-28 (a leap year), 2026-11-30, 2026-12-01.
    for (day, expected) in [(30, 1), (788, 2), (20_787, 1), (20_788, 31)] {
        assert_eq!(days_left_of_month(day), expected, "{day}");
    }
}

#[test]
fn reset_is_the_end_of_the_day_week_or_month() {
    let origin = Origin::ok();
    for unit in ["day", "week", "month"] {
        for (zone, ahead) in ZONES {
            let limit = format!("{{ name: plan, per: ip, rate: 2/{unit}, algorithm: fixed_window, align: calendar{zone} }}");
            let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
            let before = unix();
            let responses = [(); 3].map(|()| gateway.get("/"));
            let (from, to) = (left(unit, *ahead, unix()), left(unit, *ahead, before));
            if from > to {
                continue; // A window has ended meanwhile.
            }
            let near = |seconds: u64| (from - 2..=to + 2).contains(&(seconds as i64));
            for (response, expected) in responses.iter().zip([(200, Some(1)), (200, Some(0)), (429, Some(0))]) {
                assert_eq!((response.status, remaining(response)), expected, "{unit}{zone}");
                assert!(near(reset(response)), "{unit}{zone}: reset in {}, not {to}", reset(response));
            }
            assert_eq!(number(&responses[0], "x-ratelimit-limit"), Some(2));
            assert!(retry_after(&responses[2]).is_some_and(near), "{unit}{zone}: Retry-After");
        }
    }
}

#[test]
fn other_keys_share_the_windows_and_other_algorithms_do_not_know_them() {
    let origin = Origin::ok();
    let limit = "{ name: plan, per: { header: x-key }, rate: 9/day, algorithm: fixed_window, align: calendar }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    let resets: Vec<u64> = (0..5).map(|key| reset(&super::ask(&gateway, "/", &format!("x-key: {key}\n")))).collect();
    let spread = resets.iter().max().unwrap() - resets.iter().min().unwrap();
    assert!(spread <= 3, "all keys' windows end together: {resets:?}");
}

#[test]
fn aligning_a_limit_keeps_what_was_used() {
    let origin = Origin::ok();
    let limit = |rest: &str| format!("limits: [{{ name: plan, per: ip, rate: 9/day, algorithm: fixed_window{rest} }}]");
    let gateway = Gateway::before(&origin, &limit(""));
    let mut left = 9;
    for rest in ["", ", align: calendar", ", align: calendar, timezone: Asia/Tokyo", ", align: calendar, timezone: UTC", ""] {
        gateway.reload(&format!("{}\ntiers: [t{left}]", limit(rest)));
        left -= 1;
        assert_eq!(remaining(&gateway.get("/")), Some(left), "{rest}");
    }
}
