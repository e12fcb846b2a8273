//! What is in the store: values that make no sense, data and scripts that are lost, and the server's own clock.

use super::{Store, ask, correction};
use ::redis::Value;
use std::time::{Duration, SystemTime};
use tollgate::limit::Algorithm::{FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow, TokenBucket};
use tollgate::limit::{Calendar, CalendarUnit, Calendars, Key, Quota, Verdict, WallOffset};
use tollgate::store::redis::script::{Ask, StoreKey, charge, charged};

const HOUR: Duration = Duration::from_secs(3600);
const NOW: u64 = 1_796_000_000_000_000;

fn quotas() -> Vec<(&'static str, Quota)> {
    let quota = |algorithm| Quota::new(5, HOUR, None, algorithm).unwrap();
    vec![
        ("gcra", quota(Gcra)),
        ("owing", quota(TokenBucket).owing()),
        ("queue", quota(LeakyBucket).delaying(HOUR * 2, 10).unwrap()),
        ("fixed", quota(FixedWindow)),
        ("sliding", quota(SlidingWindow)),
        ("log", quota(SlidingLog)),
    ]
}

#[test]
fn a_value_that_makes_no_sense_is_as_good_as_none() {
    let mut store = Store::start();
    for (name, quota) in &quotas() {
        let key = format!("test:{name}");
        let fresh = store.charge(&[ask(name, quota, 1)], NOW)[0].outcome;
        let header = store.command(&["GET", &key]).split_once(' ').unwrap().0.to_owned();
        let endings = [
            "",
            "nan",
            "inf",
            "-1",
            "0x7f",
            "1e300",
            "1796000000000000.5",
            "9007199254740993",
            "x",
            ":",
            "1:2",
            "1:2:3:4:",
            "1:2:x",
            "-1:-2:-3",
            "99999999999999999999:1:1",
            "498888:99999999999999:1",
            "\0\0\0",
            "1:1e9",
            " ",
        ];
        let values = endings.iter().map(|ending| format!("{header} {ending}"));
        let headers =
            ["", " ", "text", "g5/0 1", "g0/1 1", "g1/1", "g9e99/1 5", "z5/36e8 7", "{\"a\":1}", "g5/36e8*nan 3", "f5/36e8 ::"];
        for value in values.chain(headers.iter().map(ToString::to_string)) {
            store.command(&["SET", &key, &value]);
            let answer = store.charge(&[ask(name, quota, 1)], NOW)[0].outcome;
            assert!(answer.verdict.conforms(), "{name} after {value:?}: {answer:?}");
            assert_eq!(answer.remaining, fresh.remaining, "{name} after {value:?}");
            store.assert_all_expire();
            store.command(&["SET", &key, &value]);
            for delta in [3, -3] {
                let settled = store.settle(&correction(name, quota, Some(NOW), delta), NOW);
                assert!(matches!(settled, Value::Int(0 | 1)), "{name} after {value:?}: {settled:?}");
            }
        }
    }
}

#[test]
fn a_value_of_another_type_is_got_over() {
    let mut store = Store::start();
    for (name, quota) in &quotas() {
        let key = format!("test:{name}");
        for command in [&["RPUSH", &key, "1"][..], &["HSET", &key, "a", "1"], &["ZADD", &key, "1", "a"], &["SADD", &key, "a"]] {
            store.command(&["DEL", &key]);
            store.command(command);
            assert!(store.charge(&[ask(name, quota, 1)], NOW)[0].outcome.verdict.conforms(), "{name} after {command:?}");
            assert_eq!(store.command(&["TYPE", &key]), "string");
            store.command(&["DEL", &key]);
            store.command(command);
            assert_eq!(store.settle(&correction(name, quota, None, 2), NOW), Value::Int(1), "{name} after {command:?}");
            store.assert_all_expire();
        }
    }
}

/// A log that is longer than what is read of it at once.
#[test]
fn a_long_log_is_read_in_slices_and_grows_at_its_end() {
    let mut store = Store::start();
    let quota = Quota::new(1000, Duration::from_secs(1000), None, SlidingLog).unwrap();
    let second = |second: u64| NOW + second * 1_000_000;
    let length = |store: &mut Store| store.command(&["STRLEN", "test:k"]).parse::<usize>().unwrap();
    // One a second, each for a thousand seconds: from the thousandth on one ends with each that comes.
    let mut longest = 0;
    for at in 0..3500 {
        let answer = store.charge(&[ask("k", &quota, 1)], second(at))[0].outcome;
        assert!(answer.verdict.conforms(), "{at}: {answer:?}");
        assert_eq!(answer.remaining, 999_u64.saturating_sub(at), "{at}");
        longest = longest.max(length(&mut store));
    }
    // Cells that have ended stay until there are more of them than of others, and no longer.
    assert!((7 * 1900..7 * 2100).contains(&longest), "{longest}");
    store.command(&["CONFIG", "RESETSTAT"]);
    let before = store.dump();
    for cost in [1, 500] {
        let refused = store.charge(&[ask("k", &quota, cost)], second(3499))[0].outcome;
        assert_eq!(refused.verdict, Verdict::Exceeds { retry_after: cost * 1_000_000_000 });
    }
    assert_eq!(store.dump(), before);
    let stats = store.command(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_getrange") && !stats.contains("cmdstat_mget"), "the whole log was read: {stats}");
    // After long silence everything has ended, and all of it goes.
    assert_eq!(store.charge(&[ask("k", &quota, 1)], second(9000))[0].outcome.remaining, 999);
    assert!(length(&mut store) < 40);
    store.assert_all_expire();
}

#[test]
fn a_long_log_that_is_damaged_is_as_good_as_none() {
    let mut store = Store::start();
    let quota = Quota::new(1000, HOUR, None, SlidingLog).unwrap();
    let header = "s1e3/36e8 ".len();
    let (noted, cells) = (header.to_string(), (header + 4).to_string());
    let damages = [&["APPEND", "test:k", "abc"][..], &["SETRANGE", "test:k", &noted, "zzzz"]];
    for damage in damages {
        for cost in [400, 40] {
            store.charge(&[ask("k", &quota, cost)], NOW);
        }
        store.command(damage);
        assert_eq!(store.charge(&[ask("k", &quota, 1)], NOW)[0].outcome.remaining, 999, "{damage:?}");
        store.charge(&[ask("k", &quota, 440)], NOW);
        store.command(damage);
        assert!(matches!(store.settle(&correction("k", &quota, Some(NOW), -3), NOW), Value::Int(0 | 1)), "{damage:?}");
        store.assert_all_expire();
        store.command(&["FLUSHALL"]);
    }
    // Times that no clock has told: whatever it comes to, it is an answer, and nobody waits for longer than a period.
    store.charge(&[ask("k", &quota, 500)], NOW);
    store.command(&["SETRANGE", "test:k", &cells, &"~".repeat(3500)]);
    let answer = store.charge(&[ask("k", &quota, 600)], NOW)[0].outcome;
    assert_eq!(answer.verdict, Verdict::Exceeds { retry_after: 3_600_000_000_000 });
    assert!(store.charge(&[ask("k", &quota, 600)], NOW + 3_600_000_000)[0].outcome.verdict.conforms());
}

#[test]
fn usage_goes_over_to_another_quota_in_cells() {
    let mut store = Store::start();
    let quota = |count| Quota::new(count, HOUR, None, Gcra).unwrap();
    let (five, ten, two) = (quota(5), quota(10), quota(2));
    store.charge(&[ask("k", &five, 5)], NOW);
    assert_eq!(store.charge(&[ask("k", &ten, 0)], NOW)[0].outcome.remaining, 5);
    let before = store.dump();
    let lowered = store.charge(&[ask("k", &two, 1)], NOW)[0].outcome;
    // One of five cells is left when four have come free, one in twelve minutes.
    assert_eq!((lowered.verdict, lowered.remaining), (Verdict::Exceeds { retry_after: 48 * 60 * 1_000_000_000 }, 0));
    assert_eq!(store.dump(), before, "a refusal writes nothing");
    assert_eq!(store.charge(&[ask("k", &five, 0)], NOW)[0].outcome.remaining, 0, "raised again, all are in use as before");
    let then = NOW + 48 * 60 * 1_000_000;
    assert!(!store.charge(&[ask("k", &two, 1)], then - 1)[0].outcome.verdict.conforms());
    assert!(store.charge(&[ask("k", &two, 1)], then)[0].outcome.verdict.conforms());
}

#[test]
fn a_quota_that_is_lowered_and_raised_again_gives_nothing_back() {
    let mut store = Store::start();
    // In a queue there would be places left.
    let refusing = || quotas().into_iter().filter(|(name, _)| *name != "queue");
    for (name, high) in refusing() {
        for (other, low) in refusing().map(|(other, quota)| (other, quota.share_of(3))) {
            store.command(&["FLUSHALL"]);
            assert!(store.charge(&[ask(name, &high, 5)], NOW)[0].outcome.verdict.conforms(), "{name}");
            let before = store.dump();
            let refused = store.charge(&[ask(name, &low, 2)], NOW + 7)[0].outcome;
            let Verdict::Exceeds { retry_after } = refused.verdict else { panic!("{name} as {other}: {refused:?}") };
            assert_eq!(store.dump(), before, "{name} as {other}");
            assert_eq!(store.charge(&[ask(name, &high, 0)], NOW + 7)[0].outcome.remaining, 0, "{name} as {other}");
            let then = NOW + 7 + retry_after / 1000;
            assert!(!store.charge(&[ask(name, &low, 2)], then - 1)[0].outcome.verdict.conforms(), "{name} as {other}");
            assert!(store.charge(&[ask(name, &low, 2)], then)[0].outcome.verdict.conforms(), "{name} as {other}");
        }
    }
}

#[test]
fn nobody_waits_for_a_slow_quota_under_a_faster_one() {
    let mut store = Store::start();
    for algorithm in [Gcra, TokenBucket, LeakyBucket, FixedWindow, SlidingWindow, SlidingLog] {
        store.command(&["FLUSHALL"]);
        let (slow, fast) =
            (Quota::new(50, 24 * HOUR, None, Gcra).unwrap(), Quota::new(20, Duration::from_secs(60), None, algorithm).unwrap());
        store.charge(&[ask("k", &slow, 50)], NOW);
        let refused = store.charge(&[ask("k", &fast, 1)], NOW + 7)[0].outcome;
        let Verdict::Exceeds { retry_after } = refused.verdict else { panic!("{algorithm:?}: {refused:?}") };
        assert!(retry_after <= 120_000_000_000, "{algorithm:?}: {retry_after}");
        let then = NOW + 7 + retry_after / 1000;
        assert!(!store.charge(&[ask("k", &fast, 1)], then - 1)[0].outcome.verdict.conforms(), "{algorithm:?}");
        assert!(store.charge(&[ask("k", &fast, 1)], then)[0].outcome.verdict.conforms(), "{algorithm:?}");
    }
}

#[test]
fn counters_and_scripts_that_are_lost() {
    let mut store = Store::start();
    let quotas = quotas();
    let asks: Vec<Ask<'_>> = quotas.iter().map(|(name, quota)| ask(name, quota, 1)).collect();
    for round in 0..3 {
        for left in [4, 3] {
            let answers = store.charge(&asks, NOW + round);
            assert_eq!(answers[0].outcome.remaining, left, "round {round}");
            store.command(&["SCRIPT", "FLUSH"]);
        }
        store.command(&["FLUSHALL"]);
    }
}

#[test]
fn a_server_that_was_frozen_and_one_that_comes_back_empty() {
    let mut store = Store::start();
    let quota = Quota::new(5, HOUR, None, Gcra).unwrap();
    let asks = [ask("k", &quota, 1)];
    let invocation = charge(&asks, 0, Some(NOW));
    store.run(&invocation);
    let mut server = store.server.take().unwrap();
    server.stop_process();
    store.client.send(&super::words("EVALSHA", &invocation.script.sha, &invocation)).unwrap();
    server.cont_process();
    assert_eq!(charged(&asks, &store.client.reply()).unwrap()[0].outcome.remaining, 3);
    server.restart();
    assert_eq!(server.command(&["DBSIZE"]), "0");
    let mut store = Store { client: server.client(), server: Some(server) };
    assert_eq!(store.charge(&asks, NOW)[0].outcome.remaining, 4);
}

#[test]
fn the_client_is_given_whole_commands() {
    let store = Store::start();
    let quota = Quota::new(5, HOUR, None, Gcra).unwrap();
    let asks = [ask("k", &quota, 1)];
    let invocation = charge(&asks, 0, None);
    let mut client = ::redis::Client::open(store.server.as_ref().unwrap().url()).unwrap().get_connection().unwrap();
    let unknown = invocation.evalsha().query::<Value>(&mut client).unwrap_err();
    assert_eq!(unknown.code(), Some("NOSCRIPT"));
    for (left, command) in [(4, invocation.eval()), (3, invocation.evalsha())] {
        let reply = command.query::<Value>(&mut client).unwrap();
        assert_eq!(charged(&asks, &reply).unwrap()[0].outcome.remaining, left);
    }
}

#[test]
fn every_name_of_a_script_is_the_servers_own() {
    let mut store = Store::start();
    let quota = Quota::new(5, HOUR, None, Gcra).unwrap();
    let invocation = charge(&[ask("k", &quota, 1)], 0, None);
    assert_eq!(store.command(&["SCRIPT", "LOAD", invocation.script.text]), *invocation.script.sha);
}

#[test]
fn without_a_time_from_here_the_servers_own_decides() {
    let mut store = Store::start();
    let quotas = quotas();
    let asks: Vec<Ask<'_>> = quotas.iter().map(|(name, quota)| ask(name, quota, 1)).collect();
    let unix = || u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros()).unwrap();
    let before = unix();
    let answers = store.charge_now(&asks);
    let after = unix();
    let log = answers.last().unwrap().outcome.mark;
    assert!((before..=after).contains(&log), "{before} {log} {after}");
    let again = store.charge_now(&asks);
    assert!(again.iter().zip(&answers).all(|(again, first)| again.outcome.remaining == first.outcome.remaining - 1));
    store.assert_all_expire();
}

#[test]
fn windows_of_a_calendar_are_chosen_by_the_servers_clock() {
    let mut store = Store::start();
    let offset = WallOffset::default();
    let calendar: &'static Calendar = Calendars::new(offset.clone()).intern(CalendarUnit::Day, "Europe/Berlin").unwrap();
    let quota = Quota::new(3, Duration::from_secs(86_400), None, FixedWindow).unwrap().aligned(calendar).unwrap();
    let day = Duration::from_secs(86_400);
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_036_400); // Midday of 2026-11-30 in Berlin.
    offset.set(noon, 0);
    let window = calendar.unix_window(0);
    assert_eq!((window.end - window.start, window.next_end - window.end), (86_400_000_000, 86_400_000_000));
    let mut remaining = |now: u64, cost: u64| {
        let asks = [ask("day", &quota, cost)];
        let reply = store.run(&charge(&asks, 0, Some(now)));
        let answer = charged(&asks, &reply).unwrap()[0];
        (answer.outcome.verdict.conforms(), answer.outcome.remaining, answer.until_end / 1000, answer.window)
    };
    let noon = window.start + 43_200_000_000;
    assert_eq!(remaining(noon, 2), (true, 1, 43_200_000_000, window.number));
    assert_eq!(remaining(noon, 2), (false, 1, 43_200_000_000, window.number));
    // The gateway's clock is behind: by the server's it is tomorrow.
    assert_eq!(remaining(window.end - 1, 1), (true, 0, 1, window.number));
    assert_eq!(remaining(window.end, 1), (true, 2, 86_400_000_000, window.number + 1));
    // And ahead: what was taken in the window after is not forgotten, nor does it lock anybody out.
    assert_eq!(remaining(window.end - 1, 1), (true, 1, 86_400_000_001, window.number + 1));
    offset.set(SystemTime::UNIX_EPOCH + Duration::from_micros(noon) + day, 0);
    assert_eq!(remaining(window.end + 5, 1), (true, 0, 86_400_000_000 - 5, window.number + 1));
    let other = Calendars::new(offset).intern(CalendarUnit::Month, "UTC").unwrap();
    let monthly = Quota::new(30, day * 30, None, FixedWindow).unwrap().aligned(other).unwrap();
    assert_eq!(store.charge(&[ask("day", &monthly, 1)], window.end + 6)[0].outcome.remaining, 26);
    store.assert_all_expire();
}

#[test]
fn a_counters_name_has_its_entity_in_braces() {
    let name = StoreKey::counter("tollgate", 0xab, Key([1, (2 << 20) | 7]));
    assert_eq!(name.as_bytes(), b"tollgate:{00000000000000ab}:000000000000000100000000002");
}
