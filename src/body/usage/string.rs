//! A JSON string as it passes by: finds its end, and tells whether it is the name looked for, escapes resolved.

/// A string of which the opening quote and some bytes have come.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// How many bytes agreed with the name; `None` once one did not, and where there is no name.
    matched: Option<usize>,
    escape: Escape,
    /// The first half of a pair of escapes: `\ud83d` of `\ud83d\ude00`.
    high_surrogate: Option<u16>,
}

/// How far some bytes brought a string.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress<'a> {
    Open,
    /// With what is left behind the closing quote.
    Closed(&'a [u8]),
    /// Not a string: an escape that JSON does not have.
    Invalid,
}

#[derive(Debug, Default, Clone, Copy)]
enum Escape {
    #[default]
    None,
    Backslash,
    /// So many more digits of `\u1234`, and what those before make.
    Hex(u8, u16),
}

impl Text {
    /// A string to be compared with a name.
    pub(super) fn compared() -> Self {
        Self { matched: Some(0), ..Self::default() }
    }

    /// The next bytes, to be compared with the same name every time.
    pub(super) fn feed<'a>(&mut self, mut bytes: &'a [u8], name: &str) -> Progress<'a> {
        while let [byte, rest @ ..] = bytes {
            let escape = match self.escape {
                Escape::None => {
                    let (run, rest) = bytes.split_at(memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len()));
                    self.compare(run, name);
                    match rest {
                        [b'"', rest @ ..] => return Progress::Closed(rest),
                        [_, rest @ ..] => {
                            bytes = rest;
                            self.escape = Escape::Backslash;
                            continue;
                        }
                        [] => return Progress::Open,
                    }
                }
                Escape::Backslash => self.short(*byte, name),
                Escape::Hex(left, code) => self.hex(left, code, *byte, name),
            };
            let Some(escape) = escape else { return Progress::Invalid };
            self.escape = escape;
            bytes = rest;
        }
        Progress::Open
    }

    /// Whether the string, which has ended, is the name.
    pub(super) fn is(&self, name: &str) -> bool {
        self.high_surrogate.is_none() && self.matched == Some(name.len())
    }

    /// What follows a backslash.
    fn short(&mut self, byte: u8, name: &str) -> Option<Escape> {
        let character = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return Some(Escape::Hex(4, 0)),
            _ => return None,
        };
        self.compare(&[character], name);
        Some(Escape::None)
    }

    fn hex(&mut self, left: u8, code: u16, byte: u8, name: &str) -> Option<Escape> {
        let digit = u16::try_from(char::from(byte).to_digit(16)?).ok()?;
        let code = code << 4 | digit;
        if left > 1 {
            return Some(Escape::Hex(left - 1, code));
        }
        match (self.high_surrogate.take(), code) {
            (None, 0xd800..=0xdbff) => self.high_surrogate = Some(code),
            (high, _) => match char::decode_utf16(high.into_iter().chain([code])).next() {
                Some(Ok(character)) => self.compare(character.encode_utf8(&mut [0; 4]).as_bytes(), name),
                // Half of a pair, which no name has.
                _ => self.matched = None,
            },
        }
        Some(Escape::None)
    }

    fn compare(&mut self, bytes: &[u8], name: &str) {
        let Some(matched) = self.matched.filter(|_| !bytes.is_empty()) else { return };
        let agrees = name.as_bytes().get(matched..).is_some_and(|rest| rest.starts_with(bytes));
        self.matched = (agrees && self.high_surrogate.is_none()).then_some(matched + bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let rows: &[(&str, &str, Option<bool>)] = &[
            (r#"usage""#, "usage", Some(true)),
            (r#"usag""#, "usage", Some(false)),
            (r#"usages""#, "usage", Some(false)),
            (r#"""#, "usage", Some(false)),
            (r#"\u0075sage""#, "usage", Some(true)),
            (r#"us\u0061g\u0065""#, "usage", Some(true)),
            (r#"a\"\\\/\b\f\n\r\tz""#, "a\"\\/\u{8}\u{c}\n\r\tz", Some(true)),
            (r#"größe""#, "größe", Some(true)),
            (r#"gr\u00f6\u00DFe""#, "größe", Some(true)),
            (r#"\ud83d\ude00""#, "😀", Some(true)),
            (r#"😀""#, "😀", Some(true)),
            (r#"\ud83d""#, "", Some(false)),
            (r#"\ude00""#, "", Some(false)),
            (r#"\ud83da""#, "a", Some(false)),
            (r#"\ud83d\n""#, "\n", Some(false)),
            (r#"\ud83d\u0061""#, "a", Some(false)),
            (r#"\ud83d\ud83d\ude00""#, "😀", Some(false)),
            (r#"a\x""#, "a", None),
            (r#"\u00g1""#, "a", None),
            (r#"\u+061""#, "a", None),
        ];
        for (text, name, expected) in rows {
            for size in 1..=text.len() {
                let mut string = Text::compared();
                let mut ends = text.as_bytes().chunks(size).map(|chunk| string.feed(chunk, name));
                let end = ends.find(|end| *end != Progress::Open);
                let expected_end = expected.map_or(Progress::Invalid, |_| Progress::Closed(&[]));
                // What is behind the broken escape does not matter.
                assert_eq!(end, Some(expected_end), "{text}");
                drop(ends);
                assert_eq!(expected.is_some_and(|_| string.is(name)), expected.unwrap_or(false), "{text} by {size}");
            }
        }
    }
}
