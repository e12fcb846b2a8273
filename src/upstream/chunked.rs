//! The chunked transfer coding (RFC 9112 §7.1), strictly: chunks end in CRLF and nothing else, sizes fit, extensions end.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Decodes a chunked body.
#[derive(Debug, Default)]
pub(super) struct Decoder(Expect);

#[derive(Debug, Default, Clone, Copy)]
enum Expect {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

/// What decoding came to.
#[derive(Debug)]
pub(super) enum Step {
    /// More bytes are needed.
    More,
    /// A piece of a chunk.
    Data(Bytes),
    /// The end, with trailers if there were any.
    End(Option<HeaderMap>),
}

impl Decoder {
    /// Takes one step from the front of `bytes`.
    pub(super) fn decode(&mut self, bytes: &mut Bytes) -> Result<Step, &'static str> {
        loop {
            match self.0 {
                Expect::Size => {
                    let Some((line, length)) = take_line(bytes, MAX_SIZE_LINE, "a chunk size line is too long")? else {
                        return Ok(Step::More);
                    };
                    let size = parse_size(&line)?;
                    bytes.advance(length);
                    self.0 = if size == 0 { Expect::Trailers } else { Expect::Data(size) };
                }
                Expect::Data(_) if bytes.is_empty() => return Ok(Step::More),
                Expect::Data(left) => {
                    let data = bytes.split_to(usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()));
                    let left = left - u64::try_from(data.len()).unwrap_or(left);
                    self.0 = if left == 0 { Expect::DataEnd } else { Expect::Data(left) };
                    return Ok(Step::Data(data));
                }
                Expect::DataEnd => match bytes.first_chunk::<2>() {
                    Some(b"\r\n") => {
                        bytes.advance(2);
                        self.0 = Expect::Size;
                    }
                    Some(_) => return Err("a chunk does not end where it should"),
                    None if bytes.first().is_some_and(|byte| *byte != b'\r') => {
                        return Err("a chunk does not end where it should");
                    }
                    None => return Ok(Step::More),
                },
                Expect::Trailers => return decode_trailers(bytes),
            }
        }
    }
}

fn decode_trailers(bytes: &mut Bytes) -> Result<Step, &'static str> {
    if let Some(rest) = bytes.strip_prefix(b"\r\n") {
        *bytes = bytes.slice_ref(rest);
        return Ok(Step::End(None));
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    match httparse::parse_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete((length, fields))) if length <= MAX_TRAILER_BYTES => {
            if has_bare_line_feed(bytes.get(..length).unwrap_or_default()) {
                return Err("a trailer does not end in CRLF");
            }
            let mut trailers = HeaderMap::with_capacity(fields.len());
            for field in fields {
                let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| "a trailer is not valid")?;
                let value = HeaderValue::from_bytes(field.value).map_err(|_| "a trailer is not valid")?;
                if may_be_trailer(&name) {
                    trailers.append(name, value);
                }
            }
            bytes.advance(length);
            Ok(Step::End((!trailers.is_empty()).then_some(trailers)))
        }
        Ok(httparse::Status::Partial) if bytes.len() <= MAX_TRAILER_BYTES => Ok(Step::More),
        _ => Err("the trailers are not valid"),
    }
}

/// The parser takes a line feed alone for a line's end; in chunked framing it is none (RFC 9112 §7.1, erratum 7633).
fn has_bare_line_feed(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).any(|at| at.checked_sub(1).and_then(|before| bytes.get(before)) != Some(&b'\r'))
}

/// The line in front, without its end, and its length with it; `None` while it is incomplete.
fn take_line(bytes: &Bytes, max: usize, too_long: &'static str) -> Result<Option<(Bytes, usize)>, &'static str> {
    match bytes.iter().take(max).position(|byte| *byte == b'\n') {
        Some(end) => match bytes.get(..end).and_then(|line| line.strip_suffix(b"\r")) {
            Some(line) => Ok(Some((bytes.slice_ref(line), end + 1))),
            None => Err("a chunk size line does not end in CRLF"),
        },
        None if bytes.len() >= max => Err(too_long),
        None => Ok(None),
    }
}

fn parse_size(line: &[u8]) -> Result<u64, &'static str> {
    let digits = line.split(|b| matches!(b, b';' | b' ' | b'\t')).next().unwrap_or_default();
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err("a chunk size is not valid");
    }
    let extension = line.get(digits.len()..).unwrap_or_default();
    if extension.iter().any(|b| b.is_ascii_control() && *b != b'\t')
        || !matches!(extension.trim_ascii().first(), None | Some(b';'))
    {
        return Err("a chunk extension is not valid");
    }
    let text = std::str::from_utf8(digits).map_err(|_| "a chunk size is not valid")?;
    u64::from_str_radix(text, 16).map_err(|_| "a chunk size is not valid")
}

/// A chunk around `data`: size line, data, end. An empty chunk would end the body, so empty data is nothing at all.
pub(super) fn encode(data: Bytes) -> [Bytes; 3] {
    if data.is_empty() {
        return Default::default();
    }
    [Bytes::from(format!("{:x}\r\n", data.len())), data, Bytes::from_static(b"\r\n")]
}

/// The last chunk and the trailers.
pub(super) fn encode_end(trailers: &HeaderMap, allowed: impl Fn(&HeaderName) -> bool) -> Bytes {
    if trailers.is_empty() {
        return Bytes::from_static(b"0\r\n\r\n");
    }
    let mut end = BytesMut::from(&b"0\r\n"[..]);
    for (name, value) in trailers.iter().filter(|(name, _)| may_be_trailer(name) && allowed(name)) {
        end.put_slice(name.as_str().as_bytes());
        end.put_slice(b": ");
        end.put_slice(value.as_bytes());
        end.put_slice(b"\r\n");
    }
    end.put_slice(b"\r\n");
    end.freeze()
}

/// Framing, routing and authentication have no place behind a body (RFC 9110 §6.5.1).
pub(super) fn may_be_trailer(name: &HeaderName) -> bool {
    !NEVER_TRAILERS.contains(&name.as_str())
}

const NEVER_TRAILERS: &[&str] = &[
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "max-forwards",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];
const MAX_SIZE_LINE: usize = 4 << 10;
const MAX_TRAILERS: usize = 64;
const MAX_TRAILER_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes `text` given in pieces of `step` bytes.
    fn decode(text: &str, step: usize) -> Result<(String, Option<HeaderMap>, usize), &'static str> {
        let mut decoder = Decoder::default();
        let (mut body, mut buffer) = (Vec::new(), BytesMut::new());
        let mut input = text.as_bytes().chunks(step);
        loop {
            let mut bytes = std::mem::take(&mut buffer).freeze();
            match decoder.decode(&mut bytes)? {
                Step::Data(data) => body.extend_from_slice(&data),
                Step::End(trailers) => {
                    let left = bytes.len() + input.map(<[u8]>::len).sum::<usize>();
                    return Ok((String::from_utf8(body).unwrap(), trailers, left));
                }
                Step::More => {
                    buffer = BytesMut::from(&*bytes);
                    buffer.extend_from_slice(input.next().ok_or("ended")?);
                    continue;
                }
            }
            buffer = BytesMut::from(&*bytes);
        }
    }

    #[test]
    fn chunks_arrive_whole_however_they_are_cut() {
        let text = "5\r\nhello\r\n00006;name=\"v\"\r\n world\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\n\r\nleft";
        for step in 1..=text.len() {
            let (body, trailers, left) = decode(text, step).unwrap();
            assert_eq!((body.as_str(), left), ("hello world", 4), "{step}");
            let trailers = trailers.unwrap();
            assert_eq!((trailers.len(), trailers["x-sum"].as_bytes()), (1, &b"1"[..]));
        }
    }

    #[test]
    fn anything_ambiguous_is_refused() {
        for text in [
            "5\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello",
            "+5\r\nhello",
            " 5\r\nhello",
            "5 x\r\nhello",
            "\r\n",
            "11111111111111111\r\n",
            "5\r\nhelloXX",
            "5\r\nhello\n0\r\n\r\n",
            "5;\u{1}\r\nhello",
            "g\r\n",
            "5;a\rb\r\nhello",
            "0\r\nbad line\r\n\r\n",
            "-1\r\n",
            "5\r\nhelloX",
            "0\r\nX: 1\n\r\n",
            "0\r\nX: 1\r\n\n",
            "0\r\n\n",
        ] {
            assert!(matches!(decode(text, 3), Err(fault) if fault != "ended"), "{text:?}");
        }
        assert!(decode(&format!("5;{}", "x".repeat(5000)), 100).is_err());
    }

    #[test]
    fn what_is_encoded_decodes() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("1"));
        trailers.insert("content-length", HeaderValue::from_static("9"));
        let mut text = Vec::new();
        for piece in ["hello", "", " world"] {
            text.extend(encode(Bytes::from_static(piece.as_bytes())).concat());
        }
        text.extend_from_slice(&encode_end(&trailers, |_| true));
        let (body, trailers, _) = decode(std::str::from_utf8(&text).unwrap(), 7).unwrap();
        assert_eq!((body.as_str(), trailers.unwrap().len()), ("hello world", 1));
    }

    /// Decodes a whole body that is cut at these places: body, trailers, and how much is left behind it.
    fn decode_pieces(bytes: &[u8], cuts: &[usize]) -> Option<(Vec<u8>, HeaderMap, usize)> {
        let mut decoder = Decoder::default();
        let (mut body, mut buffer, mut from) = (Vec::new(), Vec::new(), 0);
        let ends = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]);
        for end in ends {
            if end > from {
                buffer.extend_from_slice(&bytes[from..end]);
                from = end;
            }
            let mut input = Bytes::from(std::mem::take(&mut buffer));
            loop {
                match decoder.decode(&mut input).ok()? {
                    Step::Data(data) => body.extend_from_slice(&data),
                    Step::End(trailers) => return Some((body, trailers.unwrap_or_default(), input.len() + bytes.len() - from)),
                    Step::More => break,
                }
            }
            buffer = input.to_vec();
        }
        None
    }

    /// The grammar, word by word and all at once: slow, and nothing to get wrong.
    fn reference(bytes: &[u8]) -> Option<(Vec<u8>, HeaderMap, usize)> {
        let line = |bytes: &[u8]| -> Option<(Vec<u8>, usize)> {
            let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
            let line = bytes[..end].to_vec();
            line.iter().all(|byte| !matches!(byte, b'\r' | b'\n')).then_some((line, end + 2))
        };
        let visible = |bytes: &[u8]| bytes.iter().all(|byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f));
        let (mut rest, mut body) = (bytes, Vec::new());
        loop {
            let (text, length) = line(rest).filter(|(text, _)| text.len() + 1 < MAX_SIZE_LINE)?;
            rest = &rest[length..];
            let digits = text.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let size = u64::from_str_radix(std::str::from_utf8(&text[..digits]).unwrap(), 16).ok().filter(|_| digits <= 16)?;
            let extension = String::from_utf8_lossy(&text[digits..]).into_owned();
            let extension = extension.trim_matches([' ', '\t']);
            if !visible(&text) || !(extension.is_empty() || extension.starts_with(';')) {
                return None;
            }
            if size == 0 {
                break;
            }
            let size = usize::try_from(size).ok().filter(|size| size.checked_add(2).is_some_and(|all| rest.len() >= all))?;
            body.extend_from_slice(&rest[..size]);
            rest = rest[size..].strip_prefix(b"\r\n")?;
        }
        let mut trailers = HeaderMap::new();
        for fields in 0.. {
            let (text, length) = line(rest)?;
            rest = &rest[length..];
            if text.is_empty() {
                break;
            }
            let colon = text.iter().position(|byte| *byte == b':')?;
            let name = HeaderName::from_bytes(&text[..colon]).ok()?;
            let value = text[colon + 1..].trim_ascii();
            if !visible(&text) || fields >= MAX_TRAILERS {
                return None;
            }
            if may_be_trailer(&name) {
                trailers.append(name, HeaderValue::from_bytes(value).ok()?);
            }
        }
        Some((body, trailers, rest.len()))
    }

    fn a_chunk() -> impl Strategy<Value = Vec<u8>> {
        let extensions: &[&str] = &["", ";a", ";a=\"b\"", " ;x", "\t", " "];
        (proptest::collection::vec(any::<u8>(), 1..40), 0_usize..4, proptest::sample::select(extensions)).prop_map(
            |(data, zeros, extension)| {
                let size = format!("{}{:X}{extension}\r\n", "0".repeat(zeros), data.len());
                [size.as_bytes(), &data, b"\r\n"].concat()
            },
        )
    }

    /// A body as it may come, and then whatever somebody does to it.
    fn a_body() -> impl Strategy<Value = Vec<u8>> {
        let trailers: &[&str] = &["", "x-sum: 1\r\n", "X-A:b \r\nx-a:  c\r\n", "content-length: 9\r\n", "host:a\r\nx: \r\n"];
        let tampering =
            proptest::collection::vec((any::<usize>(), proptest::sample::select(&b"\r\n0aF;: \t\0x+-"[..]), 0_u8..3), 0..3);
        (proptest::collection::vec(a_chunk(), 0..5), proptest::sample::select(trailers), "[\\PC]{0,8}", tampering).prop_map(
            |(chunks, trailers, behind, tampering)| {
                let mut bytes = [chunks.concat().as_slice(), b"0\r\n", trailers.as_bytes(), b"\r\n", behind.as_bytes()].concat();
                for (at, byte, how) in tampering {
                    let at = at % bytes.len();
                    match how {
                        0 => bytes[at] = byte,
                        1 => bytes.insert(at, byte),
                        _ => drop(bytes.remove(at)),
                    }
                }
                bytes
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn what_is_accepted_is_what_the_grammar_says_however_it_is_cut(bytes in a_body(), mut cuts in proptest::collection::vec(any::<usize>(), 0..6)) {
            cuts.iter_mut().for_each(|cut| *cut %= bytes.len() + 1);
            cuts.sort_unstable();
            prop_assert_eq!(decode_pieces(&bytes, &cuts), reference(&bytes), "{:?}", String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn any_bytes_in_any_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..200), cuts in proptest::collection::vec(any::<usize>(), 0..4)) {
            let _ = decode_pieces(&bytes, &cuts);
        }

        #[test]
        fn what_is_written_anew_says_the_same(bytes in a_body()) {
            if let Some((body, trailers, _)) = decode_pieces(&bytes, &[]) {
                let mut again: Vec<u8> = body.chunks(7).flat_map(|piece| encode(Bytes::copy_from_slice(piece)).concat()).collect();
                again.extend_from_slice(&encode_end(&trailers, |_| true));
                prop_assert_eq!(decode_pieces(&again, &[]), Some((body, trailers, 0)));
            }
        }
    }
}
