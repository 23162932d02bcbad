//! Changes of a request's body: a bound of the output, and the option that a stream ends with its usage.

use super::Request;
use super::places::output_member;
use crate::format::Api;
use crate::json::Value;

/// The offsets of the values that may be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Positions {
    /// The request.
    pub(super) root: u64,
    /// The object that has the bound of the output, if it is not the request.
    pub(super) parent: Option<Position>,
    /// A bound of the output that is `null`.
    pub(super) output: Option<Position>,
    pub(super) stream_options: Option<Position>,
    pub(super) include_usage: Option<Position>,
    /// The request is one of OpenAI's chat.
    pub(super) has_messages: bool,
}

/// The offset of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    at: u64,
    /// The bytes of `null`, `true` or `false`; `None` for an object.
    literal: Option<u64>,
}

/// A change: `text` replaces this many bytes.
struct Edit {
    at: usize,
    replaced: usize,
    text: String,
}

impl Position {
    /// The position of a literal or an object.
    pub(super) fn new(value: Value<'_>, at: u64) -> Option<Self> {
        let literal = match value {
            Value::Null | Value::Bool(true) => Some(4),
            Value::Bool(false) => Some(5),
            Value::Object => None,
            _ => return None,
        };
        Some(Self { at, literal })
    }
}

impl Request {
    /// Returns the body with changes, for a request that [`Request::read`] read from `body`. With `output`, the body has
    /// this bound of each output, if it has none. With `includes_usage`, a stream of OpenAI ends with its usage.
    ///
    /// Returns `None` if nothing changes.
    pub fn rewrite(&self, api: Api, body: &[u8], output: Option<u64>, includes_usage: bool) -> Option<Vec<u8>> {
        let output = output.filter(|_| self.output.is_none()).map(|bound| self.output_edit(api, body, bound));
        let usage = (includes_usage && api == Api::OpenAi && self.is_stream && !self.includes_usage)
            .then(|| self.usage_edit(body));
        let mut edits: Vec<Edit> = output.into_iter().chain(usage).collect();
        edits.sort_by_key(|edit| edit.at);
        (!edits.is_empty()).then(|| apply(body, &edits))
    }

    fn output_edit(&self, api: Api, body: &[u8], bound: u64) -> Edit {
        let (parent, member) = output_member(api, self.positions.has_messages);
        match (self.positions.output, self.positions.parent, parent) {
            (Some(null), ..) => replace(null, bound.to_string()),
            (None, Some(parent), _) => set(body, parent, &format!("\"{member}\":{bound}")),
            (None, None, Some(parent)) => self.insert(body, &format!("\"{parent}\":{{\"{member}\":{bound}}}")),
            (None, None, None) => self.insert(body, &format!("\"{member}\":{bound}")),
        }
    }

    fn usage_edit(&self, body: &[u8]) -> Edit {
        match (self.positions.include_usage, self.positions.stream_options) {
            (Some(literal), _) => replace(literal, "true".to_owned()),
            (None, Some(options)) => set(body, options, "\"include_usage\":true"),
            (None, None) => self.insert(body, "\"stream_options\":{\"include_usage\":true}"),
        }
    }

    /// Adds a member to the request.
    fn insert(&self, body: &[u8], member: &str) -> Edit {
        set(body, Position { at: self.positions.root, literal: None }, member)
    }
}

/// Adds a member to an object, or replaces `null` by an object with the member.
fn set(body: &[u8], object: Position, member: &str) -> Edit {
    if object.literal.is_some() {
        return replace(object, format!("{{{member}}}"));
    }
    let at = offset(object.at) + 1;
    let is_empty = body[at..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'}');
    let separator = if is_empty { "" } else { "," };
    Edit { at, replaced: 0, text: format!("{member}{separator}") }
}

fn replace(literal: Position, text: String) -> Edit {
    Edit { at: offset(literal.at), replaced: offset(literal.literal.unwrap_or(0)), text }
}

fn apply(body: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut changed = Vec::with_capacity(body.len() + edits.iter().map(|edit| edit.text.len()).sum::<usize>());
    let mut copied = 0;
    for edit in edits {
        changed.extend_from_slice(&body[copied..edit.at]);
        changed.extend_from_slice(edit.text.as_bytes());
        copied = edit.at + edit.replaced;
    }
    changed.extend_from_slice(&body[copied..]);
    changed
}

/// An offset in a body that is in memory.
fn offset(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
