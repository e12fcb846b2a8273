//! Reloads while the store is away: what is counted meanwhile goes on, and afterwards the new limits are the ones that count there.

use super::admin::store_text;
use super::{ANSWERED, counters};
use crate::harness::{FaultProxy, Gateway, Network, RedisServer, happens, until};
use std::time::Duration;

fn limits(of_path: &str) -> String {
    format!(
        "limits:
- {{ {of_path}, per: global, match: {{ path: /counted }}, algorithm: fixed_window, consistency: strict }}
- {{ name: closed, per: global, match: {{ path: /closed }}, rate: 100000/30d, consistency: strict, on_failure: closed }}
"
    )
}

/// A gateway before a store whose network can fail while its counters stay.
struct Scene {
    redis: RedisServer,
    proxy: FaultProxy,
    gateway: Gateway,
}

fn yaml(url: &str, of_path: &str) -> String {
    format!("store: {{ redis: {{ urls: '{url}', timeout: 2s }} }}\n{}{ANSWERED}", limits(of_path))
}

impl Scene {
    fn new(of_path: &str) -> Self {
        let redis = RedisServer::start();
        let proxy = FaultProxy::before(redis.port());
        let gateway = Gateway::start(&yaml(&proxy.url(), of_path));
        let scene = Self { redis, proxy, gateway };
        scene.rejoins();
        scene
    }

    fn loses_the_store(&self) {
        self.proxy.set(Network::Gone);
        until("the store is known to be away", || self.gateway.get("/closed").status == 503);
    }

    fn finds_the_store(&self) {
        self.proxy.set(Network::Sound);
        self.rejoins();
    }

    fn rejoins(&self) {
        let joined = happens(Duration::from_secs(20), || self.gateway.get("/closed").status == 200);
        assert!(joined, "{}", store_text(&self.gateway));
    }

    fn reload(&self, of_path: &str) {
        self.gateway.reload(&yaml(&self.proxy.url(), of_path));
    }

    /// How many of so many are admitted; nothing else than that and refusals happens.
    fn admitted(&self, n: usize) -> usize {
        admitted(&self.gateway, n)
    }

    /// What the store has counted for the path, in any of its windows.
    fn counted(&self) -> Vec<String> {
        counters(&self.redis).into_iter().map(|(_, value)| value).filter(|value| !value.starts_with("f100000/")).collect()
    }
}

fn admitted(gateway: &Gateway, n: usize) -> usize {
    let statuses = gateway.statuses(n, "/counted");
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

fn has_one_that_ends_with(counted: &[String], end: &str) -> bool {
    counted.iter().filter(|value| value.ends_with(end)).count() == 1
}

#[test]
fn a_reload_of_the_same_limits_keeps_what_was_counted_without_the_store() {
    let scene = Scene::new("name: a, rate: 20/30d");
    assert_eq!(scene.admitted(5), 5);
    scene.loses_the_store();
    assert_eq!(scene.admitted(5), 5);
    scene.gateway.reload(&format!("{}rejection: {{ status: 429 }}\n", yaml(&scene.proxy.url(), "name: a, rate: 20/30d")));
    assert_eq!(scene.admitted(30), 10, "five with the store and five without");
    scene.finds_the_store();
    assert!(has_one_that_ends_with(&scene.counted(), ":5"), "what was decided here is not added: {:?}", scene.counted());
    assert_eq!(scene.admitted(30), 15, "the store goes on where it was");
    assert!(has_one_that_ends_with(&scene.counted(), ":20"), "{:?}", scene.counted());
}

#[test]
fn a_rate_that_changes_without_the_store_takes_usage_over_here_and_there() {
    let scene = Scene::new("name: a, rate: 20/30d");
    assert_eq!(scene.admitted(5), 5);
    scene.loses_the_store();
    assert_eq!(scene.admitted(5), 5);
    scene.reload("name: a, rate: 30/30d");
    assert_eq!(scene.admitted(40), 20, "ten of thirty are used");
    scene.reload("name: a, rate: 8/30d");
    assert_eq!(scene.admitted(5), 0, "more than all of eight");
    scene.finds_the_store();
    scene.reload("name: a, rate: 12/30d");
    assert_eq!(scene.admitted(30), 7, "the store knows of five");
    assert!(scene.counted().iter().any(|value| value.starts_with("f12/") && value.ends_with(":12")), "{:?}", scene.counted());
}

#[test]
fn a_limit_of_another_name_begins_anew_and_one_that_is_gone_refuses_nobody() {
    let scene = Scene::new("name: a, rate: 10/30d");
    assert_eq!(scene.admitted(4), 4);
    scene.loses_the_store();
    assert_eq!(scene.admitted(20), 6);
    scene.reload("name: b, rate: 10/30d");
    assert_eq!(scene.admitted(20), 10, "another name is another limit");
    scene.gateway.reload(&format!(
        "store: {{ redis: {{ urls: '{}', timeout: 2s }} }}\n{}{ANSWERED}",
        scene.proxy.url(),
        limits("name: elsewhere, rate: 1/30d").replace("/counted", "/elsewhere")
    ));
    assert_eq!(scene.admitted(20), 20, "no limit is left");
    scene.reload("name: b, rate: 10/30d");
    assert_eq!(scene.admitted(20), 10, "what was taken out of the configuration is forgotten here");
    scene.finds_the_store();
    assert_eq!(scene.admitted(20), 10, "of which the store knows nothing");
    let counted = scene.counted();
    assert!(has_one_that_ends_with(&counted, ":4") && has_one_that_ends_with(&counted, ":10"), "{counted:?}");
}

#[test]
fn a_store_that_was_killed_and_comes_back_empty_counts_by_the_limits_of_the_reload() {
    let mut redis = RedisServer::start();
    let gateway = Gateway::start(&yaml(&redis.url(), "name: a, rate: 10/30d"));
    until("the store is joined", || gateway.get("/closed").status == 200);
    assert_eq!(admitted(&gateway, 4), 4);
    redis.kill();
    until("the store is known to be away", || gateway.get("/closed").status == 503);
    gateway.reload(&yaml(&redis.url(), "name: a, rate: 15/30d"));
    assert_eq!(admitted(&gateway, 30), 11, "four with the store");
    redis.restart();
    assert!(happens(Duration::from_secs(20), || gateway.get("/closed").status == 200), "{}", store_text(&gateway));
    assert_eq!(admitted(&gateway, 30), 15);
    assert!(counters(&redis).iter().any(|(_, value)| value.starts_with("f15/") && value.ends_with(":15")));
}

#[test]
fn another_store_takes_effect_at_the_next_start_also_when_the_first_is_away() {
    let scene = Scene::new("name: a, rate: 10/30d");
    let other = RedisServer::start();
    assert_eq!(scene.admitted(3), 3);
    scene.loses_the_store();
    scene.gateway.reload(&yaml(&other.url(), "name: a, rate: 12/30d"));
    until("the log says so", || {
        let log = scene.gateway.log();
        log.lines().any(|line| line.contains("store.redis") && line.contains("takes effect at the next start"))
    });
    assert_eq!(scene.admitted(20), 9, "the limits of the reload are in force");
    assert_eq!(scene.gateway.get("/closed").status, 503, "the other store is not asked");
    scene.finds_the_store();
    assert_eq!(scene.admitted(20), 9, "the first store knows of three");
    assert_eq!(other.command(&["DBSIZE"]), "0");
}
