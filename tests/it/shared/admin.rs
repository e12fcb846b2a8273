//! What operators see of the shared store.

use super::{ANSWERED, store};
use crate::harness::{Client, Gateway, RedisServer, until};
use serde_json::Value;

const LIMIT: &str = "limits: [{ name: all, per: global, rate: 100000/30d }]\n";

/// What `GET /store` says.
pub(super) fn store_text(gateway: &Gateway) -> String {
    let mut client = Client::connect(gateway.admin());
    client.ask("GET /store HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").response().text()
}

fn health(gateway: &Gateway) -> Value {
    serde_json::from_str(&store_text(gateway)).unwrap()
}

#[test]
fn the_admin_listener_tells_how_the_store_is_and_no_secret() {
    let mut redis = RedisServer::start();
    redis.command(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let url = format!("redis://:hunter2@127.0.0.1:{}", redis.port());
    let yaml = format!("store: {{ redis: {{ urls: '{url}', key_secret: pepper, timeout: 2s }} }}\n{LIMIT}{ANSWERED}");
    let gateway = Gateway::start(&yaml);
    until("the store is joined", || health(&gateway)["nodes"][0]["up"] == true);
    until("this gateway is counted", || health(&gateway)["instances"] == 1);
    let node = &health(&gateway)["nodes"][0];
    assert_eq!(health(&gateway)["topology"], "single");
    assert_eq!(node["address"], format!("127.0.0.1:{}", redis.port()));
    assert!(node["connections"].as_u64().unwrap() >= 1, "{node}");
    assert!(node["since"].as_str().unwrap().starts_with("20"), "{node}");
    let mut client = gateway.client();
    until("cells are leased", || {
        (0..20).for_each(|_| assert_eq!(client.get("/").status(), 200));
        gateway.metric("tollgate_store_leased_cells", &[]) > 0.5
    });
    until("and seen", || {
        (0..20).for_each(|_| assert_eq!(client.get("/").status(), 200));
        health(&gateway)["leases"]["cells"].as_u64().unwrap() > 0
    });
    redis.kill();
    until("the breaker is seen", || {
        gateway.get("/");
        health(&gateway)["nodes"][0]["up"] == false && gateway.metric("tollgate_store_up", &[]) < 0.5
    });
    assert!(health(&gateway)["nodes"][0]["last_error"].is_string());
    for said in [store_text(&gateway), gateway.metrics(), gateway.log()] {
        assert!(!said.contains("hunter2") && !said.contains("pepper"), "{said}");
    }
}

#[test]
fn a_gateway_that_counts_alone_says_so() {
    let gateway = Gateway::start(&format!("{LIMIT}{ANSWERED}"));
    let mut client = Client::connect(gateway.admin());
    assert_eq!(client.ask("GET /store HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status(), 404);
    assert!(!gateway.metrics().contains("tollgate_store_leased_cells "));
    let mut client = Client::connect(gateway.admin());
    assert_eq!(
        client.ask("POST /store HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").status(),
        405
    );
}

#[test]
fn a_gateway_that_stops_gives_back_what_it_had_leased() {
    let redis = RedisServer::start();
    let limit = "limits: [{ name: all, per: global, rate: 1000/30d, algorithm: fixed_window }]\n";
    let gateway = Gateway::start(&format!("{}{limit}{ANSWERED}", store(&redis, "")));
    until("the store is joined", || gateway.metric("tollgate_store_up", &[]) > 0.5);
    let mut client = gateway.client();
    (0..100).for_each(|_| assert_eq!(client.get("/").status(), 200));
    drop(client);
    gateway.stop();
    let counters = super::counters(&redis);
    assert!(counters.len() == 1 && counters[0].1.ends_with(":100"), "{counters:?}");
    assert_eq!(redis.command(&["ZCARD", "tollgate:instances"]), "0", "it is not counted any more");
}
