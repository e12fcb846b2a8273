//! Lines of the file that a problem is shown with, without the keys and secrets that stand in them.

use std::collections::HashMap;

use super::diagnostic::SECRET_KEYS;
use super::position::Hidden;

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
    pub(super) fn hide(&mut self, secrets: Vec<Hidden>) {
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

    /// A line of a text that can't be understood, so that nobody knows where secrets begin and end.
    pub(super) fn line_out_of_context(&self, number: usize) -> String {
        let has_secret = |line: &str| SECRET_KEYS.iter().any(|key| line.contains(key));
        // The line before is where the list begins that this one may be an item of.
        let near = [self.text(number), self.text(number.saturating_sub(1))];
        if near.into_iter().any(has_secret) { String::new() } else { self.line(number) }
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

    #[test]
    fn secrets_are_not_shown_wherever_they_stand() {
        for (text, line, expected) in [
            ("- { id: a, api_keys: [plain, 'b c'], tier: x }", 1, "- { id: a, api_keys: [*****, *****], tier: x }"),
            ("- { api_keys: plain, tier: x }", 1, "- { api_keys: *****, tier: x }"),
            ("- { api_keys: { key: plain }, tier: x }", 1, "- { api_keys: { key: ***** }, tier: x }"),
            ("- api_keys:\n  - plain\n  tier: x", 2, "  - *****"),
            ("- { api_keys: 'sha256:12' }", 1, "- { api_keys: 'sha256:12' }"),
            ("admin: { token: \"t\u{e9}st\", mode: x }", 1, "admin: { token: ******, mode: x }"),
            ("a: { secret: 123456 }\nb: c", 2, "b: c"),
            ("a: { secret: 123456 }\nb: c", 1, "a: { secret: ****** }"),
        ] {
            let mut excerpts = Excerpts::of(text);
            excerpts.hide(Positions::of(text).secrets());
            assert_eq!(excerpts.line(line), expected, "{text}");
        }
    }

    #[test]
    fn a_line_that_may_have_a_secret_is_not_shown_out_of_context() {
        let excerpts = Excerpts::of("a: [\ntoken: \"x\n  y\nb: c\n");
        assert_eq!([1, 2, 3, 4].map(|line| excerpts.line_out_of_context(line)), ["a: [", "", "", "b: c"]);
        assert_eq!((excerpts.line(0), excerpts.line(9)), (String::new(), String::new()));
    }
}
