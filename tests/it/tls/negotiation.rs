//! What is spoken to an upstream over TLS: what both sides can, by ALPN. The upstream is a second gateway, whose log says what it heard.

use super::listener;
use crate::harness::{Authority, Gateway, Leaf, Table, until};
use std::thread;

/// An upstream that speaks these, and logs what is spoken.
fn upstream(authority: &Authority, protocols: &str) -> Gateway {
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    Gateway::start(&format!(
        "{}\nupstreams: {{ origin: {{ builtin: echo }} }}\naccess_log: {{ format: json, to: stdout }}",
        listener(&format!("certificates: {pair}"), &format!(", protocols: {protocols}"))
    ))
}

fn gateway(authority: &Authority, upstream: &Gateway, protocol: &str) -> Gateway {
    let (port, ca) = (upstream.addr().port(), authority.ca());
    Gateway::start(&format!(
        "upstreams: {{ origin: {{ endpoints: ['https://localhost:{port}'], {protocol}tls: {{ ca: '{}' }} }} }}",
        ca.display()
    ))
}

#[test]
fn both_sides_and_the_setting_decide() {
    let authority = Authority::new("upstreams");
    let mut table = Table::new("what is spoken over TLS");
    for (name, setting, can, expected) in [
        ("auto, both can both", "", "[http1, http2]", Some("HTTP/2")),
        ("auto, only HTTP/1.1", "", "[http1]", Some("HTTP/1.1")),
        ("auto, only HTTP/2", "", "[http2]", Some("HTTP/2")),
        ("http1", "protocol: http1, ", "[http1, http2]", Some("HTTP/1.1")),
        ("http2", "protocol: http2, ", "[http1, http2]", Some("HTTP/2")),
        ("http1 with one that only speaks HTTP/2", "protocol: http1, ", "[http2]", None),
        ("http2 with one that only speaks HTTP/1.1", "protocol: http2, ", "[http1]", None),
    ] {
        let upstream = upstream(&authority, can);
        let gateway = gateway(&authority, &upstream, setting);
        let status = gateway.get("/heard").status;
        let right = match expected {
            Some(spoken) => {
                status == 200 && {
                    until("the upstream's log", || upstream.access_log().contains("/heard"));
                    upstream.access_log().contains(&format!("\"protocol\":\"{spoken}\""))
                }
            }
            None => {
                status == 502
                    && gateway.metric("tollgate_upstream_errors_total", &[("upstream", "origin"), ("kind", "tls")]) >= 1.0
            }
        };
        table.row(name, if right { String::new() } else { format!("{status}\n{}\n{}", upstream.log(), gateway.log()) });
    }
}

#[test]
fn many_at_once_are_all_answered_whatever_alpn_comes_to() {
    let authority = Authority::new("upstreams");
    for can in ["[http1]", "[http1, http2]"] {
        let upstream = upstream(&authority, can);
        let gateway = gateway(&authority, &upstream, "");
        let statuses: Vec<u16> = thread::scope(|scope| {
            let asking: Vec<_> = (0..50).map(|_| scope.spawn(|| gateway.get("/").status)).collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).collect()
        });
        assert!(statuses.iter().all(|status| *status == 200), "{can}: {statuses:?}");
    }
}
