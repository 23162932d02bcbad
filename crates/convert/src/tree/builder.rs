//! Builds a tree from the events of the parser.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, ScalarStyle};

use super::{Entry, Node, Tree};

/// The deepest nesting of lists and maps.
const MAX_DEPTH: usize = 64;

/// The most values of a file, with aliases expanded.
const MAX_VALUES: usize = 500_000;

/// The most bytes of texts that aliases repeat.
const MAX_COPIED: usize = 16 << 20;

/// The key that merges maps.
const MERGE_KEY: &str = "<<";

/// The tree until now.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) documents: Vec<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Anchor>>,
    values: usize,
    copied: usize,
}

/// A list or a map whose end has not been parsed yet.
struct Open {
    line: u32,
    anchor: usize,
    value: OpenValue,
}

enum OpenValue {
    List(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        /// The key whose value comes next, and its line.
        key: Option<(String, u32)>,
    },
}

/// A value that aliases can repeat.
struct Anchor {
    node: Node,
    size: Size,
}

/// The size of a value, with aliases expanded.
#[derive(Clone, Copy, Default)]
struct Size {
    values: usize,
    bytes: usize,
    depth: usize,
}

// === impl Builder ===

impl Builder {
    /// Adds an event at this line.
    ///
    /// # Errors
    /// Fails with a message if the value exceeds a bound, or the text has an unusual form.
    pub(super) fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), String> {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        match event {
            Event::Scalar(text, style, anchor, _) => {
                self.count(1)?;
                // The texts of the parser have large capacities.
                self.scalar(text.as_ref().to_owned(), style != ScalarStyle::Plain, anchor, line)
            }
            Event::Alias(anchor) => self.alias(anchor, line),
            Event::SequenceStart(anchor, _) => self.open(OpenValue::List(Vec::new()), anchor, line),
            Event::MappingStart(anchor, _) => {
                self.open(OpenValue::Map { entries: Vec::new(), key: None }, anchor, line)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::DocumentEnd => {
                self.anchors.clear();
                Ok(())
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) => Ok(()),
        }
    }

    fn scalar(&mut self, text: String, is_quoted: bool, anchor: usize, line: u32) -> Result<(), String> {
        if let Some(Open { value: OpenValue::Map { key: key @ None, .. }, .. }) = self.open.last_mut() {
            *key = Some((text, line));
            return Ok(());
        }
        self.finish(Node { line, value: Tree::Scalar { text, is_quoted } }, anchor)
    }

    fn open(&mut self, value: OpenValue, anchor: usize, line: u32) -> Result<(), String> {
        self.reject_as_key()?;
        self.count(1)?;
        self.check_depth(1)?;
        self.open.push(Open { line, anchor, value });
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(Open { line, anchor, value }) = self.open.pop() else { return Ok(()) };
        let value = match value {
            OpenValue::List(items) => Tree::List(items),
            OpenValue::Map { entries, .. } => Tree::Map(merged(entries)),
        };
        self.finish(Node { line, value }, anchor)
    }

    fn alias(&mut self, anchor: usize, line: u32) -> Result<(), String> {
        if let Some(Open { value: OpenValue::Map { key: key @ None, .. }, .. }) = self.open.last_mut() {
            // An alias as a key: only a text can be one.
            let text = self.anchors.get(&anchor).and_then(|anchor| anchor.node.text().map(str::to_owned));
            *key = Some((text.ok_or("a key must be a text")?, line));
            return Ok(());
        }
        // The parser rejects unknown anchors, so a missing anchor belongs to a key or to an enclosing value.
        let target = self.anchors.get(&anchor).map(Rc::clone);
        let target = target.ok_or("an alias must not refer to a key or to a value that contains it")?;
        // Count before copying, since the copy may be large.
        self.count_copy(target.size)?;
        self.check_depth(target.size.depth)?;
        self.finish(target.node.clone(), 0)
    }

    /// Adds a complete value to its list or map, or makes it a document.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), String> {
        if anchor > 0 {
            let size = Size::of(&node);
            self.count_copy(size)?;
            self.anchors.insert(anchor, Rc::new(Anchor { node: node.clone(), size }));
        }
        match self.open.last_mut().map(|open| &mut open.value) {
            None if node.is_null() => {}
            None => self.documents.push(node),
            Some(OpenValue::List(items)) => items.push(node),
            Some(OpenValue::Map { entries, key }) => {
                if let Some((key, line)) = key.take() {
                    entries.push(Entry { key, line, value: node });
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, values: usize) -> Result<(), String> {
        self.values += values;
        let fits = self.values <= MAX_VALUES;
        fits.then_some(()).ok_or_else(|| format!("more than {MAX_VALUES} values, with aliases expanded"))
    }

    fn count_copy(&mut self, size: Size) -> Result<(), String> {
        self.count(size.values)?;
        self.copied += size.bytes;
        let fits = self.copied <= MAX_COPIED;
        fits.then_some(()).ok_or_else(|| format!("aliases repeat more than {} MiB", MAX_COPIED >> 20))
    }

    fn check_depth(&self, more: usize) -> Result<(), String> {
        let fits = self.open.len() + more <= MAX_DEPTH;
        fits.then_some(()).ok_or_else(|| format!("nested more than {MAX_DEPTH} levels deep"))
    }

    fn reject_as_key(&self) -> Result<(), String> {
        match self.open.last() {
            Some(Open { value: OpenValue::Map { key: None, .. }, .. }) => {
                Err("a key must be a text, not a list or a map".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Replaces the merge keys of a map by the entries of their maps. The keys of the map itself take precedence.
fn merged(entries: Vec<Entry>) -> Vec<Entry> {
    if !entries.iter().any(|entry| entry.key == MERGE_KEY) {
        return entries;
    }
    let (merges, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.key == MERGE_KEY);
    let maps = merges.iter().flat_map(|merge| merge.value.one_or_more());
    // Of equal keys the last one counts, so that the first map comes last.
    let mut all: Vec<Entry> = maps.rev().flat_map(Node::entries).cloned().collect();
    all.append(&mut own);
    all
}

// === impl Size ===

impl Size {
    /// Measures a value. Its depth is bounded, so is the recursion.
    fn of(node: &Node) -> Self {
        let mut size = Self { values: 1, ..Self::default() };
        match &node.value {
            Tree::Scalar { text, .. } => size.bytes = text.len(),
            Tree::List(items) => items.iter().for_each(|item| size.add(Self::of(item), 0)),
            Tree::Map(entries) => entries.iter().for_each(|entry| size.add(Self::of(&entry.value), entry.key.len())),
        }
        if !matches!(node.value, Tree::Scalar { .. }) {
            size.depth += 1;
        }
        size
    }

    fn add(&mut self, part: Self, bytes: usize) {
        self.values += part.values;
        self.bytes += part.bytes + bytes;
        self.depth = self.depth.max(part.depth);
    }
}
