//! All six algorithms: how much they admit, and what they say about it.

use super::{ALGORITHMS, BUCKETS, DAY, about, ask, number, remaining, reset, retry_after};
use crate::harness::{Gateway, Origin, Response, Table, together};
use std::thread;
use std::time::Duration;

/// One limit for each algorithm, named after it and for a path of that name; `rest` is what all have.
fn one_each(rest: &str) -> String {
    let limit = |name: &str| {
        let (word, path) = (name.replace('_', "-"), format!("/{name}"));
        format!("- {{ name: {word}, match: {{ path: '{path}' }}, per: ip, algorithm: {name}, {rest} }}\n")
    };
    format!("limits:\n{}", ALGORITHMS.map(limit).concat())
}

#[test]
fn parallel_requests_are_admitted_up_to_the_limit_and_not_beyond() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &format!("workers: 2\n{}", one_each("rate: 17/day")));
    let mut table = Table::new("40 at once");
    for name in ALGORITHMS {
        let mut statuses = together(40, |_| gateway.get(&format!("/{name}")).status);
        statuses.sort_unstable();
        let admitted = statuses.iter().filter(|status| **status == 200).count();
        table.row(name, if admitted == 17 { String::new() } else { format!("{admitted} of 17 admitted: {statuses:?}") });
        table.outcome(name, "429", &gateway.get(&format!("/{name}")).status.to_string());
    }
}

/// Seconds until everything is there again, when `used` of 10 a day are in use; `None` where it depends on when the window began.
fn expected_reset(algorithm: &str, used: u64) -> Option<u64> {
    match algorithm {
        "sliding_log" => Some(DAY),
        bucket if BUCKETS.contains(&bucket) => Some(used * DAY / 10),
        _ => None,
    }
}

/// What a refusal's Retry-After has to be when `used` of 10 a day are in use and the request costs `cost`.
fn expected_retry(algorithm: &str, used: u64, cost: u64, reset: u64) -> u64 {
    match algorithm {
        "sliding_log" => DAY,
        "fixed_window" => reset,
        // The window that is now the present one fades in the next, at whose end it is forgotten.
        "sliding_window" => reset - DAY + (DAY - DAY * (10 - cost) / used),
        _ => (used + cost - 10) * DAY / 10,
    }
}

fn admitted_problem(response: &Response, algorithm: &str, used: u64) -> String {
    let said = ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| number(response, name));
    let reset = reset(response);
    let as_expected = expected_reset(algorithm, used).map_or((1..=2 * DAY).contains(&reset), |expected| about(reset, expected));
    let state = response.header("ratelimit").unwrap_or_default();
    let word = algorithm.replace('_', "-");
    let expected_state = format!("\"{word}\";r={};t={reset}", 10 - used);
    let policy = response.header("ratelimit-policy").unwrap_or_default();
    let holds = response.status == 200
        && said == [Some(10), Some(10 - used)]
        && as_expected
        && retry_after(response).is_none()
        && state == expected_state
        && policy == format!("\"{word}\";q=10;w=86400");
    if holds { String::new() } else { format!("{used} used: {} {said:?} reset {reset}, {state}, {policy}", response.status) }
}

fn refused_problem(response: &Response, algorithm: &str, used: u64, cost: u64) -> String {
    let (reset, retry) = (reset(response), retry_after(response).unwrap_or(0));
    let expected = expected_retry(algorithm, used, cost, reset);
    let state = response.header("ratelimit").unwrap_or_default();
    let holds = response.status == 429
        && remaining(response) == Some(10 - used)
        && about(retry, expected + 1)
        && state == format!("\"{}\";r={};t={retry}", algorithm.replace('_', "-"), 10 - used)
        && response.json()["retry_after"].as_u64() == Some(retry);
    if holds {
        String::new()
    } else {
        format!("refused with {used} used: {}, Retry-After {retry}, not {expected}, reset {reset}, {state}", response.status)
    }
}

#[test]
fn the_numbers_are_exact_for_costs_of_one_and_more() {
    let origin = Origin::ok();
    let route = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: origin, cost: 3 }]";
    let cases = [
        (1, one_each("rate: 10/day")),
        (1, one_each("rate: 10/day, cost: 1")),
        (3, one_each("rate: 10/day, cost: 3")),
        (3, format!("{route}\n{}", one_each("rate: 10/day"))),
        (4, format!("{route}\n{}", one_each("rate: 10/day, cost: 4"))),
        (10, one_each("rate: 10/day, cost: 10")),
    ];
    let mut table = Table::new("numbers on responses");
    for (cost, config) in cases {
        let gateway = Gateway::before(&origin, &config);
        for name in ALGORITHMS {
            let mut used = 0;
            while used + cost <= 10 {
                used += cost;
                let response = gateway.get(&format!("/{name}"));
                table.row(&format!("{name}, cost {cost}"), admitted_problem(&response, name, used));
            }
            let response = gateway.get(&format!("/{name}"));
            table.row(&format!("{name}, cost {cost}"), refused_problem(&response, name, used, cost));
        }
    }
}

#[test]
fn a_cost_of_nothing_asks_without_taking_and_passes_an_exhausted_limit() {
    let origin = Origin::ok();
    let routes = "routes:
- { name: free, match: { path: '/{*rest}', headers: { x-free: '1' } }, upstream: origin, cost: 0 }
- { name: all, match: { path: '/{*rest}' }, upstream: origin }";
    let gateway = Gateway::before(&origin, &format!("{routes}\n{}", one_each("rate: 2/day")));
    let mut table = Table::new("asking");
    for name in ALGORITHMS {
        let path = format!("/{name}");
        let first = ask(&gateway, &path, "x-free: 1\n");
        table.outcome(name, "200 Some(2) 0", &format!("{} {:?} {}", first.status, remaining(&first), reset(&first)));
        let keys = gateway.metric("tollgate_store_keys", &[("limit", &name.replace('_', "-"))]);
        table.row(name, if keys == 0.0 { String::new() } else { format!("asking made {keys} counters") });
        assert_eq!(gateway.statuses(3, &path), [200, 200, 429], "{name}");
        let last = ask(&gateway, &path, "x-free: 1\n");
        table.outcome(name, "200 Some(0) None", &format!("{} {:?} {:?}", last.status, remaining(&last), retry_after(&last)));
        table.outcome(name, "429", &gateway.get(&path).status.to_string());
    }
}

#[test]
fn a_cost_above_the_burst_never_passes_and_nobody_is_told_to_wait() {
    let origin = Origin::ok();
    let limits = one_each("rate: 5/day, cost: { header: x-cost, max: 9 }");
    let gateway = Gateway::before(&origin, &format!("trusted_proxies: loopback\n{limits}"));
    for name in ALGORITHMS {
        let path = format!("/{name}");
        for used in [false, true] {
            let never = ask(&gateway, &path, "x-cost: 6\n");
            assert_eq!((never.status, retry_after(&never)), (429, None), "{name}");
            assert_eq!(never.json()["retry_after"], serde_json::Value::Null, "{name}: {}", never.text());
            assert!(never.text().contains("costs more than limit"), "{name}: {}", never.text());
            assert_eq!(remaining(&never), Some(if used { 4 } else { 5 }), "{name}: it takes nothing");
            if !used {
                assert_eq!(remaining(&ask(&gateway, &path, "x-cost: 1\n")), Some(4), "{name}");
            }
        }
    }
}

#[test]
fn of_several_windows_the_tightest_is_told_and_the_longest_wait() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &one_each("rate: [3/hour, 4/day, 1000/week]"));
    let more = Gateway::before(&origin, &one_each("rate: [1/hour, 1/day, 50/week]"));
    for name in ALGORITHMS {
        let (path, word) = (format!("/{name}"), name.replace('_', "-"));
        let told = |response: &Response| {
            let item = response.header("ratelimit").unwrap_or_default();
            item.split(";t=").next().unwrap_or_default().replace(&word, "x")
        };
        let responses: Vec<_> = (0..4).map(|_| gateway.get(&path)).collect();
        let expected = [r#""x/1h";r=2"#, r#""x/1h";r=1"#, r#""x/1h";r=0"#, r#""x/1h";r=0"#];
        assert_eq!(responses.iter().map(told).collect::<Vec<_>>(), expected, "{name}");
        assert_eq!(responses.iter().map(|response| response.status).collect::<Vec<_>>(), [200, 200, 200, 429], "{name}");
        assert!(retry_after(&responses[3]).is_some_and(|wait| wait <= 2 * 3600), "{name}: only the hour refuses");
        assert_eq!(more.get(&path).status, 200);
        let both = more.get(&path);
        assert_eq!(told(&both), r#""x/1d";r=0"#, "{name}: both refuse, the day for longer");
        assert_eq!(both.header("ratelimit-policy"), Some(format!("\"{word}/1d\";q=1;w=86400").as_str()));
        let wait = retry_after(&both).unwrap();
        let expected = expected_of_one_a_day(name, reset(&both));
        assert!(about(wait, expected), "{name}: Retry-After {wait}, not {expected}");
    }
}

fn expected_of_one_a_day(algorithm: &str, reset: u64) -> u64 {
    // A window must end; a sliding one must fade to nothing as well.
    if ["fixed_window", "sliding_window"].contains(&algorithm) { reset } else { DAY }
}

#[test]
fn of_several_limits_the_longest_wait_is_told_and_a_refusal_takes_nothing_anywhere() {
    let origin = Origin::ok();
    for name in ALGORITHMS {
        let config = format!(
            "limits:
- {{ name: minute, per: ip, rate: 1/min, algorithm: {name}, match: {{ path: /narrow }} }}
- {{ name: day, per: ip, rate: 1/day, algorithm: {name}, match: {{ path: /narrow }} }}
- {{ name: hour, per: ip, rate: 1/hour, algorithm: {name}, match: {{ path: /narrow }} }}
- {{ name: wide, per: global, rate: 9/day, algorithm: {name} }}"
        );
        let gateway = Gateway::before(&origin, &config);
        let statuses = gateway.statuses(1, "/narrow");
        let refused: Vec<_> = (0..4).map(|_| gateway.get("/narrow")).collect();
        assert_eq!(statuses, [200], "{name}");
        for refused in refused {
            assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("day")), "{name}");
            let (wait, expected) = (retry_after(&refused).unwrap(), expected_of_one_a_day(name, reset(&refused)));
            assert!(about(wait, expected), "{name}: {wait}, not {expected}");
        }
        assert_eq!(remaining(&gateway.get("/wide")), Some(7), "{name}: one for the first, one for this");
    }
}

#[test]
fn waiting_as_long_as_retry_after_says_succeeds() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &one_each("rate: 1/s"));
    let refusals: Vec<u64> = ALGORITHMS
        .iter()
        .map(|name| {
            let refused = (0..50).map(|_| gateway.get(&format!("/{name}"))).find(|response| response.status == 429);
            retry_after(&refused.unwrap_or_else(|| panic!("{name} refuses"))).unwrap()
        })
        .collect();
    assert!(refusals.iter().all(|wait| (1..=2).contains(wait)), "{refusals:?}");
    // Waiting is what is tested here; to wait for longer never hurts.
    thread::sleep(Duration::from_secs(*refusals.iter().max().unwrap()));
    for name in ALGORITHMS {
        assert_eq!(gateway.get(&format!("/{name}")).status, 200, "{name} after {refusals:?}");
    }
}
