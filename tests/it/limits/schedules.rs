//! `schedules`, and the limits that go by them.

use super::{ALGORITHMS, DAY, number, remaining};
use crate::harness::{DEADLINE, Gateway, Origin, Response, Table, run};
use std::time::{SystemTime, UNIX_EPOCH};

fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The name of the day of the week so many days from today, in UTC.
fn weekday(from_today: u64) -> &'static str {
    // 1970 began on a Thursday.
    ["thu", "fri", "sat", "sun", "mon", "tue", "wed"][((unix() / DAY + from_today) % 7) as usize]
}

/// An hour so many hours from now in UTC, as schedules write it.
fn hour(from_now: u64) -> String {
    format!("\"{:02}:00\"", (unix() / 3600 + from_now) % 24)
}

/// Text of a schedule, and whether it is active now and for the next minutes.
fn rows() -> Vec<(String, bool)> {
    let (before, after, later, last) = (hour(23), hour(2), hour(3), hour(22));
    let three = format!("[{}, {}, {}]", weekday(6), weekday(0), weekday(1));
    vec![
        ("{}".into(), true),
        ("{ days: mon-sun }".into(), true),
        ("{ from: \"00:00\", to: \"24:00\" }".into(), true),
        (format!("{{ days: {three} }}"), true),
        (format!("{{ days: [{}] }}", weekday(3)), false),
        (format!("{{ days: {}-{} }}", weekday(3), weekday(4)), false),
        (format!("{{ from: {before}, to: {after} }}"), true),
        (format!("{{ from: {after}, to: {later} }}"), false),
        // All but an hour, over midnight.
        (format!("{{ from: {later}, to: {after} }}"), true),
        (format!("{{ from: {last}, to: {before} }}"), false),
        (format!("{{ from: {before}, to: {after}, timezone: Etc/GMT+12 }}"), false),
        (format!("{{ from: {}, to: {}, timezone: Asia/Tokyo }}", hour(8), hour(11)), true),
        (format!("{{ from: {}, to: {}, timezone: Asia/Tokyo }}", hour(23), hour(2)), false),
        ("{ except: [2001-01-01] }".into(), true),
    ]
}

const BASE: &str = "{ name: plan, per: ip, rate: 9/day";

#[test]
fn a_schedule_decides_whether_a_limit_applies_and_at_which_rate() {
    let mut table = Table::new("schedules");
    for (schedule, active) in rows() {
        let origin = Origin::ok();
        let config = format!(
            "schedules: {{ now: {schedule} }}
limits:
- {{ name: only, match: {{ path: /only, schedule: now }}, per: ip, rate: 9/day }}
- {{ name: never, match: {{ path: /unless }}, unless: {{ schedule: [now] }}, per: ip, rate: 9/day }}
- {{ name: during, match: {{ path: /during }}, per: ip, rate: 9/day, during: [{{ schedule: now, rate: 20/day }}] }}"
        );
        let gateway = Gateway::before(&origin, &config);
        let seen = ["/only", "/unless", "/during"].map(|path| remaining(&gateway.get(path)));
        let expected = if active { [Some(8), None, Some(19)] } else { [None, Some(8), Some(8)] };
        table.outcome(&schedule, &format!("{expected:?}"), &format!("{seen:?}"));
    }
}

/// Schedules `always` and `never`.
fn schedules() -> String {
    format!("schedules: {{ always: {{}}, never: {{ from: {}, to: {} }} }}", hour(2), hour(3))
}

fn said(response: &Response) -> (u16, Option<u64>, Option<u64>) {
    (response.status, number(response, "x-ratelimit-limit"), remaining(response))
}

#[test]
fn the_first_schedule_that_is_active_decides_and_usage_stays() {
    for algorithm in ALGORITHMS {
        let origin = Origin::ok();
        let schedules = schedules();
        let with = |rest: &str| format!("{schedules}\nlimits: [{BASE}, algorithm: {algorithm}{rest} }}]");
        let gateway = Gateway::before(&origin, &with(""));
        for left in [8, 7, 6] {
            assert_eq!(said(&gateway.get("/")), (200, Some(9), Some(left)), "{algorithm}");
        }
        for (during, expected) in [
            (", during: { schedule: always, rate: 20/day }", (200, Some(20), Some(16))),
            (", during: [{ schedule: never, rate: 30/day }]", (200, Some(9), Some(4))),
            (", during: [{ schedule: never, rate: 30/day }, { schedule: always, rate: 40/day }]", (200, Some(40), Some(34))),
            (", during: [{ schedule: always, rate: 6/day }, { schedule: always, rate: 50/day }]", (429, Some(6), Some(0))),
            (", during: [{ schedule: always, rate: unlimited }]", (200, None, None)),
            ("", (200, Some(9), Some(2))),
        ] {
            gateway.reload(&with(during));
            assert_eq!(said(&gateway.get("/")), expected, "{algorithm}{during}");
        }
    }
}

#[test]
fn during_has_rates_by_tier_and_a_clients_own_rate_stands() {
    let origin = Origin::ok();
    let config = format!(
        "{}
tiers: [free, pro]
trusted_proxies: loopback
identity: {{ order: [user, ip], user: {{ header: x-user-id, tier_header: x-user-tier }} }}
clients: [{{ id: acme, users: [u-1], limits: {{ plan: 7/day }} }}]
limits:
- name: plan
  per: client
  rate: {{ free: 10/day, pro: 20/day }}
  during: {{ schedule: always, rate: {{ free: 100/day, default: [200/day, 30/hour] }} }}",
        schedules()
    );
    let gateway = Gateway::before(&origin, &config);
    for (who, limit) in [("", 100), ("x-user-id: u\nx-user-tier: pro\n", 30), ("x-user-id: u-1\n", 7)] {
        assert_eq!(number(&super::ask(&gateway, "/", who), "x-ratelimit-limit"), Some(limit), "{who:?}");
    }
}

#[test]
fn a_list_of_schedules_is_any_of() {
    let origin = Origin::ok();
    let rows = [("[never, always]", "[never]", Some(8)), ("[never]", "[never]", None), ("[always]", "[never, always]", None)];
    for (matching, unless, left) in rows {
        let config =
            format!("{}\nlimits: [{BASE}, match: {{ schedule: {matching} }}, unless: {{ schedule: {unless} }} }}]", schedules());
        assert_eq!(remaining(&Gateway::before(&origin, &config).get("/")), left, "{matching} unless {unless}");
    }
}

#[test]
fn explain_goes_by_the_schedules_of_now() {
    let config = format!(
        "{}
listeners: [{{ name: public, address: '127.0.0.1:0' }}]
routes: [{{ name: all, match: {{ path: '/{{*rest}}' }}, upstream: echo }}]
upstreams: {{ echo: {{ builtin: echo }} }}
limits:
- {{ name: now, per: ip, rate: 9/day, match: {{ schedule: always }} }}
- {{ name: not-now, per: ip, rate: 9/day, match: {{ schedule: never }} }}
- {{ name: more, per: ip, rate: 9/day, during: {{ schedule: always, rate: 20/day }} }}",
        schedules()
    );
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    let output = run(&["explain", "--config", file.to_str().unwrap(), "--path", "/", "--ip", "1.2.3.4"], b"", DEADLINE).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |name: &str| text.lines().find(|line| line.contains(&format!(" {name}:"))).unwrap_or_default().to_owned();
    assert!(line("now").contains("q=9") && line("not-now").contains("does not apply") && line("more").contains("q=20"), "{text}");
}
