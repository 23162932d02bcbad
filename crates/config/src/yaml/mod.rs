//! Parses YAML text into a tree of [`Node`]s.
//!
//! Time and memory are bounded: the tree is built without recursion, its depth is limited, and each use of an alias
//! counts all values and bytes that it repeats. All files together have one bound.

pub(crate) mod key_value;
pub(crate) mod node;
pub(crate) mod placeholders;
pub(crate) mod scalar;

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use self::node::{Entry, MERGE_KEY, Node, Size, Value};
use self::placeholders::Placeholders;
use self::scalar::Scalar;
use crate::problem::{Location, Problems, Reported, quote};

/// The deepest nesting of lists and maps. Rule files need eight levels.
pub(crate) const MAX_DEPTH: usize = 32;

/// The highest number of values in all files together, with aliases expanded.
pub(crate) const MAX_VALUES: usize = 250_000;

/// The most bytes of texts in all files together that aliases copy.
const MAX_COPIED: usize = 16 << 20;

/// The values and bytes of all files of a configuration until now.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    values: usize,
    copied: usize,
}

/// Builds the tree from the events of the parser.
struct Builder<'p, 'f> {
    file: u16,
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Anchor>>,
    usage: &'p mut Usage,
    root: Option<Node>,
    placeholders: &'p mut Placeholders<'f>,
    problems: &'p mut Problems,
}

/// A list or a map whose end has not been parsed yet.
struct Open {
    location: Location,
    anchor: usize,
    value: OpenValue,
}

enum OpenValue {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, seen: HashMap<String, usize>, key: Option<Key> },
}

/// A key whose value has not been parsed yet.
struct Key {
    /// `None` if the key was reported as an error; its value is ignored.
    text: Option<String>,
    location: Location,
}

/// A value that aliases can repeat.
struct Anchor {
    node: Node,
    size: Size,
}

/// Parses the single document of `text`, which is in the file with this number. `usage` counts all files.
///
/// # Errors
/// Fails if the text has no usable tree. Other errors are only added to `problems`.
pub(crate) fn read(
    text: &str,
    file: u16,
    usage: &mut Usage,
    placeholders: &mut Placeholders<'_>,
    problems: &mut Problems,
) -> Result<Node, Reported> {
    // A byte order mark must not count as a column.
    let mut parser = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut builder =
        Builder { file, open: Vec::new(), anchors: HashMap::new(), usage, root: None, placeholders, problems };
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => builder.event(event, span)?,
            Err(error) => {
                return Err(builder.problems.add(
                    location(*error.marker(), file),
                    format!("not YAML: {}", error.info()),
                    syntax_help(error.info()),
                ));
            }
        }
    }
    let empty = |node: &Node| matches!(&node.value, Value::Scalar(scalar) if scalar.is_null());
    match builder.root {
        Some(root) if !empty(&root) => Ok(root),
        _ => Err(builder.problems.add(
            Location::start_of(file),
            "the file is empty",
            "a rule file has at least `routes`",
        )),
    }
}

fn syntax_help(error: &str) -> &'static str {
    match error.contains("anchor") {
        true => "text that starts with `*` needs quotes, as in `host: \"*.example.com\"`",
        false => {
            "look for a quote or bracket left open, a tab, a wrong indentation, or text that needs quotes: \
             with `: `, or in `{...}` with `{`, `}`, `[`, `]` or `,`"
        }
    }
}

fn location(marker: Marker, file: u16) -> Location {
    Location::new(file, marker.line(), marker.col() + 1)
}

// === impl Builder ===

impl Builder<'_, '_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Reported> {
        let location = location(span.start, self.file);
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                return Err(self.problems.add(
                    location,
                    "a second document starts here",
                    "a rule file is one document",
                ));
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.reject_tag(tag.is_some(), location)?;
                self.count(1, location)?;
                // The parser's texts have large capacities.
                self.scalar(text.as_ref().to_owned(), style, anchor, location)?;
            }
            Event::Alias(anchor) => self.alias(anchor, location)?,
            Event::SequenceStart(anchor, tag) => {
                self.reject_tag(tag.is_some(), location)?;
                self.open(OpenValue::List(Vec::new()), anchor, location)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.reject_tag(tag.is_some(), location)?;
                self.open(OpenValue::Map { entries: Vec::new(), seen: HashMap::new(), key: None }, anchor, location)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, anchor: usize, location: Location) -> Result<(), Reported> {
        if let Some(Open { value: OpenValue::Map { seen, key: key @ None, .. }, .. }) = self.open.last_mut() {
            let first = seen.insert(text.clone(), location.line());
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
        let is_quoted = style != ScalarStyle::Plain;
        let scalar = match self.placeholders.replace(&text, is_quoted, location, self.problems) {
            Some(replaced) => replaced.unwrap_or_else(|Reported { .. }| Scalar::invalid()),
            None if is_quoted => Scalar::quoted(text),
            None => Scalar::plain(text),
        };
        self.finish(Node { location, value: Value::Scalar(scalar) }, anchor)
    }

    fn open(&mut self, value: OpenValue, anchor: usize, location: Location) -> Result<(), Reported> {
        self.reject_as_key(location)?;
        self.count(1, location)?;
        self.check_depth(1, location)?;
        self.open.push(Open { location, anchor, value });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Reported> {
        let Some(Open { location, anchor, value }) = self.open.pop() else { return Ok(()) };
        // The tree of a large file takes most of its memory.
        let value = match value {
            OpenValue::List(mut items) => {
                items.shrink_to_fit();
                Value::List(items)
            }
            OpenValue::Map { mut entries, .. } => {
                entries.shrink_to_fit();
                Value::Map(entries)
            }
        };
        self.finish(Node { location, value }, anchor)
    }

    fn alias(&mut self, anchor: usize, location: Location) -> Result<(), Reported> {
        self.reject_as_key(location)?;
        // The parser rejects unknown anchors, so a missing anchor belongs to a key or to an enclosing value.
        let Some(target) = self.anchors.get(&anchor).map(Rc::clone) else {
            let message = "an alias must not refer to a key or to a value that contains it";
            return Err(self.problems.add(location, message, "write the value out"));
        };
        // Count before copying, since the copy may be large.
        self.count_copy(target.size, location)?;
        self.check_depth(target.size.depth, location)?;
        self.finish(target.node.clone(), 0)
    }

    /// Adds a complete value to its list or map, or makes it the root.
    fn finish(&mut self, mut node: Node, anchor: usize) -> Result<(), Reported> {
        if anchor > 0 {
            let size = node.measure();
            self.count_copy(size, node.location)?;
            self.anchors.insert(anchor, Rc::new(Anchor { node: node.clone(), size }));
        }
        match self.open.last_mut().map(|open| &mut open.value) {
            None => self.root = Some(node),
            Some(OpenValue::List(items)) => items.push(node),
            Some(OpenValue::Map { entries, key, .. }) => {
                if let Some(Key { text: Some(text), location }) = key.take() {
                    // If no value is written, the parser reports the location of the next token.
                    if matches!(&node.value, Value::Scalar(scalar) if scalar.is_absent()) {
                        node.location = location;
                    }
                    entries.push(Entry { key: text, location, value: node });
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, values: usize, location: Location) -> Result<(), Reported> {
        self.usage.values += values;
        if self.usage.values <= MAX_VALUES {
            return Ok(());
        }
        let message = format!("more than {MAX_VALUES} values, with aliases expanded");
        Err(self.problems.add(location, message, "use fewer aliases of large values"))
    }

    /// Counts a copy of a value.
    fn count_copy(&mut self, size: Size, location: Location) -> Result<(), Reported> {
        self.count(size.values, location)?;
        self.usage.copied += size.bytes;
        if self.usage.copied <= MAX_COPIED {
            return Ok(());
        }
        let message = format!("aliases repeat more than {MAX_COPIED} bytes (16 MiB)");
        Err(self.problems.add(location, message, "use fewer aliases of long texts"))
    }

    fn check_depth(&mut self, more: usize, location: Location) -> Result<(), Reported> {
        if self.open.len() + more <= MAX_DEPTH {
            return Ok(());
        }
        let message = format!("nested more than {MAX_DEPTH} levels deep");
        Err(self.problems.add(location, message, "rule files need at most eight levels"))
    }

    fn reject_as_key(&mut self, location: Location) -> Result<(), Reported> {
        match self.open.last() {
            Some(Open { value: OpenValue::Map { key: None, .. }, .. }) => {
                let help = "write `key: value`; text that starts with `{`, `[` or `*` needs quotes";
                Err(self.problems.add(location, "a key must be a word, not a list, a map or an alias", help))
            }
            _ => Ok(()),
        }
    }

    fn reject_tag(&mut self, tagged: bool, location: Location) -> Result<(), Reported> {
        match tagged {
            true => Err(self.problems.add(
                location,
                "YAML tags (`!...`) are not supported",
                "remove the tag, or quote the text",
            )),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use crate::sources::SourceFiles;
    use crate::sources::referenced_files::ReferencedFiles;

    /// Reads the files of a configuration. Returns the errors.
    fn errors(texts: &[String]) -> Vec<String> {
        let (mut sources, mut problems, mut usage) = (SourceFiles::default(), Problems::default(), Usage::default());
        let mut placeholders = Placeholders::new(ReferencedFiles::in_current_folder(), &mut sources);
        for (file, text) in (0..).zip(texts) {
            _ = read(text, file, &mut usage, &mut placeholders, &mut problems);
        }
        problems.iter().map(Problem::message).map(str::to_owned).collect()
    }

    #[test]
    fn all_files_have_one_bound() {
        let list = format!("[{}]", "x,".repeat(150_000));
        assert!(errors(std::slice::from_ref(&list)).is_empty());
        assert_eq!(errors(&[list.clone(), list]), ["more than 250000 values, with aliases expanded"]);
    }

    #[test]
    fn bytes_that_aliases_repeat_are_bounded() {
        let text = |aliases| format!("[&a {}{}]", "x".repeat(100_000), ", *a".repeat(aliases));
        assert!(errors(&[text(100)]).is_empty());
        let message = "aliases repeat more than 16777216 bytes (16 MiB)";
        assert_eq!(errors(&[text(200)]), [message]);
        assert_eq!(errors(&[text(100), text(100)]), [message]);
    }
}
