//! What a request costs: known before, or only from its response.

use std::sync::Arc;

use http::{HeaderName, StatusCode};

use super::{Route, Subject, Window};
use crate::body::usage::FieldPath;

/// Cells per request of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cost {
    /// The route's.
    Route,
    /// Always this.
    Fixed(u64),
    /// What a trusted proxy says in a header.
    Header {
        /// The header.
        name: HeaderName,
        /// Without it, with nonsense in it, or from somebody else.
        default: u64,
        /// More is counted as this; the most that the caller's windows ever take, if there is none.
        max: Option<u64>,
    },
}

/// What the response decides about a charge that has been taken already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Only these responses are charged.
    pub count: Option<StatusSet>,
    /// These are given back.
    pub refund: Option<StatusSet>,
    /// What the response says that it cost; otherwise what was taken.
    pub cost: Option<ResponseCost>,
}

/// Where a response says what it cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseCost {
    /// In a header.
    Header {
        /// The header.
        name: HeaderName,
        /// More is counted as this; the most that the window ever takes at once, if there is none.
        max: Option<u64>,
    },
    /// In its JSON, or in the last event of an event stream.
    Json {
        /// The number's place.
        path: Arc<FieldPath>,
        /// Likewise.
        max: Option<u64>,
    },
}

/// Some statuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusSet(pub Vec<(u16, u16)>);

impl Cost {
    /// What a request costs before its response is known.
    #[must_use]
    pub fn of(&self, subject: &Subject<'_>, route: &Route, windows: &[Window]) -> u64 {
        match self {
            Self::Route => route.cost,
            Self::Fixed(cost) => *cost,
            Self::Header { name, default, max } => {
                let trusted = subject.identity.via_trusted_proxy.then(|| subject.facts.headers.get_all(name));
                let mut values = trusted.into_iter().flatten();
                let most = || windows.iter().map(|window| window.quota.quota.largest_cost()).min().unwrap_or(u64::MAX);
                match (values.next(), values.next()) {
                    (Some(only), None) => number(only.as_bytes()).map_or(*default, |cost| cost.min(max.unwrap_or_else(most))),
                    _ => *default,
                }
            }
        }
    }
}

impl Settlement {
    /// Whether a response with this status is charged at all.
    #[must_use]
    pub fn charges(&self, status: StatusCode) -> bool {
        self.count.as_ref().is_none_or(|count| count.contains(status))
            && !self.refund.as_ref().is_some_and(|refund| refund.contains(status))
    }
}

impl StatusSet {
    /// Whether a status is among them.
    #[must_use]
    pub fn contains(&self, status: StatusCode) -> bool {
        self.0.iter().any(|(from, to)| (*from..=*to).contains(&status.as_u16()))
    }
}

/// A whole number of cells, as headers write it. Longer than 20 digits is more than anything allows.
#[must_use]
pub fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits() {
        for (text, expected) in [
            ("12", Some(12)),
            (" 7 ", Some(7)),
            ("0", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("-1", None),
            ("1.5", None),
            ("", None),
            ("+3", None),
            ("1e3", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_response_is_charged_if_it_counts_and_is_not_given_back() {
        let set = |ranges: &[(u16, u16)]| Some(StatusSet(ranges.to_vec()));
        let settlement = Settlement { count: set(&[(200, 299), (401, 401)]), refund: set(&[(204, 204)]), cost: None };
        for (status, charged) in [(200, true), (204, false), (401, true), (403, false), (500, false)] {
            assert_eq!(settlement.charges(StatusCode::from_u16(status).unwrap()), charged, "{status}");
        }
    }
}
