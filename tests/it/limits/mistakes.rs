//! `tollgate check` on what a limit says: every mistake with its place, in words of the file.

use crate::harness::{DEADLINE, Table, run};
use std::fs;

const GOOD: &str = "listeners:
- { name: public, address: 127.0.0.1:0 }
admin: { address: 127.0.0.1:0 }
schedules: { business-hours: {}, nights: { from: '22:00', to: '06:00' } }
limits:
- name: plan
  per: client
  rate: 5/min
routes:
- name: all
  match: { path: '/{*rest}' }
  upstream: api
upstreams:
  api: { endpoints: [http://127.0.0.1:9001] }
";

/// What stands in place of `rate: 5/min` in line 8, the line of the problem, its path and what is said.
type Row = (&'static str, usize, &'static str, &'static str);

const RATE: &str = "limits[0].rate";
const COST: &str = "limits[0].cost";

#[rustfmt::skip]
const WRONG: &[Row] = &[
    ("rate: 5/min\n  cost: { header: x-cost, response_header: x-cost }", 9, COST, "a cost has one of header, response_header and response_json"),
    ("rate: 5/min\n  cost: { response_header: x-cost, response_json: a.b }", 9, COST, "a cost has one of header"),
    ("rate: 5/min\n  cost: {}", 9, COST, "a cost has one of header"),
    ("rate: 5/min\n  cost: { response_json: a.b, default: 3 }", 9, COST, "a cost from the response has no `default`; it has a `reserve`"),
    ("rate: 5/min\n  cost: { response_header: x-cost, default: 3 }", 9, COST, "it has a `reserve`"),
    ("rate: 5/min\n  cost: { header: x-cost, reserve: 3 }", 9, COST, "a cost from a request header reserves nothing; it has a `default`"),
    ("rate: 5/min\n  cost: { haeder: x-cost }", 9, "limits[0].cost.haeder", "did you mean `header`?"),
    ("rate: 5/min\n  cost: { header: 'x cost' }", 9, "limits[0].cost.header", "`x cost` is not a header's name"),
    ("rate: 5/min\n  cost: { response_header: '' }", 9, "limits[0].cost.response_header", "not a header's name"),
    ("rate: 5/min\n  cost: { response_json: 'usage..tokens' }", 9, "limits[0].cost.response_json", "a piece of the path is empty"),
    ("rate: 5/min\n  cost: { response_json: a, reserve: 6 }", 8, RATE, "a cost of 6 never fits into 5 at once"),
    ("rate: 5/min\n  cost: { response_header: x-cost, reserve: 6 }", 8, RATE, "a cost of 6 never fits into 5 at once"),
    ("rate: 5/min\n  cost: { header: x-cost, default: 6 }", 8, RATE, "a cost of 6 never fits into 5 at once"),
    ("rate: [50/min, 5/s]\n  cost: { response_json: a, reserve: 6 }", 8, "limits[0].rate[1]", "a cost of 6 never fits into 5 at once"),
    ("rate: 5/min\n  cost: 1.5", 9, COST, "a whole number"),
    ("rate: 5/min\n  cost: { graphql: { max_depth: 5 } }", 9, COST, "`graphql` is not available in this version"),
    ("rate: 5/min\n  over: delay", 9, "limits[0].over", "say how long a request may wait: {delay: {max: 2s, queue: 100}}"),
    ("rate: 5/min\n  over: delays", 9, "limits[0].over", "expected reject, or {delay: {max: 2s, queue: 100}}"),
    ("rate: 5/min\n  over: { delay: { queue: 5 } }", 9, "limits[0].over.delay", "`max` is required"),
    ("rate: 5/min\n  over: { delay: { max: 2s, queue: 0 } }", 9, "limits[0].over.delay.queue", "must be at least 1"),
    ("rate: 5/min\n  over: { delay: { max: 0s } }", 9, "limits[0].over.delay.max", "must be more than zero"),
    ("rate: 5/min\n  over: { delay: { max: 601s } }", 9, "limits[0].over.delay.max", "a request waits for 10 minutes at most"),
    ("rate: 5/min\n  over: { delay: { max: soon } }", 9, "limits[0].over.delay.max", "`soon` is not a duration"),
    ("rate: 5/min\n  over: { delay: { max: 2s, size: 5 } }", 9, "limits[0].over.delay.size", "unknown key `size`"),
    ("rate: 5/min burst 9\n  algorithm: leaky_bucket\n  over: { delay: { max: 2s } }", 8, RATE, "leaky_bucket with a delay has no burst"),
    ("rate: 5/min\n  algorithm: fixed_window\n  over: { delay: { max: 2s } }", 8, RATE, "fixed_window has no place to wait for"),
    ("rate: 5/min\n  algorithm: sliding_window\n  over: { delay: { max: 2s } }", 8, RATE, "sliding_window has no place to wait for"),
    ("rate: 5/min\n  algorithm: sliding_log\n  over: { delay: { max: 2s } }", 8, RATE, "sliding_log has no place to wait for"),
    ("concurrency: 5\n  over: { delay: { max: 2s } }", 9, "limits[0].over", "a concurrency limit has no rate"),
    ("concurrency: 5\n  count: { status: 401 }", 9, "limits[0].count", "a concurrency limit has no rate"),
    ("concurrency: 5\n  refund: { status: 401 }", 9, "limits[0].refund", "a concurrency limit has no rate"),
    ("concurrency: 5\n  during: { schedule: nights, rate: 5/s }", 9, "limits[0].during", "a concurrency limit has no rate"),
    ("concurrency: 5\n  align: calendar\n  timezone: UTC", 10, "limits[0].timezone", "a concurrency limit has no rate"),
    ("concurrency: 5\n  warmup: { for: 1h, factor: 2 }", 9, "limits[0].warmup", "a concurrency limit has no rate"),
    ("concurrency: 5\n  max_keys: 5", 9, "limits[0].max_keys", "a concurrency limit has no rate"),
    ("concurrency: 5\n  cost: { header: x-cost }", 9, COST, "a concurrency limit counts requests; it has no cost"),
    ("rate: 5/min\n  count: { status: 99 }", 9, "limits[0].count.status", "expected a status from 200 to 599, or a class such as 5xx"),
    ("rate: 5/min\n  count: { status: 600 }", 9, "limits[0].count.status", "expected a status from 200 to 599"),
    ("rate: 5/min\n  count: { status: '6xx' }", 9, "limits[0].count.status", "expected a status from 200 to 599"),
    ("rate: 5/min\n  refund: { status: '1xx' }", 9, "limits[0].refund.status", "expected a status from 200 to 599"),
    ("rate: 5/min\n  refund: { status: [401, 4x] }", 9, "limits[0].refund.status[1]", "expected a status from 200 to 599"),
    ("rate: 5/min\n  count: { statuses: 401 }", 9, "limits[0].count.statuses", "did you mean `status`?"),
    ("rate: 5/min\n  warmup: { for: 1h, factor: 0.5 }", 9, "limits[0].warmup.factor", "must be from 1 to 1000"),
    ("rate: 5/min\n  warmup: { for: 1h, factor: .nan }", 9, "limits[0].warmup.factor", "must be from 1 to 1000"),
    ("rate: 5/min\n  warmup: { for: 1h, factor: 1000.1 }", 9, "limits[0].warmup.factor", "must be from 1 to 1000"),
    ("rate: 5/min\n  warmup: { for: 0s, factor: 2 }", 9, "limits[0].warmup.for", "must be more than zero"),
    ("rate: 5/min\n  warmup: { for: 2h, factor: 2, forget_after: 1h }", 9, "limits[0].warmup.forget_after", "must not be less than `for`"),
    ("rate: 5/min\n  warmup: { for: 60d, factor: 2 }", 9, "limits[0].warmup.forget_after", "must not be less than `for`"),
    ("rate: 5/min\n  warmup: { factor: 2 }", 9, "limits[0].warmup", "`for` is required"),
    ("rate: 2000/min\n  algorithm: sliding_log\n  warmup: { for: 1h, factor: 3 }", 8, RATE, "sliding_log counts at most 4096"),
    ("rate: 5/day\n  timezone: Asia/Seoul", 9, "limits[0].timezone", "a time zone needs `align: calendar`"),
    ("rate: 5/day\n  align: calendar", 8, RATE, "only fixed_window has windows that can begin with a calendar's"),
    ("rate: 5/min\n  algorithm: fixed_window\n  align: calendar", 8, RATE, "a calendar has days, weeks and months"),
    ("rate: [5/day, 9/2d]\n  algorithm: fixed_window\n  align: calendar", 8, "limits[0].rate[1]", "write COUNT/day, COUNT/week or COUNT/month"),
    ("rate: 5/day\n  algorithm: fixed_window\n  align: callendar", 10, "limits[0].align", "did you mean `calendar`?"),
    ("rate: 5/day\n  algorithm: fixed_window\n  align: calendar\n  timezone: Asia/Seul", 11, "limits[0].timezone", "there is no time zone `Asia/Seul` (did you mean `Asia/Seoul`?)"),
    ("rate: 5/day\n  algorithm: fixed_window\n  align: calendar\n  timezone: KST", 11, "limits[0].timezone", "there is no time zone `KST`"),
    ("rate: 4097/day\n  algorithm: sliding_log", 8, RATE, "sliding_log counts at most 4096 per window; use gcra for more"),
    ("rate: 1048576/day\n  algorithm: sliding_window", 8, RATE, "sliding_window counts at most 1048575 per window; use gcra for more"),
    ("rate: 4294967296/day\n  algorithm: fixed_window", 8, RATE, "fixed_window counts at most 4294967295 per window"),
    ("rate: 5/999ms\n  algorithm: fixed_window", 8, RATE, "fixed_window needs a period of at least 1s"),
    ("rate: 5/9ms\n  algorithm: sliding_window", 8, RATE, "sliding_window needs a period of at least 10ms"),
    ("rate: 5/min burst 9\n  algorithm: fixed_window", 8, RATE, "fixed_window has no burst"),
    ("rate: 5/min burst 9\n  algorithm: sliding_window", 8, RATE, "sliding_window has no burst"),
    ("rate: 5/min burst 9\n  algorithm: sliding_log", 8, RATE, "sliding_log has no burst"),
    ("rate: 5/min\n  algorithm: token-bucket", 9, "limits[0].algorithm", "did you mean `token_bucket`?"),
    ("rate: 5/min\n  during: { schedule: nigths, rate: 5/s }", 9, "limits[0].during[0].schedule", "there is no schedule `nigths` in `schedules` (did you mean `nights`?)"),
    ("rate: 5/min\n  during: [{ schedule: nights, rate: 5/s }, { schedule: x, rate: 5/s }]", 9, "limits[0].during[1].schedule", "there is no schedule `x`"),
    ("rate: 5/min\n  during: { schedule: nights, rate: 0/s }", 9, "limits[0].during.rate", "must be at least 1"),
    ("rate: 5/min\n  during: { schedule: nights, rate: { gold: 5/s, default: 1/s } }", 9, "limits[0].during[0].rate.gold", "there is no tier `gold`"),
    ("rate: 5/min\n  cost: 3\n  during: { schedule: nights, rate: 2/s }", 10, "limits[0].during[0].rate", "a cost of 3 never fits into 2 at once"),
    ("rate: 5/min\n  during: { schedule: nights, rate: 9/s burst 1 }\n  algorithm: sliding_log", 9, "limits[0].during[0].rate", "sliding_log has no burst"),
    ("rate: 5/min\n  match: { schedule: busines-hours }", 9, "limits[0].match.schedule[0]", "did you mean `business-hours`?"),
    ("rate: 5/min\n  unless: { schedule: [nights, never] }", 9, "limits[0].unless.schedule[1]", "there is no schedule `never`"),
    ("rate: 5/min\n  match: { schedule: [] }", 9, "limits[0].match.schedule", "an empty list matches nothing"),
    ("rate: 5/min\n  max_keys: 0", 9, "limits[0].max_keys", "must be at least 1"),
    ("rate: 5/min\n  max_keys: 1000001", 9, "limits[0].max_keys", "take 1000001 entries of the store's 1000000"),
    ("rate: 5/min\n  max_keys: 600000\n- { name: b, per: ip, rate: 1/s, max_keys: 600001 }", 10, "limits[1].max_keys", "take 1200001 entries of the store's 1000000"),
    ("rate: 4096/min\n  algorithm: sliding_log\n  max_keys: 1000", 10, "limits[0].max_keys", "take 1369000 entries of the store's 1000000"),
    ("rate: 5/min\n  on_failure: open", 9, "limits[0].on_failure", "there is no shared store"),
];

/// Everything `check` prints of the good file with this in place of its rate, and its exit code.
fn checked(instead: &str) -> (Option<i32>, String) {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    fs::write(&file, GOOD.replace("rate: 5/min", instead)).unwrap();
    let output = run(&["check", file.to_str().unwrap()], b"", DEADLINE).expect("check ends");
    let text = [String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)].concat();
    (output.status.code(), text)
}

#[test]
fn the_file_without_a_mistake_is_good() {
    assert_eq!(checked("rate: 5/min").0, Some(0));
}

#[test]
fn every_mistake_is_told_with_its_line_its_path_and_what_is_wrong() {
    let mut table = Table::new("mistakes");
    for (instead, line, path, said) in WRONG {
        let (code, text) = checked(instead);
        // A rate that is alone has a place in a list all the same.
        let place = |line_of_text: &str| {
            line_of_text.contains(&format!("gateway.yaml:{line}:"))
                && (line_of_text.contains(&format!(" {path}: ")) || line_of_text.contains(&format!(" {path}[0]: ")))
                && line_of_text.contains(said)
        };
        let told = code == Some(65) && text.lines().any(place);
        table.row(instead, if told { String::new() } else { format!("exit {code:?}: {text}") });
    }
}

#[test]
fn two_mistakes_of_one_limit_are_told_at_once() {
    let (code, text) = checked("rate: 5/min\n  max_keys: 0\n  timezone: UTC\n  warmup: { for: 1h, factor: 0 }");
    assert_eq!((code, text.matches("limits[0].").count()), (Some(65), 3), "{text}");
}

/// What the file means, for which the code's own words are no help.
#[rustfmt::skip]
const IN_WORDS: &[(&str, &str)] = &[
    ("rate: 5/min\n  over: { delay: 2s }", "struct"),
    ("rate: 5/min\n  count: 401", "struct"),
    ("rate: 5/min\n  warmup: 2", "struct"),
    ("rate: 5/min\n  during: nights", "struct"),
    ("rate: 5/min\n  cost: { header: x-cost, default: -1 }", "u32"),
    ("rate: 5/min\n  cost: { header: x-cost, max: many }", "u32"),
    ("rate: 5/min\n  over: { delay: { max: 2s, queue: many } }", "u32"),
    ("rate: 5/min\n  max_keys: -1", "u64"),
    ("rate: 5/min\n  warmup: { for: 1h, factor: two }", "f64"),
    // It has neither a header nor a response's; which it was to be can't be known.
    ("rate: 5/min\n  cost: { default: 3 }", "from the response"),
];

#[test]
fn what_is_said_is_about_the_file_and_not_about_the_code() {
    let mut table = Table::new("words that don't help");
    for (instead, word) in IN_WORDS {
        let (code, text) = checked(instead);
        let holds = code == Some(65) && !text.contains(word);
        table.row(instead, if holds { String::new() } else { format!("exit {code:?}: {text}") });
    }
}

/// What can't be meant.
#[rustfmt::skip]
const MEANINGLESS: &[&str] = &[
    "rate: 5/min\n  count: { status: [] }",
    "rate: 5/min\n  refund: { status: [] }",
    "rate: 5/min\n  cost: { header: x-cost, default: 3, max: 2 }",
    "rate: 5/min\n  cost: { response_json: a, reserve: 3, max: 2 }",
    "rate: 5/min\n  cost: { response_header: a, reserve: 0, max: 0 }",
    "concurrency: 5\n  algorithm: sliding_log",
];

#[test]
fn what_has_no_meaning_is_refused() {
    let mut table = Table::new("settings without a meaning");
    for instead in MEANINGLESS {
        let (code, _) = checked(instead);
        table.row(instead, if code == Some(65) { String::new() } else { format!("exit {code:?}") });
    }
}
