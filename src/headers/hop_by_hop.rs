//! Headers that are for one connection only (RFC 9110 §7.6.1), by name or because `Connection` names them.

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

/// Hop-by-hop by name. `Trailer` stays: it describes the message. `Proxy-Authenticate` and `-Authorization` stay: the
/// gateway does not consume them.
const HOP_BY_HOP: &[&str] = &[
    "connection",        // RFC 9110 §7.6.1
    "keep-alive",        // RFC 9110 §7.6.1
    "proxy-connection",  // RFC 9110 §7.6.1
    "te",                // RFC 9110 §10.1.4
    "transfer-encoding", // RFC 9112 §6.1
    "upgrade",           // RFC 9110 §7.8
    "http2-settings",    // RFC 7540 §3.2.1, obsolete and a smuggling vector
];

/// Whether a (lower-case) name is hop-by-hop.
pub(super) fn is_hop_by_hop(name: &str) -> bool {
    // The length decides for nearly every name that is not one.
    matches!(name.len(), 2 | 7 | 10 | 14 | 16 | 17) && HOP_BY_HOP.contains(&name)
}

/// Takes all of them out of fields that have no `Connection` to name more.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.keys().any(|name| is_hop_by_hop(name.as_str())) {
        HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(*name)));
    }
}

/// The names that the `Connection` lines of a message nominate, in lower case.
#[derive(Debug, Default)]
pub(super) struct Nominated(SmallVec<[Box<str>; 2]>);

impl Nominated {
    /// Of a request.
    #[must_use]
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut nominated = Self::default();
        for line in headers.get_all(CONNECTION).iter().map(HeaderValue::as_bytes) {
            nominated.add(line);
        }
        nominated
    }

    /// Adds one `Connection` line. `close` and `keep-alive` are options, not names.
    pub(super) fn add(&mut self, line: &[u8]) {
        let is_option = |word: &[u8]| word.is_empty() || OPTIONS.iter().any(|option| word.eq_ignore_ascii_case(option));
        let names = line.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|word| !is_option(word));
        let names = names.filter_map(|name| std::str::from_utf8(name).ok());
        self.0.extend(names.map(|name| name.to_ascii_lowercase().into_boxed_str()));
    }

    /// Whether a (lower-case) name is among them.
    #[must_use]
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|nominated| **nominated == *name)
    }

    /// The names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    /// Whether there are none.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Words of `Connection` that are no names.
const OPTIONS: [&[u8]; 2] = [b"close", b"keep-alive"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_found() {
        for name in HOP_BY_HOP {
            assert!(is_hop_by_hop(name), "{name}");
        }
        for name in ["trailer", "via", "accept", "content-length", "proxy-authorization", "x"] {
            assert!(!is_hop_by_hop(name), "{name}");
        }
    }

    #[test]
    fn nominations_are_read_from_odd_lists() {
        let mut headers = HeaderMap::new();
        headers.append(CONNECTION, HeaderValue::from_static("keep-alive, X-One ,,"));
        headers.append(CONNECTION, HeaderValue::from_static(",\tx-TWO,close"));
        let nominated = Nominated::of(&headers);
        assert!(nominated.contains("x-one") && nominated.contains("x-two"));
        assert!(!nominated.contains("close") && !nominated.contains("keep-alive") && !nominated.contains(""));
    }
}
