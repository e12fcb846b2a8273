//! From a path to its line and column. Parses the file a second time, so it is built only when there is something to report.

use saphyr::{LoadableYamlNode, MarkedYaml, YamlData};

use super::diagnostic::{Path, SECRET_KEYS, Segment};

/// The file as a tree that knows where its nodes stand.
pub(crate) struct Positions<'t>(Option<MarkedYaml<'t>>);

impl<'t> Positions<'t> {
    /// `text` has been parsed once already, so its size, depth and aliases are known to be bounded.
    pub(crate) fn of(text: &'t str) -> Self {
        Self(MarkedYaml::load_from_str(text).ok().and_then(|documents| documents.into_iter().next()))
    }

    /// Line and column, from 1, of the value at `path` (or of its key), or of the nearest place above that exists.
    pub(crate) fn find(&self, path: &Path, at_key: bool) -> Option<(usize, usize)> {
        let mut node = self.0.as_ref()?;
        let mut place = start(node);
        for (i, segment) in path.0.iter().enumerate() {
            let last = i + 1 == path.0.len();
            match (segment, &untagged(node).data) {
                (Segment::Key(key), YamlData::Mapping(map)) => {
                    let Some((found, value)) = map.iter().find(|(k, _)| names(k, key)) else { break };
                    place = if last && at_key || is_block(value) { start(found) } else { start(value) };
                    node = value;
                }
                (Segment::Index(index), YamlData::Sequence(items)) => {
                    let Some(item) = items.get(*index) else { break };
                    place = start(item);
                    node = item;
                }
                // One value where a list could stand: `[0]` is the value itself.
                (Segment::Index(0), _) => {}
                _ => break,
            }
        }
        Some(place)
    }
}

impl Positions<'_> {
    /// Where scalars stand that must not be shown, those of several lines included.
    pub(crate) fn secrets(&self) -> Vec<Hidden> {
        let mut found = Vec::new();
        if let Some(root) = &self.0 {
            collect_secrets(root, Secret::Unless, &mut found);
        }
        found
    }
}

/// The place of a scalar: lines from 1, columns from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) from: (usize, usize),
    pub(crate) to: (usize, usize),
}

/// Whether a node is below a key that makes it secret.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Secret {
    Below,
    Unless,
}

fn collect_secrets(node: &MarkedYaml<'_>, secret: Secret, found: &mut Vec<Hidden>) {
    match &untagged(node).data {
        YamlData::Mapping(map) => {
            for (key, value) in map {
                let is_secret = SECRET_KEYS.iter().any(|secret| names(key, secret));
                collect_secrets(value, if is_secret { Secret::Below } else { secret }, found);
            }
        }
        YamlData::Sequence(items) => items.iter().for_each(|item| collect_secrets(item, secret, found)),
        // A digest may be shown: what is wrong with it is to be seen.
        YamlData::Value(saphyr::Scalar::String(text)) if text.starts_with("sha256:") => {}
        _ if secret == Secret::Below => {
            let point = |marker: saphyr::Marker| (marker.line(), marker.col());
            found.push(Hidden { from: point(node.span.start), to: point(node.span.end) });
        }
        _ => {}
    }
}

fn start(node: &MarkedYaml<'_>) -> (usize, usize) {
    (node.span.start.line(), node.span.start.col() + 1)
}

/// A map or list below its key: the key is the better place to point at.
fn is_block(node: &MarkedYaml<'_>) -> bool {
    matches!(untagged(node).data, YamlData::Mapping(_) | YamlData::Sequence(_))
}

fn untagged<'n, 't>(node: &'n MarkedYaml<'t>) -> &'n MarkedYaml<'t> {
    match &node.data {
        YamlData::Tagged(_, inner) => inner,
        _ => node,
    }
}

fn names(node: &MarkedYaml<'_>, key: &str) -> bool {
    match &node.data {
        YamlData::Value(scalar) => match scalar {
            saphyr::Scalar::String(text) => text == key,
            saphyr::Scalar::Integer(number) => number.to_string() == key,
            saphyr::Scalar::Boolean(value) => value.to_string() == key,
            _ => false,
        },
        YamlData::Representation(text, ..) => text == key,
        _ => false,
    }
}
