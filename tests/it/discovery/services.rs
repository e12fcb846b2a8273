//! Endpoints by service: SRV records.

use super::{answer, servers_at, shown, until_addresses};
use crate::harness::{Dns, Gateway, Origin, Says, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SERVICE: &str = "_http._tcp.api.internal";

fn upstream(keys: &str) -> String {
    format!("upstreams: {{ origin: {{ endpoints: ['http+srv://{SERVICE}'], balance: round_robin, {keys} }} }}")
}

fn services(services: &[(u16, u16, u16, &str)]) -> Says {
    Says::Services(services.iter().map(|(a, b, c, host)| (*a, *b, *c, (*host).to_owned())).collect(), 0)
}

#[test]
fn ports_and_weights_are_the_records() {
    let dns = Dns::start();
    let [one, two] = ["one", "two"].map(|says| Origin::new(move |call| answer(call, says)));
    let [first, second] = [&one, &two].map(|origin| origin.addr().port());
    dns.say(SERVICE, services(&[(10, 1, first, "a.internal"), (10, 3, second, "b.internal")]));
    dns.addresses("a.internal", &["127.0.0.1"]);
    dns.addresses("b.internal", &["127.0.0.1"]);
    let gateway = Gateway::start(&format!("{}\n{}", dns.settings(), upstream("")));
    assert_eq!(gateway.statuses(8, "/"), [200; 8]);
    assert_eq!((one.lines().len(), two.lines().len()), (2, 6));
    let shown = shown(&gateway);
    assert_eq!((&shown["names"][0]["name"], &shown["names"][0]["kind"]), (&SERVICE.into(), &"service".into()));
    // A host of it that can't be resolved keeps its addresses; a record that goes takes them along.
    dns.say("b.internal", Says::ServFail);
    let asked = dns.asked("b.internal");
    until("it is asked again", || dns.asked("b.internal") > asked + 3);
    assert_eq!(super::addresses(&gateway).len(), 2);
    dns.say(SERVICE, services(&[(10, 1, first, "a.internal")]));
    until_addresses(&gateway, [format!("127.0.0.1:{first}")]);
    dns.say(SERVICE, services(&[(0, 0, 0, "")]));
    until("there is no such service any more", || {
        gateway.metric("tollgate_dns_lookups_total", &[("name", SERVICE), ("result", "empty")]) > 0.0
    });
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn lower_priorities_stand_by() {
    let dns = Dns::start();
    let well = Arc::new(AtomicBool::new(true));
    let health = Arc::clone(&well);
    let first = Origin::new(move |call| match health.load(Ordering::SeqCst) {
        true => answer(call, "first"),
        false => call.answer(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"),
    });
    let (port, others) = servers_at(["127.0.0.2", "127.0.0.3"]);
    dns.say(
        SERVICE,
        services(&[(5, 1, first.addr().port(), "a.internal"), (7, 1, port, "b.internal"), (9, 1, port, "c.internal")]),
    );
    for (host, address) in [("a", "127.0.0.1"), ("b", "127.0.0.2"), ("c", "127.0.0.3")] {
        dns.addresses(&format!("{host}.internal"), &[address]);
    }
    let checks = "health: { path: /healthz, interval: 20ms, unhealthy_after: 1, healthy_after: 1 }";
    let gateway = Gateway::start(&format!("{}\n{}", dns.settings(), upstream(checks)));
    let texts = |n: usize| (0..n).map(|_| gateway.get("/x").text()).collect::<Vec<_>>();
    assert_eq!(texts(4), ["first"; 4]);
    assert_eq!(shown(&gateway)["endpoints"][1]["standby"], true);
    well.store(false, Ordering::SeqCst);
    until("the second takes over", || gateway.get("/x").text() == "127.0.0.2");
    assert_eq!(texts(4), ["127.0.0.2"; 4], "and the third still stands by");
    well.store(true, Ordering::SeqCst);
    until("the first is back", || gateway.get("/x").text() == "first");
    assert_eq!(texts(4), ["first"; 4]);
    assert_eq!(others[1].lines().iter().filter(|line| line.contains("/x")).count(), 0);
}
