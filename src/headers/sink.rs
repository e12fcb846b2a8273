//! How a decided head is said: as the text of HTTP/1.1 or as the fields of HTTP/2. What is said is decided once for both, in
//! [`Forwarding`](super::request::Forwarding), in the words of HTTP/1.1; a sink decides nothing, it only knows its protocol.

use bytes::BytesMut;
use http::header::{HOST, TE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::hop_by_hop::is_hop_by_hop;

/// Takes fields, in order.
pub(super) trait Sink {
    /// Begins a field.
    fn begin(&mut self, name: &HeaderName);

    /// Adds a piece to its value.
    fn push(&mut self, piece: &[u8]);

    /// Ends it.
    fn end(&mut self);

    /// A whole field as it was received.
    fn pass(&mut self, name: &HeaderName, value: &HeaderValue);

    /// A whole field.
    fn line(&mut self, name: &HeaderName, value: &[u8]) {
        self.begin(name);
        self.push(value);
        self.end();
    }

    /// Adds text to a value.
    fn text(&mut self, text: &str) {
        self.push(text.as_bytes());
    }

    /// Adds `:port` to a value.
    fn port(&mut self, port: u16) {
        self.push(b":");
        self.text(itoa::Buffer::new().format(port));
    }
}

/// The text of HTTP/1.1.
pub(super) struct Text(pub(super) Vec<u8>);

impl Sink for Text {
    fn begin(&mut self, name: &HeaderName) {
        self.0.extend_from_slice(name.as_str().as_bytes());
        self.0.extend_from_slice(b": ");
    }

    fn push(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(piece);
    }

    fn end(&mut self) {
        self.0.extend_from_slice(b"\r\n");
    }

    fn pass(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.line(name, value.as_bytes());
    }
}

/// The fields of HTTP/2: `Host` is `:authority` there (RFC 9113 §8.3.1), and what is about the connection has no place but `TE`
/// (§8.2.2).
pub(super) struct Fields {
    pub(super) headers: HeaderMap,
    pub(super) authority: HeaderValue,
    name: HeaderName,
    value: BytesMut,
}

impl Fields {
    pub(super) fn new() -> Self {
        Self {
            headers: HeaderMap::with_capacity(24),
            authority: HeaderValue::from_static(""),
            name: HOST,
            value: BytesMut::with_capacity(512),
        }
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        if name == HOST {
            self.authority = value;
        } else if name == TE || !is_hop_by_hop(name.as_str()) {
            self.headers.append(name, value);
        }
    }
}

impl Sink for Fields {
    fn begin(&mut self, name: &HeaderName) {
        self.name = name.clone();
        self.value.clear();
    }

    fn push(&mut self, piece: &[u8]) {
        self.value.extend_from_slice(piece);
    }

    fn end(&mut self) {
        // HTTP/1.1 does not count blanks around a value, HTTP/2 calls them malformed (§8.2.1).
        let value = self.value.split().freeze();
        let value = value.slice_ref(value.trim_ascii());
        // Pieces of valid values make a valid value.
        if let Ok(value) = HeaderValue::from_maybe_shared(value) {
            self.add(self.name.clone(), value);
        }
    }

    fn pass(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.add(name.clone(), value.clone());
    }
}
