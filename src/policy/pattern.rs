//! Path and host patterns: `/v1/{id}/files/{*rest}`, `*.example.com`.
//!
//! A pattern is matched against the normal form of a path, segment by segment. `{x}` is exactly one segment; `{*rest}`, only
//! at the end, is any number of them, none included: `/files/{*path}` also matches `/files`.

use std::cmp::Ordering;

/// A compiled path pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    segments: Vec<Segment>,
    /// The name of `{*rest}`.
    rest: Option<Box<str>>,
    trailing_slash: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Param(Box<str>),
}

/// Why text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// No leading slash.
    #[error("a path pattern starts with /")]
    NoSlash,
    /// The same parameter twice.
    #[error("`{{{0}}}` stands twice")]
    Twice(String),
    /// `{*rest}` before the end.
    #[error("{{*{0}}} must be the last segment")]
    RestNotLast(String),
    /// Braces that make no parameter.
    #[error("`{0}` is not a segment: a parameter is a whole segment, {{name}} or {{*name}}")]
    Braces(String),
    /// Something a normal form never has.
    #[error(
        "`{0}` never occurs in the normal form of a path; write the path decoded, without dots, empty segments or parameters"
    )]
    NeverMatches(String),
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// [`PatternError`] for what is not one or could never match.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let body = text.strip_prefix('/').ok_or(PatternError::NoSlash)?;
        let (body, trailing_slash) = match body.strip_suffix('/') {
            Some(body) if !body.is_empty() => (body, true),
            _ => (body, false),
        };
        let mut pattern = Self { segments: Vec::new(), rest: None, trailing_slash };
        for segment in body.split('/').filter(|_| !body.is_empty()) {
            if let Some(rest) = &pattern.rest {
                return Err(PatternError::RestNotLast(rest.to_string()));
            }
            if let Some(name) = parameter(segment, "{*") {
                pattern.rest = Some(name.into());
            } else if let Some(name) = parameter(segment, "{") {
                pattern.segments.push(Segment::Param(name.into()));
            } else if segment.contains(['{', '}']) {
                return Err(PatternError::Braces(segment.to_owned()));
            } else if matches!(segment, "" | "." | "..") || segment.contains([';', '?', '#', '\\']) {
                return Err(PatternError::NeverMatches(segment.to_owned()));
            } else {
                pattern.segments.push(Segment::Literal(segment.into()));
            }
        }
        let names: Vec<_> = pattern.names().collect();
        if let Some((_, twice)) = names.iter().enumerate().find(|(i, name)| names.iter().take(*i).any(|before| before == *name)) {
            return Err(PatternError::Twice((*twice).to_owned()));
        }
        Ok(pattern)
    }

    /// The pattern for paths whose normal form has no trailing slash.
    #[must_use]
    pub fn without_trailing_slash(mut self) -> Self {
        self.trailing_slash = false;
        self
    }

    /// Whether the normal form `path` matches.
    #[must_use]
    pub fn matches(&self, path: &str, ignore_case: bool) -> bool {
        self.walk(path, ignore_case, |_, _| ())
    }

    /// The parameters of a matching path, in order; `None` if it doesn't match.
    #[must_use]
    pub fn captures<'p, 'a>(&'p self, path: &'a str, ignore_case: bool) -> Option<Vec<(&'p str, &'a str)>> {
        let mut captures = Vec::new();
        self.walk(path, ignore_case, |name, value| captures.push((name, value))).then_some(captures)
    }

    /// The names of its parameters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let params = self.segments.iter().filter_map(|segment| match segment {
            Segment::Param(name) => Some(&**name),
            Segment::Literal(_) => None,
        });
        params.chain(self.rest.as_deref())
    }

    fn walk<'p, 'a>(&'p self, path: &'a str, ignore_case: bool, mut capture: impl FnMut(&'p str, &'a str)) -> bool {
        let Some(mut left) = path.strip_prefix('/') else { return false };
        for segment in &self.segments {
            if left.is_empty() {
                return false;
            }
            let (value, rest) = left.split_once('/').unwrap_or((left, ""));
            match segment {
                Segment::Literal(literal) if ignore_case && value.eq_ignore_ascii_case(literal) => {}
                Segment::Literal(literal) if **literal == *value => {}
                Segment::Literal(_) => return false,
                Segment::Param(name) => capture(name, value),
            }
            left = rest;
        }
        match &self.rest {
            Some(name) => {
                capture(name, left);
                true
            }
            // A trailing slash is only still there when it matters (`paths.trailing_slash: distinct`).
            None => left.is_empty() && (path.len() == 1 || path.ends_with('/') == self.trailing_slash),
        }
    }

    /// Orders patterns that match the same path: the more specific is greater. A literal beats a parameter, a parameter
    /// beats `{*rest}`, from left to right.
    #[must_use]
    pub fn specificity(&self, other: &Self) -> Ordering {
        self.ranks().cmp(other.ranks())
    }

    fn ranks(&self) -> impl Iterator<Item = u8> + '_ {
        let segments = self.segments.iter().map(|segment| match segment {
            Segment::Literal(_) => 3,
            Segment::Param(_) => 2,
        });
        segments.chain([if self.rest.is_some() { 1 } else { 2 }])
    }
}

fn parameter<'s>(segment: &'s str, open: &str) -> Option<&'s str> {
    let name = segment.strip_prefix(open)?.strip_suffix('}')?;
    let valid = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    valid.then_some(name)
}

/// A host pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// This host.
    Exact(Box<str>),
    /// Any host below; holds `.example.com`.
    Below(Box<str>),
}

impl HostPattern {
    /// Reads `example.com` or `*.example.com`; `None` if it is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let authority = crate::request::Authority::parse(name.as_bytes(), "http").ok()?;
        if authority.port.is_some() || name.contains(':') && !name.starts_with('[') {
            return None;
        }
        Some(if below { Self::Below(format!(".{}", authority.host).into()) } else { Self::Exact((*authority.host).into()) })
    }

    /// Whether the normal form `host` matches.
    #[must_use]
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *host,
            Self::Below(suffix) => host.len() > suffix.len() && host.ends_with(&**suffix),
        }
    }

    /// Greater is more specific.
    #[must_use]
    pub fn specificity(&self) -> (bool, usize) {
        match self {
            Self::Exact(host) => (true, host.len()),
            Self::Below(suffix) => (false, suffix.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_segments() {
        for (pattern, path, expected) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a", "/a/b", false),
            ("/a/{x}", "/a/b", true),
            ("/a/{x}", "/a", false),
            ("/a/{x}", "/a/b/c", false),
            ("/a/{*rest}", "/a", true),
            ("/a/{*rest}", "/a/b/c", true),
            ("/a/{*rest}", "/ab", false),
            ("/{*rest}", "/", true),
            ("/a/{x}/c", "/a/b/c", true),
            ("/a", "/A", false),
            ("/a/", "/a", false),
            ("/a/", "/a/", true),
            ("/a", "/a/", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(path, false), expected, "{pattern} {path}");
        }
        assert!(Pattern::parse("/a/").unwrap().without_trailing_slash().matches("/a", false));
        assert!(Pattern::parse("/Login").unwrap().matches("/lOGIN", true));
    }

    #[test]
    fn parameters_are_captured() {
        let pattern = Pattern::parse("/u/{id}/{*rest}").unwrap();
        assert_eq!(pattern.captures("/u/7/a/b", false), Some(vec![("id", "7"), ("rest", "a/b")]));
        assert_eq!(pattern.names().collect::<Vec<_>>(), ["id", "rest"]);
    }

    #[test]
    fn the_more_specific_pattern_is_greater() {
        let order = ["/{*rest}", "/{x}", "/a/{*rest}", "/a", "/a/{x}", "/a/b"];
        let patterns: Vec<_> = order.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        for pair in patterns.windows(2) {
            assert_eq!(pair[0].specificity(&pair[1]), Ordering::Less, "{pair:?}");
        }
    }

    #[test]
    fn what_could_never_match_is_refused() {
        for text in ["a", "/{x}/{x}", "/a//b", "/./a", "/{*x}/a", "/a{x}", "/{}", "/{x-y}", "/a;b", "/a?b"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_match_exactly_or_below() {
        let below = HostPattern::parse("*.Example.com").unwrap();
        assert!(below.matches("a.example.com") && below.matches("a.b.example.com"));
        assert!(!below.matches("example.com") && !below.matches("badexample.com"));
        assert!(HostPattern::parse("example.com.").unwrap().matches("example.com"));
        assert_eq!(HostPattern::parse("a b"), None);
        assert_eq!(HostPattern::parse("a:80"), None);
    }
}
