//! What an operator sees of endpoints, and what he may do.

use super::{admin, hits, servers, servers_behind, state, until_used, upstream};
use crate::harness::{Gateway, Latch, exchange, until};

#[test]
fn the_state_of_every_endpoint_is_shown() {
    let servers = servers(2);
    let yaml = upstream(&servers, "balance: random").replace(
        &format!("'http://{}'", servers[1].address()),
        &format!("{{ url: 'http://{}', weight: 3 }}", servers[1].address()),
    );
    let gateway = Gateway::start(&yaml);
    let (status, all) = admin(&gateway, "GET /upstreams");
    assert_eq!((status, all["upstreams"].as_array().unwrap().len()), (200, 1));
    assert_eq!(all["upstreams"][0], admin(&gateway, "GET /upstreams/origin").1);
    let second = serde_json::json!({
        "address": servers[1].address(), "weight": 3, "weight_share": 1.0, "requests": 0, "healthy": true, "ejected_until": null,
        "drained": false, "standby": false, "from": "configuration", "resolved_from": null, "used": true,
    });
    assert_eq!((&all["upstreams"][0]["panic"], &all["upstreams"][0]["endpoints"][1]), (&false.into(), &second));
}

#[test]
fn a_drained_endpoint_gets_nothing_new_and_finishes_what_it_has() {
    let door = Latch::default();
    let servers = servers_behind(2, &door);
    let gateway = Gateway::start(&upstream(&servers, "balance: round_robin"));
    let mut clients = [gateway.client(), gateway.client()];
    for client in &mut clients {
        client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    until("each has one", || hits(&servers) == [1, 1]);
    let path = format!("/upstreams/origin/{}/drain", servers[0].address());
    let (status, drained) = admin(&gateway, &format!("POST {path}"));
    assert_eq!(
        (status, &drained["drained"], &drained["used"], &drained["requests"]),
        (200, &true.into(), &false.into(), &1.into())
    );
    assert_eq!(gateway.metric("tollgate_endpoint_drained", &[("endpoint", &servers[0].address())]), 1.0);
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
    assert_eq!(hits(&servers), [1, 7]);
    door.open();
    for client in &mut clients {
        assert_eq!(client.receive().outcome(), "200", "what was under way is finished");
    }
    until("its connections are closed", || servers[0].origin.open() == 0);
    assert_eq!(state(&gateway, &servers[0])["requests"], 0);

    let (status, enabled) = admin(&gateway, &format!("DELETE {path}"));
    assert_eq!((status, &enabled["drained"], &enabled["used"]), (200, &false.into(), &true.into()));
    assert_eq!(gateway.statuses(6, "/"), [200; 6]);
    assert_eq!(servers[0].hits(), 4);
}

#[test]
fn draining_all_leaves_a_503_and_panic_does_not_undo_it() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(&servers, "panic_below: 100%"));
    for server in &servers {
        assert_eq!(admin(&gateway, &format!("POST /upstreams/origin/{}/drain", server.address())).0, 200);
    }
    let refused = gateway.get("/");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(hits(&servers), [0, 0]);
}

#[test]
fn who_returns_begins_with_a_small_share() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(&servers, "balance: round_robin, slow_start: 1h"));
    assert_eq!(gateway.statuses(10, "/"), [200; 10]);
    assert_eq!(hits(&servers), [5, 5], "at the start nobody is new");
    let path = format!("/upstreams/origin/{}/drain", servers[0].address());
    admin(&gateway, &format!("POST {path}"));
    admin(&gateway, &format!("DELETE {path}"));
    until_used(&gateway, &servers[0], true);
    let share = state(&gateway, &servers[0])["weight_share"].as_f64().unwrap();
    assert!((0.009..0.02).contains(&share), "{share}");
    let mut client = gateway.client();
    for _ in 0..300 {
        assert_eq!(client.get("/").status(), 200);
    }
    let slow = servers[0].hits() - 5;
    assert!((1..=6).contains(&slow), "{slow} of 300 requests, where a hundredth of a full share is 3");
}

#[test]
fn a_share_grows_to_the_whole() {
    let servers = servers(2);
    let gateway = Gateway::start(&upstream(&servers, "slow_start: 500ms"));
    let path = format!("/upstreams/origin/{}/drain", servers[0].address());
    admin(&gateway, &format!("POST {path}"));
    let (_, enabled) = admin(&gateway, &format!("DELETE {path}"));
    assert!(enabled["weight_share"].as_f64().unwrap() < 0.5, "{enabled}");
    until("it has its whole share", || state(&gateway, &servers[0])["weight_share"] == 1.0);
}

#[test]
fn what_does_not_exist_is_a_404_and_a_wrong_method_a_405() {
    let servers = servers(1);
    let gateway = Gateway::start(&upstream(&servers, ""));
    let address = servers[0].address();
    for line in [
        "GET /upstreams/nobody".to_owned(),
        "GET /upstreamsx".to_owned(),
        format!("GET /upstreams/origin/{address}"),
        "POST /upstreams/origin/127.0.0.1:1/drain".to_owned(),
        format!("DELETE /upstreams/nobody/{address}/drain"),
        format!("POST /upstreams/origin/{address}/drain/"),
    ] {
        let (status, body) = admin(&gateway, &line);
        assert_eq!((status, body["error"].as_str()), (404, Some("not_found")), "{line}");
    }
    for line in ["POST /upstreams", "DELETE /upstreams/origin", &format!("GET /upstreams/origin/{address}/drain")] {
        let reply =
            exchange(gateway.admin(), format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")).response();
        assert!(reply.status == 405 && reply.header("allow").is_some(), "{line} says {}", reply.status);
    }
    assert_eq!(state(&gateway, &servers[0])["drained"], false);
}

#[test]
fn names_and_addresses_may_come_encoded() {
    let gateway = Gateway::start(
        "upstreams: { 'a/b c': { endpoints: ['http://[::1]:9'] } }\nroutes: [{ name: all, match: { path: / }, upstream: 'a/b c' }]",
    );
    let (status, state) = admin(&gateway, "POST /upstreams/a%2Fb%20c/%5B::1%5D:9/drain");
    assert_eq!((status, &state["address"], &state["drained"]), (200, &"[::1]:9".into(), &true.into()));
}

#[test]
fn nobody_drains_without_the_token_or_from_a_web_page() {
    let servers = servers(1);
    let gateway = Gateway::start(&format!("admin: {{ address: '127.0.0.1:0', token: secret }}\n{}", upstream(&servers, "")));
    let ask = |line: &str, fields: &str| {
        exchange(gateway.admin(), format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{fields}\r\n")).status()
    };
    let drain = format!("POST /upstreams/origin/{}/drain", servers[0].address());
    let token = "Authorization: Bearer secret\r\n";
    assert_eq!(ask(&drain, ""), 401);
    assert_eq!(ask("GET /upstreams", ""), 401);
    assert_eq!(ask(&drain, &format!("{token}Origin: http://evil.example\r\n")), 403);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(ask(&drain, token), 200);
    assert_eq!(gateway.get("/").status, 503);
}
