//! The access log is one line per request whatever a client sends, and no place for secrets.

use crate::harness::{Gateway, Origin, crlf, exchange, hashed, until};

/// The lines so far, parsed; panics on a line that is not one JSON object.
fn lines(gateway: &Gateway) -> Vec<serde_json::Value> {
    let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    gateway.access_log().lines().map(parse).inspect(|line| assert!(line.is_object())).collect()
}

#[test]
fn every_request_is_one_json_line_and_secrets_stay_out() {
    let origin = Origin::ok();
    let key = hashed("secret-key-1");
    let gateway = Gateway::before(
        &origin,
        &format!(
            "access_log: {{ format: json, to: stdout }}\nidentity: {{ api_key: {{ sources: [{{ header: x-api-key }}, bearer, {{ query: api_key }}] }} }}\nclients: [{{ id: acme, api_keys: ['{key}'] }}]\nlimits: [{{ name: one, match: {{ path: /limited }}, per: client, rate: 1/hour }}]"
        ),
    );
    let requests = [
        "GET /a?api_key=secret-key-1 HTTP/1.1\nHost: a\nUser-Agent: \"x\u{7f}\\\n\n",
        "GET /%22%7b%e2%80%a8 HTTP/1.1\nHost: a\nX-API-Key: secret-key-1\nCookie: session=secret-cookie\n\n",
        "GET /a HTTP/1.1\nHost: a\nAuthorization: Bearer secret-key-2\n\n",
        "GET /limited HTTP/1.1\nHost: a\n\n",
        "GET /limited HTTP/1.1\nHost: a\nUser-Agent: \"\\{}\n\n",
        "GET /a HTTP/1.1\nHost: a\nReferer: \u{1b}[31m\n\n",
    ];
    let sent: Vec<u16> =
        requests.iter().filter_map(|request| exchange(gateway.addr(), crlf(request)).outcome().parse().ok()).collect();
    assert_eq!(gateway.get("/last").status, 200);
    until("the last request is logged", || gateway.access_log().contains("/last"));
    let lines = lines(&gateway);
    assert!(lines.len() > 3 && lines.len() <= sent.len() + 1, "{lines:#?}");
    for secret in ["secret-key", "secret-cookie"] {
        assert!(!gateway.access_log().contains(secret) && !gateway.log().contains(secret), "{secret} is in the log");
    }
    assert!(lines.iter().any(|line| line["status"] == 429), "{lines:#?}");
}
