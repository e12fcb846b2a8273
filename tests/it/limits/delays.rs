//! `over: delay`: who is over the limit waits for his place instead of being refused, up to a point.

use super::{BUCKETS, about, ask, number, remaining, reset, retry_after};
use crate::harness::{Gateway, H2, Latch, Origin, Table, happens, together, until};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A limit with a delay on every request.
fn delaying(algorithm: &str, rate: &str, delay: &str) -> String {
    format!("limits: [{{ name: shape, per: ip, rate: {rate}, algorithm: {algorithm}, over: {{ delay: {delay} }} }}]")
}

/// When requests came to the upstream.
type Arrivals = Arc<Mutex<Vec<Instant>>>;

fn timing_origin() -> (Origin, Arrivals) {
    let arrivals = Arrivals::default();
    let theirs = Arc::clone(&arrivals);
    let origin = Origin::new(move |call| {
        theirs.lock().unwrap().push(Instant::now());
        let status = call.target().trim_start_matches('/').parse().unwrap_or(200);
        call.answer(format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n").as_bytes())
    });
    (origin, arrivals)
}

/// Checks that the `n`th arrival was not before `start` and so many intervals.
fn assert_spaced(arrivals: &Arrivals, start: Instant, interval: Duration, places: &[u32], what: &str) {
    let mut arrivals = arrivals.lock().unwrap().clone();
    arrivals.sort_unstable();
    assert_eq!(arrivals.len(), places.len(), "{what}");
    for (arrival, place) in arrivals.iter().zip(places) {
        let earliest = interval * *place;
        assert!(*arrival >= start + earliest, "{what}: {:?} instead of {earliest:?} or later", arrival.duration_since(start));
    }
}

#[test]
fn requests_leave_one_by_one_at_the_rate() {
    #[rustfmt::skip]
    let rows: &[(&str, &str, &[u32])] = &[
        ("leaky_bucket", "5/s", &[0, 1, 2, 3, 4, 5]),
        ("leaky_bucket", "300/min", &[0, 1, 2, 3, 4, 5]),
        ("gcra", "5/s burst 1", &[0, 1, 2, 3, 4, 5]),
        ("gcra", "5/s burst 3", &[0, 0, 0, 1, 2, 3]),
        ("token_bucket", "5/s burst 2", &[0, 0, 1, 2, 3, 4]),
    ];
    for (algorithm, rate, places) in rows {
        let (origin, arrivals) = timing_origin();
        let gateway = Gateway::before(&origin, &delaying(algorithm, rate, "{ max: 10s, queue: 10 }"));
        let start = Instant::now();
        let statuses = together(places.len(), |_| gateway.get("/").status);
        assert_eq!(statuses, vec![200; places.len()], "{algorithm} {rate}");
        assert_spaced(&arrivals, start, Duration::from_millis(200), places, &format!("{algorithm} {rate}"));
        let waited = places.iter().filter(|place| **place > 0).count();
        // Some may have come later than all at once, and waited for less or not at all.
        let delays = gateway.metric("tollgate_delay_seconds_count", &[("limit", "shape")]);
        assert!(delays >= 1.0 && delays <= waited as f64, "{algorithm} {rate}: {delays} of {waited} waited");
        assert_eq!(gateway.metric("tollgate_waiting_requests", &[]), 0.0);
    }
}

#[test]
fn a_cost_of_several_keeps_as_many_places() {
    let (origin, arrivals) = timing_origin();
    let limit = "{ name: shape, per: ip, rate: 10/s, cost: 3, algorithm: leaky_bucket, over: { delay: { max: 10s } } }";
    let gateway = Gateway::before(&origin, &format!("limits: [{limit}]"));
    let start = Instant::now();
    assert_eq!(together(3, |_| gateway.get("/").status), [200; 3]);
    assert_spaced(&arrivals, start, Duration::from_millis(100), &[0, 3, 6], "three places each");
}

#[test]
fn over_http2_each_stream_waits_for_itself() {
    let (origin, arrivals) = timing_origin();
    let gateway = Gateway::before(&origin, &delaying("leaky_bucket", "5/s", "{ max: 10s }"));
    let mut client = H2::connect(gateway.addr());
    let start = Instant::now();
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    let streams: Vec<u32> = (0..4).map(|_| client.request(&fields, None)).collect();
    for stream in streams {
        assert_eq!(client.receive(stream).outcome(), "200");
    }
    assert_spaced(&arrivals, start, Duration::from_millis(200), &[0, 1, 2, 3], "HTTP/2");
}

/// Algorithm, rate, longest wait: what a second request's Retry-After is.
#[rustfmt::skip]
const BEYOND: &[(&str, &str, &str, u64)] = &[
    ("leaky_bucket", "1/hour", "{ max: 10s }", 3590),
    ("gcra", "1/hour", "{ max: 10s }", 3590),
    ("token_bucket", "1/hour", "{ max: 10m }", 3000),
    ("gcra", "2/hour burst 1", "{ max: 1ms }", 1800),
];

#[test]
fn who_would_wait_for_too_long_is_refused_and_told_when_it_is_worth_while() {
    for (algorithm, rate, delay, expected) in BEYOND {
        let (origin, _) = timing_origin();
        let gateway = Gateway::before(&origin, &delaying(algorithm, rate, delay));
        assert_eq!(gateway.get("/").status, 200);
        for _ in 0..3 {
            let refused = gateway.get("/");
            let wait = retry_after(&refused).unwrap_or(0);
            assert!(refused.status == 429 && about(wait, *expected), "{algorithm} {rate} {delay}: {wait}, not {expected}");
            assert_eq!((refused.json()["limit"].as_str(), remaining(&refused)), (Some("shape"), Some(0)));
        }
        assert_eq!(origin.seen().len(), 1);
        assert_eq!(gateway.metric("tollgate_waiting_requests", &[]), 0.0);
    }
}

#[test]
fn who_finds_the_queue_full_is_refused() {
    for algorithm in BUCKETS {
        let (origin, _) = timing_origin();
        let rate = if algorithm == "leaky_bucket" { "1/min" } else { "1/min burst 1" };
        let gateway = Gateway::before(&origin, &delaying(algorithm, rate, "{ max: 10m, queue: 2 }"));
        assert_eq!(gateway.get("/").status, 200);
        let mut waiting = [gateway.client(), gateway.client()];
        for (n, client) in waiting.iter_mut().enumerate() {
            client.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
            until("it waits", || gateway.metric("tollgate_waiting_requests", &[]) == (n + 1) as f64);
        }
        for _ in 0..3 {
            let refused = gateway.get("/");
            let wait = retry_after(&refused).unwrap_or(0);
            assert!(refused.status == 429 && about(wait, 180), "{algorithm}: Retry-After {wait}, not 180");
        }
        assert_eq!(origin.seen().len(), 1, "{algorithm}: those that wait have not come through");
        assert_eq!(gateway.metric("tollgate_limited_total", &[("limit", "shape")]), 3.0);
    }
}

#[test]
fn the_access_log_says_how_long_a_request_waited() {
    for (format, word) in [("json", "\"delayed_us\":"), ("text", "delayed=")] {
        let (origin, _) = timing_origin();
        let limit = delaying("leaky_bucket", "4/s", "{ max: 10s }");
        let gateway = Gateway::before(&origin, &format!("access_log: {{ format: {format} }}\n{limit}"));
        assert_eq!(together(3, |_| gateway.get("/").status), [200; 3]);
        until("all lines are written", || gateway.access_log().lines().count() == 3);
        let log = gateway.access_log();
        let delay = |line: &str| {
            let digits = line.split_once(word)?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()?;
            Some(digits)
        };
        let mut delays: Vec<u64> = log.lines().map(|line| delay(line).unwrap_or(0)).collect();
        delays.sort_unstable();
        // The last has waited for two places of 250 ms, less the time that it came after the first.
        assert!(delays[0] == 0 && delays[2] > 250_000 && delays[2] <= 500_000, "{delays:?} in\n{log}");
    }
}

#[test]
fn the_upstreams_time_begins_when_the_wait_is_over() {
    for timeout in ["response: 400ms", "total: 400ms"] {
        let (origin, _) = timing_origin();
        let routes =
            format!("routes: [{{ name: all, match: {{ path: '/{{*rest}}' }}, upstream: origin, timeouts: {{ {timeout} }} }}]");
        let gateway = Gateway::before(&origin, &format!("{routes}\n{}", delaying("leaky_bucket", "1/s", "{ max: 10s }")));
        let start = Instant::now();
        assert_eq!(together(2, |_| gateway.get("/").status), [200; 2], "{timeout}");
        assert!(start.elapsed() >= Duration::from_millis(950), "{timeout}: the second has waited");
    }
}

#[test]
fn the_longest_of_several_waits_counts_and_a_refusal_elsewhere_wins() {
    let (origin, arrivals) = timing_origin();
    let config = "limits:
- { name: slow, per: ip, rate: 2/s, algorithm: leaky_bucket, over: { delay: { max: 10s } } }
- { name: fast, per: global, rate: 20/s burst 1, over: { delay: { max: 10s } } }
- { name: few, per: ip, rate: 3/day, algorithm: sliding_log }";
    let gateway = Gateway::before(&origin, config);
    let start = Instant::now();
    assert_eq!(together(3, |_| gateway.get("/").status), [200; 3]);
    assert_spaced(&arrivals, start, Duration::from_millis(500), &[0, 1, 2], "the slower decides");
    let refused = gateway.get("/");
    assert_eq!((refused.status, refused.json()["limit"].as_str()), (429, Some("few")));
    assert_eq!(gateway.metric("tollgate_waiting_requests", &[]), 0.0);
}

#[test]
fn a_shadow_limit_delays_nobody() {
    let (origin, _) = timing_origin();
    let limit = delaying("leaky_bucket", "1/min", "{ max: 10m }").replace("per: ip", "per: ip, mode: shadow");
    let gateway = Gateway::before(&origin, &limit);
    let answered = happens(Duration::from_secs(5), || gateway.statuses(4, "/") == [200; 4]);
    assert!(answered && origin.seen().len() == 4);
    assert_eq!(gateway.metric("tollgate_waiting_requests", &[]), 0.0);
}

#[test]
fn what_a_queue_says_of_itself_is_how_many_may_still_come_and_its_rate() {
    // A place every second and a wait of at most 5: one that passes and five that wait, all gone in 6 seconds.
    for (rate, delay, policy) in [("1/s", "{ max: 5s }", "\"shape\";q=6;w=6"), ("1/min", "{ max: 10m }", "\"shape\";q=11;w=660")]
    {
        let (origin, _) = timing_origin();
        let gateway = Gateway::before(&origin, &delaying("leaky_bucket", rate, delay));
        let first = ask(&gateway, "/", "");
        let said = ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| number(&first, name).unwrap());
        assert!(first.status == 200 && said[0] == said[1] + 1 && policy.contains(&format!("q={};", said[0])), "{rate}: {said:?}");
        assert_eq!(first.header("ratelimit-policy"), Some(policy), "q/w is the rate");
    }
}

#[test]
fn who_is_refused_by_a_full_queue_is_not_told_that_more_would_pass() {
    let mut table = Table::new("what is left when two may wait and two do");
    for algorithm in BUCKETS {
        let (origin, _) = timing_origin();
        let gateway = Gateway::before(&origin, &delaying(algorithm, "2/min", "{ max: 10m, queue: 2 }"));
        let mut clients: Vec<_> = (0..4).map(|_| gateway.client()).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        until("two wait", || gateway.metric("tollgate_waiting_requests", &[]) == 2.0);
        until("nobody else may", || gateway.get("/").status == 429);
        table.outcome(algorithm, "429 Some(0)", &format!("429 {:?}", remaining(&gateway.get("/"))));
    }
}

#[test]
fn a_request_that_waits_in_two_windows_is_one_that_waits() {
    let (origin, _) = timing_origin();
    let gateway = Gateway::before(&origin, &delaying("gcra", "[1/min, 30/hour burst 1]", "{ max: 10m }"));
    assert_eq!(gateway.get("/").status, 200);
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    until("it waits", || gateway.metric("tollgate_waiting_requests", &[]) > 0.0);
    assert_eq!(gateway.metric("tollgate_waiting_requests", &[]), 1.0);
}

#[test]
fn a_response_that_waited_says_what_is_true_when_it_is_sent() {
    let (origin, _) = timing_origin();
    let gateway = Gateway::before(&origin, &delaying("gcra", "1/s", "{ max: 10s }"));
    let mut resets: Vec<u64> = together(3, |_| reset(&gateway.get("/")));
    resets.sort_unstable();
    // Whoever has waited for his place has nothing before him: what is left is a second for himself, and those behind him.
    assert_eq!(resets[0], 1, "{resets:?}");
    assert!(resets.iter().all(|reset| *reset <= 2), "{resets:?}");
}

#[test]
fn what_a_queue_gives_back_does_not_bring_two_to_the_same_place() {
    let (door, arrivals) = (Latch::default(), Arrivals::default());
    let (behind, theirs) = (door.clone(), Arc::clone(&arrivals));
    let origin = Origin::new(move |call| {
        theirs.lock().unwrap().push(Instant::now());
        let fails = call.target() == "/fails";
        if fails {
            behind.wait();
        }
        call.answer(format!("HTTP/1.1 {} Said\r\nContent-Length: 0\r\n\r\n", if fails { 503 } else { 200 }).as_bytes())
    });
    let limit = delaying("leaky_bucket", "1/s", "{ max: 10s }").replace("per: ip", "per: ip, refund: { status: 5xx }");
    let gateway = Gateway::before(&origin, &limit);
    let mut clients = [gateway.client(), gateway.client(), gateway.client()];
    clients[0].send("GET /fails HTTP/1.1\r\nHost: a\r\n\r\n");
    origin.wait_heads(1);
    clients[1].send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    until("the second waits", || gateway.metric("tollgate_waiting_requests", &[]) == 1.0);
    door.open();
    assert_eq!(clients[0].receive().outcome(), "503");
    clients[2].send("GET /comes HTTP/1.1\r\nHost: a\r\n\r\n");
    let outcomes = [clients[1].receive().outcome(), clients[2].receive().outcome()];
    assert_eq!(outcomes, ["200", "200"]);
    let arrivals = arrivals.lock().unwrap().clone();
    let gap = arrivals[2].duration_since(arrivals[1]);
    // Half of the interval: the gateway may be late for one and in time for the other.
    assert!(gap >= Duration::from_millis(500), "{gap:?} between the second and the third, which had a second each");
}
