//! Reads a file into a [`Config`] and reports every shape error in one go.
//!
//! serde stops at the first error. So the file is parsed into a tree once; when deserialising the tree fails, the
//! offending node is noted and taken out, and the tree is tried again, until it fits. The same tree is where
//! `${NAME}` is replaced from the environment: inside scalars, where it cannot change the file's structure.

use std::collections::HashMap;
use std::io::Read;

use serde_yaml::Value;

use super::Config;
use super::diagnostic::{Diagnostic, Path, Problem, Segment, did_you_mean};
use super::position::Positions;

/// A file's text under the name it was given.
#[derive(Debug, Clone)]
pub struct Document {
    /// The file as it was named.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// What a document came to.
#[derive(Debug)]
pub struct Parsed {
    /// What remains when everything that was wrong is taken out; `None` when that is nothing.
    pub config: Option<Config>,
    /// What was wrong.
    pub problems: Vec<Problem>,
    removed: Removed,
}

impl Document {
    #[expect(clippy::result_large_err, reason = "once per file, not per request")]
    /// Reads a file: at most 1 MiB of UTF-8.
    ///
    /// # Errors
    /// A diagnostic about the file as a whole.
    pub fn read(path: &std::path::Path) -> Result<Self, Diagnostic> {
        let name = path.display().to_string();
        let fail = |error: std::io::Error| Diagnostic::of_file(&name, format!("cannot read the file: {error}"));
        let file = std::fs::File::open(path).map_err(fail)?;
        if !file.metadata().map_err(fail)?.is_file() {
            return Err(Diagnostic::of_file(&name, "not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(fail)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(Diagnostic::of_file(&name, "the file is larger than 1 MiB"));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self { name, text: text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text) }),
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let line = 1 + error.as_bytes().iter().take(valid).filter(|b| **b == b'\n').count();
                Err(Diagnostic { line, column: 1, ..Diagnostic::of_file(&name, "the file is not UTF-8 here") })
            }
        }
    }

    /// Parses the text; `env` answers for `${NAME}`.
    pub fn parse(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Parsed, Vec<Diagnostic>> {
        if let Some(line) = too_deep(&self.text) {
            let excerpt = self.line(line);
            return Err(vec![Diagnostic { line, column: 1, excerpt, ..Diagnostic::of_file(&self.name, "nested too deeply") }]);
        }
        let mut tree: Value = serde_yaml::from_str(&self.text).map_err(|error| vec![self.syntax(&error)])?;
        if tree.is_null() {
            return Err(vec![Diagnostic::of_file(&self.name, "the file is empty")]);
        }
        let mut substitution = Substitution { env, problems: Vec::new(), retyped: HashMap::new() };
        substitution.walk(&mut tree, &Path::default());
        let Substitution { mut problems, mut retyped, .. } = substitution;
        let mut removed = Removed::default();
        let config = loop {
            let error = match shape(&tree) {
                Ok(config) => break Some(config),
                Err(error) => error,
            };
            let blame = Blame::of(&error);
            // `${PORT}` became a number where text was wanted, or the other way round: take it as text once.
            if let Some(text) = retyped.remove(&blame.path)
                && let Some(node) = node_at(&mut tree, &blame.path)
            {
                *node = Value::String(text);
                continue;
            }
            if !blame.known.is_empty() {
                // Every unknown key of this map at once, in the file's order.
                problems.extend(removed.take_out_unknown(&mut tree, &blame));
            } else {
                let original = removed.original(&blame.path);
                if !removed.explains(&original, &blame.message) {
                    problems.push(blame.problem(original));
                }
                if !removed.take_out(&mut tree, &blame.path) {
                    break None;
                }
            }
            if problems.len() >= MAX_PROBLEMS {
                break None;
            }
        };
        problems.truncate(MAX_PROBLEMS);
        Ok(Parsed { config, problems, removed })
    }

    /// Adds line, column and excerpt.
    #[must_use]
    pub fn locate(&self, problems: &[Problem]) -> Vec<Diagnostic> {
        let positions = Positions::of(&self.text);
        let mut diagnostics: Vec<_> = problems
            .iter()
            .map(|problem| {
                let (line, column) = positions.find(&problem.path, problem.at_key).unwrap_or_default();
                Diagnostic {
                    file: self.name.clone(),
                    line,
                    column,
                    path: problem.path.to_string(),
                    message: problem.message.clone(),
                    hint: problem.hint.clone(),
                    excerpt: self.line(line),
                }
            })
            .collect();
        diagnostics.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        diagnostics
    }

    fn line(&self, number: usize) -> String {
        let line = number.checked_sub(1).and_then(|index| self.text.lines().nth(index)).unwrap_or_default();
        line.chars().take(160).map(|c| if c == '\t' { ' ' } else { c }).collect()
    }

    fn syntax(&self, error: &serde_yaml::Error) -> Diagnostic {
        let (line, column) = error.location().map_or((0, 0), |location| (location.line(), location.column()));
        let message = error.to_string();
        // The library appends the place to its message; ours is in front.
        let message = cut(message.split(" at line ").next().unwrap_or(&message).to_owned());
        let tab = self.line(line).is_empty() || !self.text.lines().any(|l| l.trim_start_matches(' ').starts_with('\t'));
        let hint = (!tab).then(|| "indent with spaces, not tabs".to_owned());
        Diagnostic { line, column, hint, excerpt: self.line(line), ..Diagnostic::of_file(&self.name, message) }
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

/// What was taken out of the tree, to translate list positions back.
#[derive(Debug, Default)]
struct Removed {
    /// Original positions taken out of the list at an original path, ascending.
    items: HashMap<Path, Vec<usize>>,
    paths: Vec<Path>,
}

impl Removed {
    fn touches(&self, key: &str) -> bool {
        self.paths.iter().any(|path| path.0.first() == Some(&Segment::Key(key.to_owned())))
    }

    /// Whether a required key is missing only because it was wrong and taken out.
    fn explains(&self, container: &Path, message: &str) -> bool {
        let missing = message.strip_prefix("missing field `").map(|rest| container.key(rest.trim_end_matches('`')));
        missing.is_some_and(|missing| self.paths.contains(&missing))
    }

    fn original(&self, path: &Path) -> Path {
        let mut original = Path::default();
        for segment in &path.0 {
            let segment = match segment {
                Segment::Key(_) => segment.clone(),
                Segment::Index(index) => {
                    let gone = self.items.get(&original).map(Vec::as_slice).unwrap_or_default();
                    Segment::Index(gone.iter().fold(*index, |index, gone| if *gone <= index { index + 1 } else { index }))
                }
            };
            original.0.push(segment);
        }
        original
    }

    /// Takes every key out of a map that it may not have.
    fn take_out_unknown(&mut self, tree: &mut Value, blame: &Blame) -> Vec<Problem> {
        let original = self.original(&blame.path);
        let mut problems = Vec::new();
        if let Some(Value::Mapping(map)) = node_at(tree, &blame.path) {
            map.retain(|key, _| {
                let key = key_text(key);
                let known = blame.known.contains(&key);
                if !known && problems.len() < MAX_PROBLEMS {
                    problems.push(blame.unknown_key(original.clone(), &key));
                }
                known
            });
        }
        self.paths.extend(problems.iter().map(|problem| problem.path.clone()));
        if problems.is_empty() {
            // Not where it was said to be: better the whole map than a search without end.
            problems.push(blame.problem(original));
            self.take_out(tree, &blame.path);
        }
        problems
    }

    /// Takes the node at `path` out; `false` when that is the whole document.
    fn take_out(&mut self, tree: &mut Value, path: &Path) -> bool {
        let Some((last, above)) = path.0.split_last() else { return false };
        let above = Path(above.to_vec());
        let original = self.original(path);
        let Some(parent) = node_at(tree, &above) else { return false };
        let gone = match (parent, last) {
            (Value::Mapping(map), Segment::Key(key)) => remove_key(map, key),
            (Value::Sequence(items), Segment::Index(index)) if *index < items.len() => {
                items.remove(*index);
                if let Some(Segment::Index(index)) = original.0.last() {
                    let gone = self.items.entry(self.original(&above)).or_default();
                    gone.push(*index);
                    gone.sort_unstable();
                }
                true
            }
            // One value where a list could stand: the value itself goes.
            (_, _) => return self.take_out(tree, &above),
        };
        self.paths.push(original);
        gone || self.take_out(tree, &above)
    }
}

/// The line where more brackets are open than any sensible file has. The YAML scanner takes time that grows with the square of the
/// depth, so it must not see such a file. Brackets in strings count too, hence the generous limit; a line that starts with a word in
/// the first column closes whatever was open.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with(|c: char| c.is_ascii_alphanumeric()) {
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

/// What a client's or an operator's text takes up in a message at most.
fn cut(message: String) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((at, _)) => format!("{}…", message.get(..at).unwrap_or_default()),
        None => message,
    }
}

fn remove_key(map: &mut serde_yaml::Mapping, key: &str) -> bool {
    let found = map.keys().find(|candidate| key_text(candidate) == key).cloned();
    found.is_some_and(|found| map.remove(&found).is_some())
}

fn key_text(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        _ => String::new(),
    }
}

fn node_at<'v>(tree: &'v mut Value, path: &Path) -> Option<&'v mut Value> {
    let mut node = tree;
    for segment in &path.0 {
        node = match (segment, node) {
            (Segment::Key(key), Value::Mapping(map)) => map.iter_mut().find(|(k, _)| key_text(k) == *key)?.1,
            (Segment::Index(index), Value::Sequence(items)) => items.get_mut(*index)?,
            (Segment::Index(0), other) => other,
            _ => return None,
        };
    }
    Some(node)
}

/// Borrows the tree, so that trying again costs no copy.
fn shape(tree: &Value) -> Result<Config, serde_path_to_error::Error<serde_yaml::Error>> {
    serde_path_to_error::deserialize(tree)
}

/// What serde objects to, and where.
struct Blame {
    /// The node; for an unknown key, the map that has it.
    path: Path,
    /// serde's words.
    message: String,
    /// For an unknown key: the keys that the map may have.
    known: Vec<String>,
}

impl Blame {
    fn of(error: &serde_path_to_error::Error<serde_yaml::Error>) -> Self {
        let mut path = Path::default();
        for segment in error.path() {
            match segment {
                serde_path_to_error::Segment::Seq { index } => path = path.index(*index),
                serde_path_to_error::Segment::Map { key } => path = path.key(key),
                serde_path_to_error::Segment::Enum { variant } => path = path.key(variant),
                serde_path_to_error::Segment::Unknown => {}
            }
        }
        let message = error.inner().to_string();
        let mut quoted = message.split('`').skip(1).step_by(2);
        let unknown = message.strip_prefix("unknown field `").and_then(|_| quoted.next());
        let known = unknown.map(|_| quoted.map(str::to_owned).collect()).unwrap_or_default();
        if unknown.is_some_and(|key| path.0.last() == Some(&Segment::Key(key.to_owned()))) {
            path.0.pop();
        }
        Self { path, message, known }
    }

    fn problem(&self, original: Path) -> Problem {
        let message = match self.message.strip_prefix("missing field `") {
            Some(name) => format!("`{}` is required here", name.trim_end_matches('`')),
            None => cut(self.message.clone()),
        };
        let hint = self.message.strip_prefix("unknown variant `").and_then(|rest| {
            let mut quoted = rest.split('`').step_by(2);
            did_you_mean(quoted.next()?, quoted)
        });
        let at_key = self.message == super::words::NOT_AVAILABLE;
        Problem { path: original, at_key, message, hint }
    }

    fn unknown_key(&self, original: Path, key: &str) -> Problem {
        let message = cut(format!("unknown key `{key}`; known here: {}", self.known.join(", ")));
        Problem {
            path: original.key(&cut(key.to_owned())),
            at_key: true,
            message,
            hint: did_you_mean(key, self.known.iter().map(String::as_str)),
        }
    }
}

/// Replaces `${NAME}` in every scalar.
struct Substitution<'e> {
    env: &'e dyn Fn(&str) -> Option<String>,
    problems: Vec<Problem>,
    /// Scalars that became a number or boolean, with their text.
    retyped: HashMap<Path, String>,
}

impl Substitution<'_> {
    fn walk(&mut self, node: &mut Value, path: &Path) {
        match node {
            Value::String(text) if text.contains("${") => {
                let written = std::mem::take(text);
                match self.replace(&written) {
                    Ok(replaced) => {
                        let whole = written.starts_with("${") && written.find('}') == Some(written.len() - 1);
                        *node = match whole.then(|| serde_yaml::from_str(&replaced)) {
                            Some(Ok(value @ (Value::Number(_) | Value::Bool(_)))) => {
                                self.retyped.insert(path.clone(), replaced);
                                value
                            }
                            _ => Value::String(replaced),
                        };
                    }
                    Err(message) => self.problems.push(Problem::new(path.clone(), message)),
                }
            }
            Value::Sequence(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.walk(item, &path.index(index));
                }
            }
            Value::Mapping(map) => {
                for (key, value) in map.iter_mut() {
                    self.walk(value, &path.key(&key_text(key)));
                }
            }
            _ => {}
        }
    }

    fn replace(&self, text: &str) -> Result<String, String> {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                replaced.push_str(before);
                replaced.push_str("${");
                rest = after;
                continue;
            }
            replaced.push_str(before);
            let (expression, after) = after.split_once('}').ok_or("`${` without `}`; write `$${` for a literal `${`")?;
            let (name, default) = match expression.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (expression, None),
            };
            match ((self.env)(name).filter(|value| default.is_none() || !value.is_empty()), default) {
                (Some(value), _) => replaced.push_str(&value),
                (None, Some(default)) => replaced.push_str(default),
                (None, None) => return Err(format!("the environment has no `{name}`; `${{{name}:-default}}` gives a default")),
            }
            rest = after;
        }
        replaced.push_str(rest);
        Ok(replaced)
    }
}

/// A second is enough to say what is wrong with it, on any machine.
const MAX_FILE: u64 = 1 << 20;
const MAX_DEPTH: usize = 1000;
const MAX_MESSAGE: usize = 600;
/// Enough to be useful; a file with more has one cause.
const MAX_PROBLEMS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let document = Document { name: "g.yaml".into(), text: text.into() };
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
            "g.yaml:2:16: listeners[0].addres: unknown key `addres`; known here: name, address, protocols, proxy_protocol, max_connections, max_connections_per_ip, tls, timeouts (did you mean `address`?)",
            "g.yaml:5:22: listeners[1].max_connections: invalid type: string \"many\", expected u32",
            "g.yaml:8:35: limits[0].rate: `fortnight` is not a period; use s, min, hour, day, week, month or a duration such as 15min",
            "g.yaml:9:5: limits[1]: `name` is required here",
            "g.yaml:10:21: limits[2].per: unknown variant `nobody`, expected one of `global`, `client`, `api_key`, `user`, `tenant`, `tier`, `ip`, `route`, `endpoint`",
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
            name: "g".into(),
            text: "listeners: [{name: a, address: '0:${PORT}', max_connections: '${PORT}'}]\nadmin: {token: '${PORT}${NO:-x}$${y}'}\nroutes: []\n".into(),
        };
        let parsed = document.parse(&|name| (name == "PORT").then(|| "8080".to_owned())).unwrap();
        assert_eq!(parsed.problems, []);
        let config = parsed.config.unwrap();
        assert_eq!(config.listeners[0].address, "0:8080");
        assert_eq!(config.listeners[0].max_connections, 8080);
        assert_eq!(config.admin.token, "8080x${y}");
        let missing = problems("listeners: []\nroutes: []\nadmin: {token: '${NOPE}'}\n");
        assert_eq!(missing, ["g.yaml:3:16: admin.token: the environment has no `NOPE`; `${NOPE:-default}` gives a default"]);
        let numeric_token = Document { text: "listeners: []\nroutes: []\nadmin: {token: '${PORT}'}\n".into(), ..document };
        let config = numeric_token.parse(&|_| Some("123".to_owned())).unwrap().config.unwrap();
        assert_eq!(config.admin.token, "123");
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
