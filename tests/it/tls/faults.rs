//! TLS-7: what is no handshake, or never ends.

use super::{dial, failures, gateway, listener, outcome};
use crate::harness::{Authority, Gateway, Leaf, Origin, Table, until};
use std::time::Duration;

#[test]
fn what_is_no_tls_is_told_if_it_understands_and_counted() {
    let origin = Origin::ok();
    let (_authority, gateway) = gateway(&origin, "");
    let mut table = Table::new("no TLS");
    let mut not_tls = 0.0;
    for (name, bytes) in [
        ("a request", "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        ("a large one", format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000))),
        ("HTTP/2 in clear text", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned()),
    ] {
        let mut client = gateway.client();
        let reply = client.send(bytes).receive().response();
        table.row(name, if (reply.status, reply.text().contains("https")) == (400, true) { "" } else { "another answer" });
        table.row(name, if client.is_closed() { "" } else { "still open" });
        not_tls += 1.0;
        until("it is counted", || failures(&gateway, "not_tls") == not_tls);
    }
    for (name, bytes) in
        [("SSL 2", &[0x80, 0x2e, 1, 0, 2][..]), ("zeros", &[0; 512][..]), ("a record of data", &[23, 3, 3, 0, 1, 0][..])]
    {
        table.row(name, if gateway.client().send(bytes).is_closed() { "" } else { "still open" });
        not_tls += 1.0;
        until("it is counted", || failures(&gateway, "not_tls") == not_tls);
    }
    assert_eq!(failures(&gateway, "malformed"), 0.0);
    for (name, bytes) in [
        ("a handshake of nonsense", &[22, 3, 1, 0, 8, 1, 0, 0, 4, 9, 9, 9, 9][..]),
        ("another message first", &[22, 3, 1, 0, 5, 11, 0, 0, 1, 0][..]),
        ("too large a record", &[22, 3, 1, 255, 255, 1, 2, 3][..]),
        ("another version of records", &[22, 9, 9, 0, 4, 1, 0, 0, 0][..]),
    ] {
        let mut client = gateway.client();
        let alert = client.send(bytes).grow().to_vec();
        // An alert, fatal; then the end.
        table.row(name, if alert.first() == Some(&21) || alert.is_empty() { String::new() } else { format!("{alert:?}") });
    }
    until("all are counted", || failures(&gateway, "malformed") + failures(&gateway, "incompatible") == 4.0);
    assert_eq!(origin.seen().len(), 0);
}

/// A version below 1.2, written by hand: the library of the tests has none.
#[test]
fn tls_1_1_is_refused() {
    let origin = Origin::ok();
    let (_authority, gateway) = gateway(&origin, "");
    for minor in [1, 2] {
        let mut hello = vec![3, minor];
        hello.extend([7; 32]);
        hello.push(0);
        // TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA and TLS_RSA_WITH_AES_128_CBC_SHA, no compression.
        hello.extend([0, 4, 0xc0, 0x09, 0x00, 0x2f, 1, 0]);
        let mut message = vec![1, 0, 0, u8::try_from(hello.len()).unwrap()];
        message.extend(hello);
        let mut record = vec![22, 3, 1, 0, u8::try_from(message.len()).unwrap()];
        record.extend(message);
        let mut client = gateway.client();
        let alert = client.send(record).grow().to_vec();
        // protocol_version or handshake_failure, fatal (RFC 8446 section 6.2): neither do such hellos name signatures.
        let refused = matches!(alert.get(5..7), Some([2, 70 | 40]));
        assert!(alert.first() == Some(&21) && refused, "3.{minor}: {alert:?}");
    }
    until("both are counted", || failures(&gateway, "incompatible") == 2.0);
}

#[test]
fn a_stalled_client_is_closed_in_time() {
    let origin = Origin::ok();
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let config = listener(&format!("certificates: {pair}"), ", timeouts: { handshake: 500ms }");
    let gateway = Gateway::before(&origin, &config);
    let mut expected = 0.0;
    for part in [&[][..], &[22][..], &[22, 3, 1, 2, 0, 1, 0, 1, 252][..]] {
        assert!(gateway.client().send(part).is_closed(), "{part:?}");
        expected += 1.0;
        until("it is counted", || failures(&gateway, "timeout") == expected);
    }
    // A byte now and then of the longest hello buys no time.
    let mut client = gateway.client();
    client.send([22, 3, 1, 64, 0, 1, 0, 63, 252, 3, 3]);
    until("it is closed", || !client.try_send([0]));
    until("it is counted", || failures(&gateway, "timeout") == expected + 1.0);
    // Who leaves is closed, and who leaves without a word is nothing to count.
    gateway.client().send([22, 3]).finish_sending();
    until("it is counted", || failures(&gateway, "closed") == 1.0);
    drop(gateway.client());
    until("nobody is left", || gateway.metric("tollgate_worker_connections", &[]) == 0.0);
    assert_eq!((failures(&gateway, "closed"), outcome(&gateway, &authority.dial("localhost")).as_str()), (1.0, "200"));
}

/// It makes no difference how a hello is cut.
#[test]
fn a_hello_byte_by_byte_is_a_hello() {
    let origin = Origin::ok();
    let (authority, gateway) = gateway(&origin, "");
    let relay = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (from, to) = (relay.local_addr().unwrap(), gateway.addr());
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut client, _) = relay.accept().unwrap();
        let mut server = std::net::TcpStream::connect(to).unwrap();
        server.set_nodelay(true).unwrap();
        let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let back = std::thread::spawn(move || drop(std::io::copy(&mut back_from, &mut back_to)));
        let mut byte = [0];
        while client.read(&mut byte).is_ok_and(|read| read > 0) {
            server.write_all(&byte).unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        drop(server.shutdown(std::net::Shutdown::Write));
        back.join().unwrap();
    });
    let mut client = crate::harness::Client::connect(from).secure(&authority.dial("localhost")).unwrap();
    assert_eq!(client.get("/").status(), 200);
}

/// A client that goes without a word is like one that has closed: its request is not whole, and no fault of ours.
#[test]
fn a_request_that_is_cut_is_not_forwarded_as_whole() {
    let origin = Origin::echo();
    let (authority, gateway) = gateway(&origin, "");
    let mut client = dial(&gateway, &authority.dial("localhost")).unwrap();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    origin.wait_heads(1);
    drop(client);
    assert_eq!(origin.wait(1).ending, crate::harness::Ending::Aborted);
    let mut client = dial(&gateway, &authority.dial("localhost")).unwrap();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").finish_sending();
    until("the connection is over", || gateway.metric("tollgate_worker_connections", &[]) == 0.0);
}

/// What a client does not take is not waited for longer than the listener says.
#[test]
fn who_does_not_read_is_closed() {
    let origin = Origin::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 64 << 20, "x".repeat(64 << 20)));
    let authority = Authority::new("servers");
    let pair = authority.issue("leaf", &Leaf::of(&["localhost"]));
    let config = listener(&format!("certificates: {pair}"), ", timeouts: { write_idle: 500ms }");
    let gateway = Gateway::before(&origin, &config);
    let mut client = dial(&gateway, &authority.dial("localhost")).unwrap();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    until("it is closed", || gateway.metric("tollgate_client_aborts_total", &[]) == 1.0);
    until("and gone", || gateway.metric("tollgate_worker_connections", &[]) == 0.0);
    drop(client);
}

/// An answer that tells a client to stop is read, although the client is still sending.
#[test]
fn a_refusal_is_seen_by_who_is_still_sending() {
    let origin = Origin::ok();
    let routes = "routes: [{ name: all, upstream: origin, max_body: 10B }]";
    let (authority, gateway) = gateway(&origin, routes);
    let mut client = dial(&gateway, &authority.dial("localhost")).unwrap();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n{}", "x".repeat(400_000)));
    let reply = client.receive().response();
    assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    let (_, announced) = client.into_wire().drain();
    assert!(announced);
}
