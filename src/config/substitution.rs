//! `${NAME}` in scalars, replaced from the environment where it cannot change the file's structure.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde_yaml::Value;

use super::diagnostic::{Path, Problem};
use super::repair::key_text;

/// Replaces `${NAME}` in every scalar.
pub(super) struct Substitution<'e> {
    env: &'e dyn Fn(&str) -> Option<String>,
    pub(super) problems: Vec<Problem>,
    /// What was read from the environment.
    pub(super) values: Values,
    /// Where something was replaced.
    pub(super) places: Vec<Path>,
    /// Scalars that became a number or boolean, with their text.
    pub(super) retyped: HashMap<Path, String>,
}

/// Values of the environment by their names. They may be secrets, so no message repeats them.
#[derive(Default)]
pub(super) struct Values(BTreeMap<String, String>);

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Values {
    pub(super) fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// A text with names in their values' stead.
    pub(super) fn named(&self, text: &str) -> String {
        let mut values: Vec<_> = self.0.iter().filter(|(_, value)| value.len() >= SHORTEST_SECRET).collect();
        // The longest first: one may be a part of another.
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(value.as_str(), &format!("${{{name}}}")))
    }
}

impl<'e> Substitution<'e> {
    pub(super) fn new(env: &'e dyn Fn(&str) -> Option<String>) -> Self {
        Self { env, problems: Vec::new(), values: Values::default(), places: Vec::new(), retyped: HashMap::new() }
    }

    pub(super) fn walk(&mut self, node: &mut Value, path: &Path) {
        match node {
            Value::String(text) if text.contains("${") => {
                let written = std::mem::take(text);
                match self.replace(&written) {
                    Ok(replaced) => {
                        self.places.push(path.clone());
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

    fn replace(&mut self, text: &str) -> Result<String, String> {
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
                (Some(value), _) => {
                    replaced.push_str(&value);
                    self.values.0.insert(name.to_owned(), value);
                }
                (None, Some(default)) => replaced.push_str(default),
                (None, None) => return Err(format!("the environment has no `{name}`; `${{{name}:-default}}` gives a default")),
            }
            rest = after;
        }
        replaced.push_str(rest);
        Ok(replaced)
    }
}

/// In bytes. Less is no secret, and stands in other words.
const SHORTEST_SECRET: usize = 4;
