//! The tree of a YAML text whose placeholders are not replaced.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::yaml::{MAX_DEPTH, MAX_VALUES};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// A text, and whether it is quoted.
    Scalar(String, bool),
    List(Vec<Tree>),
    Map(Map),
}

/// A map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map {
    /// The line of its start, starting at 1.
    pub(super) line: usize,
    /// The keys with their lines, and their values.
    pub(super) entries: Vec<(String, usize, Tree)>,
}

/// A map that was found, with its key in the map around it.
pub(super) type Found = (Option<String>, Map);

/// Accepts a map. The first argument is its key with the line, unless the map is in a list.
type IsWanted<'w> = dyn Fn(Option<(&str, usize)>, &Map) -> bool + 'w;

/// A list or a map whose end has not been parsed yet.
struct Open {
    anchor: usize,
    value: Tree,
    /// The key of a map whose value comes next.
    key: Option<(String, usize)>,
}

/// Returns the first map that `is_wanted` accepts. Returns `None` without such a map, or if the text is not YAML.
pub(super) fn find(text: &str, is_wanted: &IsWanted<'_>) -> Option<Found> {
    let mut parser = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let (mut open, mut anchors) = (Vec::<Open>::new(), HashMap::<usize, Tree>::new());
    let mut values = 0;
    while let Some(event) = parser.next_event() {
        let (event, span) = event.ok()?;
        let line = span.start.line();
        values += 1;
        if values > MAX_VALUES || open.len() > MAX_DEPTH {
            return None;
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                (Tree::Scalar(text.as_ref().to_owned(), style != ScalarStyle::Plain), anchor)
            }
            Event::Alias(anchor) => {
                let value = anchors.get(&anchor)?;
                values += value.count();
                (value.clone(), 0)
            }
            Event::SequenceStart(anchor, _) => {
                open.push(Open { anchor, value: Tree::List(Vec::new()), key: None });
                continue;
            }
            Event::MappingStart(anchor, _) => {
                open.push(Open { anchor, value: Tree::Map(Map { line, entries: Vec::new() }), key: None });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Open { anchor, value, .. } = open.pop()?;
                (value, anchor)
            }
            _ => continue,
        };
        if anchor > 0 {
            anchors.insert(anchor, value.clone());
        }
        let Some(around) = open.last_mut() else { continue };
        if let Some(found) = around.add(value, line, is_wanted) {
            return Some(found);
        }
    }
    None
}

impl Open {
    /// Adds a key, an item or a value. Returns the value if it is the wanted map.
    fn add(&mut self, value: Tree, line: usize, is_wanted: &IsWanted<'_>) -> Option<Found> {
        let key = match (&mut self.value, self.key.take(), &value) {
            (Tree::Map(_), None, Tree::Scalar(text, _)) => {
                self.key = Some((text.clone(), line));
                return None;
            }
            (_, key, _) => key,
        };
        if let Tree::Map(map) = &value
            && is_wanted(key.as_ref().map(|(key, line)| (key.as_str(), *line)), map)
        {
            return Some((key.map(|(key, _)| key), map.clone()));
        }
        match (&mut self.value, key) {
            (Tree::List(items), _) => items.push(value),
            (Tree::Map(map), Some((key, line))) => map.entries.push((key, line, value)),
            _ => {}
        }
        None
    }
}

impl Tree {
    /// Returns `true` for this text.
    pub(super) fn is_text(&self, text: &str) -> bool {
        matches!(self, Self::Scalar(own, _) if own == text)
    }

    /// Returns the number of values, itself included.
    fn count(&self) -> usize {
        match self {
            Self::Scalar(..) => 1,
            Self::List(items) => 1 + items.iter().map(Self::count).sum::<usize>(),
            Self::Map(map) => 1 + map.entries.iter().map(|(.., value)| value.count()).sum::<usize>(),
        }
    }
}

impl Map {
    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Tree> {
        self.entries.iter().find(|(other, ..)| other == key).map(|(.., value)| value)
    }
}
