//! What comes back: a parsed response head without its hop-by-hop fields, and how its body is delimited.
//!
//! RFC 9112 §6.3 as the receiving side, strictly: what could be read in two ways is a fault of upstream's.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};

use super::HeaderEdits;
use super::hop_by_hop::{Nominated, is_hop_by_hop, remove_hop_by_hop};
use super::sink::{Sink, Text};

/// A response head, cleaned.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// End-to-end fields; and of a 101 that says so in `Connection` too, its `Upgrade`, for an [`Offer`](super::Offer) to look at.
    pub headers: HeaderMap,
    /// How the body is delimited.
    pub framing: ResponseFraming,
    /// Whether the connection can carry another request afterwards.
    pub keep_alive: bool,
}

/// How a response's body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFraming {
    /// This many bytes; 0 for none.
    Length(u64),
    /// Chunks.
    Chunked,
    /// Until upstream closes, or ends the stream.
    UntilClose,
}

/// Why an upstream's head can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFault {
    /// The status is outside 100 to 599.
    Status,
    /// A field can't be read.
    Field,
    /// Contradictory or invalid Content-Length.
    Length,
    /// Something else than one `chunked`.
    TransferCoding,
}

impl ResponseFault {
    /// For the log.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Status => "its status is not valid",
            Self::Field => "it has a field that is not valid",
            Self::Length => "its Content-Length is not valid",
            Self::TransferCoding => "its transfer coding is not understood",
        }
    }
}

impl ResponseHead {
    /// From a parsed head. `raw` holds the bytes the fields point into, so values are shared, not copied.
    ///
    /// # Errors
    /// [`ResponseFault`] when it must not be forwarded.
    pub fn new(parsed: &httparse::Response<'_, '_>, raw: &Bytes, method: &Method) -> Result<Self, ResponseFault> {
        let code = parsed.code.filter(|code| (100..600).contains(code)).ok_or(ResponseFault::Status)?;
        let status = StatusCode::from_u16(code).map_err(|_| ResponseFault::Status)?;
        let minor = parsed.version.unwrap_or(0);
        let connection = Connection::of(parsed);
        let mut headers = HeaderMap::with_capacity(parsed.headers.len() + 8);
        let mut length = None;
        let mut codings = 0_u32;
        for field in parsed.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| ResponseFault::Field)?;
            if name == http::header::CONTENT_LENGTH {
                length = Some(one_length(length, field.value)?);
                continue;
            }
            if name == http::header::TRANSFER_ENCODING {
                codings += 1;
                if !field.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err(ResponseFault::TransferCoding);
                }
            }
            let hop_by_hop = is_hop_by_hop(name.as_str()) || connection.nominated.contains(name.as_str());
            if hop_by_hop && !(code == 101 && minor == 1 && connection.upgrade && name == http::header::UPGRADE) {
                continue;
            }
            let value = HeaderValue::from_maybe_shared(raw.slice_ref(field.value)).map_err(|_| ResponseFault::Field)?;
            headers.append(name, value);
        }
        if codings > 1 || (codings == 1 && minor == 0) {
            return Err(ResponseFault::TransferCoding);
        }
        let bodiless = method == Method::HEAD || matches!(code, 100..200 | 204 | 304);
        let framing = match (bodiless, codings, length) {
            (true, ..) => ResponseFraming::Length(0),
            (false, 1.., _) => ResponseFraming::Chunked,
            (false, 0, Some(length)) => ResponseFraming::Length(length),
            (false, 0, None) => ResponseFraming::UntilClose,
        };
        // With both, chunked wins and the length must not be seen by anybody (RFC 9112 §6.3); 204 has none (RFC 9110 §8.6).
        if let Some(length) = length.filter(|_| codings == 0 && code != 204 && code >= 200) {
            headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        // Both framings, or a body where there is none: what follows on the connection can't be told apart.
        let contradictory =
            (codings == 1 && length.is_some()) || (code == 204 && (codings == 1 || length.is_some_and(|n| n > 0)));
        let keep_alive = connection.persists(minor) && framing != ResponseFraming::UntilClose && !contradictory;
        Ok(Self { status, headers, framing, keep_alive })
    }
}

impl ResponseHead {
    /// An interim response as HTTP/1.1 says it, without the fields that the operator removes or sets in final ones.
    #[must_use]
    pub fn interim_text(&self, edits: &HeaderEdits) -> Vec<u8> {
        let mut text = Text(Vec::with_capacity(512));
        for piece in ["HTTP/1.1 ", self.status.as_str(), " ", self.status.canonical_reason().unwrap_or_default(), "\r\n"] {
            text.text(piece);
        }
        for (name, value) in self.headers.iter().filter(|(name, _)| !edits.drops(name)) {
            text.pass(name, value);
        }
        text.text("\r\n");
        text.0
    }

    /// The same as HTTP/2 says it.
    #[must_use]
    pub fn interim_fields(&self, edits: &HeaderEdits) -> Response<()> {
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        for (name, value) in self.headers.iter().filter(|(name, _)| !edits.drops(name)) {
            response.headers_mut().append(name.clone(), value.clone());
        }
        response
    }

    /// From the head of an interim HTTP/2 response.
    ///
    /// # Errors
    /// [`ResponseFault`] when it must not be forwarded.
    pub fn from_http2_interim(parts: Parts) -> Result<Self, ResponseFault> {
        let Parts { status, mut headers, .. } = parts;
        clean_http2(&mut headers)?;
        headers.remove(CONTENT_LENGTH);
        Ok(Self { status, headers, framing: ResponseFraming::Length(0), keep_alive: true })
    }

    /// From the head of an HTTP/2 response. The `h2` crate has refused what contradicts the protocol: fields of the connection, lengths
    /// that differ or are no numbers. `ended` says that nothing follows.
    ///
    /// # Errors
    /// [`ResponseFault`] when it must not be forwarded.
    pub fn from_http2(parts: Parts, method: &Method, ended: bool) -> Result<Self, ResponseFault> {
        let Parts { status, mut headers, .. } = parts;
        let code = status.as_u16();
        if !(200..600).contains(&code) {
            return Err(ResponseFault::Status);
        }
        clean_http2(&mut headers)?;
        let length = match headers.get(CONTENT_LENGTH) {
            Some(length) => Some(one_length(None, length.as_bytes())?),
            None => None,
        };
        match length {
            Some(length) if code != 204 => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
            _ => drop(headers.remove(CONTENT_LENGTH)),
        }
        let bodiless = method == Method::HEAD || matches!(code, 204 | 304);
        let framing = match length {
            _ if bodiless || ended => ResponseFraming::Length(0),
            Some(length) => ResponseFraming::Length(length),
            None => ResponseFraming::UntilClose,
        };
        Ok(Self { status, headers, framing, keep_alive: true })
    }
}

/// Takes out what is for the connection only, and refuses what has two readings.
fn clean_http2(headers: &mut HeaderMap) -> Result<(), ResponseFault> {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    // RFC 9113 §8.2.1; an HTTP/1.1 client would read something else than an HTTP/2 client.
    if headers.values().any(|value| blank(value.as_bytes().first()) || blank(value.as_bytes().last())) {
        return Err(ResponseFault::Field);
    }
    remove_hop_by_hop(headers);
    Ok(())
}

/// What a response's `Connection` lines say.
struct Connection {
    nominated: Nominated,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl Connection {
    fn of(parsed: &httparse::Response<'_, '_>) -> Self {
        let mut connection = Self { nominated: Nominated::default(), close: false, keep_alive: false, upgrade: false };
        for field in parsed.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("connection")) {
            connection.nominated.add(field.value);
            for option in field.value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                connection.close |= option.eq_ignore_ascii_case(b"close");
                connection.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                connection.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
            }
        }
        connection
    }

    fn persists(&self, minor: u8) -> bool {
        !self.close && (minor >= 1 || self.keep_alive)
    }
}

/// Equal repetitions, as lines or as a list, collapse; anything else is refused (RFC 9110 §8.6).
fn one_length(known: Option<u64>, value: &[u8]) -> Result<u64, ResponseFault> {
    let mut length = known;
    for item in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
        let digits = std::str::from_utf8(item).ok().filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
        let item = digits.and_then(|text| text.parse().ok()).ok_or(ResponseFault::Length)?;
        if length.is_some_and(|length| length != item) {
            return Err(ResponseFault::Length);
        }
        length = Some(item);
    }
    length.ok_or(ResponseFault::Length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(raw: &'static str, method: &Method) -> Result<ResponseHead, ResponseFault> {
        let mut fields = [httparse::EMPTY_HEADER; 16];
        let mut parsed = httparse::Response::new(&mut fields);
        let raw = Bytes::from_static(raw.as_bytes());
        assert!(parsed.parse(&raw).unwrap().is_complete());
        ResponseHead::new(&parsed, &raw, method)
    }

    #[test]
    fn bodies_are_delimited_as_the_rfc_says() {
        use ResponseFraming::{Chunked, Length, UntilClose};
        for (raw, method, framing, keep_alive) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", Method::GET, Length(2), true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\n", Method::GET, Length(2), true),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", Method::GET, Chunked, true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", Method::GET, Chunked, false),
            ("HTTP/1.1 200 OK\r\n\r\n", Method::GET, UntilClose, false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", Method::GET, Length(2), false),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n", Method::GET, Length(2), true),
            ("HTTP/1.1 200 OK\r\nConnection: x, CLOSE\r\nContent-Length: 2\r\n\r\n", Method::GET, Length(2), false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", Method::HEAD, Length(0), true),
            ("HTTP/1.1 304 X\r\nContent-Length: 2\r\n\r\n", Method::GET, Length(0), true),
            ("HTTP/1.1 204 X\r\n\r\n", Method::GET, Length(0), true),
            ("HTTP/1.1 204 X\r\nContent-Length: 2\r\n\r\n", Method::GET, Length(0), false),
        ] {
            let head = head(raw, &method).unwrap();
            assert_eq!((head.framing, head.keep_alive), (framing, keep_alive), "{raw}");
        }
    }

    #[test]
    fn what_has_two_readings_is_refused() {
        for (raw, fault) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\n", ResponseFault::Length),
            ("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n", ResponseFault::Length),
            ("HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n", ResponseFault::Length),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n", ResponseFault::TransferCoding),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                ResponseFault::TransferCoding,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", ResponseFault::TransferCoding),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ResponseFault::TransferCoding),
            ("HTTP/1.1 999 X\r\n\r\n", ResponseFault::Status),
        ] {
            assert_eq!(head(raw, &Method::GET).unwrap_err(), fault, "{raw}");
        }
    }

    #[test]
    fn hop_by_hop_fields_stay_behind_and_cookies_stay_apart() {
        let head = head(
            "HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Connection: a\r\nUpgrade: b\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\nX: y\r\n\r\n",
            &Method::GET,
        )
        .unwrap();
        let mut names: Vec<_> = head.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["content-length", "set-cookie", "x"]);
        assert_eq!(head.headers.get_all("set-cookie").iter().count(), 2);
    }

    fn http2(
        status: u16,
        fields: &[(&'static str, &'static str)],
        method: &Method,
        ended: bool,
    ) -> Result<ResponseHead, ResponseFault> {
        let mut response = http::Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        ResponseHead::from_http2(response.into_parts().0, method, ended)
    }

    #[test]
    fn http2_bodies_are_delimited_by_length_or_stream() {
        use ResponseFraming::{Length, UntilClose};
        for (status, length, method, ended, framing, sent) in [
            (200, Some("2"), Method::GET, false, Length(2), Some("2")),
            (200, None, Method::GET, false, UntilClose, None),
            (200, None, Method::GET, true, Length(0), None),
            (200, Some("42"), Method::HEAD, true, Length(0), Some("42")),
            (304, Some("42"), Method::GET, true, Length(0), Some("42")),
            (204, Some("0"), Method::GET, true, Length(0), None),
            (204, None, Method::GET, false, Length(0), None),
        ] {
            let fields: Vec<_> = length.map(|length| ("content-length", length)).into_iter().collect();
            let head = http2(status, &fields, &method, ended).unwrap();
            let length = head.headers.get(CONTENT_LENGTH).map(|length| length.to_str().unwrap());
            assert_eq!((head.framing, length), (framing, sent), "{status} {method}");
        }
    }

    #[test]
    fn http2_fields_are_cleaned_or_refused() {
        let head =
            http2(200, &[("te", "trailers"), ("x", "y"), ("content-length", "2"), ("content-length", "2")], &Method::GET, false);
        let headers = head.unwrap().headers;
        assert_eq!((headers.len(), headers.get("te")), (2, None));
        assert_eq!(http2(200, &[("x", " y")], &Method::GET, true).unwrap_err(), ResponseFault::Field);
        assert_eq!(http2(200, &[("x", "y\t")], &Method::GET, true).unwrap_err(), ResponseFault::Field);
        assert_eq!(http2(600, &[], &Method::GET, true).unwrap_err(), ResponseFault::Status);
    }

    #[test]
    fn an_interim_response_is_cleaned_like_a_final_one_and_has_no_framing() {
        let edits = HeaderEdits { remove: vec![http::header::SERVER], ..HeaderEdits::default() };
        let raw = "HTTP/1.1 103 Whatever\r\nLink: </a>\r\nlink: </b>\r\nConnection: x-hop\r\nX-Hop: 1\r\nServer: s\r\nContent-Length: 5\r\n\r\n";
        let from_http1 = head(raw, &Method::GET).unwrap().interim_text(&edits);
        let mut response = http::Response::builder().status(103).header("server", "s").header("content-length", "5");
        response = response.header("link", "</a>").header("link", "</b>").header("te", "trailers");
        let from_http2 =
            ResponseHead::from_http2_interim(response.body(()).unwrap().into_parts().0).unwrap().interim_text(&edits);
        for text in [from_http1, from_http2] {
            let text = String::from_utf8(text).unwrap();
            assert_eq!(text, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>\r\n\r\n");
        }
    }

    #[test]
    fn only_a_101_keeps_its_upgrade() {
        for (raw, kept) in [
            ("HTTP/1.1 101 X\r\nConnection: keep-alive, Upgrade\r\nUpgrade: a\r\n\r\n", true),
            ("HTTP/1.1 101 X\r\nUpgrade: a\r\n\r\n", false),
            ("HTTP/1.0 101 X\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n", false),
            ("HTTP/1.1 200 X\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n", false),
            ("HTTP/1.1 426 X\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n", false),
        ] {
            assert_eq!(head(raw, &Method::GET).unwrap().headers.contains_key("upgrade"), kept, "{raw}");
        }
    }

    #[test]
    fn a_head_response_keeps_the_length_of_what_get_would_give() {
        let head = head("HTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n", &Method::HEAD).unwrap();
        assert_eq!(head.headers["content-length"], "42");
    }

    /// A field as upstreams send them, and as nobody should.
    fn a_field() -> impl Strategy<Value = (&'static str, &'static str)> {
        let names =
            &["content-length", "Content-Length", "transfer-encoding", "connection", "x-hop", "keep-alive", "x", "set-cookie"];
        let values =
            &["2", "3", "2, 2", "2,3", "0", "+2", "", "chunked", "Chunked", "gzip, chunked", "close", "keep-alive, x-hop", "x"];
        (proptest::sample::select(&names[..]), proptest::sample::select(&values[..]))
    }

    fn a_head() -> impl Strategy<Value = (u8, u16, Vec<(&'static str, &'static str)>, Method)> {
        let codes = proptest::sample::select(&[100_u16, 101, 103, 199, 200, 204, 304, 404, 599, 600, 999][..]);
        let methods = proptest::sample::select(vec![Method::GET, Method::HEAD, Method::POST]);
        (0_u8..2, codes, proptest::collection::vec(a_field(), 0..5), methods)
    }

    /// Every value of a field, in one list.
    fn list(fields: &[(&str, &str)], name: &str) -> Vec<String> {
        let lines = fields.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name));
        lines.flat_map(|(_, value)| value.split(',')).map(|item| item.trim().to_ascii_lowercase()).collect()
    }

    /// RFC 9112 §6.3, word by word: how a body is delimited, whether the connection can go on, and the length that a client may see.
    fn reference(
        minor: u8,
        code: u16,
        fields: &[(&str, &str)],
        method: &Method,
    ) -> Option<(ResponseFraming, bool, Option<String>)> {
        let (lengths, codings, options) =
            (list(fields, "content-length"), list(fields, "transfer-encoding"), list(fields, "connection"));
        let digits = |text: &String| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let valid = lengths.iter().all(digits) && lengths.windows(2).all(|pair| pair[0] == pair[1]);
        let coded = codings == ["chunked"];
        if !valid || !(codings.is_empty() || coded) || (coded && minor == 0) || code >= 600 {
            return None;
        }
        let length = lengths.first().cloned();
        let framing = match &length {
            _ if *method == Method::HEAD || code < 200 || code == 204 || code == 304 => ResponseFraming::Length(0),
            _ if coded => ResponseFraming::Chunked,
            Some(length) => ResponseFraming::Length(length.parse().unwrap()),
            None => ResponseFraming::UntilClose,
        };
        let asked_to = |option: &str| options.iter().any(|found| found == option);
        let persists = !asked_to("close") && (minor == 1 || asked_to("keep-alive"));
        let odd = (coded && length.is_some()) || (code == 204 && (coded || length.as_ref().is_some_and(|length| length != "0")));
        let seen = length.filter(|_| !coded && code >= 200 && code != 204);
        Some((framing, persists && framing != ResponseFraming::UntilClose && !odd, seen))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn heads_are_read_as_the_rfc_says_whatever_is_in_them((minor, code, fields, method) in a_head()) {
            let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            let raw = Bytes::from(format!("HTTP/1.{minor} {code} X\r\n{lines}\r\n"));
            let mut slots = [httparse::EMPTY_HEADER; 16];
            let mut parsed = httparse::Response::new(&mut slots);
            prop_assert!(parsed.parse(&raw).unwrap().is_complete());
            let head = ResponseHead::new(&parsed, &raw, &method).ok();
            let length = |head: &ResponseHead| head.headers.get(CONTENT_LENGTH).map(|length| length.to_str().unwrap().to_owned());
            let read = head.as_ref().map(|head| (head.framing, head.keep_alive, length(head)));
            prop_assert_eq!(read, reference(minor, code, &fields, &method), "{:?}", raw);
            if let Some(head) = head {
                let nominated = list(&fields, "connection");
                let left = fields.iter().filter(|(name, _)| ["x", "set-cookie", "x-hop"].contains(name));
                let left: Vec<_> = left.filter(|(name, _)| !nominated.iter().any(|found| found == name)).collect();
                prop_assert_eq!(head.headers.len(), left.len() + usize::from(length(&head).is_some()));
                for (name, _) in left {
                    let all: Vec<_> = head.headers.get_all(*name).iter().map(|value| value.to_str().unwrap()).collect();
                    let sent: Vec<_> = fields.iter().filter(|(found, _)| found == name).map(|(_, value)| *value).collect();
                    prop_assert_eq!(all, sent, "in their order");
                }
            }
        }
    }
}
