//! What the targets hold the gateway's output against: parsers that accept one spelling and no other.

/// A head that is written in exactly one way: its start line and its fields, and where it ends.
pub struct Head<'b> {
    pub start: &'b str,
    pub fields: Vec<(&'b str, &'b [u8])>,
    pub length: usize,
}

impl<'b> Head<'b> {
    /// Panics unless a head is at the front.
    pub fn parse(bytes: &'b [u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head has an end");
        let mut lines = lines(&bytes[..end + 2]).into_iter();
        let start = std::str::from_utf8(lines.next().expect("a head has a first line")).expect("its first line is text");
        let fields = lines.map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').expect("a field has a colon");
            let name = std::str::from_utf8(&line[..colon]).expect("a name is text");
            assert!(!name.is_empty() && name.bytes().all(is_lower_token), "{name:?} is no name in lower case");
            (name, line[colon + 1..].strip_prefix(b" ").expect("one blank behind the colon"))
        });
        Self { start, fields: fields.collect(), length: end + 4 }
    }

    /// Every value of a field.
    pub fn all(&self, name: &str) -> Vec<&'b [u8]> {
        self.fields.iter().filter(|(found, _)| *found == name).map(|(_, value)| *value).collect()
    }
}

/// What ends in CRLF, without it. There is no other CR, LF or NUL.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut rest) = (Vec::new(), bytes);
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let line = &rest[..end];
        assert!(!line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{:?}", String::from_utf8_lossy(line));
        lines.push(line);
        rest = &rest[end + 2..];
    }
    assert!(rest.is_empty(), "every line ends in CRLF");
    lines
}

fn is_lower_token(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Chunks as they are written: sizes in lower hexadecimal digits without zeros in front, no extensions. The body, the names of trailers,
/// and nothing behind.
pub fn chunks(mut bytes: &[u8]) -> (Vec<u8>, Vec<String>) {
    let line = |bytes: &mut &[u8]| -> Vec<u8> {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a line ends");
        let line = bytes[..end].to_vec();
        *bytes = &bytes[end + 2..];
        line
    };
    let mut body = Vec::new();
    loop {
        let text = String::from_utf8(line(&mut bytes)).expect("a size is text");
        let size = usize::from_str_radix(&text, 16).expect("a size is a number");
        assert_eq!(format!("{size:x}"), text);
        if size == 0 {
            break;
        }
        body.extend_from_slice(&bytes[..size]);
        bytes = bytes[size..].strip_prefix(b"\r\n").expect("a chunk ends");
    }
    let head = Head::parse(&[b"x\r\n", bytes].concat()).names();
    assert_eq!(head.1, bytes.len() + 3, "nothing is behind the body");
    (body, head.0)
}

impl Head<'_> {
    fn names(&self) -> (Vec<String>, usize) {
        (self.fields.iter().map(|(name, _)| (*name).to_owned()).collect(), self.length)
    }
}

/// Fields of a connection, which go no further.
pub const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "http2-settings"];
