//! What a response says that it cost, read while it passes by.
//!
//! [`UsageReader`] watches the bytes of a JSON body or an event stream and keeps one number of it, `usage.total_tokens`
//! say. It delays nothing, changes nothing and holds no buffer: whatever upstream sends, a reader is a few machine words.
//! That is also why there is a JSON reader of our own in `document`: those to be had collect the string or the number at
//! hand without bound (actson, which is fed like this one) or want the whole document (serde_json).
//!
//! This module must not know what the number is for, nor who is charged.

mod document;
mod event_stream;
mod number;
mod string;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use document::Document;
use event_stream::EventStream;

/// Where in a JSON document the number is: `usage.total_tokens`. A piece of digits (`choices.0.n`) is an index where the
/// document has an array, and a key where it has an object. Keys that are empty or contain a dot can't be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Box<[Piece]>);

/// Why a text is not a [`FieldPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldPathError {
    /// Nothing before, after or between dots.
    #[error("a piece of the path is empty")]
    EmptyPiece,
    /// More pieces than anybody nests.
    #[error("the path has more than {MAX_PIECES} pieces")]
    TooManyPieces,
    /// More bytes than anybody writes.
    #[error("the path is longer than {MAX_BYTES} bytes")]
    TooLong,
}

/// Finds the number at a [`FieldPath`] in a response's body, which it sees in pieces of any size.
///
/// A fraction is rounded up, what is larger than `u64::MAX` is `u64::MAX`, and what is not a number or has a minus sign is
/// as good as absent. If the path is there several times, the last time counts: in an event stream, that of the last event
/// that has it. A document is read up to where it stops being JSON.
#[derive(Debug)]
pub struct UsageReader {
    /// How many bytes of a byte order mark have been skipped; all of them once something else came.
    mark: usize,
    framing: Framing,
    document: Document,
}

impl UsageReader {
    /// `None` when the body is neither JSON nor an event stream, or when it is encoded (compressed).
    #[must_use]
    pub fn for_response(headers: &HeaderMap, path: &Arc<FieldPath>) -> Option<Self> {
        let framing = Framing::of(headers)?;
        is_plain(headers).then(|| Self { mark: 0, framing, document: Document::new(Arc::clone(path)) })
    }

    /// The next bytes of the body.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let ([byte, rest @ ..], Some(mark)) = (bytes, BYTE_ORDER_MARK.get(self.mark)) {
            if byte != mark {
                self.mark = BYTE_ORDER_MARK.len();
                break;
            }
            self.mark += 1;
            bytes = rest;
        }
        match &mut self.framing {
            Framing::Whole => self.document.feed(bytes),
            Framing::Events(events) => events.feed(bytes, &mut self.document),
        }
    }

    /// The number, once the body has ended. If it was cut off, what was there until then; a number counts when the byte
    /// after it was seen. Asked again, it is `None`, so that nothing is charged twice.
    pub fn finish(&mut self) -> Option<u64> {
        self.document.take()
    }
}

/// How documents lie in a body.
#[derive(Debug)]
enum Framing {
    /// The body is the document.
    Whole,
    /// A document per event.
    Events(EventStream),
}

impl Framing {
    fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = value.split(';').next()?.trim().to_ascii_lowercase();
        match kind.split_once('/')? {
            ("application", subtype) if subtype == "json" || subtype.ends_with("+json") => Some(Self::Whole),
            ("text", "event-stream") => Some(Self::Events(EventStream::default())),
            _ => None,
        }
    }
}

fn is_plain(headers: &HeaderMap) -> bool {
    let is_identity = |coding: &str| coding.is_empty() || coding.eq_ignore_ascii_case("identity");
    headers.get_all(CONTENT_ENCODING).iter().all(|line| {
        let codings = line.to_str().map(|line| line.split(',').map(str::trim));
        codings.is_ok_and(|mut codings| codings.all(is_identity))
    })
}

impl FromStr for FieldPath {
    type Err = FieldPathError;

    fn from_str(text: &str) -> Result<Self, FieldPathError> {
        if text.len() > MAX_BYTES {
            return Err(FieldPathError::TooLong);
        }
        let pieces: Box<[Piece]> = text.split('.').map(Piece::new).collect();
        if pieces.iter().any(|piece| piece.name.is_empty()) {
            return Err(FieldPathError::EmptyPiece);
        }
        if pieces.len() > MAX_PIECES {
            return Err(FieldPathError::TooManyPieces);
        }
        Ok(Self(pieces))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, piece) in self.0.iter().enumerate() {
            formatter.write_str(if number == 0 { "" } else { "." })?;
            formatter.write_str(&piece.name)?;
        }
        Ok(())
    }
}

/// One step from a container to what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    name: Box<str>,
    index: Option<u64>,
}

impl Piece {
    fn new(name: &str) -> Self {
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        Self { name: name.into(), index: if is_number { name.parse().ok() } else { None } }
    }
}

/// Bounds what a configuration can ask of every byte of every response; real paths have two or three pieces.
const MAX_PIECES: usize = 16;
const MAX_BYTES: usize = 256;
/// U+FEFF. Event streams may begin with it, and JSON readers may ignore it (RFC 8259, section 8.1).
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";

    #[test]
    fn documents() {
        let many = format!(r#"{{"usage":{{"n":1}},"text":"{}","usage":{{"n":2}}}}"#, "\\\"{".repeat(50));
        let deep = format!(r#"{{"a":{}{},"usage":{{"n":3}}}}"#, "[".repeat(300), "]".repeat(300));
        let deep_mixed = format!(r#"{{"a":{}"}}]"{},"usage":{{"n":3}}}}"#, r#"{"a":["#.repeat(99), "]}".repeat(99));
        let unended = format!(r#"{{"usage":{{"n":3}},"a":{}"#, "[{".repeat(300));
        let rows: &[(&str, &str, Option<u64>)] = &[
            ("usage.n", r#"{"usage":{"n":12}}"#, Some(12)),
            ("usage.n", " {\r\n\t\"usage\" : { \"n\" : 12 } } \n", Some(12)),
            ("usage.n", "\u{feff}{\"usage\":{\"n\":12}}", Some(12)),
            ("usage.n", r#"{"id":"x","usage":{"m":1,"n":12,"o":2},"z":[true,false,null]}"#, Some(12)),
            ("usage.n", r#"{"\u0075sage":{"\u006E":12}}"#, Some(12)),
            ("usage.n", r#"{"usage":{"n":12.5}}"#, Some(13)),
            ("usage.n", r#"{"usage":{"n":1.2e3}}"#, Some(1200)),
            ("usage.n", r#"{"usage":{"n":99999999999999999999999}}"#, Some(u64::MAX)),
            ("usage.n", r#"{"usage":{"n":0}}"#, Some(0)),
            ("n", r#"{"n":7}"#, Some(7)),
            ("größe", r#"{"größe":7}"#, Some(7)),
            // Something else there, or nothing.
            ("usage.n", r#"{"usage":{"n":-12}}"#, None),
            ("usage.n", r#"{"usage":{"n":"12"}}"#, None),
            ("usage.n", r#"{"usage":{"n":null}}"#, None),
            ("usage.n", r#"{"usage":{"n":{"n":12}}}"#, None),
            ("usage.n", r#"{"usage":{"n":[12]}}"#, None),
            ("usage.n", r#"{"usage":12,"n":12,"a":{"usage":{"n":12}},"b":[{"usage":{"n":12}}]}"#, None),
            ("usage.n", r#"{"usage":{"a":{"n":12}},"n":12}"#, None),
            ("usage.n", r#"{"usage":[{"n":12}]}"#, None),
            ("usage.n", r#"{"text":"{\"usage\":{\"n\":12}}"}"#, None),
            ("usage.n", r#"[{"usage":{"n":12}}]"#, None),
            ("usage.n", "12", None),
            ("usage.n", "", None),
            // The last one counts.
            ("usage.n", r#"{"usage":{"n":1,"n":2}}"#, Some(2)),
            ("usage.n", r#"{"usage":{"n":1},"usage":{"n":2}}"#, Some(2)),
            ("usage.n", r#"{"usage":{"n":1},"usage":{"n":null}}"#, Some(1)),
            ("usage.n", &many, Some(2)),
            // Arrays.
            ("0", "[5]", Some(5)),
            ("1", "[5,6,7]", Some(6)),
            ("3", "[5,6,7]", None),
            ("a.1.n", r#"{"a":[{"n":1},{"n":2},{"n":3}]}"#, Some(2)),
            ("a.0.1", r#"{"a":[[1,2],[3,4]]}"#, Some(2)),
            ("a.1.1", r#"{"a":[[1,2],[3,4],[5,6]]}"#, Some(4)),
            ("a.1.1", r#"{"a":[[],[],[5,6]],"a":[8,[{},9,[7,7]]]}"#, Some(9)),
            ("a.1", r#"{"a":[[1,1],2,3],"b":[4,4]}"#, Some(2)),
            ("a.0", r#"{"a":{"0":5,"1":6}}"#, Some(5)),
            ("0.n", r#"{"n":4}"#, None),
            ("a.01", r#"{"a":[5,6]}"#, Some(6)),
            // Nested deeper than is checked.
            ("usage.n", &deep, Some(3)),
            ("usage.n", &deep_mixed, Some(3)),
            ("usage.n", &unended, Some(3)),
        ];
        check_documents(rows);
    }

    #[test]
    fn documents_that_do_not_end_well() {
        let rows: &[(&str, &str, Option<u64>)] = &[
            // Cut off.
            ("usage.n", r#"{"usage":{"n":12"#, None),
            ("usage.n", r#"{"usage":{"n":12,"#, Some(12)),
            ("usage.n", r#"{"usage":{"n":12 "#, Some(12)),
            ("usage.n", r#"{"usage":{"n":12},"text":"wh"#, Some(12)),
            ("usage.n", r#"{"usage":{"n":12},"usage":{"n":1"#, Some(12)),
            // Not JSON: what came before counts.
            ("usage.n", r#"{"usage":{"n":12},"usage":{"n":13]}"#, Some(12)),
            ("usage.n", r#"{"usage":{"n":12}]"usage":{"n":13}}"#, Some(12)),
            ("usage.n", r#"{"usage":{"n":12}}{"usage":{"n":13}}"#, Some(12)),
            ("usage.n", r#"{"usage":{"n":12}},{"usage":{"n":13}}"#, Some(12)),
            ("usage.n", r#"{"a":[1,2},"usage":{"n":12}}"#, None),
            ("usage.n", r#"{"a":tru,"usage":{"n":12}}"#, None),
            ("usage.n", r#"{"a":t rue,"usage":{"n":12}}"#, None),
            ("usage.n", r#"{"a":01,"usage":{"n":12}}"#, None),
            ("usage.n", r#"{"a":"\x","usage":{"n":12}}"#, None),
            ("usage.n", r#"{"a" 1,"usage":{"n":12}}"#, None),
            ("usage.n", r#"{"a":,"usage":{"n":12}}"#, None),
            ("usage.n", r#"{,"usage":{"n":12}}"#, None),
            ("usage.n", r#"{a:1,"usage":{"n":12}}"#, None),
            ("usage.n", r#"{"usage":{"n":12x}}"#, None),
            ("usage.n", r#"{"usage":{"n":1.}}"#, None),
            ("usage.n", r#"{"usage":{"n":0x10}}"#, None),
            ("usage.n", r#"{"usage":{"n":12]}"#, None),
            ("usage.n", "<html>usage.n 12</html>", None),
            ("usage.n", r#"}]},"usage":{"n":12}"#, None),
        ];
        check_documents(rows);
    }

    #[test]
    fn event_streams() {
        let openai = concat!(
            "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"{\\\"usage\\\"\"}}],\"usage\":null}\n\n",
            "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n",
            "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"total_tokens\":21}}\n\n",
            "data: [DONE]\n\n",
        );
        let anthropic = concat!(
            "event: message_start\n",
            "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n",
            "event: ping\ndata: {\"type\": \"ping\"}\n\n",
            "event: content_block_delta\n",
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n",
            "event: message_delta\n",
            "data: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        );
        let rows: &[(&str, &str, Option<u64>)] = &[
            ("usage.total_tokens", openai, Some(21)),
            ("choices.0.index", openai, Some(0)),
            ("usage.output_tokens", anthropic, Some(15)),
            ("message.usage.input_tokens", anthropic, Some(25)),
            ("usage.total_tokens", anthropic, None),
            // Several: the last that has it.
            ("n", "data: {\"n\":1}\n\ndata: {\"n\":2}\n\ndata: {\"m\":3}\n\n", Some(2)),
            // Fields other than data, and data without its space or with two.
            ("n", ":keepalive\n\n: {\"n\":2}\n\nid: 1\nretry: 9\ndata:{\"n\":1}\nevent: x\n\n:\n\n", Some(1)),
            ("n", "data:  {\"n\":1}\n\n", Some(1)),
            ("n", "datum: {\"n\":1}\ndata2: {\"n\":1}\n data: {\"n\":1}\nDATA: {\"n\":1}\ndata {\"n\":1}\n\n", None),
            ("n", "\u{feff}data: {\"n\":1}\n\n", Some(1)),
            ("n", "data: \u{feff}{\"n\":1}\n\n", None),
            // Data in several lines, which are one document until an empty line.
            ("n", "data: {\ndata: \"n\"\nid: 1\n:x\ndata: :\ndata\ndata:\ndata:1\ndata: }\n\n", Some(1)),
            ("n", "data: {\"n\":1\ndata: 2}\n\n", Some(1)),
            ("n", "data: {\"n\":1\n\ndata: 2}\n\n", None),
            ("n", "data: {\"n\":1}\ndata: {\"n\":2}\n\n", Some(1)),
            // No event counts on another's being whole.
            ("n", "data: {\"a\":[\"\n\ndata: oops\n\ndata: {\"n\":1}\n\n", Some(1)),
            // Cut off.
            ("n", "data: {\"n\":1}", Some(1)),
            ("n", "data: {\"n\":1}\n", Some(1)),
            ("n", "data: {\"n\":1", None),
            ("n", "data: {\"n\":1\n", None),
            ("n", "data: {\"n\":1}\n\ndata: {\"n\":2", Some(1)),
            ("n", "{\"n\":1}\n\n", None),
            ("n", "", None),
            ("n", "\n\n\n", None),
        ];
        for (path, body, expected) in rows {
            for end in ["\n", "\r\n", "\r"] {
                check(EVENTS, path, body.replace('\n', end).as_bytes(), *expected);
            }
        }
        // A CR and an LF are one end of line only in this order.
        check(EVENTS, "n", b"data: {\"n\":1,\n\rdata: \"n\":2}\n\n", Some(1));
        check(EVENTS, "n", b"data: {\"n\":1,\r\ndata: \"n\":2}\r\n\r\n", Some(2));
    }

    #[test]
    fn what_serde_json_finds_is_found() {
        let mut random = Random(7);
        for _ in 0..3000 {
            let document = random.document(4);
            for path in ["a", "a.b", "b.0", "0.a", "a.1.b", "1.1", "a.a.a"] {
                let expected = path.split('.').try_fold(&document, |value, piece| match value {
                    Value::Array(items) => items.get(piece.parse::<usize>().ok()?),
                    other => other.get(piece),
                });
                let expected = expected.and_then(Value::as_u64);
                assert_eq!(read(JSON, path, [document.to_string().as_bytes()]), expected, "{path} in {document}");
                let pretty = serde_json::to_string_pretty(&document).unwrap();
                assert_eq!(read(JSON, path, pretty.as_bytes().chunks(3)), expected, "{path} in {pretty}");
                let event = format!("data: {}\n\n", pretty.replace('\n', "\ndata: "));
                assert_eq!(read(EVENTS, path, event.as_bytes().chunks(5)), expected, "{path} in {event}");
            }
        }
    }

    #[test]
    fn any_bytes_are_harmless_in_any_pieces() {
        let mut random = Random(11);
        let tokens = br#"{}[]:,"\0123.eE+-tfn u data:"#;
        for round in 0..3000 {
            let structured = round % 3 != 0;
            let mut body: Vec<u8> = random.document(3).to_string().into_bytes();
            for _ in 0..random.below(9) {
                let byte = if structured { tokens[random.below(tokens.len())] } else { random.below(256) as u8 };
                let at = random.below(body.len());
                body[at] = byte;
            }
            for kind in [JSON, EVENTS] {
                let mut stream = if kind == EVENTS { b"data:".to_vec() } else { Vec::new() };
                stream.extend(&body);
                let whole = read(kind, "a.b", [&*stream]);
                assert_eq!(read(kind, "a.b", stream.chunks(1)), whole, "{kind}: {}", stream.escape_ascii());
            }
        }
    }

    /// Everything that a body could be long in. The reader has no place to put it: it owns nothing on the heap but its
    /// share of the path.
    #[test]
    fn length_costs_no_memory() {
        assert!(size_of::<UsageReader>() <= 256, "{}", size_of::<UsageReader>());
        assert!(!std::mem::needs_drop::<EventStream>());
        let long = "9".repeat(1 << 20);
        let rows: &[(String, Option<u64>)] = &[
            (format!(r#"{{"{long}":1,"n":2}}"#), Some(2)),
            (format!(r#"{{"a":"{long}","n":2}}"#), Some(2)),
            (format!(r#"{{"a":{long},"n":2}}"#), Some(2)),
            (format!(r#"{{"n":{long}}}"#), Some(u64::MAX)),
            (format!(r#"{{"a":{},"n":2}}"#, "[".repeat(1 << 20)), None),
            (format!(r#"{{"a":{}{},"n":2}}"#, "[".repeat(1 << 20), "]".repeat(1 << 20)), Some(2)),
            (format!(r#"{{"a":1,{}"n":2}}"#, " ".repeat(1 << 20)), Some(2)),
        ];
        for (body, expected) in rows {
            assert_eq!(read(JSON, "n", body.as_bytes().chunks(8192)), *expected);
        }
    }

    #[test]
    fn responses() {
        let rows: &[(&[(&str, &str)], bool)] = &[
            (&[("content-type", "application/json")], true),
            (&[("content-type", "Application/JSON; charset=utf-8")], true),
            (&[("content-type", "application/problem+json ;x=y")], true),
            (&[("content-type", "text/event-stream;charset=utf-8")], true),
            (&[("content-type", "application/json"), ("content-encoding", "identity")], true),
            (&[("content-type", "application/json"), ("content-encoding", "Identity, identity")], true),
            (&[("content-type", "application/json"), ("content-encoding", "")], true),
            (&[("content-type", "application/json"), ("content-encoding", "gzip")], false),
            (&[("content-type", "application/json"), ("content-encoding", "identity, br")], false),
            (&[("content-type", "application/json"), ("content-encoding", "identity"), ("content-encoding", "br")], false),
            (&[("content-type", "application/json"), ("content-encoding", "gz\u{ff}ip")], false),
            (&[("content-type", "application/jsonl")], false),
            (&[("content-type", "application/x-ndjson")], false),
            (&[("content-type", "text/html")], false),
            (&[("content-type", "text/json+x")], false),
            (&[("content-type", "json")], false),
            (&[("content-type", "")], false),
            (&[], false),
        ];
        for (lines, expected) in rows {
            assert_eq!(UsageReader::for_response(&headers(lines), &path("n")).is_some(), *expected, "{lines:?}");
        }
    }

    #[test]
    fn a_number_is_given_once() {
        let mut reader = reader(JSON, "n");
        reader.feed(b"{\"n\":1}");
        assert_eq!((reader.finish(), reader.finish()), (Some(1), None));
    }

    #[test]
    fn paths() {
        let (pieces, bytes) = (["a"; 16].join("."), "a".repeat(256));
        let (too_many, too_long) = (["a"; 17].join("."), "a".repeat(257));
        let rows: &[(&str, Result<(), FieldPathError>)] = &[
            ("usage.total_tokens", Ok(())),
            ("choices.0.n", Ok(())),
            ("a b.ü", Ok(())),
            (&pieces, Ok(())),
            (&bytes, Ok(())),
            ("", Err(FieldPathError::EmptyPiece)),
            (".", Err(FieldPathError::EmptyPiece)),
            ("a.", Err(FieldPathError::EmptyPiece)),
            (".a", Err(FieldPathError::EmptyPiece)),
            ("a..b", Err(FieldPathError::EmptyPiece)),
            (&too_many, Err(FieldPathError::TooManyPieces)),
            (&too_long, Err(FieldPathError::TooLong)),
        ];
        for (text, expected) in rows {
            let parsed = text.parse::<FieldPath>();
            assert_eq!(parsed.map(|path| path.to_string()), expected.map(|()| (*text).to_owned()), "{text}");
        }
        assert_eq!(FieldPathError::TooManyPieces.to_string(), "the path has more than 16 pieces");
    }

    fn check_documents(rows: &[(&str, &str, Option<u64>)]) {
        for (path, body, expected) in rows {
            check(JSON, path, body.as_bytes(), *expected);
        }
        // What is in a document is in an event of one line too.
        for (path, body, expected) in rows.iter().filter(|(_, body, _)| !body.contains(['\n', '\u{feff}'])) {
            check(EVENTS, path, format!("data: {body}\n\n").as_bytes(), *expected);
        }
    }

    /// Whole, byte by byte and cut in two anywhere, the answer is the same.
    fn check(kind: &str, path: &str, body: &[u8], expected: Option<u64>) {
        let shown = body.escape_ascii();
        assert_eq!(read(kind, path, [body]), expected, "{path} in {kind}: {shown}");
        assert_eq!(read(kind, path, body.chunks(1)), expected, "{path} byte by byte in {kind}: {shown}");
        for at in 0..=body.len() {
            let (left, right) = body.split_at(at);
            assert_eq!(read(kind, path, [left, right]), expected, "{path} in {kind} cut at {at}: {shown}");
        }
    }

    fn read<'a>(kind: &str, path: &str, chunks: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
        let mut reader = reader(kind, path);
        chunks.into_iter().for_each(|chunk| reader.feed(chunk));
        reader.finish()
    }

    fn reader(kind: &str, text: &str) -> UsageReader {
        UsageReader::for_response(&headers(&[("content-type", kind)]), &path(text)).unwrap()
    }

    fn path(text: &str) -> Arc<FieldPath> {
        Arc::new(text.parse().unwrap())
    }

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let name = |name: &str| http::HeaderName::try_from(name).unwrap();
        lines.iter().map(|(field, value)| (name(field), http::HeaderValue::from_str(value).unwrap())).collect()
    }

    /// A linear congruential generator: the same documents in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % bound
        }

        fn document(&mut self, depth: usize) -> Value {
            let keys = ["a", "b", "0", "1", "a\"", "\u{1}é"];
            match self.below(if depth == 0 { 5 } else { 13 }) {
                0 => Value::Null,
                1 => self.below(2).eq(&0).into(),
                2 => ["", "a", "\\\"}", "{\"a\":1}", "\n\u{1f600}"][self.below(5)].into(),
                3 | 4 => self.below(1000).into(),
                5..9 => (0..self.below(4)).map(|_| self.document(depth - 1)).collect(),
                _ => (0..self.below(4)).map(|_| (keys[self.below(6)].to_owned(), self.document(depth - 1))).collect(),
            }
        }
    }
}
