//! TLS-1: which certificate is shown; TLS-3: what the name has to say about requests.

use super::{dial, listener};
use crate::harness::{Authority, Dial, Gateway, Leaf, Origin, Table};

/// The certificate of a pair in PEM form, as what the server shows.
fn shown(gateway: &Gateway, how: &Dial) -> String {
    dial(gateway, how).map_or_else(|error| error, |client| digest(&client.wire().shown()))
}

fn digest(der: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(der).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[test]
fn the_name_decides_exact_before_wildcard_before_the_first() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let certificates = [
        ("first", vec!["first.test"]),
        ("wild", vec!["*.a.test"]),
        ("exact", vec!["x.a.test", "other.test"]),
        ("later", vec!["*.a.test", "x.a.test", "late.test"]),
    ];
    let pairs: Vec<_> = certificates.iter().map(|(name, names)| authority.issue(name, &Leaf::of(names))).collect();
    let gateway = Gateway::before(&origin, &listener(&format!("certificates: [{}]", pairs.join(", ")), ""));
    let of = |name: &str| crate::harness::fingerprint(&std::fs::read_to_string(authority.files(name).0).unwrap());
    let mut table = Table::new("TLS-1");
    for (name, expected) in [
        ("first.test", "first"),
        ("y.a.test", "wild"),
        ("Y.A.Test", "wild"),
        ("x.a.test", "exact"),
        ("X.A.TEST", "exact"),
        ("other.test", "exact"),
        ("late.test", "later"),
        ("a.test", "first"),
        ("b.y.a.test", "first"),
        ("unknown.example", "first"),
        // An address is no name: nothing is sent.
        ("127.0.0.1", "first"),
    ] {
        for tls12 in [false, true] {
            let how = if tls12 { Dial::anybody(name).tls12() } else { Dial::anybody(name) };
            table.row(
                &format!("{name}, TLS 1.2: {tls12}"),
                if shown(&gateway, &how) == of(expected) { "" } else { "another one" },
            );
        }
    }
}

#[test]
fn a_client_gets_a_key_it_can_check() {
    // One name, two kinds of keys: OpenSSL's command is told which signatures to accept.
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let ecdsa = authority.issue("ecdsa", &Leaf::of(&["localhost"]));
    let dir = authority.dir().display().to_string();
    let script = format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout {dir}/rsa.key -out {dir}/rsa.crt -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    );
    assert!(std::process::Command::new("sh").args(["-c", &script]).output().unwrap().status.success());
    let rsa = format!("{{ cert: '{dir}/rsa.crt', key: '{dir}/rsa.key' }}");
    let gateway = Gateway::before(&origin, &listener(&format!("certificates: [{ecdsa}, {rsa}]"), ""));
    for (signatures, expected) in [("ECDSA+SHA256", "id-ecPublicKey"), ("RSA-PSS+SHA256", "rsaEncryption")] {
        let script = format!(
            "openssl s_client -connect {} -servername localhost -sigalgs {signatures} </dev/null 2>&1 | openssl x509 -noout -text",
            gateway.addr()
        );
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(expected), "{signatures}: {text}");
    }
}

/// TLS-3: requests go where their Host says; what a certificate is asked for is the same for all names of a listener, so nothing is
/// misdirected.
#[test]
fn another_name_inside_is_routed_by_that_name() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["a.test", "b.test"]));
    let routes = "routes: [{ name: a, match: { hosts: a.test }, respond: { body: a } }, { name: b, match: { hosts: b.test }, respond: { body: b } }]";
    let gateway = Gateway::before(&origin, &format!("{}\n{routes}", listener(&format!("certificates: {pair}"), "")));
    let mut client = dial(&gateway, &authority.dial("a.test")).unwrap();
    for host in ["a", "b"] {
        let reply = client.ask(format!("GET / HTTP/1.1\r\nHost: {host}.test\r\n\r\n")).response();
        assert_eq!((reply.status, reply.text().as_str()), (200, host));
    }
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: c.test\r\n\r\n").status(), 404);
}
