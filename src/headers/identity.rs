//! What upstream is told of who a request is from, and what it is not to see of how the gateway came to know it.

use http::header::COOKIE;
use http::{HeaderName, Version};

use super::request::Forwarding;
use super::sink::Sink;
use crate::request::cookie;

/// Keys and tokens that end at the gateway.
#[derive(Debug, Default)]
pub struct Withheld<'a> {
    /// Headers that have one.
    pub headers: Vec<&'a HeaderName>,
    /// Names of cookies that are one.
    pub cookies: Vec<&'a str>,
}

impl Forwarding<'_> {
    /// The gateway's own words. An operator's edit of the same name is the later word.
    pub(super) fn write_told(&self, head: &mut impl Sink) {
        for (name, value) in self.told {
            if !self.edits.drops(name) {
                head.line(name, value.as_bytes());
            }
        }
    }

    /// Whether cookies go out in one line. HTTP/2 clients may split them over several fields; HTTP/1.1 has one (RFC 9113 §8.2.3).
    pub(super) fn joins_cookies(&self) -> bool {
        self.facts.version == Version::HTTP_2 || !self.withheld.cookies.is_empty()
    }

    pub(super) fn write_cookies(&self, head: &mut impl Sink) {
        if self.withheld.headers.contains(&&COOKIE) {
            return;
        }
        if self.withheld.cookies.is_empty() {
            return self.write_joined(head, &COOKIE, "; ", "");
        }
        let lines = self.facts.headers.get_all(COOKIE).iter();
        let pieces = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
        // A quoted value may have gone on behind a `;`.
        let mut is_within_quotes = false;
        let mut kept = pieces.filter(|piece| {
            let is_withheld = is_within_quotes || self.is_withheld(piece);
            is_within_quotes ^= is_withheld && memchr::memchr_iter(b'"', piece).count() % 2 == 1;
            !piece.is_empty() && !is_withheld
        });
        let Some(first) = kept.next() else { return };
        head.begin(&COOKIE);
        head.push(first);
        for piece in kept {
            head.text("; ");
            head.push(piece);
        }
        head.end();
    }

    /// Whether a withheld cookie stands in a piece between two `;`, for any reader. The whole piece goes: where the cookie ends in it is
    /// a matter of taste.
    fn is_withheld(&self, piece: &[u8]) -> bool {
        self.withheld
            .cookies
            .iter()
            .any(|name| piece.eq_ignore_ascii_case(name.as_bytes()) || cookie::values(piece, name.as_bytes()).next().is_some())
    }
}
