//! What `check` says to addresses that mean nothing, and what the schema knows of them.

use crate::harness::{DEADLINE, Table, run};
use std::fs;

const REST: &str = "routes: [{ name: all, match: { path: '/{*rest}' }, upstream: o }]\nupstreams: { o: { builtin: echo } }\n";
const TCP: &str = "listeners: [{ name: a, address: '127.0.0.1:0' }]\n";

/// The exit code, and all that was said.
fn check(sections: &str) -> (Option<i32>, String) {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("gateway.yaml");
    let listeners = if sections.contains("listeners:") { "" } else { TCP };
    fs::write(&file, format!("{sections}\n{listeners}{REST}")).unwrap();
    let output = run(&["check", file.to_str().unwrap()], b"", DEADLINE).expect("check ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Name, sections, and the beginning of each complaint behind its place.
#[rustfmt::skip]
const WRONG: &[(&str, &str, &[&str])] = &[
    ("a range", "trusted_proxies: [10.0.0.0/33]", &["trusted_proxies[0]: `10.0.0.0/33` is not an address or range"]),
    ("a name", "trusted_proxies: [loopbak]", &["trusted_proxies[0]: `loopbak` is not", "did you mean `loopback`?"]),
    ("another name", "blocked: [{ ip: link_locl }]", &["blocked[0].ip[0]: `link_locl` is not", "did you mean `link_local`?"]),
    ("no hops", "trusted_proxies: { hops: 0 }", &["trusted_proxies[0].hops: from 1 to 32"]),
    ("many hops", "trusted_proxies: [{ hops: 33 }]", &["trusted_proxies[0].hops: from 1 to 32"]),
    ("hops that are no number", "trusted_proxies: { hops: two }", &["trusted_proxies", "invalid type: string \"two\", expected a whole number"]),
    ("hops and more", "trusted_proxies: { hops: 1, hosp: 2 }", &["unknown key `hosp`"]),
    ("hops twice", "trusted_proxies: [{ hops: 1 }, { hops: 2 }]", &["trusted_proxies[1]: the number of hops stands here once"]),
    ("hops and a user's header", "trusted_proxies: { hops: 1 }\nidentity: { user: { header: x-user, tier_header: x-tier } }", &["identity.user.header: with nothing but `hops`", "identity.user.tier_header: with nothing but `hops`"]),
    ("hops and a cost's header", "trusted_proxies: { hops: 1 }\nlimits: [{ name: a, per: ip, rate: 9/s, cost: { header: x-cost } }]", &["limits[0].cost: with nothing but `hops`"]),
    ("a user in the header of keys", "identity: { user: { header: x-api-key } }", &["identity.user.header: keys or tokens come in this header"]),
    ("a user in the header of tokens", "identity: { api_key: { sources: bearer }, user: { header: Authorization } }", &["identity.user.header: keys or tokens come in this header"]),
    ("a tier in the header of keys", "identity: { user: { tier_header: x-api-key } }", &["identity.user.tier_header: keys or tokens come in this header"]),
    ("a user in the header of addresses", "identity: { user: { header: x-forwarded-for } }", &["identity.user.header: `x-forwarded-for` belongs to the connection"]),
    ("a user in another of those", "identity: { user: { header: forwarded } }", &["identity.user.header: `forwarded` has a meaning of its own"]),
    ("a user and a tier in one header", "identity: { user: { header: x-user, tier_header: X-User } }", &["identity.user.tier_header: `x-user` is taken already"]),
    ("a user's header that servers fold onto another", "identity: { user: { header: x~user } }", &["identity.user.header: use a name of letters, digits and `-`"]),
    ("a cookie without a name", "identity: { api_key: { sources: { cookie: '' } } }", &["identity.api_key.sources[0].cookie: this is not a cookie's name"]),
    ("a parameter without a name", "identity: { api_key: { sources: { query: '' } } }", &["identity.api_key.sources[0].query: write a parameter's name"]),
    ("a short key for hashes", "access_log: { hash_key: short }", &["access_log.hash_key: write at least 16 bytes"]),
    ("another header", "forwarded_header: x-real-ip", &["forwarded_header: unknown variant `x-real-ip`, expected `x-forwarded-for` or `forwarded`"]),
    ("PROXY headers from nobody", "listeners: [{ name: a, address: '127.0.0.1:0', proxy_protocol: required }]", &["listeners[0].proxy_protocol: PROXY headers are taken from ranges"]),
    ("PROXY headers from anybody", "listeners: [{ name: a, address: '127.0.0.1:0', proxy_protocol: required }]\ntrusted_proxies: { hops: 1 }", &["listeners[0].proxy_protocol: PROXY headers are taken from ranges"]),
    ("sometimes", "listeners: [{ name: a, address: '127.0.0.1:0', proxy_protocol: optional }]", &["listeners[0].proxy_protocol: unknown variant `optional`"]),
    ("a relative socket", "listeners: [{ name: a, address: 'unix:run/a' }]", &["listeners[0].address: `unix:run/a` is not the address of a unix socket"]),
    ("an abstract socket", "listeners: [{ name: a, address: 'unix:@a' }]", &["listeners[0].address: `unix:@a` is not"]),
    ("a directory", "listeners: [{ name: a, address: 'unix:/run/' }]", &["listeners[0].address: `unix:/run/` is not"]),
    ("a long path", "listeners: [{ name: a, address: 'unix:/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678' }]", &["at most 107 bytes"]),
    ("one socket twice", "listeners: [{ name: a, address: 'unix:/run/a' }, { name: b, address: 'unix:/run/a' }]", &["listeners[1].address: unix:/run/a is taken by another listener"]),
    ("a socket for both", "listeners: [{ name: a, address: 'unix:/run/a' }]\nadmin: { address: 'unix:/run/a' }", &["admin.address: this address is a public listener's"]),
    ("a mode without a file", "listeners: [{ name: a, address: '127.0.0.1:0', mode: '0660' }]\nadmin: { mode: '0600' }", &["listeners[0].mode: only the file of a unix socket has a mode", "admin.mode: only the file"]),
    ("a mode that is a number", "listeners: [{ name: a, address: 'unix:/run/a', mode: 660 }]", &["listeners[0].mode: ", "in octal, with quotes"]),
    ("a mode that is no mode", "listeners: [{ name: a, address: 'unix:/run/a', mode: '0888' }]", &["listeners[0].mode: ", "in octal"]),
    ("a mode with more than permissions", "listeners: [{ name: a, address: 'unix:/run/a', mode: '4755' }]", &["listeners[0].mode: ", "in octal"]),
    ("long prefixes", "identity: { ip: { ipv4_prefix: 33, ipv6_prefix: 129 } }", &["identity.ip.ipv4_prefix: an IPv4 prefix has 0 to 32 bits", "identity.ip.ipv6_prefix: an IPv6 prefix has 0 to 128 bits"]),
    ("long prefixes of a limit", "limits: [{ name: a, per: { ip: { ipv4_prefix: 33, ipv6_prefix: 129 } }, rate: 1/s }]", &["ip.ipv4_prefix: an IPv4 prefix has 0 to 32 bits", "ip.ipv6_prefix: an IPv6 prefix has"]),
    ("no prefix", "limits: [{ name: a, per: [{ ip: {} }], rate: 1/s }]", &["limits[0].per[0].ip: say ipv4_prefix, ipv6_prefix or both"]),
    ("another prefix", "limits: [{ name: a, per: { ip: { ipv6_prefx: 48 } }, rate: 1/s }]", &["unknown key `ipv6_prefx`", "did you mean `ipv6_prefix`?"]),
];

#[test]
fn what_means_nothing_is_refused_by_name() {
    let mut table = Table::new("impossible addresses");
    for (name, sections, complaints) in WRONG {
        let (code, text) = check(sections);
        let missing = complaints.iter().find(|complaint| !text.contains(*complaint));
        table.row(
            name,
            if code == Some(65) && missing.is_none() { String::new() } else { format!("{missing:?} in {code:?} {text}") },
        );
    }
}

#[test]
fn what_means_something_is_accepted() {
    let mut table = Table::new("possible addresses");
    for sections in [
        "trusted_proxies: { hops: 2 }",
        "trusted_proxies: [{ hops: 32 }]",
        "trusted_proxies: [{ hops: 2 }, 10.0.0.0/8]\nidentity: { user: { header: x-user } }",
        "trusted_proxies: [loopback, private, link_local, unique_local, cgnat, '::1', 10.0.0.1]\nforwarded_header: forwarded",
        "forwarded_header: x-forwarded-for",
        "listeners: [{ name: a, address: '127.0.0.1:0', proxy_protocol: required }]\ntrusted_proxies: loopback",
        "listeners: [{ name: a, address: 'unix:/run/a.sock', proxy_protocol: required, mode: '0600' }]",
        "listeners: [{ name: a, address: 'unix:/run/a.sock', mode: 0660 }, { name: b, address: 'unix:/run/b.sock', mode: '666' }]",
        "admin: { address: 'unix:/run/admin.sock', mode: '0660' }",
        "limits: [{ name: a, per: { ip: { ipv6_prefix: 48 } }, rate: 1/s }, { name: b, per: [{ ip: { ipv4_prefix: 0 } }, route, ip], rate: 1/s }]",
    ] {
        let (code, text) = check(sections);
        table.row(sections, if code == Some(0) { String::new() } else { text });
    }
}

#[test]
fn the_schema_knows_them() {
    let output = run(&["schema"], b"", DEADLINE).expect("schema ends");
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = schema.to_string();
    for word in ["hops", "forwarded_header", "x-forwarded-for", "required", "ipv6_prefix", "\"mode\""] {
        assert!(text.contains(word), "{word}");
    }
    let per = schema["$defs"]["Per"].to_string();
    assert!(per.contains("PerMap"), "{per}");
    let ip = schema["$defs"]["PerMap"].to_string();
    assert!(ip.contains("IpPrefixes") && ip.contains("claim"), "{ip}");
}
