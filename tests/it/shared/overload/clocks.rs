//! Gateways that don't agree what time it is.

use super::{LEASE, Limit, STRICT, hold, overload};
use crate::harness::{Gateway, Latch, Origin, RedisServer, Skew, together, until};
use crate::shared::{acquainted, store};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Ten seconds, and a day, so that the days of calendars differ.
const WRONG: [Skew; 5] = [Skew::Wall(10), Skew::All(10), Skew::Wall(-10), Skew::Wall(DAY), Skew::Wall(-DAY)];
const DAY: i64 = 86_400;

/// Two gateways with the same configuration, of which one has a wrong clock.
fn apart(origin: &Origin, yaml: &str, skew: Skew) -> [Gateway; 2] {
    let both = [Gateway::before(origin, yaml), Gateway::before_at(origin, yaml, skew)];
    let (Skew::Wall(wrong) | Skew::All(wrong)) = skew;
    // What they say is the time of day.
    let [right, wronged] = both.each_ref().map(|gateway| {
        let response = gateway.get("/clock");
        let date = response.header("date").unwrap().to_owned();
        let time = date.split(' ').nth(4).unwrap();
        time.split(':').fold(0, |all, part| all * 60 + part.parse::<i64>().unwrap())
    });
    let off = (wronged - right - wrong).rem_euclid(DAY);
    assert!(!(5..=DAY - 5).contains(&off), "the clock of this gateway is not wrong by {wrong} s, but by {}", wronged - right);
    acquainted(&both);
    both
}

fn answers() -> Origin {
    Origin::new(|call| call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
}

/// Which day it is, and how far it is.
fn today() -> (i64, i64) {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    (now / DAY, now % DAY)
}

/// Short windows, so that the wrong gateway would always be in another one by its own clock.
#[test]
fn windows_are_the_stores_when_clocks_are_ten_seconds_apart() {
    let [fixed, _, _] = STRICT;
    let [_, sliding, gcra] = LEASE.map(|limit| Limit::new(limit.algorithm, limit.kind, 100));
    let limits = [fixed.yaml("strict"), sliding.yaml("lease"), gcra.yaml("lease")].concat();
    // One after the other would take too long.
    together(2, |i| {
        let (redis, origin) = (RedisServer::start(), answers());
        let routes = "routes: [{ name: all, match: { path: '/{*rest}' }, respond: { status: 200, body: ok } }]\n";
        let yaml = format!("{}limits:\n{limits}{routes}", store(&redis, ""));
        let both = apart(&origin, &yaml, [Skew::Wall(10), Skew::All(-10)][i]);
        hold(&overload(&redis, &both, &[fixed, sliding, gcra], &[0.5, 0.5], 6));
    });
}

#[test]
fn all_cells_are_admitted_once_whoever_has_the_wrong_time() {
    let limit = |name: &str, rest: &str| format!("- {{ name: {name}, per: global, match: {{ path: /{name} }}, {rest} }}\n");
    let limits = [
        limit("fixed", "rate: 40/30d, algorithm: fixed_window, consistency: strict"),
        limit("sliding", "rate: 60/30d, algorithm: sliding_window, consistency: lease"),
        limit("gcra", "rate: 60/30d, algorithm: gcra, consistency: lease"),
        limit("day", "rate: 40/day, algorithm: fixed_window, align: calendar, timezone: UTC, consistency: strict"),
        limit("leased-day", "rate: 60/day, algorithm: fixed_window, align: calendar, timezone: UTC, consistency: lease"),
    ];
    let origin = answers();
    for skew in WRONG {
        // If midnight comes in between there are two days.
        let admitted = (0..2).find_map(|_| {
            let (redis, (day, _)) = (RedisServer::start(), today());
            let both = apart(&origin, &format!("{}limits:\n{}", store(&redis, ""), limits.concat()), skew);
            let admitted = together(5, |i| {
                let path = ["/fixed", "/sliding", "/gcra", "/day", "/leased-day"][i];
                let (mut clients, mut admitted) = (both.each_ref().map(Gateway::client), 0);
                // Cells that one of them has leased are admitted by that one.
                until(&format!("{path}, {skew:?}: nothing is left"), || {
                    let statuses = clients.each_mut().map(|client| client.get(path).status());
                    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{path}, {skew:?}: {statuses:?}");
                    admitted += statuses.iter().filter(|status| **status == 200).count();
                    statuses == [429, 429]
                });
                (path, admitted)
            });
            (today().0 == day).then_some(admitted)
        });
        let all = [("/fixed", 40), ("/sliding", 60), ("/gcra", 60), ("/day", 40), ("/leased-day", 60)];
        assert_eq!(admitted.unwrap(), all, "{skew:?}");
    }
}

/// A day ends when the store's does.
#[test]
fn a_gateway_in_another_day_says_when_the_stores_day_ends() {
    let limits = "limits: [{ name: day, per: global, match: { path: /day }, rate: 1/day, algorithm: fixed_window, align: calendar, timezone: UTC }]\n";
    let origin = answers();
    let waits = (0..2).find_map(|_| {
        let (redis, (day, passed)) = (RedisServer::start(), today());
        let yaml = format!("{}{limits}", store(&redis, ""));
        // Yesterday or tomorrow, and another time.
        let skew = if passed < DAY / 2 { -DAY / 2 } else { DAY / 2 };
        let both = apart(&origin, &yaml, Skew::Wall(skew));
        assert_eq!(both[1].get("/day").status, 200);
        let waits = both.each_ref().map(|gateway| {
            let refused = gateway.get("/day");
            assert_eq!(refused.status, 429);
            refused.header("retry-after").unwrap().parse::<i64>().unwrap()
        });
        let (same, passed) = today();
        (same == day).then_some((waits, DAY - passed))
    });
    let (waits, left) = waits.unwrap();
    // Some moments have passed since they said so.
    assert!(waits.iter().all(|wait| (left..left + 60).contains(wait)), "{left} s are left of the day, they say {waits:?}");
}

#[test]
fn slots_are_shared_by_gateways_with_other_times() {
    // More than a slot lasts without being renewed: by the wrong clock all would have ended.
    for skew in [Skew::Wall(20), Skew::Wall(-20), Skew::All(10)] {
        let (door, busy) = (Latch::default(), Arc::new(AtomicU32::new(0)));
        let (opens, now) = (door.clone(), Arc::clone(&busy));
        let origin = Origin::new(move |call| {
            if call.target() == "/held" {
                now.fetch_add(1, Ordering::SeqCst);
                opens.wait();
            }
            call.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        });
        let redis = RedisServer::start();
        let yaml =
            format!("{}limits: [{{ name: two, per: global, match: {{ path: /held }}, concurrency: 2 }}]\n", store(&redis, ""));
        let both = apart(&origin, &yaml, skew);
        let mut held = both.each_ref().map(|gateway| {
            let mut client = gateway.client();
            client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        });
        until("two are under way", || busy.load(Ordering::SeqCst) == 2);
        let refused = together(8, |i| both[i % 2].get("/held").status);
        assert!(refused.iter().all(|status| *status == 429), "{skew:?}: {refused:?}");
        door.open();
        assert_eq!(held.each_mut().map(|client| client.receive().status()), [200, 200], "{skew:?}");
        for gateway in &both {
            until("there is a slot again", || gateway.get("/held").status == 200);
        }
        assert!((4..=6).contains(&busy.load(Ordering::SeqCst)), "{skew:?}: no more than those reached the upstream");
    }
}
