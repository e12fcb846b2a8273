//! Gateways that count together: real processes and a real Redis server.

mod admin;
mod all_or_none;
mod budget;
mod differential;
mod entries;
mod joint;
mod mistakes;
mod outage;
mod overload;
mod overtaken;
mod reloads;
mod remembered;
mod settling;
mod slots;
mod slots_in_outage;

use crate::harness::{Gateway, RedisClient, RedisServer, redis::text, together};
use std::time::{Duration, Instant};

/// Routes that the gateways answer by themselves, so that a test is about counting alone.
const ANSWERED: &str = "routes: [{ name: all, match: { path: '/{*rest}' }, respond: { status: 200, body: ok } }]
upstreams: {}
";

/// The section `store`, with a budget that a busy machine does not exceed. `more` begins with a comma, or is empty.
fn store(redis: &RedisServer, more: &str) -> String {
    format!("store: {{ redis: {{ urls: '{}', timeout: 2s{more} }} }}\n", redis.url())
}

/// `count` gateways with the same configuration, which know of each other.
fn gateways(count: usize, yaml: &str) -> Vec<Gateway> {
    let gateways = together(count, |_| Gateway::start(yaml));
    acquainted(&gateways);
    gateways
}

/// Waits until each knows how many there are.
fn acquainted(gateways: &[Gateway]) {
    for gateway in gateways {
        crate::harness::until("the gateways know of each other", || {
            #[expect(clippy::cast_precision_loss, reason = "a few gateways")]
            let all = gateways.len() as f64;
            (gateway.metric("tollgate_store_instances", &[]) - all).abs() < 0.5
        });
    }
}

/// What became of a load.
#[derive(Debug, Default)]
struct Load {
    admitted: u64,
    refused: u64,
    others: Vec<u16>,
}

/// Connections to each of some gateways, each of which asks for `path` again and again for a time.
fn load(gateways: &[Gateway], connections: &[usize], path: &str, time: Duration) -> Load {
    let places: Vec<_> =
        gateways.iter().zip(connections).flat_map(|(gateway, n)| std::iter::repeat_n(gateway.addr(), *n)).collect();
    let start = Instant::now();
    let loads = together(places.len(), |i| {
        let mut client = crate::harness::Client::connect(places[i]);
        let mut load = Load::default();
        while start.elapsed() < time {
            match client.get(path).status() {
                200 => load.admitted += 1,
                429 => load.refused += 1,
                other => load.others.push(other),
            }
        }
        load
    });
    loads.into_iter().fold(Load::default(), |mut sum, load| {
        sum.admitted += load.admitted;
        sum.refused += load.refused;
        sum.others.extend(load.others);
        sum
    })
}

/// Every counter with its value, in order: not the list of gateways, nor what breakers ask about. All keys must expire.
fn counters(redis: &RedisServer) -> Vec<(String, String)> {
    let mut client = redis.client();
    let mut counters: Vec<_> = keys(&mut client)
        .into_iter()
        .map(|key| {
            let left = text(&client.ask(&["PTTL", &key]));
            // Gone meanwhile, or with a time to live.
            assert!(left == "-2" || left.parse::<i64>().unwrap() > 0, "{key} lives {left} ms");
            let is_text = text(&client.ask(&["TYPE", &key])) == "string";
            let value = if is_text { text(&client.ask(&["GET", &key])) } else { String::new() };
            (key, value)
        })
        .filter(|(key, value)| !value.is_empty() && !key.contains("{probe-"))
        .collect();
    counters.sort();
    counters
}

fn keys(client: &mut RedisClient) -> Vec<String> {
    let (mut cursor, mut keys) = ("0".to_owned(), Vec::new());
    loop {
        let reply = text(&client.ask(&["SCAN", &cursor, "COUNT", "1000"]));
        let mut lines = reply.lines().map(str::to_owned);
        cursor = lines.next().unwrap();
        keys.extend(lines.filter(|line| !line.is_empty()));
        if cursor == "0" {
            return keys;
        }
    }
}

/// How often a command was called.
fn calls(redis: &RedisServer, command: &str) -> u64 {
    let stats = redis.command(&["INFO", "commandstats"]);
    let wanted = format!("cmdstat_{command}:calls=");
    stats.lines().find_map(|line| line.strip_prefix(&wanted)?.split(',').next()?.parse().ok()).unwrap_or(0)
}
