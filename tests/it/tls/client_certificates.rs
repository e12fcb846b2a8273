//! Certificates of clients: asked for, checked, counted by, and told to upstream (TLS-6).

use super::{dial, failures, handshakes, listener, outcome};
use crate::harness::{Authority, Dial, Gateway, H2, Leaf, Origin, Table, fingerprint, run, until};
use std::time::{Duration, SystemTime};

/// Who signs servers, who signs clients, and a listener that asks for certificates of the latter.
fn setting(mode: &str) -> (Authority, Authority, String) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let pair = servers.issue("leaf", &Leaf::of(&["localhost"]));
    let asked = format!("client_certificates: {{ ca: '{}', mode: {mode} }}", clients.ca().display());
    let config = listener(&format!("certificates: {pair}, {asked}"), "");
    (servers, clients, config)
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn a_certificate_is_asked_for_and_a_bad_one_is_refused() {
    let origin = Origin::ok();
    let stranger = Authority::new("strangers");
    for (mode, without) in [("optional", "200"), ("required", "refused|reset|closed|garbage")] {
        let (servers, clients, config) = setting(mode);
        let gateway = Gateway::before(&origin, &config);
        let good = clients.sign(&Leaf::of(&["c1"]));
        let expired = clients.sign(&Leaf::of(&["c1"]).until(1_600_000_000));
        let strange = stranger.sign(&Leaf::of(&["c1"]));
        let mut table = Table::new("client certificates");
        for tls12 in [false, true] {
            let how = || if tls12 { servers.dial("localhost").tls12() } else { servers.dial("localhost") };
            let row = |name: &str| format!("{mode}, TLS 1.2: {tls12}: {name}");
            table.outcome(&row("none"), without, &outcome(&gateway, &how()));
            table.outcome(&row("a good one"), "200", &outcome(&gateway, &how().showing(&good)));
            for (name, pair) in [("an expired one", &expired), ("a stranger's", &strange)] {
                table.outcome(&row(name), "refused|reset|closed", &outcome(&gateway, &how().showing(pair)));
            }
        }
        let expected = if mode == "required" { 6.0 } else { 4.0 };
        until("refusals are counted", || failures(&gateway, "certificate") == expected);
        assert_eq!(handshakes(&gateway, "full") + expected, 8.0);
    }
}

#[test]
fn a_limit_counts_by_certificate() {
    let origin = Origin::ok();
    let (servers, clients, config) = setting("optional");
    let gateway = Gateway::before(&origin, &format!("{config}\nlimits: [{{ name: per-cert, per: certificate, rate: 2/hour }}]"));
    let [one, two] = ["c1", "c2"].map(|name| clients.sign(&Leaf::of(&[name])));
    // The same name in another certificate is another client.
    let again = clients.sign(&Leaf::of(&["c1"]));
    let mut table = Table::new("per: certificate");
    for (name, pair, expected) in [
        ("the first", Some(&one), ["200", "200", "429"]),
        ("the second", Some(&two), ["200", "200", "429"]),
        ("a renewed one", Some(&again), ["200", "200", "429"]),
        ("none: it does not apply", None, ["200", "200", "200"]),
    ] {
        for expected in expected {
            let how = servers.dial("localhost");
            // A connection each: it is the certificate that counts.
            table.outcome(name, expected, &outcome(&gateway, &pair.map_or(how.clone(), |pair| how.showing(pair))));
        }
    }
    let mut client = H2::connect_secure(gateway.addr(), &servers.dial("localhost").alpn(&["h2"]).showing(&one)).unwrap();
    assert_eq!(client.get("/").status(), 429);
}

/// RFC 9440 section 2.2, and Envoy's X-Forwarded-Client-Cert.
#[test]
fn upstream_is_told_of_the_certificate() {
    let origin = Origin::ok();
    let (servers, clients, config) = setting("optional");
    let forward = "identity: { forward: { certificate: client-cert, certificate_details: x-forwarded-client-cert } }";
    // Trusted, so that only the gateway's own headers could be in the way.
    let gateway = Gateway::before(&origin, &format!("{config}\n{forward}\ntrusted_proxies: loopback"));
    let leaf = Leaf {
        common_name: "Zoë, \"the\" client; DNS=evil".to_owned(),
        uris: vec!["spiffe://a/b".to_owned(), "urn:x;y".to_owned()],
        ..Leaf::of(&["c1.test", "c2.test"])
    };
    let pair = clients.sign(&leaf);
    let forged = "Client-Cert: :ZXZpbA==:\r\nX-Forwarded-Client-Cert: Hash=evil\r\nClient_Cert: :ZXZpbA==:\r\nX_Forwarded_Client_Cert: Hash=evil\r\nClient.Cert: x\r\n";
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{forged}Connection: client-cert, x-forwarded-client-cert\r\n\r\n");
    let mut client = dial(&gateway, &servers.dial("localhost").showing(&pair)).unwrap();
    for _ in 0..2 {
        assert_eq!(client.ask(&request).status(), 200);
    }
    let base64: String = pair.0.lines().filter(|line| !line.starts_with('-')).collect();
    let details = format!(
        "Hash={};Subject=\"CN=Zo\\C3\\AB\\, \\\"the\\\" client\\; DNS=evil\";URI=spiffe://a/b;URI=\"urn:x;y\";DNS=c1.test;DNS=c2.test",
        fingerprint(&pair.0)
    );
    for seen in [origin.wait(1), origin.wait(2)] {
        assert_eq!(seen.all("client-cert"), [format!(":{base64}:")]);
        assert_eq!(seen.all("x-forwarded-client-cert"), [details.as_str()]);
        assert!(!String::from_utf8_lossy(&seen.wire).to_lowercase().contains("client_cert"), "{:?}", seen.headers);
    }
    // Whoever has none has none, whatever it says.
    let mut client = dial(&gateway, &servers.dial("localhost")).unwrap();
    assert_eq!(client.ask(&request).status(), 200);
    let wire = String::from_utf8_lossy(&origin.wait(3).wire).to_lowercase();
    assert!(!wire.contains("client-cert") && !wire.contains("evil") && !wire.contains("client.cert"), "{wire}");
}

#[test]
fn nobody_says_so_himself_where_nothing_is_told() {
    let origin = Origin::ok();
    let (servers, clients, config) = setting("optional");
    let gateway = Gateway::before(&origin, &config);
    let how = servers.dial("localhost").showing(&clients.sign(&Leaf::of(&["c1"])));
    let request = "GET / HTTP/1.1\r\nHost: a\r\nClient-Cert: :ZXZpbA==:\r\nClient-Cert-Chain: x\r\nX-Forwarded-Client-Cert: Hash=evil\r\nX_Forwarded_Client_Cert: Hash=evil\r\n\r\n";
    assert_eq!(dial(&gateway, &how).unwrap().ask(request).status(), 200);
    let wire = String::from_utf8_lossy(&origin.wait(1).wire).to_lowercase();
    assert!(!wire.contains("client-cert") && !wire.contains("evil"), "{wire}");
}

/// TLS-6: on a listener in clear text too.
#[test]
fn clear_text_listeners_take_no_word_for_it_either() {
    let origin = Origin::ok();
    let (_servers, _clients, config) = setting("optional");
    let config = config.replace("listeners: [", "listeners: [{ name: clear, address: '127.0.0.2:0' }, ");
    let forward = "identity: { forward: { certificate: client-cert, certificate_details: x-forwarded-client-cert } }";
    let gateway = Gateway::before(&origin, &format!("{config}\n{forward}\ntrusted_proxies: loopback"));
    let request = "GET / HTTP/1.1\r\nHost: a\r\nClient-Cert: :ZXZpbA==:\r\nX-Forwarded-Client-Cert: Hash=evil\r\n\r\n";
    assert_eq!(crate::harness::exchange(gateway.listener("clear"), request).status(), 200);
    let wire = String::from_utf8_lossy(&origin.wait(1).wire).to_lowercase();
    assert!(!wire.contains("client-cert") && !wire.contains("evil"), "{wire}");
}

/// A session remembers its client's certificate, and outlives neither that nor who vouched for it.
#[test]
fn a_session_brings_its_certificate_along() {
    let origin = Origin::ok();
    for tls12 in [false, true] {
        let (servers, clients, config) = setting("required");
        let limits = "limits: [{ name: per-cert, per: certificate, rate: 3/hour }]";
        let gateway = Gateway::before(&origin, &format!("{config}\n{limits}"));
        let soon = unix_now() + 6;
        let pair = clients.sign(&Leaf::of(&["c1"]).until(soon));
        let how = servers.dial("localhost").showing(&pair);
        let how = if tls12 { how.tls12() } else { how };
        let come = |how: &Dial| {
            let Ok(mut client) = dial(&gateway, how) else { return "refused".to_owned() };
            let outcome = client.get("/").outcome();
            format!("{} {outcome}", client.wire().resumed())
        };
        assert_eq!(come(&how), "false 200");
        assert_eq!(come(&how), "true 200");
        assert_eq!(handshakes(&gateway, "resumed"), 1.0);
        // A fourth request of this certificate is one too many, resumed or not.
        assert_eq!(come(&how), "true 200");
        assert_eq!(come(&how), "true 429");
        until("the certificate has expired", || unix_now() > soon);
        let after = come(&how);
        assert!(!after.contains("200") && !after.contains("429"), "{after}");
        until("it is counted", || failures(&gateway, "certificate") == 1.0);
    }
}

#[test]
fn other_authorities_forget_the_sessions_of_the_old() {
    let origin = Origin::ok();
    let (servers, clients, config) = setting("required");
    let gateway = Gateway::before(&origin, &config);
    let how = servers.dial("localhost").showing(&clients.sign(&Leaf::of(&["c1"])));
    assert_eq!((outcome(&gateway, &how).as_str(), outcome(&gateway, &how).as_str()), ("200", "200"));
    assert_eq!(handshakes(&gateway, "resumed"), 1.0);
    // A reload that changes nothing here keeps the sessions.
    gateway.reload(&format!("{config}\nlimits: [{{ name: l, per: ip, rate: 1000/s }}]"));
    assert_eq!(outcome(&gateway, &how), "200");
    assert_eq!(handshakes(&gateway, "resumed"), 2.0);
    let others = Authority::new("others");
    std::fs::copy(others.ca(), clients.ca()).unwrap();
    until("the new authority is in force", || gateway.metric("tollgate_tls_file_reloads_total", &[("result", "success")]) == 1.0);
    assert_ne!(outcome(&gateway, &how), "200");
    assert_eq!(handshakes(&gateway, "resumed"), 2.0);
    let theirs = servers.dial("localhost").showing(&others.sign(&Leaf::of(&["c1"])));
    assert_eq!(outcome(&gateway, &theirs), "200");
}

/// `explain` imagines a certificate too.
#[test]
fn explain_says_what_a_certificate_would_meet() {
    let (_servers, clients, config) = setting("optional");
    clients.issue("client", &Leaf::of(&["c1.test"]));
    let file = clients.dir().join("gateway.yaml");
    let rest = "routes: [{ name: all, respond: { body: x } }]\nlimits: [{ name: per-cert, per: certificate, rate: 1/s }]";
    std::fs::write(&file, format!("{config}\n{rest}\n")).unwrap();
    let (cert, _) = clients.files("client");
    let explain = |more: &[&str]| {
        let arguments = [&["explain", "--path", "/", "--config", file.to_str().unwrap()], more].concat();
        let output = run(&arguments, b"", Duration::from_secs(8)).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    assert!(explain(&[]).contains("per-cert: does not apply"), "{}", explain(&[]));
    let said = explain(&["--certificate", cert.to_str().unwrap()]);
    let hash = fingerprint(&std::fs::read_to_string(&cert).unwrap());
    assert!(said.contains("per-cert: cost 1") && said.contains(&format!("certificate Hash={hash};Subject=")), "{said}");
    assert!(explain(&["--certificate", file.to_str().unwrap()]).contains("no certificate in PEM form"));
}

#[test]
fn what_is_about_certificates_needs_somebody_who_asks() {
    let (servers, _clients, config) = setting("optional");
    let pair = servers.issue("leaf", &Leaf::of(&["localhost"]));
    let silent = listener(&format!("certificates: {pair}"), "");
    let rest = "routes: [{ name: all, respond: { body: x } }]";
    let complaint = |config: &str| {
        let file = servers.dir().join("gateway.yaml");
        std::fs::write(&file, config).unwrap();
        let output = run(&["check", file.to_str().unwrap()], b"", Duration::from_secs(8)).unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let limit = "limits: [{ name: l, per: certificate, rate: 1/s }]";
    let forward = "identity: { forward: { certificate: client-cert } }";
    for (more, path) in [(limit, "limits[0].per"), (forward, "identity.forward.certificate")] {
        let told = complaint(&format!("{silent}\n{rest}\n{more}"));
        assert!(told.contains(path) && told.contains("no listener asks clients for a certificate"), "{told}");
        let told = complaint(&format!("{config}\n{rest}\n{more}"));
        assert_eq!(told, "", "{told}");
    }
}
