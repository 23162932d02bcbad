//! Predicates and filters in both of their forms: `StripPrefix=1`, and `{ name: StripPrefix, args: { parts: 1 } }`.

use super::NOTHING;
use super::properties::{find, resolved};
use crate::fields::Spelling;
use crate::report::Place;
use crate::sources::Text;
use crate::tree::Node;

/// The most predicates or filters of a route.
const MAX_PARTS: usize = 500;

/// A predicate or a filter.
#[derive(Clone, Debug)]
pub(super) struct Part<'n> {
    pub(super) place: Place,
    pub(super) name: String,
    /// The values in their order.
    pub(super) values: Vec<String>,
    /// The arguments of the full form.
    args: &'n Node,
}

impl<'n> Part<'n> {
    /// Reads a list of parts.
    pub(super) fn list(text: &Text, list: Option<&'n Node>) -> Vec<Self> {
        list.map_or(&[][..], Node::one_or_more)
            .iter()
            .take(MAX_PARTS)
            .filter_map(|node| Self::read(text, node))
            .collect()
    }

    fn read(text: &Text, node: &'n Node) -> Option<Self> {
        if let Some(short) = node.text() {
            let (name, values) = short.split_once('=').unwrap_or((short, ""));
            let values = if values.is_empty() {
                Vec::new()
            } else {
                values.split(',').map(|value| resolved(value.trim()).0).collect()
            };
            return Some(Self { place: text.place(node.line), name: name.trim().to_owned(), values, args: NOTHING });
        }
        let line = node.entries().first().map_or(node.line, |entry| entry.line);
        let name = node.get("name").and_then(Node::text);
        let Some(name) = name else {
            // `- Path: /a/**`, as Spring Cloud Gateway MVC also accepts.
            let [only] = node.entries() else { return None };
            let values = only.value.one_or_more().iter().filter_map(Node::text).map(str::to_owned).collect();
            return Some(Self { place: text.place(line), name: only.key.clone(), values, args: NOTHING });
        };
        let args = node.get("args").unwrap_or(NOTHING);
        let nodes = args.entries().iter().flat_map(|entry| entry.value.one_or_more());
        let values =
            nodes.filter_map(Node::text).flat_map(|text| text.split(',')).map(|value| resolved(value.trim()).0);
        let values = values.filter(|value| !value.is_empty()).collect();
        Some(Self { place: text.place(line), name: name.to_owned(), values, args })
    }

    /// Returns `true` for a part with this name, in any spelling.
    pub(super) fn is(&self, name: &str) -> bool {
        Spelling::Relaxed.is_equal(&self.name, name)
    }

    /// Returns an argument of the full form.
    pub(super) fn arg(&self, key: &str) -> Option<String> {
        find(self.args, key).and_then(|entry| entry.value.text()).map(|text| resolved(text).0)
    }

    /// Returns the place of an argument, or of the part.
    pub(super) fn place_of(&self, key: &str) -> Place {
        let line = find(self.args, key).map(|entry| entry.line);
        line.map_or_else(|| self.place.clone(), |line| Place { line, ..self.place.clone() })
    }

    /// Returns the part as it is written, for findings.
    pub(super) fn shown(&self) -> String {
        const MAX: usize = 80;
        let text = format!("{}={}", self.name, self.values.join(", "));
        if text.len() <= MAX && !self.values.is_empty() { text } else { self.name.clone() }
    }

    /// Returns `true` in the short form.
    pub(super) fn is_short(&self) -> bool {
        self.args.entries().is_empty()
    }
}
