//! TLS-5: certificates, keys and authorities that change while we run, and files that are wrong from the start.

use super::{dial, failures, gateway, listener, outcome};
use crate::harness::{Authority, Client, DEADLINE, Dial, Gateway, Leaf, Origin, Table, fingerprint, happens, run, until};
use std::fs;
use std::path::Path;
use std::time::Duration;

fn reloads(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("tollgate_tls_file_reloads_total", &[("result", result)])
}

/// Which certificate is shown for this name.
fn shown(gateway: &Gateway, name: &str) -> String {
    use sha2::Digest;
    let der = dial(gateway, &Dial::anybody(name)).unwrap().wire().shown();
    sha2::Sha256::digest(&der).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn of_file(cert: &Path) -> String {
    fingerprint(&fs::read_to_string(cert).unwrap())
}

#[test]
fn a_renewed_certificate_is_shown_and_connections_live_on() {
    let origin = Origin::ok();
    let (authority, gateway) = gateway(&origin, "");
    let how = authority.dial("localhost");
    let mut before = dial(&gateway, &how).unwrap();
    assert_eq!(before.get("/").status(), 200);
    let (cert, key) = authority.files("leaf");
    let old = of_file(&cert);
    let not_after = || gateway.metric("tollgate_tls_certificate_not_after_seconds", &[("listener", "public")]);
    assert_eq!(not_after(), 4_000_000_000.0);
    let generation = gateway.generation();
    authority.issue("leaf", &Leaf::of(&["localhost"]).until(3_000_000_000));
    until("the new one is shown", || shown(&gateway, "localhost") == of_file(&cert));
    assert_ne!(old, of_file(&cert));
    assert_eq!(not_after(), 3_000_000_000.0);
    // The connection is the same, and the configuration.
    assert_eq!((before.get("/").status(), gateway.generation()), (200, generation));
    assert_eq!(gateway.metric("tollgate_worker_connections", &[]), 1.0);
    // Written in place, first the one and then the other: at worst one complaint in between.
    let (new_cert, new_key) = authority.sign(&Leaf::of(&["localhost"]));
    fs::write(&key, new_key).unwrap();
    fs::write(&cert, &new_cert).unwrap();
    until("the next one is shown", || shown(&gateway, "localhost") == fingerprint(&new_cert));
    // Sessions go on too.
    let mut again = dial(&gateway, &how).unwrap();
    assert!(again.wire().resumed());
    assert_eq!(again.get("/").status(), 200);
}

#[test]
fn what_can_not_be_used_changes_nothing_and_is_told() {
    let origin = Origin::ok();
    let (authority, gateway) = gateway(&origin, "");
    let (cert, key) = authority.files("leaf");
    let (good, old) = ((fs::read(&cert).unwrap(), fs::read(&key).unwrap()), of_file(&cert));
    let expired = authority.sign(&Leaf::of(&["localhost"]).until(1_600_000_000));
    let other = authority.sign(&Leaf::of(&["localhost"]));
    let half = other.0[..other.0.len() / 2].to_owned();
    let mut failed = 0.0;
    let mut table = Table::new("TLS-5");
    let not_pem = "not a list of certificates in PEM form";
    for (name, new_cert, new_key, told) in [
        ("an empty certificate", Some(""), None, not_pem),
        ("half a certificate", Some(half.as_str()), None, not_pem),
        ("no PEM", Some("nonsense"), None, not_pem),
        (
            "a certificate of nonsense",
            Some("-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n"),
            None,
            "can't be used",
        ),
        ("an empty key", None, Some(""), "no private key"),
        ("another key", None, Some(other.1.as_str()), "not this certificate's"),
        ("another certificate", Some(other.0.as_str()), None, "not this certificate's"),
        ("an expired one", Some(expired.0.as_str()), Some(expired.1.as_str()), "has expired"),
    ] {
        let log = gateway.log().len();
        for (file, text) in [(&cert, new_cert), (&key, new_key)] {
            if let Some(text) = text {
                fs::write(file, text).unwrap();
            }
        }
        failed += 1.0;
        until(&format!("{name} is counted"), || reloads(&gateway, "failure") >= failed);
        happens(DEADLINE, || gateway.log()[log..].contains(told));
        let complaint = gateway.log()[log..].to_owned();
        let right = complaint.contains(told) && complaint.matches("ERROR").count() == 1 && shown(&gateway, "localhost") == old;
        table.row(name, if right { String::new() } else { complaint });
        // Back to what is in force, which is a change and no failure.
        let success = reloads(&gateway, "success");
        fs::write(&cert, &good.0).unwrap();
        fs::write(&key, &good.1).unwrap();
        until("it is back", || reloads(&gateway, "success") > success);
        failed = reloads(&gateway, "failure");
    }
    for file in [&cert, &key] {
        fs::remove_file(file).unwrap();
        failed += 1.0;
        until("a missing file is counted", || reloads(&gateway, "failure") >= failed);
        assert_eq!(shown(&gateway, "localhost"), old);
        let success = reloads(&gateway, "success");
        fs::write(&cert, &good.0).unwrap();
        fs::write(&key, &good.1).unwrap();
        until("it is back", || reloads(&gateway, "success") > success);
        failed = reloads(&gateway, "failure");
    }
    assert_eq!(gateway.metric("tollgate_config_last_reload_successful", &[]), 1.0);
}

#[test]
fn one_bad_pair_does_not_keep_the_others_from_changing() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pairs = ["a.test", "b.test"].map(|name| authority.issue(name, &Leaf::of(&[name])));
    let gateway = Gateway::before(&origin, &listener(&format!("certificates: [{}]", pairs.join(", ")), ""));
    let [a, b] = ["a.test", "b.test"].map(|name| authority.files(name).0);
    let old = of_file(&a);
    fs::write(&a, "nonsense").unwrap();
    authority.issue("b.test", &Leaf::of(&["b.test"]));
    until("the good one is shown", || shown(&gateway, "b.test") == of_file(&b));
    until("the bad one is counted", || reloads(&gateway, "failure") >= 1.0);
    assert_eq!(shown(&gateway, "a.test"), old);
}

#[test]
fn a_broken_configuration_does_not_keep_certificates_from_changing() {
    let origin = Origin::ok();
    let (authority, gateway) = gateway(&origin, "");
    gateway.replace("nonsense: [");
    until("it is refused", || gateway.metric("tollgate_config_last_reload_successful", &[]) == 0.0);
    authority.issue("leaf", &Leaf::of(&["localhost"]));
    until("the new one is shown", || shown(&gateway, "localhost") == of_file(&authority.files("leaf").0));
}

/// As Kubernetes mounts secrets: files are links into a directory that is itself a link, which is swapped.
#[test]
fn a_swapped_link_is_one_change() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let dir = authority.dir();
    let write = |version: &str| {
        fs::create_dir(dir.join(version)).unwrap();
        let (cert, key) = authority.sign(&Leaf::of(&["localhost"]));
        fs::write(dir.join(version).join("tls.crt"), &cert).unwrap();
        fs::write(dir.join(version).join("tls.key"), key).unwrap();
        fingerprint(&cert)
    };
    let swap = |version: &str| {
        std::os::unix::fs::symlink(version, dir.join("..new")).unwrap();
        fs::rename(dir.join("..new"), dir.join("..data")).unwrap();
    };
    let first = write("v1");
    swap("v1");
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(format!("..data/{name}"), dir.join(name)).unwrap();
    }
    let pair = format!("{{ cert: '{0}/tls.crt', key: '{0}/tls.key' }}", dir.display());
    let gateway = Gateway::before(&origin, &listener(&format!("certificates: {pair}"), ""));
    assert_eq!(shown(&gateway, "localhost"), first);
    let second = write("v2");
    swap("v2");
    until("the new one is shown", || shown(&gateway, "localhost") == second);
    assert_eq!((reloads(&gateway, "success"), reloads(&gateway, "failure")), (1.0, 0.0));
}

#[test]
fn authorities_of_clients_follow_their_file() {
    let origin = Origin::ok();
    let (servers, clients, others) = (Authority::new("servers"), Authority::new("clients"), Authority::new("others"));
    let pair = servers.issue("leaf", &Leaf::of(&["localhost"]));
    let asked = format!("client_certificates: {{ ca: '{}' }}", clients.ca().display());
    let gateway = Gateway::before(&origin, &listener(&format!("certificates: {pair}, {asked}"), ""));
    let of = |authority: &Authority| servers.dial("localhost").showing(&authority.sign(&Leaf::of(&["c"])));
    let (theirs, new) = (of(&clients), of(&others));
    assert_eq!(outcome(&gateway, &theirs), "200");
    assert_ne!(outcome(&gateway, &new), "200");
    fs::write(clients.ca(), "").unwrap();
    until("an empty file is counted", || reloads(&gateway, "failure") == 1.0);
    assert_eq!(outcome(&gateway, &theirs.clone().anew()), "200");
    fs::copy(others.ca(), clients.ca()).unwrap();
    until("the new authority is in force", || outcome(&gateway, &new.clone().anew()) == "200");
    assert_ne!(outcome(&gateway, &theirs.anew()), "200");
    assert!(failures(&gateway, "certificate") >= 2.0);
}

/// A reload of the configuration reads everything again, and is refused where the file alone would be.
#[test]
fn a_reload_of_the_configuration_is_as_careful() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let leaf = Leaf::of(&["localhost"]);
    let pair = authority.issue("leaf", &leaf);
    let config = listener(&format!("certificates: {pair}"), "");
    let gateway = Gateway::before(&origin, &config);
    let (cert, _) = authority.files("leaf");
    let old = of_file(&cert);
    let refused = || gateway.metric("tollgate_config_reloads_total", &[("result", "failure")]);
    authority.issue("leaf", &leaf.clone().until(1_600_000_000));
    gateway.signal("HUP");
    until("an expired one is refused", || refused() == 1.0);
    until("the log says why", || gateway.log().contains("the certificate has expired"));
    fs::write(&cert, "nonsense").unwrap();
    gateway.signal("HUP");
    until("nonsense is refused", || refused() == 2.0);
    assert_eq!(shown(&gateway, "localhost"), old);
    authority.issue("leaf", &leaf);
    gateway.signal("HUP");
    until("a good one is in force", || shown(&gateway, "localhost") == of_file(&cert));
}

/// TLS comes and goes with a reload, for new connections.
#[test]
fn a_reload_turns_tls_on_and_off() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let clear = "listeners: [{ name: public, address: '127.0.0.1:0' }]";
    let gateway = Gateway::before(&origin, clear);
    let mut before: Client = gateway.client();
    assert_eq!(before.get("/").status(), 200);
    gateway.reload(&listener(&format!("certificates: {pair}"), ""));
    let how = authority.dial("localhost");
    until("new connections speak TLS", || outcome(&gateway, &how) == "200");
    assert_eq!(before.get("/").status(), 200);
    gateway.reload(clear);
    until("and then clear text again", || gateway.get("/").status == 200);
}

#[test]
fn files_that_are_wrong_from_the_start_are_told_with_their_place() {
    let authority = Authority::new("servers");
    let good = authority.issue("good", &Leaf::of(&["localhost"]));
    authority.issue("other", &Leaf::of(&["localhost"]));
    let dir = authority.dir().display().to_string();
    fs::write(authority.dir().join("empty"), "").unwrap();
    let pair = |cert: &str, key: &str| format!("{{ cert: '{dir}/{cert}', key: '{dir}/{key}' }}");
    let (ca, client_ca) = (format!("ca: '{dir}/good.key'"), format!("client_certificates: {{ ca: '{dir}/empty' }}"));
    let upstream = |tls: &str| format!("upstreams: {{ origin: {{ endpoints: ['https://localhost:1'], tls: {{ {tls} }} }} }}");
    let mut table = Table::new("wrong files");
    for (name, tls, more, told) in [
        ("no certificate", "certificates: []".to_owned(), String::new(), "tls.certificates: at least one certificate"),
        ("no list at all", String::new(), String::new(), "`certificates` is required here"),
        ("a missing one", format!("certificates: {}", pair("missing", "good.key")), String::new(), "tls.certificates[0].cert: "),
        (
            "a missing key",
            format!("certificates: [{good}, {}]", pair("other.crt", "missing")),
            String::new(),
            "tls.certificates[1].key: ",
        ),
        ("an empty one", format!("certificates: {}", pair("empty", "good.key")), String::new(), "not a list of certificates"),
        ("a directory", format!("certificates: {}", pair("", "good.key")), String::new(), "not a regular file"),
        ("no key", format!("certificates: {}", pair("good.crt", "good.crt")), String::new(), "no private key"),
        ("another's key", format!("certificates: {}", pair("good.crt", "other.key")), String::new(), "tls.certificates[0].key: "),
        ("twice the same", format!("certificates: [{good}, {good}]"), String::new(), "there already"),
        (
            "no handshake at all",
            format!("certificates: {good}, max_handshakes: 0"),
            String::new(),
            "tls.max_handshakes: must be at least 1",
        ),
        ("no authority", format!("certificates: {good}, {client_ca}"), String::new(), "tls.client_certificates.ca: "),
        (
            "an unknown mode",
            format!("certificates: {good}, client_certificates: {{ ca: '{dir}/good.crt', mode: maybe }}"),
            String::new(),
            "client_certificates.mode",
        ),
        ("no authority of upstreams", format!("certificates: {good}"), upstream(&ca), "upstreams.origin.tls.ca: "),
        (
            "no certificate for upstreams",
            format!("certificates: {good}"),
            upstream(&format!("client_cert: {}", pair("empty", "good.key"))),
            "upstreams.origin.tls.client_cert.cert: ",
        ),
        ("no name", format!("certificates: {good}"), upstream("server_name: 'a b'"), "upstreams.origin.tls.server_name: "),
        (
            "settings for nobody",
            format!("certificates: {good}"),
            upstream("insecure: true").replace("https", "http"),
            "upstreams.origin.tls: ",
        ),
    ] {
        let file = authority.dir().join("gateway.yaml");
        let routes = "routes: [{ name: all, respond: { body: x } }]";
        fs::write(&file, format!("{}\n{routes}\n{more}\n", listener(&tls, ""))).unwrap();
        let output = run(&["check", file.to_str().unwrap()], b"", Duration::from_secs(8)).unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let right = output.status.code() == Some(65) && text.contains(told) && text.contains("1 problem");
        table.row(name, if right { String::new() } else { text });
    }
}

/// It serves, since nothing would be better for having no server, and says so.
#[test]
fn an_expired_certificate_is_no_reason_not_to_start() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]).until(1_600_000_000));
    let gateway = Gateway::before(&origin, &listener(&format!("certificates: {pair}"), ""));
    assert_eq!(outcome(&gateway, &Dial::anybody("localhost")), "200");
    assert!(gateway.log().contains("the certificate has expired"), "{}", gateway.log());
    // Its client has the last word.
    assert_eq!(outcome(&gateway, &authority.dial("localhost")), "refused");
    assert!(happens(Duration::from_secs(8), || failures(&gateway, "alert") == 1.0));
}

/// OS-7: many certificates, each found by its name.
#[test]
fn a_thousand_certificates_are_told_apart() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pairs: Vec<_> = (0..1000).map(|i| authority.issue(&format!("c{i}"), &Leaf::of(&[&format!("c{i}.test")]))).collect();
    let gateway = Gateway::before(&origin, &listener(&format!("certificates: [{}]", pairs.join(", ")), ""));
    for i in [0, 1, 500, 999] {
        assert_eq!(shown(&gateway, &format!("c{i}.test")), of_file(&authority.files(&format!("c{i}")).0));
    }
    authority.issue("c999", &Leaf::of(&["c999.test"]));
    until("a new one is shown", || shown(&gateway, "c999.test") == of_file(&authority.files("c999").0));
}
