//! A fragment in a request target is refused wherever the request stands in the stream, and only there. The HTTP library
//! drops fragments silently, so whoever looks for them must keep step with it through pipelines, splits and bodies.

use crate::harness::{Gateway, Origin, crlf};

#[test]
fn a_fragment_in_a_pipelined_request_is_refused_too() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send(crlf("GET /1 HTTP/1.1\nHost: a\n\nGET /2#x HTTP/1.1\nHost: a\n\n"));
    assert_eq!(client.receive().outcome(), "200");
    assert_eq!(client.receive().outcome(), "400");
    assert_eq!(origin.lines(), ["GET /1 HTTP/1.1"]);
}

#[test]
fn a_fragment_behind_a_body_is_refused_too() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send(crlf("POST /1 HTTP/1.1\nHost: a\nContent-Length: 3\n\nabcGET /2#x HTTP/1.1\nHost: a\n\n"));
    assert_eq!(client.receive().outcome(), "200");
    assert_eq!(client.receive().outcome(), "400");
    assert_eq!(origin.lines(), ["POST /1 HTTP/1.1"]);
}

#[test]
fn a_hash_in_a_field_of_a_pipelined_request_that_is_split_is_no_fragment() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nX: 1");
    assert_eq!(client.receive().outcome(), "200");
    client.send("#2\r\n\r\n");
    assert_eq!(client.receive().outcome(), "200");
}

#[test]
fn a_hash_in_a_refused_body_is_no_fragment_of_the_next_request() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "limits: [{ name: one, match: { path: /limited }, per: ip, rate: 1/hour }]");
    assert_eq!(gateway.get("/limited").status, 200);
    let mut client = gateway.client();
    client.send("POST /limited HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n");
    client.wait_at_most(std::time::Duration::from_millis(300));
    // Answered from the head, or after the body; either way the body belongs to this request.
    let early = client.receive().outcome();
    client.send("#1234567");
    client.wait_at_most(crate::harness::DEADLINE);
    let outcome = if early == "silent" { client.receive().outcome() } else { early };
    assert_eq!(outcome, "429");
    let next = client.get("/next").outcome();
    assert!(["200", "closed", "reset"].contains(&next.as_str()), "{next}");
}

#[test]
fn a_hash_in_bodies_and_queries_of_others_is_nobodys_fragment() {
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, "");
    let mut client = gateway.client();
    for _ in 0..3 {
        assert_eq!(
            client.ask(crlf("POST /x HTTP/1.1\nHost: a\nReferer: http://a/#top\nContent-Length: 4\n\n#\n#")).outcome(),
            "200"
        );
    }
}
