//! What a reload keeps, and what it ends.

use super::{Server, admin, hits, servers, servers_behind, state, until_used, upstream};
use crate::harness::{Gateway, Latch, until};

const CHECKED: &str = "balance: round_robin, health: { path: /healthz, interval: 20ms, timeout: 2s, unhealthy_after: 1, healthy_after: 1 }, outlier: { consecutive_failures: 1, eject_for: 1h }";

#[test]
fn endpoints_that_stay_keep_their_state() {
    let servers = servers(5);
    let gateway = Gateway::start(&upstream(&servers[..4], CHECKED));
    servers[0].set_health(500);
    until_used(&gateway, &servers[0], false);
    admin(&gateway, &format!("POST /upstreams/origin/{}/drain", servers[1].address()));
    servers[2].set_status(503);
    until("it is ejected", || {
        gateway.get("/");
        state(&gateway, &servers[2])["used"] == false
    });
    let before = hits(&servers);
    // No check runs any more, so whoever is unhealthy stays so only because it is remembered.
    let unhurried = CHECKED.replace("20ms", "1h");
    gateway.reload(&upstream(servers.iter().rev(), &unhurried));
    assert_eq!(gateway.statuses(20, "/"), [200; 20]);
    let after = hits(&servers);
    assert_eq!(after[..3], before[..3], "none of them is used");
    assert_eq!((after[3] - before[3], after[4]), (10, 10));
    let [unhealthy, drained, ejected] = [0, 1, 2].map(|place| state(&gateway, &servers[place]));
    assert_eq!(
        (&unhealthy["healthy"], &drained["drained"], ejected["ejected_until"].is_string()),
        (&false.into(), &true.into(), true)
    );
}

#[test]
fn checks_of_endpoints_that_go_end() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(&servers, CHECKED));
    until("both are checked", || servers.iter().all(|server| server.checks() >= 3));
    gateway.reload(&upstream(&servers[..1], CHECKED));
    // The reload is in force a moment before the thread that checks hears of it.
    until("the connection of the last check is closed", || servers[1].origin.open() == 0);
    let wait_for = |n: usize| {
        let before = servers[0].checks();
        until("the one that stays is checked", || servers[0].checks() >= before + n);
    };
    wait_for(3);
    let ended = servers[1].checks();
    wait_for(15);
    assert_eq!(servers[1].checks(), ended);
    assert_eq!(gateway.metric("tollgate_endpoint_healthy", &[("endpoint", &servers[1].address())]), 0.0);
    assert!(
        !gateway
            .metrics()
            .contains(&format!("tollgate_endpoint_healthy{{upstream=\"origin\",endpoint=\"{}\"", servers[1].address()))
    );
}

#[test]
fn without_checks_nobody_stays_unhealthy() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(&servers, CHECKED));
    servers[0].set_health(500);
    until_used(&gateway, &servers[0], false);
    gateway.reload(&upstream(&servers, "balance: round_robin"));
    assert_eq!(state(&gateway, &servers[0])["used"], true);
    assert_eq!(gateway.statuses(10, "/"), [200; 10]);
    assert_eq!(servers[0].hits(), 5);
    let ended = servers[0].checks();
    gateway.reload(&upstream(&servers, "balance: random"));
    assert_eq!(servers[0].checks(), ended, "no check runs");
}

#[test]
fn an_endpoint_that_was_away_is_new() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(&servers, "balance: round_robin"));
    admin(&gateway, &format!("POST /upstreams/origin/{}/drain", servers[1].address()));
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
    gateway.reload(&upstream(&servers[..1], "balance: round_robin"));
    gateway.reload(&upstream(&servers, "balance: round_robin"));
    assert_eq!(gateway.statuses(10, "/"), [200; 10]);
    assert_eq!(hits(&servers), [11, 5]);
}

#[test]
fn requests_under_way_count_on_across_a_reload() {
    let door = Latch::default();
    let servers: Vec<Server> = servers_behind(2, &door);
    let gateway = Gateway::start(&upstream(&servers, "balance: least_requests"));
    let mut client = gateway.client();
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    until("it is under way", || hits(&servers).iter().sum::<usize>() == 1);
    let busy = usize::from(servers[1].hits() == 1);
    gateway.reload(&upstream(servers.iter().rev(), "balance: least_requests"));
    assert_eq!(state(&gateway, &servers[busy])["requests"], 1);
    assert_eq!(gateway.statuses(5, "/"), [200; 5]);
    assert_eq!(servers[1 - busy].hits(), 5, "the other one is less busy");
    door.open();
    assert_eq!(client.receive().outcome(), "200");
    until("it has ended", || state(&gateway, &servers[busy])["requests"] == 0);
}
