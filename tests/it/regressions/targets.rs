//! Targets that were forwarded as something else, or that two readers read differently.

use crate::harness::{Gateway, Origin, Sees::*, Table, crlf};

#[test]
fn an_absolute_target_with_a_query_and_no_path_gets_its_slash() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("absolute targets without a path");
    for (target, sees) in [
        ("http://a?x", One(&["get /?x http/1.1", "host: a"], &[])),
        ("http://a?", One(&["host: a"], &["get ?"])),
        ("http://a", One(&["get / http/1.1", "host: a"], &[])),
    ] {
        table.send(&gateway, &origin, target, &crlf(&format!("GET {target} HTTP/1.1\nHost: a\n\n")), "200", sees);
    }
}

#[test]
fn dot_segments_in_disguise_are_refused() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut table = Table::new("dot segments in disguise");
    for target in ["/..;/x", "/..;a=1/x", "/.;/x", "/..%20/x", "/.%20/x", "/a//../b", "/a//%2e%2E/b"] {
        table.send(&gateway, &origin, target, &crlf(&format!("GET {target} HTTP/1.1\nHost: a\n\n")), "400", Nothing);
    }
}

#[test]
fn an_allowed_encoded_slash_hides_no_dot_segment_and_escapes_no_limit() {
    let origin = Origin::ok();
    let config = "paths: { encoded_slash: allow }\nlimits: [{ name: two, match: { path: /a/b }, per: ip, rate: 2/hour }]";
    let gateway = Gateway::before(&origin, config);
    let mut table = Table::new("encoded slashes");
    for (target, client, sees) in [
        ("/public%2F..%2Fadmin", "400", Nothing),
        ("/public%2f%2e%2e%2fadmin", "400", Nothing),
        ("/public%5C..%5Cadmin", "400", Nothing),
        ("/a%2Fb", "200", One(&["get /a%2fb http/1.1"], &[])),
        ("/a/b", "200", One(&["get /a/b http/1.1"], &[])),
        ("/a%2fb", "429", Nothing),
        ("/a/b", "429", Nothing),
    ] {
        table.send(&gateway, &origin, target, &crlf(&format!("GET {target} HTTP/1.1\nHost: a\n\n")), client, sees);
    }
}
