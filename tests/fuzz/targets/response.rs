//! An upstream's bytes, and the head that a client is sent for them.
#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use tollgate::headers::{HeaderEdits, ResponseFraming, ResponseHead};
use tollgate::upstream::fuzzing::response;
use tollgate_fuzz::{HOP_BY_HOP, Head};

// The first byte says which method it answers.
fuzz_target!(|bytes: &[u8]| {
    let Some((first, raw)) = bytes.split_first() else { return };
    let method = if first % 2 == 0 { Method::GET } else { Method::HEAD };
    let Some((head, length)) = response(raw, &method) else { return };
    assert!(length <= raw.len());
    check(&head, &method);
    // Neither what follows nor the way it is cut changes a head.
    let again = response(&raw[..length], &method).expect("a head is complete without what follows");
    assert_eq!((again.0.headers, again.0.framing, again.1), (head.headers.clone(), head.framing, length));
    let half = response(&raw[..length - 1], &method);
    assert!(half.is_none(), "half a head is none");
    if head.status.is_informational() {
        check_interim(&head);
    }
});

fn check(head: &ResponseHead, method: &Method) {
    let (code, headers) = (head.status.as_u16(), &head.headers);
    assert!((100..600).contains(&code));
    for name in HOP_BY_HOP {
        assert!(!headers.contains_key(name) || (name == "upgrade" && code == 101), "{name}");
    }
    let lengths: Vec<_> = headers.get_all("content-length").iter().collect();
    let length = lengths.first().map(|length| length.to_str().expect("digits").parse::<u64>().expect("a number"));
    assert!(lengths.len() <= 1);
    let bodiless = *method == Method::HEAD || matches!(code, 100..200 | 204 | 304);
    match head.framing {
        ResponseFraming::Length(0) if bodiless => assert!(length.is_none() || (code >= 200 && code != 204)),
        ResponseFraming::Length(framed) => assert_eq!(length, Some(framed)),
        ResponseFraming::Chunked => assert_eq!((length, bodiless), (None, false)),
        ResponseFraming::UntilClose => assert!(length.is_none() && !bodiless && !head.keep_alive),
    }
}

/// It is one head and nothing else, with all of its fields.
fn check_interim(head: &ResponseHead) {
    let text = head.interim_text(&HeaderEdits::default());
    let written = Head::parse(&text);
    assert!(written.start.starts_with(&format!("HTTP/1.1 {} ", head.status.as_u16())));
    assert_eq!((written.fields.len(), written.length), (head.headers.len(), text.len()));
    assert!(written.all("content-length").is_empty() && written.all("transfer-encoding").is_empty());
}
