//! How servers are entered: sockets, TLS, users, databases.

use super::link_common::{Linked, settings, single};
use crate::harness::{Authority, Leaf, RedisServer, until};
use std::net::TcpListener;
use std::sync::Arc;
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tollgate::store::redis::link::{Fault, Refusal, Server, Tls, Topology};

#[test]
fn a_unix_socket() {
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("redis.sock");
    let server = RedisServer::start_with(&["--unixsocket", socket.to_str().unwrap()]);
    for url in [format!("unix:{}", socket.display()), format!("redis+unix://{}?db=2", socket.display())] {
        let linked = Linked::connected(single(&url));
        assert_eq!(linked.count("a"), Ok(1), "{url}");
        assert_eq!(linked.link.health().nodes[0].address, format!("unix:{}", socket.display()));
    }
    assert_eq!(server.command(&["GET", "t:a"]), "1");
}

#[test]
fn a_numbered_database() {
    let server = RedisServer::start();
    let linked = Linked::connected(single(&format!("{}/5", server.url())));
    assert_eq!(linked.count("a"), Ok(1));
    assert_eq!(server.command(&["GET", "t:a"]), "");
    let mut client = server.client();
    client.ask(&["SELECT", "5"]);
    assert_eq!(client.ask(&["GET", "t:a"]), ::redis::Value::BulkString(b"1".to_vec()));
}

#[test]
fn a_database_that_does_not_exist() {
    let server = RedisServer::start();
    let linked = Linked::start(single(&format!("{}/99", server.url())));
    until("the reason is known", || linked.trouble().contains("not let in"));
    assert_eq!(linked.count("a"), Err(Fault::Down));
}

#[test]
fn a_user_with_no_more_rights_than_needed() {
    let server = RedisServer::start();
    let rules = ["ACL", "SETUSER", "gate", "on", ">s3cret@/", "~t:*", "~tollgate:*", "-@all"];
    let commands =
        ["+eval", "+evalsha", "+time", "+set", "+incr", "+type", "+zadd", "+zcard", "+zrem", "+zremrangebyscore", "+pexpire"];
    assert_eq!(server.command(&[&rules[..], &commands[..], &["+hello", "+auth", "+del"]].concat()), "OK");
    let linked = Linked::connected(single(&format!("redis://gate:s3cret%40%2F@127.0.0.1:{}", server.port())));
    assert_eq!(linked.count("a"), Ok(1));
    until("it is counted", || server.command(&["ZCARD", "tollgate:instances"]) == "1");
    // Rights can be taken while connections stand.
    assert_eq!(server.command(&["ACL", "SETUSER", "gate", "-incr"]), "OK");
    let fault = linked.count("a").unwrap_err();
    assert!(matches!(fault, Fault::Refused(Refusal::NoPermission | Refusal::Other)), "{fault:?}");
}

#[test]
fn a_wrong_password_and_none() {
    let server = RedisServer::start();
    let mut client = server.client();
    assert_eq!(crate::harness::redis::text(&client.ask(&["CONFIG", "SET", "requirepass", "hunter2"])), "OK");
    let port = server.port();
    for (url, why) in [
        (format!("redis://127.0.0.1:{port}"), "NOAUTH"),
        (format!("redis://:wrong-one@127.0.0.1:{port}"), "WRONGPASS"),
        (format!("redis://nobody:hunter2@127.0.0.1:{port}"), "WRONGPASS"),
    ] {
        let linked = Linked::start(single(&url));
        until(&format!("{url} is refused with {why}: {}", linked.trouble()), || linked.trouble().contains("not let in"));
        assert_eq!(linked.count("a"), Err(Fault::Down), "{url}");
        let shown = format!("{:?} {:?} {:?}", linked.link, linked.link.health(), linked.link.settings());
        assert!(shown.contains("not let in") && !shown.contains("wrong-one") && !shown.contains("hunter2"), "{shown}");
    }
    let linked = Linked::connected(single(&format!("redis://:hunter2@127.0.0.1:{port}")));
    assert_eq!(linked.count("a"), Ok(1));
}

#[test]
fn tls_with_an_authority_of_ones_own_and_a_certificate_to_show() {
    let authority = Authority::new("store");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let write = |name: &str, text: &str| {
        let path = authority.dir().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (cert, key) = authority.sign(&Leaf::of(&["localhost", "127.0.0.1"]));
    let (cert_file, key_file) = (write("redis.crt", &cert), write("redis.key", &key));
    let ca = authority.ca();
    let options = ["--tls-port", &port.to_string(), "--tls-cert-file", &cert_file, "--tls-key-file", &key_file];
    let server = RedisServer::start_with(&[&options[..], &["--tls-ca-cert-file", ca.to_str().unwrap()]].concat());
    let url = format!("rediss://localhost:{port}");

    // Without a certificate to show the server does not let anybody in; with one of a stranger we do not go in.
    let mut trusting = single(&url);
    trusting.tls = Some(Tls::new(|| Arc::new(config(&RootCertStore::empty()))));
    let linked = Linked::start(trusting);
    until("a stranger's certificate is not believed", || linked.trouble().contains("TLS"));
    assert_eq!(linked.count("a"), Err(Fault::Down));

    let mut unset = single(&url);
    unset.tls = None;
    let linked = Linked::start(unset);
    until("TLS is missing", || linked.trouble().contains("not set up"));

    let mut proper = settings(Topology::Single(Server::parse(&url).unwrap()));
    let (cert, key) = authority.sign(&Leaf::of(&["gate"]));
    let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
    let key = tokio_rustls::rustls::pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&ca).unwrap()).unwrap();
    let mutual = Arc::new(builder().with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap());
    proper.tls = Some(Tls::new(move || Arc::clone(&mutual)));
    let linked = Linked::connected(proper);
    assert_eq!(linked.count("a"), Ok(1));
    assert_eq!(server.command(&["GET", "t:a"]), "1");
}

fn config(roots: &RootCertStore) -> ClientConfig {
    builder().with_root_certificates(roots.clone()).with_no_client_auth()
}

fn builder() -> tokio_rustls::rustls::ConfigBuilder<ClientConfig, tokio_rustls::rustls::WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider())).with_safe_default_protocol_versions().unwrap()
}
