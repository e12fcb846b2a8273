//! From a path to its line and column. Parses the file a second time, so it is built only when there is something to report.

use std::borrow::Cow;

use saphyr::{LoadableYamlNode, MarkedYaml, YamlData};

use super::diagnostic::{Path, Segment};
use super::secret::Place;

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
    /// Where the value at a path stands.
    pub(super) fn span(&self, path: &Path) -> Option<Hidden> {
        let mut node = self.0.as_ref()?;
        for segment in &path.0 {
            node = match (segment, &untagged(node).data) {
                (Segment::Key(key), YamlData::Mapping(map)) => map.iter().find(|(k, _)| names(k, key))?.1,
                (Segment::Index(index), YamlData::Sequence(items)) => items.get(*index)?,
                (Segment::Index(0), _) => node,
                _ => return None,
            };
        }
        Some(Hidden::of(node))
    }

    /// Scalars that must not be shown, with where they stand, those of several lines included, in a file that is this place.
    pub(super) fn secrets(&self, root: Place) -> Vec<(Hidden, String)> {
        let mut found = Vec::new();
        if let Some(node) = &self.0 {
            collect_secrets(node, root, &mut found);
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

fn collect_secrets(node: &MarkedYaml<'_>, place: Place, found: &mut Vec<(Hidden, String)>) {
    match &untagged(node).data {
        YamlData::Mapping(map) => {
            for (key, value) in map {
                let name = text(key).unwrap_or_default();
                collect_secrets(value, place.below(&name), found);
                if place.hides_key(&name) {
                    found.push((Hidden::of(key), name.into_owned()));
                }
            }
        }
        YamlData::Sequence(items) => items.iter().for_each(|item| collect_secrets(item, place, found)),
        // Nothing is no secret.
        YamlData::Value(saphyr::Scalar::Null) => {}
        _ => {
            let text = text(node).unwrap_or_default();
            if place.hides(&text) {
                found.push((Hidden::of(node), text.into_owned()));
            }
        }
    }
}

impl Hidden {
    fn of(node: &MarkedYaml<'_>) -> Self {
        let point = |marker: saphyr::Marker| (marker.line(), marker.col());
        Self { from: point(node.span.start), to: point(node.span.end) }
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
    text(node).is_some_and(|text| text == key)
}

/// A scalar as text, if it can be a key.
fn text<'n>(node: &'n MarkedYaml<'_>) -> Option<Cow<'n, str>> {
    match &untagged(node).data {
        YamlData::Value(saphyr::Scalar::String(text)) => Some(Cow::Borrowed(text)),
        YamlData::Value(saphyr::Scalar::Integer(number)) => Some(Cow::Owned(number.to_string())),
        YamlData::Value(saphyr::Scalar::Boolean(value)) => Some(Cow::Owned(value.to_string())),
        YamlData::Representation(text, ..) => Some(Cow::Borrowed(text)),
        _ => None,
    }
}
