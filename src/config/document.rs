//! Reads a file into a [`Config`] and reports every shape error in one go.
//!
//! serde stops at the first error. So the file is parsed into a tree once; when deserialising the tree fails, the
//! offending node is noted and taken out, and the tree is tried again, until it fits. The same tree is where
//! `${NAME}` is replaced from the environment: inside scalars, where it cannot change the file's structure.

use std::io::Read;

use serde_yaml::Value;

use super::Config;
use super::diagnostic::{Diagnostic, Path, Problem};
use super::excerpt::Excerpts;
use super::position::Positions;
use super::repair::{MAX_PROBLEMS, Quoting, Removed, cut};
use super::secret::{HIDDEN, Place};
use super::substitution::{Substitution, Values};

/// A file's text under the name it was given.
#[derive(Debug, Clone)]
pub struct Document {
    /// The file as it was named.
    pub name: String,
    /// Its text.
    pub text: String,
    /// What it is about.
    pub contents: Contents,
}

/// What a file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Everything: the main file.
    Configuration,
    /// A list of clients.
    Clients,
}

/// What a document came to.
#[derive(Debug)]
pub struct Parsed {
    /// What remains when everything that was wrong is taken out; `None` when that is nothing.
    pub config: Option<Config>,
    /// What was wrong.
    pub problems: Vec<Problem>,
    pub(super) values: Values,
    removed: Removed,
}

impl Document {
    #[expect(clippy::result_large_err, reason = "once per file, not per request")]
    /// Reads a file: at most 1 MiB of UTF-8.
    ///
    /// # Errors
    /// A diagnostic about the file as a whole.
    pub fn read(path: &std::path::Path) -> Result<Self, Diagnostic> {
        Self::read_up_to(path, 1, Contents::Configuration)
    }

    #[expect(clippy::result_large_err, reason = "once per file, not per request")]
    /// Reads a file of at most so many MiB.
    pub(super) fn read_up_to(path: &std::path::Path, mebibytes: u64, contents: Contents) -> Result<Self, Diagnostic> {
        let most = mebibytes << 20;
        let name = path.display().to_string();
        let fail = |error: std::io::Error| Diagnostic::of_file(&name, format!("cannot read the file: {error}"));
        // Before it is opened: opening a pipe would wait for somebody to write to it.
        if !std::fs::metadata(path).map_err(fail)?.is_file() {
            return Err(Diagnostic::of_file(&name, "not a regular file"));
        }
        let file = std::fs::File::open(path).map_err(fail)?;
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(fail)?;
        if bytes.len() as u64 > most {
            return Err(Diagnostic::of_file(&name, format!("the file is larger than {mebibytes} MiB")));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self { name, text: text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text), contents }),
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let line = 1 + error.as_bytes().iter().take(valid).filter(|b| **b == b'\n').count();
                Err(Diagnostic { line, column: 1, ..Diagnostic::of_file(&name, "the file is not UTF-8 here") })
            }
        }
    }

    /// Parses the text; `env` answers for `${NAME}`.
    pub fn parse(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Parsed, Vec<Diagnostic>> {
        let mut tree = self.tree()?;
        let mut substitution = Substitution::new(env);
        substitution.walk(&mut tree, &Path::default());
        let Substitution { mut problems, values, places, mut retyped, .. } = substitution;
        let mut removed = Removed::default();
        // From the back, so that list positions still hold. What is missing is then no longer wrong in other ways.
        for problem in problems.iter().rev() {
            removed.take_out(&mut tree, &problem.path);
        }
        let quoting = Quoting { root: self.root(), substituted: &places };
        let config = removed.fit(&mut tree, &quoting, &mut retyped, &mut problems);
        problems.truncate(MAX_PROBLEMS);
        Ok(Parsed { config, problems, values, removed })
    }

    /// The line at which it is nested more deeply than any parser should see.
    pub(super) fn too_deep(&self) -> Option<usize> {
        too_deep(&self.text)
    }

    /// The text as a tree, if it is YAML.
    pub(super) fn tree(&self) -> Result<Value, Vec<Diagnostic>> {
        if let Some(line) = self.too_deep() {
            let excerpt = self.line_out_of_context(line);
            return Err(vec![Diagnostic { line, column: 1, excerpt, ..Diagnostic::of_file(&self.name, "nested too deeply") }]);
        }
        let tree: Value = serde_yaml::from_str(&self.text).map_err(|error| vec![self.syntax(&error)])?;
        if tree.is_null() {
            return Err(vec![Diagnostic::of_file(&self.name, "the file is empty")]);
        }
        Ok(tree)
    }

    /// Adds line, column and excerpt.
    #[must_use]
    pub fn locate(&self, problems: &[Problem]) -> Vec<Diagnostic> {
        if problems.is_empty() {
            return Vec::new();
        }
        let positions = Positions::of(&self.text);
        let mut excerpts = self.excerpts();
        let secrets = positions.secrets(self.root());
        excerpts.hide(secrets.iter().map(|(place, _)| *place));
        // An alias can bring a secret to a place where it is quoted. Not in a clients' file: it has no such place, and may have half a
        // million secrets.
        let without_secrets = |message: &str| {
            let long =
                secrets.iter().filter(|(_, text)| self.contents == Contents::Configuration && text.len() >= SHORTEST_QUOTED);
            long.fold(message.to_owned(), |message, (_, text)| message.replace(text, HIDDEN))
        };
        excerpts
            .hide(problems.iter().filter(|problem| problem.is_value_hidden).filter_map(|problem| positions.span(&problem.path)));
        let mut diagnostics: Vec<_> = problems
            .iter()
            .map(|problem| {
                let (line, column) = positions.find(&problem.path, problem.at_key).unwrap_or_default();
                Diagnostic {
                    file: self.name.clone(),
                    line,
                    column,
                    path: self.root().told(&problem.path),
                    message: without_secrets(&problem.message),
                    hint: problem.hint.clone(),
                    excerpt: excerpts.line(line),
                }
            })
            .collect();
        diagnostics.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        diagnostics
    }

    pub(super) fn root(&self) -> Place {
        match self.contents {
            Contents::Configuration => Place::Configuration,
            Contents::Clients => Place::CLIENTS,
        }
    }

    /// A line of a text that is no tree. None of a file that has little else than keys.
    fn line_out_of_context(&self, line: usize) -> String {
        match self.contents {
            Contents::Configuration => self.excerpts().line_out_of_context(line),
            Contents::Clients => String::new(),
        }
    }

    fn excerpts(&self) -> Excerpts<'_> {
        Excerpts::of(&self.text)
    }

    fn syntax(&self, error: &serde_yaml::Error) -> Diagnostic {
        let (line, column) = error.location().map_or((0, 0), |location| (location.line(), location.column()));
        let message = error.to_string();
        // The library appends the place to its message; ours is in front.
        let message = cut(message.split(" at line ").next().unwrap_or(&message).to_owned());
        let excerpt = self.line_out_of_context(line);
        // A number too large for any, or where the line is not shown a key that is there twice.
        let may_be_secret = excerpt.is_empty() || message.contains("invalid type") || message.contains("invalid value");
        let message = if may_be_secret { unquoted(&message) } else { message };
        let tab = line > 0 && self.text.lines().any(|l| l.trim_start_matches(' ').starts_with('\t'));
        let hint = tab.then(|| "indent with spaces, not tabs".to_owned());
        Diagnostic { line, column, hint, excerpt, ..Diagnostic::of_file(&self.name, message) }
    }
}

impl Parsed {
    /// Whether something below this top-level key was taken out, so that references into it may dangle for no other reason.
    #[must_use]
    pub fn is_incomplete(&self, key: &str) -> bool {
        self.removed.touches(key)
    }

    /// The path in the file of a path in [`Parsed::config`].
    #[must_use]
    pub fn original(&self, path: &Path) -> Path {
        self.removed.original(path)
    }
}

/// A message without what it quotes and what follows that.
fn unquoted(message: &str) -> String {
    message.split(['"', '`']).next().unwrap_or_default().trim_end().to_owned()
}

/// The line where more brackets are open than any sensible file has. The YAML scanner takes time that grows with the square of the
/// depth, so it must not see such a file. Brackets in strings count too, hence the generous limit; a line that starts with a word in
/// the first column, or with an item, closes whatever was open.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with(|c: char| c.is_ascii_alphanumeric()) || line.starts_with("- ") {
            depth = 0;
        }
        for byte in line.bytes() {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > MAX_DEPTH {
                return Some(number);
            }
        }
    }
    None
}

const MAX_DEPTH: usize = 1000;
/// In bytes, of a secret that messages are searched for. Less may stand in any.
const SHORTEST_QUOTED: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let document = Document { name: "g.yaml".into(), text: text.into(), contents: Contents::Configuration };
        match document.parse(&|name| (name == "PORT").then(|| "8080".to_owned())) {
            Ok(parsed) => document.locate(&parsed.problems).iter().map(ToString::to_string).collect(),
            Err(diagnostics) => diagnostics.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn every_shape_error_is_reported_at_its_place() {
        let found = problems(
            "listeners:\n  - { name: a, addres: x }\n  - name: b\n    address: '127.0.0.1:${PORT}'\n    max_connections: many\nroutes: []\nlimits:\n  - { name: a, per: client, rate: 5/fortnight }\n  - { per: ip }\n  - { name: c, per: nobody, cost: -1 }\nworkers: 0\ncors: 1\n",
        );
        let expected = [
            "g.yaml:2:5: listeners[0]: `address` is required here",
            "g.yaml:2:16: listeners[0].addres: unknown key `addres`; known here: name, address, mode, protocols, proxy_protocol, max_connections, max_connections_per_ip, tls, timeouts (did you mean `address`?)",
            "g.yaml:5:22: listeners[1].max_connections: invalid type: string \"many\", expected a whole number up to 4294967295",
            "g.yaml:8:35: limits[0].rate: `fortnight` is not a period; use s, min, hour, day, week, month or a duration such as 15min",
            "g.yaml:9:5: limits[1]: `name` is required here",
            "g.yaml:10:21: limits[2].per: unknown variant `nobody`, expected one of `global`, `client`, `api_key`, `user`, `tenant`, `tier`, `ip`, `route`, `endpoint`, `certificate`",
        ];
        for line in expected {
            assert!(found.iter().any(|f| f == line), "missing: {line}\nfound: {found:#?}");
        }
        assert!(!found.iter().any(|f| f.contains("`per` is required")), "{found:#?}");
        assert!(found.iter().any(|f| f.contains("limits[2].cost")), "{found:#?}");
        assert!(found.iter().any(|f| f.starts_with("g.yaml:11:10: workers: ")), "{found:#?}");
        assert!(found.iter().any(|f| f.contains("unknown key `cors`")), "{found:#?}");
    }

    #[test]
    fn the_environment_is_replaced_inside_scalars() {
        let document = Document {
            contents: Contents::Configuration,
            name: "g".into(),
            text: "listeners: [{name: a, address: '0:${PORT}', max_connections: '${PORT}'}]\nadmin: {token: '${PORT}${NO:-x}$${y}'}\nroutes: []\n".into(),
        };
        let parsed = document.parse(&|name| (name == "PORT").then(|| "8080".to_owned())).unwrap();
        assert_eq!(parsed.problems, []);
        let config = parsed.config.unwrap();
        assert_eq!(config.listeners[0].address, "0:8080");
        assert_eq!(config.listeners[0].max_connections, 8080);
        assert_eq!(config.admin.token.0, "8080x${y}");
        let missing = problems("listeners: []\nroutes: []\nadmin: {token: '${NOPE}'}\n");
        assert_eq!(missing, ["g.yaml:3:16: admin.token: the environment has no `NOPE`; `${NOPE:-default}` gives a default"]);
        let numeric_token = Document { text: "listeners: []\nroutes: []\nadmin: {token: '${PORT}'}\n".into(), ..document };
        let config = numeric_token.parse(&|_| Some("123".to_owned())).unwrap().config.unwrap();
        assert_eq!(config.admin.token.0, "123");
    }

    #[test]
    fn hostile_files_end_in_a_diagnostic() {
        let bomb = (1..30).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, i| {
            let list = vec![format!("*a{}", i - 1); 9].join(",");
            format!("{text}a{i}: &a{i} [{list}]\n")
        });
        let deep = "[".repeat(10_000);
        for text in [
            bomb.as_str(),
            deep.as_str(),
            "",
            "a: b: c",
            "\tx: 1",
            "listeners: [",
            "x: !!python/object:os.system y",
            "- 1",
            "a: 1\na: 2",
        ] {
            assert!(!problems(text).is_empty(), "{}", text.chars().take(40).collect::<String>());
        }
    }
}
