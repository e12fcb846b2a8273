//! A client's bytes, and what upstreams are sent for them: exactly one request, framed as it was, without anything that was for the
//! connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::headers::Framing;
use tollgate::proxy::fuzzing::{Translated, translate};
use tollgate_fuzz::{HOP_BY_HOP, Head, chunks};

fuzz_target!(|bytes: &[u8]| {
    if let Some(translated) = translate(bytes) {
        check_http1(&translated);
        check_http2(&translated);
    }
});

fn check_http1(translated: &Translated) {
    let sent = &translated.http1;
    let head = Head::parse(sent);
    assert_eq!(head.start, format!("{} {} HTTP/1.1", translated.method, translated.target));
    assert!(!translated.target.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#'), "{:?}", translated.target);
    // A parser that others use reads the same.
    let mut fields = [httparse::EMPTY_HEADER; 256];
    let mut parsed = httparse::Request::new(&mut fields);
    assert_eq!(parsed.parse(sent), Ok(httparse::Status::Complete(head.length)));
    assert_eq!(head.all("host").len(), 1, "one Host");
    check_framing(translated, &head, &sent[head.length..]);
    check_fields(translated, &head);
}

fn check_framing(translated: &Translated, head: &Head<'_>, rest: &[u8]) {
    let (lengths, codings) = (head.all("content-length"), head.all("transfer-encoding"));
    match translated.framing {
        Framing::None => {
            assert!(lengths.is_empty() && codings.is_empty() && rest.is_empty() && translated.body.is_empty());
        }
        Framing::Length(length) => {
            assert_eq!((lengths, codings.len()), (vec![length.to_string().as_bytes()], 0));
            assert_eq!((rest, rest.len() as u64), (translated.body.as_slice(), length));
        }
        Framing::Chunked => {
            assert_eq!((lengths.len(), codings), (0, vec![b"chunked".as_slice()]));
            let (body, trailers) = chunks(rest);
            assert_eq!(body, translated.body);
            for name in trailers {
                assert!(translated.trailers.contains_key(&name), "{name} was no trailer");
                let never = ["host", "content-length", "via", "x-forwarded-for", "authorization", "x-user-id", "x-client-id"];
                assert!(!HOP_BY_HOP.contains(&name.as_str()) && !never.contains(&name.as_str()), "{name} as a trailer");
                assert!(!nominated(translated).contains(&name), "{name} is nominated");
            }
        }
    }
}

fn check_fields(translated: &Translated, head: &Head<'_>) {
    for name in HOP_BY_HOP {
        let own: &[&[u8]] = match name {
            "te" => &[b"trailers"],
            "connection" => &[b"te"],
            "transfer-encoding" => &[b"chunked"],
            _ => &[],
        };
        assert!(head.all(name).iter().all(|value| own.contains(value)), "{name}: {:?}", head.all(name));
    }
    for name in ["via", "x-forwarded-for", "x-forwarded-proto"] {
        assert_eq!(head.all(name).len(), 1, "{name}");
    }
    assert_eq!(head.all("x-forwarded-for"), [b"203.0.113.9"]);
    for name in ["expect", "forwarded", "x-user-id", "x-client-id", "x-real-ip"] {
        assert!(head.all(name).is_empty(), "{name}");
    }
    // What the gateway writes itself stays, and so does a key.
    let own = |name: &str| HOP_BY_HOP.contains(&name) || name.starts_with("x-forwarded-") || OWN.contains(&name);
    for name in nominated(translated) {
        assert!(own(&name) || head.all(&name).is_empty(), "{name} is nominated");
    }
    for (name, _) in &head.fields {
        let folded: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        assert!(folded == *name || !LOOK_ALIKES.contains(&folded.as_str()), "{name} looks like {folded}");
    }
}

fn check_http2(translated: &Translated) {
    let Some(request) = &translated.http2 else { return };
    assert_eq!(request.method(), translated.method);
    assert_eq!(request.uri().path_and_query().map(|target| target.as_str()), Some(translated.target.as_str()));
    assert!(request.uri().authority().is_some_and(|authority| !authority.as_str().contains('@')));
    for (name, value) in request.headers() {
        assert!(name == "te" && value == "trailers" || !HOP_BY_HOP.contains(&name.as_str()), "{name}");
        assert!(name != "host" && value.as_bytes().trim_ascii().len() == value.len(), "{name}: {value:?}");
    }
}

/// What `Connection` names.
fn nominated(translated: &Translated) -> Vec<String> {
    let lines = translated.received.get_all("connection").iter().filter_map(|line| std::str::from_utf8(line.as_bytes()).ok());
    let words = lines.flat_map(|line| line.split(',')).map(|word| word.trim_ascii().to_ascii_lowercase());
    words.filter(|word| !word.is_empty()).collect()
}

const OWN: [&str; 6] = ["host", "content-length", "via", "x-api-key", "close", "max-forwards"];
const LOOK_ALIKES: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "x-forwarded-for",
    "x-user-id",
    "x-api-key",
    "x-client-id",
    "authorization",
    "connection",
];
