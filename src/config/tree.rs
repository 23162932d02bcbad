//! From text to a tree of [`Node`]s.
//!
//! Reading costs no more than the file is long: the tree is built without recursion, is only so deep, and a value
//! that an alias repeats counts as often as it is repeated.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::node::{Entry, MERGE_KEY, Node, Value};
use super::problem::{Broken, Place, Problems, quote};
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
    place: Place,
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
    place: Place,
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
                    place(*error.marker()),
                    format!("not YAML: {}", error.info()),
                    help(error.info()),
                ));
            }
        }
    }
    let empty = |node: &Node| matches!(&node.value, Value::Scalar(scalar) if scalar.is_null());
    match builder.root {
        Some(root) if !empty(&root) => Ok(root),
        _ => Err(builder.problems.add(Place::START, "the file is empty", "a rule file has at least `routes`")),
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

fn place(marker: Marker) -> Place {
    Place { line: marker.line().max(1), column: marker.col() + 1 }
}

// === impl Builder ===

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Broken> {
        let place = place(span.start);
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                return Err(self.problems.add(place, "a second document starts here", "a rule file is one document"));
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), place)?;
                self.count(1, place)?;
                self.scalar(text.into_owned(), style, anchor, place)?;
            }
            Event::Alias(anchor) => self.alias(anchor, place)?,
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), place)?;
                self.open(OpenValue::List(Vec::new()), anchor, place)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.is_some(), place)?;
                self.open(OpenValue::Map { entries: Vec::new(), seen: HashMap::new(), key: None }, anchor, place)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, anchor: usize, place: Place) -> Result<(), Broken> {
        if let Some(Open { value: OpenValue::Map { seen, key: key @ None, .. }, .. }) = self.open.last_mut() {
            let first = seen.insert(text.clone(), place.line);
            if text == MERGE_KEY && style == ScalarStyle::Plain {
                let help = "write the keys out; an alias may stand for a whole value";
                self.problems.add(place, "the merge key `<<` is not supported", help);
            } else if let Some(first) = first {
                let message = format!("{} is given twice, first on line {first}", quote(&text));
                self.problems.add(place, message, "keep one of them");
            }
            *key = Some(Key { text: first.is_none().then_some(text), place });
            return Ok(());
        }
        let scalar = match style {
            ScalarStyle::Plain => Scalar::plain(text),
            _ => Scalar::quoted(text),
        };
        self.finish(Node { place, value: Value::Scalar(scalar) }, anchor)
    }

    fn open(&mut self, value: OpenValue, anchor: usize, place: Place) -> Result<(), Broken> {
        self.refuse_as_key(place)?;
        self.count(1, place)?;
        self.refuse_depth(1, place)?;
        self.open.push(Open { place, anchor, value });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Broken> {
        let Some(Open { place, anchor, value }) = self.open.pop() else { return Ok(()) };
        let value = match value {
            OpenValue::List(items) => Value::List(items),
            OpenValue::Map { entries, .. } => Value::Map(entries),
        };
        self.finish(Node { place, value }, anchor)
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<(), Broken> {
        self.refuse_as_key(place)?;
        // The parser refuses names it does not know, so what is not there has not ended, or was a key.
        let Some(known) = self.anchors.get(&anchor).map(Rc::clone) else {
            let message = "this alias repeats a key, or a value that it is part of";
            return Err(self.problems.add(place, message, "write the value out"));
        };
        // Counted before it is copied.
        self.count(known.values, place)?;
        self.refuse_depth(known.depth, place)?;
        self.finish(known.node.clone(), 0)
    }

    /// Hands a value to what it is part of.
    fn finish(&mut self, mut node: Node, anchor: usize) -> Result<(), Broken> {
        if anchor > 0 {
            let (values, depth) = node.measure();
            self.count(values, node.place)?;
            self.anchors.insert(anchor, Rc::new(Anchor { node: node.clone(), values, depth }));
        }
        match self.open.last_mut().map(|open| &mut open.value) {
            None => self.root = Some(node),
            Some(OpenValue::List(items)) => items.push(node),
            Some(OpenValue::Map { entries, key, .. }) => {
                if let Some(Key { text: Some(text), place }) = key.take() {
                    // Where nothing is written, the parser points to whatever comes next.
                    if matches!(&node.value, Value::Scalar(scalar) if scalar.is_absent()) {
                        node.place = place;
                    }
                    entries.push(Entry { key: text, place, value: node });
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, values: usize, place: Place) -> Result<(), Broken> {
        self.values += values;
        if self.values <= MAX_VALUES {
            return Ok(());
        }
        let message = format!("more than {MAX_VALUES} values, counting what aliases repeat");
        Err(self.problems.add(place, message, "use fewer aliases of large values"))
    }

    fn refuse_depth(&mut self, more: usize, place: Place) -> Result<(), Broken> {
        if self.open.len() + more <= MAX_DEPTH {
            return Ok(());
        }
        let message = format!("nested more than {MAX_DEPTH} levels deep");
        Err(self.problems.add(place, message, "no key of a rule file lies that deep"))
    }

    fn refuse_as_key(&mut self, place: Place) -> Result<(), Broken> {
        match self.open.last() {
            Some(Open { value: OpenValue::Map { key: None, .. }, .. }) => {
                let help = "write `key: value`; text that starts with `{`, `[` or `*` needs quotes";
                Err(self.problems.add(place, "a key must be a word, not a list, a map or an alias", help))
            }
            _ => Ok(()),
        }
    }

    fn refuse_tag(&mut self, tagged: bool, place: Place) -> Result<(), Broken> {
        match tagged {
            true => {
                Err(self.problems.add(place, "a YAML tag (`!...`) has no meaning here", "remove it, or use quotes"))
            }
            false => Ok(()),
        }
    }
}
