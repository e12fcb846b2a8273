//! One server that dies, freezes, is slow, forgets or refuses.

use super::link_common::{BUDGET, Linked, SLACK, name, single};
use crate::harness::{FaultProxy, Network, RedisServer, happens, until};
use std::time::{Duration, Instant};
use tollgate::store::redis::link::{Fault, Refusal};

#[test]
fn a_decision_is_one_run_of_a_script() {
    let server = RedisServer::start();
    let linked = Linked::connected(single(&server.url()));
    assert_eq!(linked.count("a"), Ok(1));
    assert_eq!(linked.count("a"), Ok(2));
    assert_eq!(server.command(&["GET", "t:a"]), "2");
    assert_eq!(linked.metric("tollgate_store_round_trips_total{outcome=\"answered\"}"), 2);
    assert_eq!(linked.metric("tollgate_store_round_trip_seconds_count{}"), 2);
}

#[test]
fn a_server_without_the_script_is_given_its_text() {
    let mut server = RedisServer::start();
    let linked = Linked::connected(single(&server.url()));
    assert_eq!(linked.count("a"), Ok(1));
    assert_eq!(server.command(&["SCRIPT", "FLUSH"]), "OK");
    assert_eq!(linked.count("a"), Ok(2), "run once, by its text");
    assert_eq!(server.command(&["FLUSHALL"]), "OK");
    assert_eq!(linked.count("a"), Ok(1));
    server.restart();
    // Attempts on the old process's connections are lost; the new process has neither script nor counter.
    let mut first = None;
    until("the new process counts", || {
        first = linked.count("a").ok();
        first.is_some()
    });
    assert_eq!(first, Some(1));
}

#[test]
fn a_start_without_a_server_begins_down_and_joins_later() {
    let mut server = RedisServer::start();
    server.kill();
    let linked = Linked::start(single(&server.url()));
    assert_eq!(linked.count("a"), Err(Fault::Down));
    until("the reason is known", || linked.trouble().contains("cannot connect"));
    server.restart();
    linked.comes_back("a");
    assert_eq!(linked.count("a"), Ok(1));
}

#[test]
fn a_server_that_is_killed_is_left_alone_until_it_is_back() {
    let mut server = RedisServer::start();
    let linked = Linked::connected(single(&server.url()));
    assert_eq!(linked.count("a"), Ok(1));
    server.kill();
    // Whether the break or the request is noticed first is chance.
    let fault = linked.count("a").unwrap_err();
    assert!(matches!(fault, Fault::Lost | Fault::Down), "{fault:?}");
    linked.goes_down("a");
    assert_eq!(linked.count("a"), Err(Fault::Down));
    assert!(linked.metric("tollgate_store_breaker_opened_total") >= 1);
    until("it was tried", || linked.metric("tollgate_store_rebuilds_total{result=\"failed\"}") >= 1);
    assert_eq!(linked.metric(&format!("tollgate_store_up{{node=\"127.0.0.1:{}\"}}", server.port())), 0);
    server.restart();
    linked.comes_back("a");
    assert_eq!(linked.count("a"), Ok(1));
    assert_eq!(linked.metric(&format!("tollgate_store_up{{node=\"127.0.0.1:{}\"}}", server.port())), 1);
}

#[test]
fn a_frozen_server_costs_nobody_more_than_the_budget_and_is_used_again_when_it_thaws() {
    let server = RedisServer::start();
    let linked = Linked::connected(single(&server.url()));
    assert_eq!(linked.count("a"), Ok(1));
    server.stop_process();
    let mut timeouts = 0;
    until("the breaker opens", || {
        let started = Instant::now();
        let fault = linked.count("a").unwrap_err();
        assert!(started.elapsed() < BUDGET + SLACK, "{:?}", started.elapsed());
        assert!(matches!(fault, Fault::Timeout | Fault::Down), "{fault:?}");
        timeouts += usize::from(fault == Fault::Timeout);
        fault == Fault::Down
    });
    assert!(timeouts <= 5, "{timeouts} clients waited");
    // Long enough for the watchdog to have tried new connections, which a frozen server takes without a word.
    until("the watchdog has tried", || linked.metric("tollgate_store_rebuilds_total{result=\"failed\"}") >= 2);
    server.cont_process();
    linked.comes_back("a");
    // What was sent to it and not answered runs when it thaws: at most once each, and never again.
    let counted: i64 = server.command(&["GET", "t:a"]).parse().unwrap();
    assert!(counted <= 1 + i64::try_from(timeouts).unwrap(), "{counted} runs of {timeouts} attempts");
    assert_eq!(linked.count("a"), Ok(counted + 1));
}

#[test]
fn a_slow_server_is_no_server() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let linked = Linked::connected(single(&proxy.url()));
    proxy.set(Network::Slow(Duration::from_millis(500)));
    until("the breaker opens", || linked.count("a") == Err(Fault::Down));
    assert!(!happens(Duration::from_secs(2), || linked.link.is_up(&name("a"))), "probes are held to the budget too");
    proxy.set(Network::Sound);
    linked.comes_back("a");
    assert!(linked.count("b").is_ok());
}

#[test]
fn a_silent_network_is_got_over_with_new_connections() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let linked = Linked::connected(single(&proxy.url()));
    proxy.set(Network::Frozen);
    // Nobody asks anything: the probes alone notice.
    linked.goes_down("a");
    until("the watchdog has tried", || linked.metric("tollgate_store_rebuilds_total{result=\"failed\"}") >= 1);
    proxy.set(Network::Gone);
    proxy.set(Network::Sound);
    linked.comes_back("a");
    assert_eq!(linked.count("a"), Ok(1));
}

#[test]
fn what_may_have_run_is_not_run_again() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let mut settings = single(&proxy.url());
    settings.connections = 1;
    let linked = Linked::connected(settings);
    assert_eq!(linked.count("a"), Ok(1));
    for round in 1..=5 {
        proxy.set(Network::ForgetsAnAnswer);
        // A probe may be what loses its answer instead; then the next request finds all in order.
        let result = linked.count("a");
        let counted: i64 = server.command(&["GET", "t:a"]).parse().unwrap();
        match result {
            Err(fault @ (Fault::Lost | Fault::Timeout)) => assert!(fault.may_have_run()),
            Err(Fault::Down) => {}
            other => assert_eq!(other, Ok(counted), "round {round}"),
        }
        until("the answer was forgotten", || proxy.is(Network::Sound));
        linked.comes_back("a");
        let again: i64 = server.command(&["GET", "t:a"]).parse().unwrap();
        assert_eq!(again, counted, "round {round}: nothing was repeated");
        assert!(counted <= 1 + round, "round {round}: {counted} runs");
    }
    let runs: i64 = server.command(&["GET", "t:a"]).parse().unwrap();
    assert!(linked.metric("tollgate_store_round_trips_total{outcome=\"lost\"}") >= 1, "no answer was lost: {runs} runs");
}

#[test]
fn one_silent_connection_of_several_is_replaced() {
    let server = RedisServer::start();
    let proxy = FaultProxy::before(server.port());
    let mut settings = single(&proxy.url());
    settings.connections = 4;
    let linked = Linked::connected(settings);
    proxy.set(Network::OneIsSilent);
    // Nobody need ask for it to be found, and the others' keys are no worse for it.
    until("new connections are made", || linked.metric("tollgate_store_rebuilds_total{result=\"connected\"}") >= 2);
    assert_eq!(linked.metric("tollgate_store_breaker_opened_total"), 0);
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    assert_eq!(keys.map(|key| linked.count(key)), [Ok(1); 8]);
}

#[test]
fn connections_that_break_are_made_anew() {
    let server = RedisServer::start();
    let linked = Linked::connected(single(&server.url()));
    let rebuilt = linked.metric("tollgate_store_rebuilds_total{result=\"connected\"}");
    assert_eq!(server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]), "2");
    until("connections were made anew", || linked.metric("tollgate_store_rebuilds_total{result=\"connected\"}") > rebuilt);
    linked.comes_back("a");
    assert!(linked.count("a").is_ok());
}

/// A server that refuses with this must be left alone, and used when it no longer does.
fn refuses(server: &RedisServer, linked: &Linked, expected: Refusal, mend: impl FnOnce()) {
    let mut refused = 0;
    until(&format!("the breaker opens for {expected:?}"), || match linked.count("a") {
        Err(Fault::Refused(refusal)) => {
            assert_eq!(refusal, expected);
            refused += 1;
            false
        }
        Err(Fault::Down) => true,
        other => panic!("{other:?} of a server that refuses"),
    });
    let seen = linked.metric(&format!("tollgate_store_round_trips_total{{outcome=\"{}\"}}", expected.label()));
    assert_eq!(seen, refused);
    assert!(refused > 0 || linked.trouble().contains(&format!("{expected:?}")), "{}", linked.trouble());
    mend();
    linked.comes_back("a");
    let before: i64 = server.command(&["GET", "t:a"]).parse().unwrap_or(0);
    assert_eq!(linked.count("a"), Ok(before + 1));
}

#[test]
fn a_replica_is_left_alone() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let linked = Linked::connected(single(&server.url()));
    let port = other.port().to_string();
    assert_eq!(server.command(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    refuses(&server, &linked, Refusal::ReadOnly, || assert_eq!(server.command(&["REPLICAOF", "NO", "ONE"]), "OK"));
}

#[test]
fn a_server_whose_memory_is_full_is_left_alone() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "noeviction"]);
    let linked = Linked::connected(single(&server.url()));
    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    refuses(&server, &linked, Refusal::OutOfMemory, || assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "0"]), "OK"));
}

#[test]
fn a_server_that_loads_its_data_is_left_alone() {
    let server = RedisServer::start_with(&["--enable-debug-command", "yes", "--key-load-delay", "0"]);
    let linked = Linked::connected(single(&server.url()));
    // Enough to load for a while, a key every 20 ms, and to answer in between.
    assert_eq!(server.command(&["DEBUG", "POPULATE", "400"]), "OK");
    for (option, value) in [("loading-process-events-interval-bytes", "1024"), ("key-load-delay", "10000")] {
        assert_eq!(server.command(&["CONFIG", "SET", option, value]), "OK");
    }
    assert_eq!(server.command(&["SAVE"]), "OK");
    let mut client = server.client();
    client.send_bytes(b"DEBUG RELOAD NOSAVE\r\n");
    until("it loads", || linked.trouble().contains("Loading") || linked.count("a") == Err(Fault::Refused(Refusal::Loading)));
    // That was long enough.
    assert_eq!(server.command(&["CONFIG", "SET", "key-load-delay", "0"]), "OK");
    linked.comes_back("a");
    assert!(linked.count("a").is_ok());
}

#[test]
fn an_error_of_one_script_is_nobody_elses() {
    let server = RedisServer::start();
    let linked = Linked::connected(single(&server.url()));
    assert_eq!(server.command(&["LPUSH", "t:list", "x"]), "1");
    for _ in 0..30 {
        let fault = linked.count("list").unwrap_err();
        assert_eq!(fault, Fault::Refused(Refusal::Other));
        assert!(fault.may_have_run());
    }
    assert_eq!(linked.count("a"), Ok(1));
}
