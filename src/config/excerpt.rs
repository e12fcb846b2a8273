//! Lines of the file that a problem is shown with, without the keys and secrets that stand in them.

use std::collections::HashMap;

use super::position::Hidden;
use super::secret::{is_guarded, sounds_secret};

/// The lines of a text.
pub(super) struct Excerpts<'t> {
    lines: Vec<&'t str>,
    /// By line, from 1.
    hidden: HashMap<usize, Vec<Hidden>>,
}

impl<'t> Excerpts<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        Self { lines: text.lines().collect(), hidden: HashMap::new() }
    }

    /// What stands there is not shown.
    pub(super) fn hide(&mut self, secrets: impl IntoIterator<Item = Hidden>) {
        for secret in secrets {
            for line in secret.from.0..=secret.to.0 {
                self.hidden.entry(line).or_default().push(secret);
            }
        }
    }

    /// A line by its number, from 1.
    pub(super) fn line(&self, number: usize) -> String {
        let hidden = self.hidden.get(&number).map(Vec::as_slice).unwrap_or_default();
        let is_hidden =
            |column: usize| hidden.iter().any(|secret| (number, column) >= secret.from && (number, column) < secret.to);
        let shown = |(column, c): (usize, char)| match c {
            _ if is_hidden(column) => '*',
            '\t' => ' ',
            c => c,
        };
        self.text(number).chars().take(MAX_EXCERPT).enumerate().map(shown).collect()
    }

    /// A line of a text that can't be understood, so that nobody knows where secrets begin and end: not shown if it, or anything above
    /// it that it may belong to, speaks of one.
    pub(super) fn line_out_of_context(&self, number: usize) -> String {
        let is_inner = |line: &str| line.starts_with([' ', '\t', '-', '}', ']']) || line.is_empty();
        let mut above = (1..=number).rev().map(|number| self.text(number));
        let speaks_of_a_secret = |line: &str| {
            let words = line.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')));
            line.contains('@') || words.into_iter().any(|word| sounds_secret(word) || is_guarded(word))
        };
        let mut is_secret = false;
        for line in above.by_ref() {
            is_secret |= speaks_of_a_secret(line);
            if !is_inner(line) {
                break;
            }
        }
        if is_secret { String::new() } else { self.line(number) }
    }

    fn text(&self, number: usize) -> &'t str {
        number.checked_sub(1).and_then(|index| self.lines.get(index)).copied().unwrap_or_default()
    }
}

/// In characters.
const MAX_EXCERPT: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::position::Positions;
    use crate::config::secret::Place;

    const DIGEST: &str = "- { api_keys: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef' }";
    const HIDDEN_DIGEST: &str = "- { api_keys: **************************************************************************}";

    #[test]
    fn secrets_are_not_shown_wherever_they_stand() {
        for (text, line, expected) in [
            ("- { id: a, api_keys: [plain, 'b c'], tier: x }", 1, "- { id: a, api_keys: [*****, *****], tier: x }"),
            ("- { api_keys: plain, tier: x }", 1, "- { api_keys: *****, tier: x }"),
            ("- { api_keys: { key: plain }, tier: x }", 1, "- { api_keys: { key: ***** }, tier: x }"),
            ("- { plain }", 1, "- { ***** }"),
            ("- { api_keys: [1.5, 0x1f, true, 12] }", 1, "- { api_keys: [***, ****, ****, **] }"),
            ("- { api_keys: { kye: plain } }", 1, "- { api_keys: { kye: ***** } }"),
            ("- { api_keys: { plain: 1 }, tier: x }", 1, "- { api_keys: { *****: * }, tier: x }"),
            ("- api_keys:\n  - plain\n  tier: x", 2, "  - *****"),
            ("- { api_keys: 'sha256:12' }", 1, "- { api_keys: ************}"),
            (DIGEST, 1, HIDDEN_DIGEST),
            (
                "- { id: a, api_key: plain, key: plain, apikeys: plain }",
                1,
                "- { id: a, api_key: *****, key: *****, apikeys: ***** }",
            ),
            ("- plain", 1, "- *****"),
            ("plain", 1, "*****"),
            ("admin: { token: \"t\u{e9}st\", mode: x }", 1, "admin: { token: ******, mode: x }"),
            ("admin: { Token: plain, x: plain }", 1, "admin: { Token: *****, x: ***** }"),
            ("a: { secret: 123456 }\nb: c", 2, "b: c"),
            ("a: { secret: 123456 }\nb: c", 1, "a: { secret: ****** }"),
            ("identity: { user: { jwt: { keys: plain } } }", 1, "identity: { user: { jwt: { keys: ***** } } }"),
            (
                "identity: { user: { jwt: { keys: { plain: 1, ca: c } } } }",
                1,
                "identity: { user: { jwt: { keys: { *****: *, ca: c } } } }",
            ),
            ("identity: { api_key: { strip: x, k: plain } }", 1, "identity: { api_key: { strip: x, k: ***** } }"),
            ("upstreams: { token: { endpoints: 'http://a' } }", 1, "upstreams: { token: { endpoints: 'http://a' } }"),
            ("upstreams: { a: { endpoints: 'http://u:p@a' } }", 1, "upstreams: { a: { endpoints: ***************} }"),
            ("store: { memory: { max_keys: 0 } }", 1, "store: { memory: { max_keys: 0 } }"),
            ("limits: [{ rate: { key-accounts: 5/x } }]", 1, "limits: [{ rate: { key-accounts: 5/x } }]"),
        ] {
            let mut excerpts = Excerpts::of(text);
            let root = if text.starts_with('-') { Place::CLIENTS } else { Place::Configuration };
            excerpts.hide(Positions::of(text).secrets(root).into_iter().map(|(place, _)| place));
            assert_eq!(excerpts.line(line), expected, "{text}");
        }
    }

    #[test]
    fn a_line_that_may_have_a_secret_is_not_shown_out_of_context() {
        let excerpts = Excerpts::of("a: [\ntoken: \"x\n  y\n  z\nb: c\n");
        assert_eq!([1, 2, 3, 4, 5].map(|line| excerpts.line_out_of_context(line)), ["a: [", "", "", "", "b: c"]);
        assert_eq!((excerpts.line(0), excerpts.line(9)), (String::new(), String::new()));
    }
}
