//! Handshakes: how clients come back, and how many may be under way.

use super::{dial, failures, gateway, handshakes, listener, outcome};
use crate::harness::{Authority, Gateway, Leaf, Origin, together, until};

#[test]
fn clients_come_back_without_a_whole_handshake() {
    let origin = Origin::ok();
    let (authority, gateway) = gateway(&origin, "workers: 2");
    for how in [authority.dial("localhost"), authority.dial("localhost").tls12()] {
        let (full, resumed) = (handshakes(&gateway, "full"), handshakes(&gateway, "resumed"));
        for nth in 0..6 {
            let mut client = dial(&gateway, &how).unwrap();
            assert_eq!(client.get("/").status(), 200);
            assert_eq!(client.wire().resumed(), nth > 0, "{nth}");
        }
        assert_eq!(handshakes(&gateway, "full"), full + 1.0);
        assert_eq!(handshakes(&gateway, "resumed"), resumed + 5.0);
    }
}

fn narrow(authority: &Authority, origin: &Origin, most: u32, timeout: &str) -> Gateway {
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let tls = format!("certificates: {pair}, max_handshakes: {most}");
    Gateway::before(origin, &format!("{}\nworkers: 2", listener(&tls, &format!(", timeouts: {{ handshake: {timeout} }}"))))
}

#[test]
fn no_more_than_so_many_are_under_way_and_the_others_wait() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let gateway = narrow(&authority, &origin, 2, "6s");
    let how = authority.dial("localhost");
    let under_way = || gateway.metric("tollgate_tls_handshakes_under_way", &[("listener", "public")]);
    // Who says nothing takes no place.
    let silent: Vec<_> = (0..3).map(|_| gateway.client()).collect();
    assert_eq!(outcome(&gateway, &how), "200");
    let mut stalled: Vec<_> = (0..3).map(|_| gateway.client()).collect();
    for client in &mut stalled {
        client.send([22, 3, 1]);
    }
    until("two are under way", || under_way() == 2.0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| outcome(&gateway, &how));
        until("one more waits", || gateway.metric("tollgate_worker_connections", &[]) == 7.0);
        assert_eq!(under_way(), 2.0);
        // Whoever leaves makes room: for the third that stalled, and for the one that does not.
        drop(stalled.drain(..2));
        assert_eq!(waiting.join().unwrap(), "200");
    });
    drop((silent, stalled));
    until("nobody is left", || under_way() == 0.0 && gateway.metric("tollgate_worker_connections", &[]) == 0.0);
    assert_eq!(outcome(&gateway, &how), "200");
}

#[test]
fn who_waits_too_long_is_closed_and_counted() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let gateway = narrow(&authority, &origin, 1, "400ms");
    let mut stalled: Vec<_> = (0..3).map(|_| gateway.client()).collect();
    for client in &mut stalled {
        client.send([22, 3, 1]);
    }
    for client in &mut stalled {
        assert!(client.is_closed());
    }
    until("all are counted", || failures(&gateway, "timeout") == 3.0);
    assert_eq!(outcome(&gateway, &authority.dial("localhost")), "200");
}

#[test]
fn a_crowd_gets_in_one_after_the_other() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let gateway = narrow(&authority, &origin, 2, "8s");
    let how = authority.dial("localhost");
    let outcomes = together(40, |_| outcome(&gateway, &how.clone().anew()));
    assert!(outcomes.iter().all(|outcome| outcome == "200"), "{outcomes:?}");
    assert_eq!(handshakes(&gateway, "full"), 40.0);
}
