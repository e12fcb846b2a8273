//! Server-sent events (WHATWG HTML, section 9.2): hands the data of each event to a [`Document`] as it comes.
//!
//! Knows no JSON. What is not data (comments, names, identifiers) passes unseen, `data: [DONE]` is for the document to reject.

use super::document::Document;

/// A place in an event stream.
#[derive(Debug, Default)]
pub(super) struct EventStream {
    line: Line,
    /// Whether the last line ended with CR, of which an LF would be the second half.
    after_return: bool,
    /// Whether this event has had a line of data.
    has_data: bool,
}

/// A place in a line.
#[derive(Debug, Clone, Copy)]
enum Line {
    /// So many bytes of [`DATA`] have come and nothing else.
    Field(usize),
    /// Behind the colon, where one space is not part of the data.
    Colon,
    Data,
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::Field(0)
    }
}

impl EventStream {
    /// The next bytes of the stream.
    pub(super) fn feed(&mut self, mut bytes: &[u8], document: &mut Document) {
        while let [byte, rest @ ..] = bytes {
            bytes = match (self.line, byte) {
                (Line::Field(0), b'\n') if self.after_return => {
                    self.after_return = false;
                    rest
                }
                (Line::Data | Line::Other, _) => self.run(bytes, document),
                (_, b'\r' | b'\n') => {
                    self.end_line(*byte, document);
                    rest
                }
                (Line::Field(matched), _) => {
                    self.field(matched, *byte, document);
                    rest
                }
                (Line::Colon, _) => {
                    self.line = Line::Data;
                    if *byte == b' ' { rest } else { bytes }
                }
            };
        }
    }

    /// The rest of a line, as far as it has come.
    fn run<'a>(&mut self, bytes: &'a [u8], document: &mut Document) -> &'a [u8] {
        let (run, rest) = bytes.split_at(memchr::memchr2(b'\r', b'\n', bytes).unwrap_or(bytes.len()));
        if matches!(self.line, Line::Data) {
            document.feed(run);
        }
        let Some((end, rest)) = rest.split_first() else { return rest };
        self.end_line(*end, document);
        rest
    }

    fn field(&mut self, matched: usize, byte: u8, document: &mut Document) {
        self.line = match DATA.get(matched) {
            Some(expected) if *expected == byte => Line::Field(matched + 1),
            None if byte == b':' => {
                if self.has_data {
                    document.feed(b"\n");
                }
                self.has_data = true;
                Line::Colon
            }
            _ => Line::Other,
        };
    }

    /// An empty line ends the event and with it the document.
    fn end_line(&mut self, end: u8, document: &mut Document) {
        if matches!(self.line, Line::Field(0)) {
            document.restart();
            self.has_data = false;
        }
        self.line = Line::Field(0);
        self.after_return = end == b'\r';
    }
}

const DATA: &[u8] = b"data";
