//! Follows a [`FieldPath`] through one JSON document (RFC 8259), byte by byte and without a buffer.
//!
//! Of the containers that are open, it remembers how many there are, how many of the outermost the path leads into, and
//! which are objects. A key is compared and a number added up while it passes; all else is skipped.
//!
//! What is not JSON ends the reading, with two exceptions that can't move a bracket or a quote: control characters and
//! broken UTF-8 in strings, and what lies deeper than [`CHECKED_DEPTH`], where brackets are counted but not told apart.

use std::sync::Arc;

use super::number::Number;
use super::string::{Progress, Text};
use super::{FieldPath, Piece};

/// A document of which some bytes have come, and the last number found in it or in those before.
#[derive(Debug)]
pub(super) struct Document {
    path: Arc<FieldPath>,
    found: Option<u64>,
    place: Place,
}

/// Where in the document we are.
#[derive(Debug)]
struct Place {
    expected: Expected,
    /// How many containers are open.
    depth: usize,
    /// How many of them, counted from the outermost, the path leads into.
    followed: usize,
    /// Which are objects, a bit each, the innermost lowest.
    objects: u128,
    /// Whether the path goes on with the present member of the innermost container followed.
    on_path: bool,
    /// That member's index, if that container is an array.
    index: u64,
    text: Text,
    number: Number,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    /// The rest of a string: of a key, of a value, or too deep to matter.
    String(Role),
    Number,
    /// The rest of `true`, `false` or `null`.
    Literal(&'static [u8]),
    /// Anything, deeper than [`CHECKED_DEPTH`].
    Deep,
    /// Nothing: this is not JSON.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Key,
    Value,
    Deep,
}

impl Document {
    pub(super) fn new(path: Arc<FieldPath>) -> Self {
        Self { path, found: None, place: Place::default() }
    }

    /// The next bytes of the document.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while let [byte, rest @ ..] = bytes {
            bytes = match self.place.expected {
                Expected::Nothing => return,
                Expected::String(role) => self.string(role, bytes),
                Expected::Number if self.place.number.accept(*byte) => rest,
                Expected::Number => {
                    self.end_number(*byte);
                    rest
                }
                expected => {
                    self.place.expected = self.step(expected, *byte);
                    rest
                }
            };
        }
    }

    /// The document has ended and another begins.
    pub(super) fn restart(&mut self) {
        self.place = Place::default();
    }

    /// The last number found.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.found.take()
    }

    fn step(&mut self, expected: Expected, byte: u8) -> Expected {
        use Expected::{Colon, CommaOrEnd, Deep, Key, KeyOrEnd, Literal, Nothing, Value, ValueOrEnd};
        match (expected, byte) {
            (Deep, _) => self.deep(byte),
            (Literal([only]), _) if *only == byte => CommaOrEnd,
            (Literal([first, rest @ ..]), _) if *first == byte => Literal(rest),
            (Literal(_), _) => Nothing,
            (_, b' ' | b'\t' | b'\n' | b'\r') => expected,
            (Key | KeyOrEnd, b'"') => {
                self.place.text = if self.place.awaited(&self.path).is_some() { Text::compared() } else { Text::default() };
                Expected::String(Role::Key)
            }
            (Colon, b':') => Value,
            (KeyOrEnd | CommaOrEnd, b'}') | (ValueOrEnd | CommaOrEnd, b']') => self.close(byte),
            (Value | ValueOrEnd, b'{' | b'[') => self.open(byte),
            (Value | ValueOrEnd, _) => self.scalar(byte),
            (CommaOrEnd, b',') => self.next_member(),
            _ => Nothing,
        }
    }

    fn open(&mut self, bracket: u8) -> Expected {
        let place = &mut self.place;
        let follow = place.depth == place.followed && place.on_path && place.depth < self.path.0.len();
        place.depth += 1;
        if place.depth > CHECKED_DEPTH {
            return Expected::Deep;
        }
        place.objects = place.objects << 1 | u128::from(bracket == b'{');
        if follow {
            place.followed = place.depth;
            self.enter(0);
        }
        if bracket == b'{' { Expected::KeyOrEnd } else { Expected::ValueOrEnd }
    }

    fn close(&mut self, bracket: u8) -> Expected {
        let place = &mut self.place;
        if place.depth == 0 || place.is_object() != (bracket == b'}') {
            return Expected::Nothing;
        }
        let was_followed = place.depth == place.followed;
        place.depth -= 1;
        place.objects >>= 1;
        if was_followed {
            // Back in the member that the path led through, whose index it therefore names.
            place.followed = place.depth;
            place.on_path = true;
            self.place.index = self.place.awaited(&self.path).and_then(|piece| piece.index).unwrap_or(0);
        }
        Expected::CommaOrEnd
    }

    fn next_member(&mut self) -> Expected {
        let place = &self.place;
        if place.depth == 0 {
            return Expected::Nothing;
        }
        if place.is_object() {
            return Expected::Key;
        }
        if place.depth == place.followed {
            self.enter(place.index.saturating_add(1));
        }
        Expected::Value
    }

    /// On to the member with this index. In an object it means nothing: there a key comes before the value and decides.
    fn enter(&mut self, index: u64) {
        self.place.index = index;
        self.place.on_path = self.place.awaited(&self.path).is_some_and(|piece| piece.index == Some(index));
    }

    fn scalar(&mut self, byte: u8) -> Expected {
        let place = &mut self.place;
        match byte {
            b'"' => {
                place.text = Text::default();
                return Expected::String(Role::Value);
            }
            b't' => return Expected::Literal(b"rue"),
            b'f' => return Expected::Literal(b"alse"),
            b'n' => return Expected::Literal(b"ull"),
            _ => place.number = Number::default(),
        }
        if place.number.accept(byte) { Expected::Number } else { Expected::Nothing }
    }

    /// The byte that a number can't go on with: what follows the value, or a mistake.
    fn end_number(&mut self, byte: u8) {
        let Place { depth, followed, on_path, ref number, .. } = self.place;
        let wanted = on_path && depth == followed && depth == self.path.0.len();
        let value = number.rounded_up();
        let after = if number.is_complete() { Expected::CommaOrEnd } else { Expected::Nothing };
        self.place.expected = self.step(after, byte);
        if wanted && self.place.expected != Expected::Nothing {
            self.found = value.or(self.found);
        }
    }

    /// A string up to its end, or as far as it has come.
    fn string<'a>(&mut self, role: Role, bytes: &'a [u8]) -> &'a [u8] {
        let awaited = if role == Role::Key { self.place.awaited(&self.path) } else { None };
        let place = &mut self.place;
        let rest = match place.text.feed(bytes, awaited.map_or("", |piece| &piece.name)) {
            Progress::Open => return &[],
            Progress::Invalid => {
                place.expected = Expected::Nothing;
                return &[];
            }
            Progress::Closed(rest) => rest,
        };
        if let Some(piece) = awaited {
            place.on_path = place.text.is(&piece.name);
        }
        place.expected = match role {
            Role::Key => Expected::Colon,
            Role::Value => Expected::CommaOrEnd,
            Role::Deep => Expected::Deep,
        };
        rest
    }

    fn deep(&mut self, byte: u8) -> Expected {
        let place = &mut self.place;
        match byte {
            b'{' | b'[' => place.depth += 1,
            b'}' | b']' => place.depth -= 1,
            b'"' => {
                place.text = Text::default();
                return Expected::String(Role::Deep);
            }
            _ => {}
        }
        if place.depth > CHECKED_DEPTH { Expected::Deep } else { Expected::CommaOrEnd }
    }
}

impl Place {
    fn is_object(&self) -> bool {
        self.objects & 1 == 1
    }

    /// The piece of the path that members of the innermost container are compared with, if the path leads there.
    fn awaited<'a>(&self, path: &'a FieldPath) -> Option<&'a Piece> {
        if self.depth == self.followed { path.0.get(self.depth.checked_sub(1)?) } else { None }
    }
}

impl Default for Place {
    fn default() -> Self {
        Self {
            expected: Expected::Value,
            depth: 0,
            followed: 0,
            objects: 0,
            on_path: true,
            index: 0,
            text: Text::default(),
            number: Number::default(),
        }
    }
}

/// One bit each in `objects`; as deep as serde_json reads, and far more than the longest path.
const CHECKED_DEPTH: usize = 128;
