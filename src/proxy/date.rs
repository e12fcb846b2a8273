//! The `Date` of responses (RFC 9110 §6.6.1), written once a second.

use std::cell::RefCell;

use http::HeaderValue;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// The last one.
#[derive(Debug, Default)]
pub(super) struct Date(RefCell<Option<(u64, HeaderValue)>>);

impl Date {
    /// At this second since the Unix epoch.
    pub(super) fn at(&self, second: u64) -> HeaderValue {
        let mut last = self.0.borrow_mut();
        match &*last {
            Some((known, date)) if *known == second => date.clone(),
            _ => last.insert((second, written(second))).1.clone(),
        }
    }
}

fn written(second: u64) -> HeaderValue {
    let timestamp = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok()).unwrap_or_default();
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&timestamp).unwrap_or_default();
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_the_rfc_wants_it() {
        let date = Date::default();
        assert_eq!(date.at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date.at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date.at(784_111_778), "Sun, 06 Nov 1994 08:49:38 GMT");
    }
}
