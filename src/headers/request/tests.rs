use super::*;
use crate::request::{ConnInfo, PathRules};
use proptest::prelude::*;

fn head(request: http::request::Builder, via_trusted_proxy: bool) -> String {
    head_with(request, via_trusted_proxy, ForwardedHeader::XForwardedFor, "203.0.113.9")
}

fn head_with(request: http::request::Builder, via_trusted_proxy: bool, forwarded: ForwardedHeader, client: &str) -> String {
    heads_with(request, via_trusted_proxy, forwarded, client, Framing::None).0
}

fn heads_with(
    request: http::request::Builder,
    via_trusted_proxy: bool,
    forwarded: ForwardedHeader,
    client: &str,
    framing: Framing,
) -> (String, EndToEndFields) {
    let (bytes, fields) = both(request, via_trusted_proxy, forwarded, client, framing);
    (String::from_utf8(bytes).unwrap(), fields)
}

fn bytes_with(request: http::request::Builder, framing: Framing) -> Vec<u8> {
    both(request, false, ForwardedHeader::XForwardedFor, "203.0.113.9", framing).0
}

fn both(
    request: http::request::Builder,
    via_trusted_proxy: bool,
    forwarded: ForwardedHeader,
    client: &str,
    framing: Framing,
) -> (Vec<u8>, EndToEndFields) {
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let conn = ConnInfo::new("203.0.113.9:5000".parse().unwrap(), "http");
    let rules = PathRules { distinct_trailing_slash: false, allow_encoded_slash: false };
    let facts = Facts::read(&parts, &conn, &rules).unwrap();
    let identity = IdentityHeaders::new(
        vec![HeaderName::from_static("x-user-id")],
        vec![HeaderName::from_static("x-api-key"), HeaderName::from_static("other_key")],
        vec![HeaderName::from_static("x-client-id"), HeaderName::from_static("x-client-tier")],
        forwarded,
    );
    let edits = HeaderEdits {
        remove: vec![HeaderName::from_static("x-gone")],
        set: vec![(HeaderName::from_static("x-env"), HeaderValue::from_static("prod"))],
        add: vec![],
    };
    let forwarding = Forwarding {
        facts: &facts,
        target: "/a?b",
        framing,
        via_trusted_proxy,
        client: client.parse().unwrap(),
        edits: &edits,
        identity: &identity,
        told: &[],
        withheld: &Withheld::default(),
        plain_response: false,
        default_host: "up:1",
        offer: None,
    };
    (EndToEndHead::new(&forwarding).bytes().to_vec(), EndToEndFields::new(&forwarding, &Scheme::HTTP).unwrap())
}

/// Both forms say the same: every line but those of the connection is a field, `Host` is the authority.
#[test]
fn http2_says_what_http1_says() {
    let requests = [
        get()
            .header("accept", "*/*")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("connection", "x-hop")
            .header("x-hop", "1"),
        get().header("te", "trailers").header("x-forwarded-for", "198.51.100.1").header("via", "2 edge").header("x-user-id", "u"),
        http::Request::post("http://example.com/a?b").version(Version::HTTP_2).header("cookie", "a=1").header("cookie", "b=2"),
    ];
    for request in requests {
        for framing in [Framing::None, Framing::Length(7), Framing::Chunked] {
            let request = {
                let copy = request.headers_ref().unwrap().iter();
                let new = http::Request::builder().method(request.method_ref().unwrap()).uri(request.uri_ref().unwrap());
                copy.fold(new.version(*request.version_ref().unwrap()), |new, (name, value)| new.header(name, value))
            };
            let (text, fields) = heads_with(request, true, ForwardedHeader::XForwardedFor, "198.51.100.1", framing);
            let mut lines: Vec<&str> = text.trim_end().split("\r\n").skip(1).collect();
            lines.retain(|line| !line.starts_with("transfer-encoding: ") && !line.starts_with("connection: "));
            let EndToEndFields { request, .. } = fields;
            let host = format!("host: {}", request.uri().authority().unwrap());
            let said = request.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
            let mut said: Vec<String> = std::iter::once(host).chain(said).collect();
            lines.sort_unstable();
            said.sort_unstable();
            assert_eq!(said, lines);
            assert_eq!((request.uri().path_and_query().unwrap().as_str(), request.uri().scheme_str()), ("/a?b", Some("http")));
        }
    }
}

#[test]
fn blanks_around_an_operators_value_are_not_said_in_http2() {
    let mut fields = Fields::new();
    fields.line(&VIA, b" a b ");
    assert_eq!(fields.headers[VIA], "a b");
}

fn get() -> http::request::Builder {
    http::Request::get("/a?b").header("host", "Example.com:80")
}

#[test]
fn a_plain_request_gets_our_own_fields() {
    assert_eq!(
        head(get().header("accept", "*/*"), false),
        "GET /a?b HTTP/1.1\r\nhost: example.com\r\naccept: */*\r\nx-forwarded-for: 203.0.113.9\r\n\
         x-forwarded-proto: http\r\nx-forwarded-host: example.com\r\nvia: 1.1 tollgate\r\nx-env: prod\r\n\r\n"
    );
}

#[test]
fn nothing_of_this_gets_through_from_an_untrusted_client() {
    let names = FORWARDING.iter().chain(&[
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-user",
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "upgrade",
        "http2-settings",
        "x-user-id",
        "x_user_id",
        "x.user.id",
        "x_api_key",
        "x_forwarded_for",
        "content_length",
        "transfer_encoding",
        "remote_user",
        "sec_websocket_key",
        "sec.websocket.accept",
        "sec_websocket_protocol",
        "sec_websocket_extensions",
        "sec_websocket_version",
        "x-gone",
        "x-env",
        "x_env",
        "x-client-id",
        "x_client_tier",
        "x.client.id",
        "x-api~key",
        "other-key",
        "other.key",
    ]);
    for name in names {
        let sent = head(get().header(*name, "EVIL"), false);
        assert!(!sent.contains("EVIL"), "{name}: {sent}");
    }
}

#[test]
fn every_byte_that_a_server_may_fold_is_folded() {
    for byte in "!#$%&'*+.^_`|~".chars() {
        for name in ["x-client-id", "x-user-id", "x-forwarded-for", "x-env", "remote-user", "x-api-key"] {
            let name = name.replace('-', &byte.to_string());
            let sent = head(get().header(&name, "EVIL"), false);
            assert!(!sent.contains("EVIL"), "{name}: {sent}");
        }
    }
    let sent = head(get().header("other_key", "k").header("x_custom", "v").header("x~y", "v"), false);
    for line in ["\r\nother_key: k\r\n", "\r\nx_custom: v\r\n", "\r\nx~y: v\r\n"] {
        assert!(sent.contains(line), "{line}: {sent}");
    }
}

#[test]
fn a_trusted_proxy_is_continued() {
    let request = get()
        .header("x-forwarded-for", "198.51.100.1")
        .header("x-forwarded-for", "10.0.0.1")
        .header("x-forwarded-proto", "https")
        .header("x-user-id", "u1")
        .header("via", "2 edge");
    let sent = head(request, true);
    for line in [
        "\r\nx-forwarded-for: 198.51.100.1, 10.0.0.1, 203.0.113.9\r\n",
        "\r\nx-forwarded-proto: https\r\n",
        "\r\nx-user-id: u1\r\n",
        "\r\nvia: 2 edge, 1.1 tollgate\r\n",
    ] {
        assert!(sent.contains(line), "{line}: {sent}");
    }
    assert_eq!(sent.matches("x-forwarded-for").count(), 1);
}

#[test]
fn only_the_header_that_is_believed_is_continued() {
    let both = || get().header("forwarded", "for=198.51.100.1, for=10.0.0.1").header("x-forwarded-for", "198.51.100.2");
    let sent = head_with(both(), true, ForwardedHeader::XForwardedFor, "198.51.100.2");
    assert!(sent.contains("\r\nx-forwarded-for: 198.51.100.2, 203.0.113.9\r\n") && !sent.contains("forwarded: for"), "{sent}");
    let sent = head_with(both(), true, ForwardedHeader::Forwarded, "198.51.100.1");
    let own = "for=203.0.113.9;host=\"example.com\";proto=http";
    assert!(sent.contains(&format!("\r\nforwarded: for=198.51.100.1, for=10.0.0.1, {own}\r\n")), "{sent}");
    assert!(sent.contains("\r\nx-forwarded-for: 198.51.100.1, 203.0.113.9\r\n"), "{sent}");
    let sent = head_with(both(), false, ForwardedHeader::Forwarded, "203.0.113.9");
    assert!(sent.contains(&format!("\r\nforwarded: {own}\r\n")), "{sent}");
    assert!(sent.contains("\r\nx-forwarded-for: 203.0.113.9\r\n"), "{sent}");
}

#[test]
fn nominated_fields_stay_behind_but_not_ours() {
    let request = get()
        .header("connection", "x-hop, X-Api-Key, x-forwarded-for, via, close")
        .header("x-hop", "EVIL")
        .header("x-api-key", "k");
    let sent = head(request, false);
    assert!(!sent.contains("EVIL") && !sent.contains("connection"));
    assert!(sent.contains("x-api-key: k\r\n") && sent.contains("via: 1.1 tollgate") && sent.contains("x-forwarded-for: "));
}

#[test]
fn cookie_crumbs_are_joined_for_http1() {
    let request =
        http::Request::get("http://example.com/").version(Version::HTTP_2).header("cookie", "a=1").header("cookie", "b=2");
    assert!(head(request, false).contains("\r\ncookie: a=1; b=2\r\n"));
}

#[test]
fn trailers_are_offered_only_when_asked_for() {
    assert!(head(get().header("te", "gzip;q=1, Trailers"), false).contains("te: trailers\r\nconnection: te\r\n"));
}

/// Fields as clients send them, as attackers do, and anything.
fn some_fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    #[rustfmt::skip]
    let names: &[&str] = &[
        "accept", "Connection", "connection", "TE", "Upgrade", "Keep-Alive", "Proxy-Connection", "http2-settings", "Expect", "Via",
        "X-Forwarded-For", "x-forwarded-proto", "x-forwarded-anything", "Forwarded", "X-Real-IP", "x-user-id", "x-client-id", "X-API-Key",
        "x-gone", "x-env", "cookie", "content-type", "x-hop", "x-original-url",
    ];
    let name = prop_oneof![4 => proptest::sample::select(names).prop_map(str::to_owned), 1 => "[a-z]{1,6}"];
    let values: &[&str] = &[
        "",
        "1",
        "close",
        "x-hop, accept",
        "X-Forwarded-For,host",
        "te",
        "trailers",
        "100-continue",
        "a, b;c=\"d\"",
        "keep-alive, x-api-key",
    ];
    let value = prop_oneof![
        3 => proptest::sample::select(values).prop_map(|value| value.as_bytes().to_vec()),
        1 => proptest::collection::vec(prop_oneof![0x20_u8..0x7f, 0x80_u8..=0xff, Just(b'\t')], 0..12),
    ];
    proptest::collection::vec((name, value), 0..8)
}

/// What must go through, said in another way than the code does: name by name, in lower case, in order.
fn expected(fields: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let lower: Vec<(String, &[u8])> = fields.iter().map(|(name, value)| (name.to_lowercase(), value.trim_ascii())).collect();
    let connection = lower.iter().filter(|(name, _)| name == "connection");
    let nominated: Vec<String> = connection
        .flat_map(|(_, value)| {
            String::from_utf8_lossy(value).to_lowercase().split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    #[rustfmt::skip]
    let never = [
        "connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "http2-settings", "host", "content-length", "via",
        "expect", "forwarded", "x-real-ip", "x-original-url", "x-user-id", "x-client-id", "x-client-tier", "x-gone", "x-env",
    ];
    let stays = |name: &str| {
        let options = ["close", "keep-alive", ""];
        let is_nominated = nominated.iter().any(|word| word == name) && !options.contains(&name) && name != "x-api-key";
        !never.contains(&name) && !name.starts_with("x-forwarded-") && !is_nominated
    };
    let mut passed: Vec<(String, Vec<u8>)> =
        lower.iter().filter(|(name, _)| stays(name)).map(|(name, value)| (name.clone(), value.to_vec())).collect();
    passed.sort_by(|a, b| a.0.cmp(&b.0));
    passed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// From bytes to bytes: a head that the parser takes and [`Facts`] lets through says upstream what it said here, less what ends here,
    /// and is one well-formed head with one Host and one framing.
    #[test]
    fn a_head_that_is_accepted_means_the_same_upstream(fields in some_fields(), framing in 0_u8..3) {
        let lines: Vec<u8> = fields.iter().flat_map(|(name, value)| [name.as_bytes(), b": ", value, b"\r\n"].concat()).collect();
        let raw = [b"POST /a?b HTTP/1.1\r\nHost: example.com\r\n", &*lines, b"\r\n"].concat();
        let mut room = [httparse::EMPTY_HEADER; 16];
        let mut parsed = httparse::Request::new(&mut room);
        prop_assume!(parsed.parse(&raw).is_ok_and(|status| status.is_complete()));
        let request = parsed.headers.iter().fold(http::Request::post("/a?b"), |request, field| request.header(field.name, field.value));
        prop_assume!(request.headers_ref().unwrap().get_all("expect").iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue")));
        let framing = [Framing::None, Framing::Length(3), Framing::Chunked][usize::from(framing)];
        let text = bytes_with(request, framing);

        let head = text.strip_suffix(b"\r\n\r\n").expect("an empty line at the end");
        prop_assert!(memchr::memmem::find(head, b"\r\n\r\n").is_none(), "two heads");
        let mut passed = Vec::new();
        let (mut hosts, mut framings) = (0, 0);
        for line in head.split(|byte| *byte == b'\n').skip(1) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            prop_assert!(!line.contains(&b'\r') && !line.contains(&0));
            let colon = line.iter().position(|byte| *byte == b':').expect("a field");
            let (name, value) = (String::from_utf8(line[..colon].to_vec()).unwrap(), line[colon + 1..].trim_ascii());
            match name.as_str() {
                "host" => hosts += 1,
                "content-length" | "transfer-encoding" => framings += 1,
                "connection" | "te" => prop_assert!(value == b"te" || value == b"trailers"),
                "via" | "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host" | "x-env" => {}
                _ => passed.push((name, value.to_vec())),
            }
        }
        passed.sort_by(|a, b| a.0.cmp(&b.0));
        prop_assert_eq!((hosts, framings), (1, i32::from(framing != Framing::None)));
        prop_assert_eq!(passed, expected(&fields), "{:?}", String::from_utf8_lossy(&raw));
    }
}
