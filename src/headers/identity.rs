//! What upstream is told of who a request is from, and what it is not to see of how the gateway came to know it.

use http::header::COOKIE;
use http::{HeaderName, Version};

use super::request::Forwarding;
use super::sink::Sink;

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
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
        let mut kept = pairs.filter(|pair| !pair.is_empty() && !self.is_withheld(pair));
        let Some(first) = kept.next() else { return };
        head.begin(&COOKIE);
        head.push(first);
        for pair in kept {
            head.text("; ");
            head.push(pair);
        }
        head.end();
    }

    /// Blanks around the name don't make it another one: whoever reads it next may not care for them.
    fn is_withheld(&self, pair: &[u8]) -> bool {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        self.withheld.cookies.iter().any(|cookie| cookie.as_bytes() == name)
    }
}
