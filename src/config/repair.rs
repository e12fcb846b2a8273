//! Finding every shape error although serde stops at the first: what serde objects to is noted ([`Blame`]) and taken out of the tree
//! ([`Removed`]), and the rest is tried again.

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde_yaml::Value;

use super::diagnostic::{Path, Problem, Segment, did_you_mean};
use super::secret::Place;

/// What was taken out of the tree, to translate list positions back.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// Original positions taken out of the list at an original path, ascending.
    items: HashMap<Path, Vec<usize>>,
    paths: Vec<Path>,
}

impl Removed {
    /// What a tree is when everything that is wrong is noted and taken out; `None` when that is all of it.
    pub(super) fn fit<T: DeserializeOwned>(
        &mut self,
        tree: &mut Value,
        quoting: &Quoting<'_>,
        retyped: &mut HashMap<Path, String>,
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        loop {
            // Borrows the tree, so that trying again costs no copy.
            let error = match serde_path_to_error::deserialize(&*tree) {
                Ok(fitting) => return Some(fitting),
                Err(error) => error,
            };
            let blame = Blame::of(&error);
            // `${PORT}` became a number where text was wanted, or the other way round: take it as text once.
            if let Some(text) = retyped.remove(&blame.path)
                && let Some(node) = node_at(tree, &blame.path)
            {
                *node = Value::String(text);
                continue;
            }
            if !blame.known.is_empty() {
                // Every unknown key of this map at once, in the file's order.
                problems.extend(self.take_out_unknown(tree, &blame, quoting));
            } else {
                let original = self.original(&blame.path);
                if !self.explains(&original, &blame.message) {
                    problems.push(blame.problem(original, quoting));
                }
                if !self.take_out(tree, &blame.path) {
                    return None;
                }
            }
            if problems.len() >= MAX_PROBLEMS {
                return None;
            }
        }
    }

    pub(super) fn touches(&self, key: &str) -> bool {
        self.paths.iter().any(|path| path.0.first() == Some(&Segment::Key(key.to_owned())))
    }

    /// Whether a required key is missing only because it was wrong and taken out.
    pub(super) fn explains(&self, container: &Path, message: &str) -> bool {
        let missing = message.strip_prefix("missing field `").map(|rest| container.key(rest.trim_end_matches('`')));
        missing.is_some_and(|missing| self.paths.contains(&missing))
    }

    pub(super) fn original(&self, path: &Path) -> Path {
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
    fn take_out_unknown(&mut self, tree: &mut Value, blame: &Blame, quoting: &Quoting<'_>) -> Vec<Problem> {
        let original = self.original(&blame.path);
        let mut problems = Vec::new();
        if let Some(Value::Mapping(map)) = node_at(tree, &blame.path) {
            map.retain(|key, _| {
                let key = key_text(key);
                let known = blame.known.contains(&key);
                if !known && problems.len() < MAX_PROBLEMS {
                    problems.push(blame.unknown_key(original.clone(), &key, quoting));
                }
                known
            });
        }
        self.paths.extend(problems.iter().map(|problem| problem.path.clone()));
        if problems.is_empty() {
            // Not where it was said to be: better the whole map than a search without end.
            problems.push(blame.problem(original, quoting));
            self.take_out(tree, &blame.path);
        }
        problems
    }

    /// Takes the node at `path` out; `false` when that is the whole document.
    pub(super) fn take_out(&mut self, tree: &mut Value, path: &Path) -> bool {
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

/// What a client's or an operator's text takes up in a message at most.
pub(super) fn cut(message: String) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((at, _)) => format!("{}…", message.get(..at).unwrap_or_default()),
        None => message,
    }
}

fn remove_key(map: &mut serde_yaml::Mapping, key: &str) -> bool {
    let found = map.keys().find(|candidate| key_text(candidate) == key).cloned();
    found.is_some_and(|found| map.remove(&found).is_some())
}

pub(super) fn key_text(key: &Value) -> String {
    match key {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        _ => String::new(),
    }
}

pub(super) fn node_at<'v>(tree: &'v mut Value, path: &Path) -> Option<&'v mut Value> {
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

/// What serde objects to, and where.
pub(super) struct Blame {
    /// The node; for an unknown key, the map that has it.
    pub(super) path: Path,
    /// serde's words.
    pub(super) message: String,
    /// For an unknown key: the keys that the map may have.
    pub(super) known: Vec<String>,
}

impl Blame {
    pub(super) fn of(error: &serde_path_to_error::Error<serde_yaml::Error>) -> Self {
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

    fn problem(&self, original: Path, quoting: &Quoting<'_>) -> Problem {
        let hint = self.message.strip_prefix("unknown variant `").and_then(|rest| {
            let mut quoted = rest.split('`').step_by(2);
            did_you_mean(quoted.next()?, quoted)
        });
        let at_key = self.message == super::words::NOT_AVAILABLE;
        let missing = self.message.strip_prefix("missing field `");
        let is_value_hidden = missing.is_none() && !at_key && !quoting.is_allowed(&original, hint.as_deref());
        let message = match missing {
            Some(name) => format!("`{}` is required here", name.trim_end_matches('`')),
            None if is_value_hidden => without_values(&self.message),
            None => cut(in_words(&self.message)),
        };
        Problem { path: original, at_key, is_value_hidden, message, hint }
    }

    fn unknown_key(&self, original: Path, key: &str, quoting: &Quoting<'_>) -> Problem {
        let known = self.known.join(", ");
        let message = match quoting.root.hides_key_below(&original, key) {
            true => format!("unknown key; known here: {known}"),
            false => cut(format!("unknown key `{key}`; known here: {known}")),
        };
        let hint = did_you_mean(key, self.known.iter().map(String::as_str));
        Problem { hint, ..Problem::new(original.key(&cut(key.to_owned())), message).at_key() }
    }
}

/// Which values a message may repeat.
pub(super) struct Quoting<'s> {
    /// What the file is.
    pub(super) root: Place,
    /// Where it has values of the environment.
    pub(super) substituted: &'s [Path],
}

impl Quoting<'_> {
    /// `hint` says which word a value nearly is: such a value is no secret.
    fn is_allowed(&self, path: &Path, hint: Option<&str>) -> bool {
        let is_of_the_environment = |place: &Path| place.0.starts_with(&path.0) || path.0.starts_with(&place.0);
        let may_be_quoted = hint.is_some() || self.root.may_be_quoted(path);
        may_be_quoted && !self.substituted.iter().any(is_of_the_environment)
    }
}

/// What was expected in the words of the file rather than in those of the program.
fn in_words(message: &str) -> String {
    let Some((before, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let expected = match expected {
        "u8" => "a whole number up to 255",
        "u16" => "a whole number up to 65535",
        "u32" => "a whole number up to 4294967295",
        "u64" | "usize" | "i64" => "a whole number",
        "f64" => "a number",
        other if other.starts_with("struct ") => "a map of keys",
        other => other,
    };
    format!("{before}, expected {expected}")
}

/// What was expected, without what is there.
fn without_values(message: &str) -> String {
    match in_words(message).rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None => "this value can't be read".to_owned(),
    }
}

const MAX_MESSAGE: usize = 600;
/// Enough to be useful; a file with more has one cause.
pub(super) const MAX_PROBLEMS: usize = 100;
