//! `${NAME}` in scalars, replaced from the environment where it cannot change the file's structure.

use std::collections::HashMap;

use serde_yaml::Value;

use super::diagnostic::{Path, Problem};
use super::repair::key_text;

/// Replaces `${NAME}` in every scalar.
pub(super) struct Substitution<'e> {
    env: &'e dyn Fn(&str) -> Option<String>,
    pub(super) problems: Vec<Problem>,
    /// Scalars that became a number or boolean, with their text.
    pub(super) retyped: HashMap<Path, String>,
}

impl<'e> Substitution<'e> {
    pub(super) fn new(env: &'e dyn Fn(&str) -> Option<String>) -> Self {
        Self { env, problems: Vec::new(), retyped: HashMap::new() }
    }

    pub(super) fn walk(&mut self, node: &mut Value, path: &Path) {
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
