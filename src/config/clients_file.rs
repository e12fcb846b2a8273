//! `clients_file`: a list of clients in a file of its own, YAML or JSON.
//!
//! It may have a hundred thousand of them. So what is wrong is looked for item by item: a mistake costs as much as the item it is in, not
//! as much as the file.

use std::collections::HashMap;

use serde_yaml::Value;

use super::Client;
use super::diagnostic::{Diagnostic, Path, Problem, Segment};
use super::document::{Contents, Document};
use super::repair::{MAX_PROBLEMS, Quoting, Removed};
use super::secret::Place;
use super::substitution::{Substitution, Values};

/// What a clients' file came to.
#[derive(Debug)]
pub struct ClientsFile {
    /// The file.
    pub document: Document,
    /// Clients, with their places in the list; those that are wrong altogether are left out.
    pub clients: Vec<(usize, Client)>,
    /// What was wrong.
    pub problems: Vec<Problem>,
    /// What was taken out of an item, by its place.
    removed: HashMap<usize, Removed>,
    pub(super) values: Values,
}

impl ClientsFile {
    /// Reads the file: at most 64 MiB of UTF-8. A relative path starts at the working directory, as every path in the configuration.
    ///
    /// # Errors
    /// When nothing can be said about single clients.
    pub fn read(path: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<Diagnostic>> {
        let document = Document::read_up_to(std::path::Path::new(path), MAX_MEBIBYTES, Contents::Clients)
            .map_err(|diagnostic| vec![diagnostic])?;
        Self::parse(document, env)
    }

    /// Reads a text; `env` answers for `${NAME}`.
    ///
    /// # Errors
    /// When nothing can be said about single clients.
    pub fn parse(document: Document, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<Diagnostic>> {
        if let Some(clients) = plain_json(&document.text) {
            let clients = clients.into_iter().enumerate().collect();
            let (problems, removed, values) = Default::default();
            return Ok(Self { document, clients, problems, removed, values });
        }
        let read = match Reader::new(&document).pieces(&document, env) {
            Some(read) => read,
            None => Reader::new(&document).whole(&document, env)?,
        };
        let Reader { clients, problems, removed, values, .. } = read;
        Ok(Self { document, clients, problems, removed, values })
    }

    /// The path in the file of a path in the client at this place of the list.
    #[must_use]
    pub fn original(&self, place: usize, path: &Path) -> Path {
        match self.removed.get(&place) {
            Some(removed) => of_item(place, &removed.original(path)),
            None => of_item(place, path),
        }
    }
}

/// Takes clients out of trees.
struct Reader {
    /// Whether the text has something to replace.
    substitutes: bool,
    /// Of the next item.
    place: usize,
    clients: Vec<(usize, Client)>,
    problems: Vec<Problem>,
    removed: HashMap<usize, Removed>,
    values: Values,
}

impl Reader {
    fn new(document: &Document) -> Self {
        let substitutes = document.text.contains("${");
        let (clients, problems, removed, values) = Default::default();
        Self { substitutes, place: 0, clients, problems, removed, values }
    }

    /// Reads some hundred items at a time, which takes a third of the time and a fraction of the memory that one tree of all takes. `None` if
    /// the text can't be taken apart at its lines, or a piece is not YAML by itself: then the whole is looked at.
    fn pieces(mut self, document: &Document, env: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        if document.too_deep().is_some() {
            return None;
        }
        for piece in pieces(&document.text)? {
            self.take(serde_yaml::from_str(piece).ok()?, env);
        }
        Some(self)
    }

    fn whole(mut self, document: &Document, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<Diagnostic>> {
        let Value::Sequence(items) = document.tree()? else {
            return Err(document.locate(&[Problem::new(Path::default(), "a list of clients is expected here")]));
        };
        self.take(items, env);
        Ok(self)
    }

    fn take(&mut self, items: Vec<Value>, env: &dyn Fn(&str) -> Option<String>) {
        for mut item in items {
            if self.problems.len() >= MAX_PROBLEMS {
                return self.problems.truncate(MAX_PROBLEMS);
            }
            let mut substitution = Substitution::new(env);
            if self.substitutes {
                substitution.walk(&mut item, &Path::default());
            }
            let client = match serde::Deserialize::deserialize(&item) {
                Ok(client) if substitution.problems.is_empty() => {
                    self.values.append(substitution.values);
                    Some(client)
                }
                _ => self.repaired(item, substitution),
            };
            self.clients.extend(client.map(|client| (self.place, client)));
            self.place += 1;
        }
    }

    /// What remains of an item that has something wrong.
    fn repaired(&mut self, mut item: Value, substitution: Substitution<'_>) -> Option<Client> {
        let Substitution { mut problems, values, places, mut retyped, .. } = substitution;
        self.values.append(values);
        let mut removed = Removed::default();
        for problem in problems.iter().rev() {
            removed.take_out(&mut item, &problem.path);
        }
        let quoting = Quoting { root: Place::CLIENTS, substituted: &places };
        let client = removed.fit(&mut item, &quoting, &mut retyped, &mut problems);
        let whole = |problem: Problem| Problem { path: of_item(self.place, &problem.path), ..problem };
        self.problems.extend(problems.into_iter().map(whole));
        self.removed.insert(self.place, removed);
        client
    }
}

/// A text of items that begin in the first column, in pieces of whole items; `None` if it has none, or anything else there but comments. What spans
/// two pieces all the same, a quoted text for instance, makes neither of them YAML.
fn pieces(text: &str) -> Option<Vec<&str>> {
    let (mut pieces, mut begin, mut at, mut items) = (Vec::new(), 0, 0, 0);
    for line in text.split_inclusive('\n') {
        let is_item = line.starts_with("- ");
        if !is_item && !line.starts_with([' ', '#', '\n', '\r']) {
            return None;
        }
        if is_item && at - begin >= PIECE_BYTES {
            pieces.push(text.get(begin..at)?);
            begin = at;
        }
        at += line.len();
        items += usize::from(is_item);
    }
    pieces.push(text.get(begin..)?);
    (items > 0).then_some(pieces)
}

fn of_item(place: usize, path: &Path) -> Path {
    Path(std::iter::once(Segment::Index(place)).chain(path.0.iter().cloned()).collect())
}

/// JSON that has nothing wrong and nothing to replace: thirty times as fast as by way of YAML. Anything else is left to that.
fn plain_json(text: &str) -> Option<Vec<Client>> {
    if !text.trim_start().starts_with('[') || text.contains("${") {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Fits into a processor's cache as a tree.
const PIECE_BYTES: usize = 16 << 10;
/// Half a million clients.
const MAX_MEBIBYTES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ClientsFile, Vec<String>> {
        let document = Document { name: "c.yaml".into(), text: text.into(), contents: Contents::Clients };
        let env = |name: &str| (name == "TIER").then(|| "42".to_owned());
        ClientsFile::parse(document, &env).map_err(|diagnostics| diagnostics.iter().map(ToString::to_string).collect())
    }

    fn problems(text: &str) -> Vec<String> {
        match parsed(text) {
            Ok(file) => file.document.locate(&file.problems).iter().map(ToString::to_string).collect(),
            Err(problems) => problems,
        }
    }

    #[test]
    fn yaml_and_json_are_read_alike() {
        let yaml = parsed("- id: a\n  api_keys: [k, { key: l, expires: 2027-01-01 }]\n- { id: b, users: u, tier: '${TIER}' }\n")
            .unwrap();
        let json = parsed(
            r#"[{"id": "a", "api_keys": ["k", {"key": "l", "expires": "2027-01-01"}]}, {"id": "b", "users": "u", "tier": "42"}]"#,
        );
        let shown = |file: &ClientsFile| format!("{:?} {:?}", file.clients, file.problems);
        assert_eq!(shown(&yaml), shown(&json.unwrap()));
        assert_eq!(parsed("[]").unwrap().clients.len(), 0);
    }

    #[test]
    fn every_mistake_has_its_place() {
        let found = problems(
            "- { id: a, teir: x }\n- api_keys: [1, [], k]\n- { id: 5 }\n- 7\n- id: e\n  exempt: '${NOPE}'\n- { id: f, api_keys: { kye: k } }\n",
        );
        let expected = [
            "c.yaml:1:12: [0].teir: unknown key `teir`; known here: id, api_keys, users, tier, tenant, limits, exempt (did you mean `tier`?)",
            "c.yaml:2:3: [1]: `id` is required here",
            "c.yaml:2:14: [1].api_keys[0]: expected a digest, or {key: …, expires: 2027-01-01}",
            "c.yaml:3:9: [2].id: expected a string",
            "c.yaml:4:3: [3]: expected a map of keys",
            "c.yaml:6:11: [4].exempt: the environment has no `NOPE`; `${NOPE:-default}` gives a default",
        ];
        for line in expected {
            assert!(found.iter().any(|f| f == line), "missing: {line}\nfound: {found:#?}");
        }
        assert!(
            found
                .iter()
                .any(|f| f.contains("[5].api_keys.kye: unknown key `kye`; known here: key, expires (did you mean `key`?)")),
            "{found:#?}"
        );
    }

    #[test]
    fn pieces_come_to_the_same_as_the_whole() {
        let item = |i: usize| match i % 5 {
            0 => format!("- {{ id: c{i}, users: [u{i}, 'v - {i}'] }}\n"),
            1 => format!("# a comment\n- id: c{i}\n  tenant: >\n    some\n    - words\n\n"),
            2 => format!("- id: \"c{i}\n  - x\"\r\n  tier: '${{TIER}}'\n"),
            3 => format!("- id: c{i}\n  users:\n  - a{i}\n"),
            _ => format!("- id: c{i}\n  wrong: 1\n"),
        };
        let text: String =
            (0..150).map(item).collect::<String>() + &(150..2000).filter(|i| i % 5 != 4).map(item).collect::<String>();
        assert!(pieces(&text).unwrap().len() > 2);
        let shown = |text: &str| {
            let file = parsed(text).unwrap();
            format!("{:?} {:?}", file.clients, file.problems)
        };
        // The document's begin is no item: this is read as a whole.
        assert_eq!(shown(&text), shown(&format!("---\n{text}")));
        let broken = format!("{text}- id: \"a\n- b\"\n");
        assert_eq!(parsed(&broken).unwrap().clients.last().unwrap().1.id, "a - b");
    }

    #[test]
    fn what_is_no_list_is_refused_as_a_whole() {
        for (text, expected) in [
            ("", "c.yaml: the file is empty"),
            ("id: a", "c.yaml:1:1: a list of clients is expected here"),
            ("{\"clients\": []}", "c.yaml:1:1: a list of clients is expected here"),
        ] {
            assert_eq!(problems(text), [expected], "{text}");
        }
        assert!(problems("- id: [").iter().any(|f| f.starts_with("c.yaml:")));
    }

    #[test]
    fn places_behind_what_was_taken_out_are_those_of_the_file() {
        let file = parsed("- { id: a }\n- 7\n- { id: c, users: [u, [], v] }\n").unwrap();
        assert_eq!(file.clients.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(file.original(2, &Path::root("users").index(1)).to_string(), "[2].users[2]");
        assert_eq!(file.original(0, &Path::root("id")).to_string(), "[0].id");
    }
}
