//! From text to a tree of [`Node`]s.
//!
//! Reading costs no more than the file is long: the tree is built without recursion, is only so deep, and a value
//! that an alias repeats counts as often as it is repeated.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::node::{Entry, MERGE_KEY, Node, Value};
use super::problem::{Broken, Location, Problems, quote};
use super::scalar::Scalar;

/// The deepest that lists and maps may be nested; the rule file itself needs eight levels.
pub(crate) const MAX_DEPTH: usize = 32;

/// The most values a file may stand for once its aliases are filled in.
pub(crate) const MAX_VALUES: usize = 250_000;

/// A tree that is being read.
struct Builder<'p> {
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Anchor>>,
    values: usize,
    root: Option<Node>,
    problems: &'p mut Problems,
}

/// A list or a map whose end has not come yet.
struct Open {
    location: Location,
    anchor: usize,
    value: OpenValue,
}

enum OpenValue {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, seen: HashMap<String, usize>, key: Option<Key> },
}

/// A key that waits for its value; one that was reported is only there to swallow it.
struct Key {
    text: Option<String>,
    location: Location,
}

/// A value that aliases may repeat.
struct Anchor {
    node: Node,
    values: usize,
    depth: usize,
}

/// Reads the one document of `text`.
///
/// # Errors
/// What cannot be read at all; mistakes that leave a tree are only added to `problems`.
pub(crate) fn read(text: &str, problems: &mut Problems) -> Result<Node, Broken> {
    // A byte order mark is no part of the text, and no column.
    let mut parser = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut builder = Builder { open: Vec::new(), anchors: HashMap::new(), values: 0, root: None, problems };
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => builder.event(event, span)?,
            Err(error) => {
                return Err(builder.problems.add(
                    location(*error.marker()),
                    format!("not YAML: {}", error.info()),
                    help(error.info()),
                ));
            }
        }
    }
    let empty = |node: &Node| matches!(&node.value, Value::Scalar(scalar) if scalar.is_null());
    match builder.root {
        Some(root) if !empty(&root) => Ok(root),
        _ => Err(builder.problems.add(Location::START, "the file is empty", "a rule file has at least `routes`")),
    }
}

fn help(fault: &str) -> &'static str {
    match fault.contains("anchor") {
        true => "text that starts with `*` needs quotes, as in `host: \"*.example.com\"`",
        false => {
            "look for a quote or bracket left open, a tab, a wrong indentation, or text that needs quotes: \
             with `: `, or in `{...}` with `{`, `}`, `[`, `]` or `,`"
        }
    }
}

fn location(marker: Marker) -> Location {
    Location { line: marker.line().max(1), column: marker.col() + 1 }
}

// === impl Builder ===

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Broken> {
        let location = location(span.start);
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                return Err(self.problems.add(
                    location,
                    "a second document starts here",
                    "a rule file is one document",
                ));
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), location)?;
                self.count(1, location)?;
                self.scalar(text.into_owned(), style, anchor, location)?;
            }
            Event::Alias(anchor) => self.alias(anchor, location)?,
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), location)?;
                self.open(OpenValue::List(Vec::new()), anchor, location)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), location)?;
                self.open(OpenValue::Map { entries: Vec::new(), seen: HashMap::new(), key: None }, anchor, location)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, anchor: usize, location: Location) -> Result<(), Broken> {
        if let Some(Open { value: OpenValue::Map { seen, key: key @ None, .. }, .. }) = self.open.last_mut() {
            let first = seen.insert(text.clone(), location.line);
            if text == MERGE_KEY && style == ScalarStyle::Plain {
                let help = "write the keys out; an alias may stand for a whole value";
                self.problems.add(location, "the merge key `<<` is not supported", help);
            } else if let Some(first) = first {
                let message = format!("{} is given twice, first on line {first}", quote(&text));
                self.problems.add(location, message, "keep one of them");
            }
            *key = Some(Key { text: first.is_none().then_some(text), location });
            return Ok(());
        }
        let scalar = match style {
            ScalarStyle::Plain => Scalar::plain(text),
            _ => Scalar::quoted(text),
        };
        self.finish(Node { location, value: Value::Scalar(scalar) }, anchor)
    }

    fn open(&mut self, value: OpenValue, anchor: usize, location: Location) -> Result<(), Broken> {
        self.refuse_as_key(location)?;
        self.count(1, location)?;
        self.refuse_depth(1, location)?;
        self.open.push(Open { location, anchor, value });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Broken> {
        let Some(Open { location, anchor, value }) = self.open.pop() else { return Ok(()) };
        let value = match value {
            OpenValue::List(items) => Value::List(items),
            OpenValue::Map { entries, .. } => Value::Map(entries),
        };
        self.finish(Node { location, value }, anchor)
    }

    fn alias(&mut self, anchor: usize, location: Location) -> Result<(), Broken> {
        self.refuse_as_key(location)?;
        // The parser refuses names it does not know, so what is not there has not ended, or was a key.
        let Some(known) = self.anchors.get(&anchor).map(Rc::clone) else {
            let message = "this alias repeats a key, or a value that it is part of";
            return Err(self.problems.add(location, message, "write the value out"));
        };
        // Counted before it is copied.
        self.count(known.values, location)?;
        self.refuse_depth(known.depth, location)?;
        self.finish(known.node.clone(), 0)
    }

    /// Hands a value to what it is part of.
    fn finish(&mut self, mut node: Node, anchor: usize) -> Result<(), Broken> {
        if anchor > 0 {
            let (values, depth) = node.measure();
            self.count(values, node.location)?;
            self.anchors.insert(anchor, Rc::new(Anchor { node: node.clone(), values, depth }));
        }
        match self.open.last_mut().map(|open| &mut open.value) {
            None => self.root = Some(node),
            Some(OpenValue::List(items)) => items.push(node),
            Some(OpenValue::Map { entries, key, .. }) => {
                if let Some(Key { text: Some(text), location }) = key.take() {
                    // Where nothing is written, the parser points to whatever comes next.
                    if matches!(&node.value, Value::Scalar(scalar) if scalar.is_absent()) {
                        node.location = location;
                    }
                    entries.push(Entry { key: text, location, value: node });
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, values: usize, location: Location) -> Result<(), Broken> {
        self.values += values;
        if self.values <= MAX_VALUES {
            return Ok(());
        }
        let message = format!("more than {MAX_VALUES} values, counting what aliases repeat");
        Err(self.problems.add(location, message, "use fewer aliases of large values"))
    }

    fn refuse_depth(&mut self, more: usize, location: Location) -> Result<(), Broken> {
        if self.open.len() + more <= MAX_DEPTH {
            return Ok(());
        }
        let message = format!("nested more than {MAX_DEPTH} levels deep");
        Err(self.problems.add(location, message, "no key of a rule file lies that deep"))
    }

    fn refuse_as_key(&mut self, location: Location) -> Result<(), Broken> {
        match self.open.last() {
            Some(Open { value: OpenValue::Map { key: None, .. }, .. }) => {
                let help = "write `key: value`; text that starts with `{`, `[` or `*` needs quotes";
                Err(self.problems.add(location, "a key must be a word, not a list, a map or an alias", help))
            }
            _ => Ok(()),
        }
    }

    fn refuse_tag(&mut self, tagged: bool, location: Location) -> Result<(), Broken> {
        match tagged {
            true => {
                Err(self.problems.add(location, "a YAML tag (`!...`) has no meaning here", "remove it, or use quotes"))
            }
            false => Ok(()),
        }
    }
}
