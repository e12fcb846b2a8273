//! An HTTP/2 client that writes frames by hand, so that it can also send what no library would.

use super::tls::{Dial, Wire};
use super::{DEADLINE, field, hpack};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Frame types (RFC 9113, section 6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Frame flags.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// Error codes (RFC 9113, section 7).
pub(crate) mod code {
    pub(crate) const PROTOCOL_ERROR: u32 = 1;
    pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
    pub(crate) const STREAM_CLOSED: u32 = 5;
    pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
    pub(crate) const REFUSED_STREAM: u32 = 7;
    pub(crate) const COMPRESSION_ERROR: u32 = 9;
    pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;
}

#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// How a stream ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct H2Reply {
    pub(crate) status: Option<u16>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
    /// Statuses and fields of the 1xx answers that came first.
    pub(crate) interim: Vec<(u16, Vec<(String, String)>)>,
    /// END_STREAM was seen.
    pub(crate) ended: bool,
    /// Error code of RST_STREAM.
    pub(crate) reset: Option<u32>,
    /// Error code of GOAWAY, when it is not NO_ERROR.
    pub(crate) goaway: Option<u32>,
    /// The connection ended.
    pub(crate) closed: bool,
}

impl H2Reply {
    /// `"200"`, `"200 cut"`, `"rst"`, `"goaway"`, `"closed"` or `"silent"`.
    pub(crate) fn outcome(&self) -> String {
        match self {
            Self { status: Some(status), ended: true, .. } => status.to_string(),
            Self { status: Some(status), reset: Some(_), .. } => format!("{status} cut"),
            Self { status: Some(status), closed: true, .. } => format!("{status} cut"),
            Self { reset: Some(_), .. } => "rst".into(),
            Self { goaway: Some(_), .. } => "goaway".into(),
            Self { closed: true, .. } => "closed".into(),
            _ => "silent".into(),
        }
    }

    pub(crate) fn status(&self) -> u16 {
        self.status.unwrap_or_else(|| panic!("expected a response, got {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }

    fn over(&self) -> bool {
        self.ended || self.reset.is_some() || self.goaway.is_some() || self.closed
    }
}

pub(crate) struct H2 {
    stream: Wire,
    buffer: Vec<u8>,
    next: u32,
    replies: BTreeMap<u32, H2Reply>,
    /// Header block fragments of the stream that is waiting for CONTINUATION.
    block: Vec<u8>,
    pub(crate) frames: Vec<Frame>,
    goaway: Option<u32>,
    closed: bool,
    announced: bool,
}

/// `:method GET`, `:scheme http`, `:authority a` and this path.
pub(crate) fn get(path: &str) -> Vec<(&str, &str)> {
    vec![(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", path)]
}

impl H2 {
    /// Prior knowledge over cleartext, with flow-control windows too large to matter.
    pub(crate) fn connect(addr: SocketAddr) -> Self {
        Self::connect_behind(addr, b"")
    }

    /// The same behind these bytes.
    pub(crate) fn connect_behind(addr: SocketAddr, before: &[u8]) -> Self {
        let mut client = Self::start(addr, before, 1 << 30);
        client.frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        client
    }

    /// With this window for every stream, and the default one for the connection.
    pub(crate) fn connect_with_window(addr: SocketAddr, window: u32) -> Self {
        Self::start(addr, b"", window)
    }

    fn start(addr: SocketAddr, before: &[u8], window: u32) -> Self {
        let mut stream = TcpStream::connect(addr).unwrap_or_else(|error| panic!("connect {addr}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(before).unwrap();
        Self::over(Wire::Plain(stream), window)
    }

    /// Over TLS, whatever was agreed by ALPN.
    pub(crate) fn connect_secure(addr: SocketAddr, dial: &Dial) -> Result<Self, String> {
        let stream = TcpStream::connect(addr).unwrap_or_else(|error| panic!("connect {addr}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Ok(Self::over(dial.shake(stream)?, 1 << 20))
    }

    /// In clear text or over TLS, and nothing said yet, not even the preface.
    pub(crate) fn connect_silent(addr: SocketAddr, dial: Option<&Dial>) -> Self {
        let stream = TcpStream::connect(addr).unwrap_or_else(|error| panic!("connect {addr}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self::silent(match dial {
            None => Wire::Plain(stream),
            Some(dial) => dial.shake(stream).unwrap(),
        })
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.stream
    }

    fn over(stream: Wire, window: u32) -> Self {
        let mut client = Self::silent(stream);
        client.greet(window);
        client
    }

    fn silent(stream: Wire) -> Self {
        let (replies, block, frames) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { stream, buffer: Vec::new(), next: 1, replies, block, frames, goaway: None, closed: false, announced: false }
    }

    /// The preface, with this window for every stream.
    pub(crate) fn greet(&mut self, window: u32) {
        self.write(PREFACE);
        let mut settings = setting(1, 0);
        settings.extend(setting(2, 0));
        settings.extend(setting(4, window));
        self.frame(kind::SETTINGS, 0, 0, &settings);
    }

    /// Opens a stream; `body` is sent in one DATA frame, `None` ends the stream with the headers.
    pub(crate) fn request(&mut self, fields: &[(&str, &str)], body: Option<&[u8]>) -> u32 {
        let stream = self.open(fields, body.is_none());
        if let Some(body) = body {
            self.data(stream, body, true);
        }
        stream
    }

    /// Opens a stream with these fields and leaves it open for a body unless it `ends`.
    pub(crate) fn open(&mut self, fields: &[(&str, &str)], ends: bool) -> u32 {
        let stream = self.next;
        self.next += 2;
        let end = if ends { flag::END_STREAM } else { 0 };
        self.headers(stream, fields, end);
        stream
    }

    /// HEADERS, and CONTINUATION where it does not fit into one frame.
    fn headers(&mut self, stream: u32, fields: &[(&str, &str)], flags: u8) {
        let block = hpack::encode(fields);
        let mut parts = block.chunks(16 << 10).peekable();
        let mut first = true;
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() { flag::END_HEADERS } else { 0 };
            let (kind, flags) = if first { (kind::HEADERS, flags | last) } else { (kind::CONTINUATION, last) };
            self.frame(kind, flags, stream, part);
            first = false;
        }
    }

    pub(crate) fn data(&mut self, stream: u32, bytes: &[u8], ends: bool) {
        let mut parts = bytes.chunks(16 << 10).peekable();
        if parts.peek().is_none() {
            self.frame(kind::DATA, u8::from(ends), stream, &[]);
        }
        while let Some(part) = parts.next() {
            self.frame(kind::DATA, u8::from(ends && parts.peek().is_none()), stream, part);
        }
    }

    pub(crate) fn trailers(&mut self, stream: u32, fields: &[(&str, &str)]) {
        self.headers(stream, fields, flag::END_STREAM);
    }

    pub(crate) fn cancel(&mut self, stream: u32) {
        self.frame(kind::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    }

    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.write(&Self::frame_bytes(kind, flags, stream, payload));
    }

    /// A frame as it is on the wire.
    pub(crate) fn frame_bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// Waits until all that was sent so far has been read: a PING is answered, or the connection is over.
    pub(crate) fn ping(&mut self) {
        let pongs =
            |client: &Self| client.frames.iter().filter(|frame| frame.kind == kind::PING && frame.flags & flag::ACK != 0).count();
        let before = pongs(self);
        self.frame(kind::PING, 0, 0, &[1; 8]);
        self.pump(|client| pongs(client) > before || client.is_over());
    }

    /// Whether the peer has said goodbye, or gone without.
    pub(crate) fn is_over(&self) -> bool {
        self.closed || self.last_word().is_some()
    }

    /// Sends a request and waits for the end of its stream.
    pub(crate) fn ask(&mut self, fields: &[(&str, &str)], body: Option<&[u8]>) -> H2Reply {
        let stream = self.request(fields, body);
        self.receive(stream)
    }

    pub(crate) fn get(&mut self, path: &str) -> H2Reply {
        self.ask(&get(path), None)
    }

    /// Waits until the stream has ended, one way or another.
    pub(crate) fn receive(&mut self, stream: u32) -> H2Reply {
        while !self.is_answered(stream) && self.step() {}
        self.so_far(stream)
    }

    /// Waits until what has come of a stream fulfils a condition, or the stream is over.
    pub(crate) fn receive_until(&mut self, stream: u32, condition: impl Fn(&H2Reply) -> bool) -> H2Reply {
        let nothing = H2Reply::default();
        while !condition(self.replies.get(&stream).unwrap_or(&nothing)) && !self.is_answered(stream) && self.step() {}
        self.so_far(stream)
    }

    /// Waits until this much of the stream's body has come, or it has ended.
    pub(crate) fn receive_at_least(&mut self, stream: u32, bytes: usize) -> H2Reply {
        while !self.so_far(stream).over() && self.so_far(stream).body.len() < bytes && self.step() {}
        self.so_far(stream)
    }

    /// Waits for the head of the stream's response.
    pub(crate) fn receive_head(&mut self, stream: u32) -> H2Reply {
        while !self.so_far(stream).over() && self.so_far(stream).status.is_none() && self.step() {}
        self.so_far(stream)
    }

    /// Whether the peer ends the connection, reading whatever comes before.
    pub(crate) fn is_closed(&mut self) -> bool {
        while !self.closed && self.step() {}
        self.closed
    }

    /// Whether the end came with a word: FIN, and over TLS a `close_notify` before it.
    pub(crate) fn announced(&self) -> bool {
        self.announced
    }

    /// Takes frames in until `condition` holds; false when no more come.
    pub(crate) fn pump(&mut self, condition: impl Fn(&Self) -> bool) -> bool {
        while !condition(self) {
            if !self.step() {
                return condition(self);
            }
        }
        true
    }

    /// Error code of RST_STREAM, if one has come for this stream.
    pub(crate) fn reset_of(&self, stream: u32) -> Option<u32> {
        self.replies.get(&stream)?.reset
    }

    /// The last error code of GOAWAY, be it NO_ERROR.
    pub(crate) fn last_word(&self) -> Option<u32> {
        let last = self.frames.iter().rev().find(|frame| frame.kind == kind::GOAWAY)?;
        Some(u32::from_be_bytes(last.payload.get(4..8)?.try_into().unwrap()))
    }

    /// The next stream this client opens.
    pub(crate) fn skip_to(&mut self, stream: u32) {
        self.next = stream;
    }

    fn is_answered(&self, stream: u32) -> bool {
        self.goaway.is_some() || self.closed || self.replies.get(&stream).is_some_and(H2Reply::over)
    }

    fn so_far(&self, stream: u32) -> H2Reply {
        let mut reply = self.replies.get(&stream).cloned().unwrap_or_default();
        reply.goaway = self.goaway;
        reply.closed = self.closed;
        reply
    }

    /// Takes one frame in; false when none came.
    fn step(&mut self) -> bool {
        let Some(frame) = self.read_frame() else { return false };
        let ends = frame.flags & flag::END_STREAM != 0;
        let code = |at: usize| u32::from_be_bytes(frame.payload[at..at + 4].try_into().unwrap());
        match frame.kind {
            kind::SETTINGS if frame.flags & flag::ACK == 0 => self.frame(kind::SETTINGS, flag::ACK, 0, &[]),
            kind::PING if frame.flags & flag::ACK == 0 => self.frame(kind::PING, flag::ACK, 0, &frame.payload.clone()),
            kind::GOAWAY => self.goaway = Some(code(4)).filter(|code| *code != 0),
            kind::RST_STREAM => self.reply(frame.stream).reset = Some(code(0)),
            kind::DATA => {
                let reply = self.reply(frame.stream);
                reply.body.extend(&frame.payload);
                reply.ended |= ends;
            }
            kind::HEADERS | kind::CONTINUATION => {
                self.block.extend(&frame.payload);
                if frame.flags & flag::END_HEADERS != 0 {
                    let fields = hpack::decode(&std::mem::take(&mut self.block));
                    self.reply(frame.stream).fields(fields);
                }
                self.reply(frame.stream).ended |= frame.kind == kind::HEADERS && ends;
            }
            _ => {}
        }
        self.frames.push(frame);
        true
    }

    fn reply(&mut self, stream: u32) -> &mut H2Reply {
        self.replies.entry(stream).or_default()
    }

    fn read_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(head) = self.buffer.first_chunk::<9>().copied() {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                if self.buffer.len() >= 9 + length {
                    let bytes: Vec<u8> = self.buffer.drain(..9 + length).collect();
                    let stream = u32::from_be_bytes([head[5] & 127, head[6], head[7], head[8]]);
                    return Some(Frame { kind: head[3], flags: head[4], stream, payload: bytes[9..].to_vec() });
                }
            }
            let mut chunk = [0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(n) if n > 0 => self.buffer.extend_from_slice(&chunk[..n]),
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                    return None;
                }
                end => {
                    self.closed = true;
                    self.announced = end.is_ok();
                    return None;
                }
            }
        }
    }

    /// Any bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes);
    }

    /// The same, and says whether the peer took them.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }
}

impl H2Reply {
    fn fields(&mut self, mut fields: Vec<(String, String)>) {
        let status = field(&fields, ":status").and_then(|status| status.parse().ok());
        fields.retain(|(name, _)| !name.starts_with(':'));
        match status {
            Some(status) if status < 200 && self.status.is_none() => self.interim.push((status, fields)),
            Some(status) if status < 200 => panic!("{status} behind the response"),
            Some(_) => (self.status, self.headers) = (status, fields),
            None => self.trailers = fields,
        }
    }
}

/// What a connection begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// One entry of a SETTINGS frame.
pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend(value.to_be_bytes());
    bytes
}
