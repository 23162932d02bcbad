//! Trees of formats whose lines name the path of a value: `.properties` and TOML.

use std::collections::BTreeMap;

use super::{Entry, Node, Tree};

/// The most steps of a path.
const MAX_DEPTH: usize = 64;

/// The most branches of a file.
const MAX_BRANCHES: usize = 500_000;

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The key of a map.
    Key(String),
    /// The position in a list.
    Item(usize),
}

/// A value, and all values below it. Items keep the order of their positions, which can have gaps.
#[derive(Debug, Default)]
pub(crate) struct Branch {
    line: u32,
    node: Option<Node>,
    keys: BTreeMap<String, Branch>,
    items: BTreeMap<usize, Branch>,
}

/// A file that is being read.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    root: Branch,
    count: usize,
}

// === impl Branches ===

impl Branches {
    /// Returns the branch at a path, which is added if it is new.
    ///
    /// # Errors
    /// Fails with a message if a bound is exceeded.
    pub(crate) fn at(&mut self, path: &[Step], line: u32) -> Result<&mut Branch, String> {
        if path.len() > MAX_DEPTH {
            return Err(format!("nested more than {MAX_DEPTH} levels deep"));
        }
        let mut branch = &mut self.root;
        for step in path {
            let count = &mut self.count;
            let new = || {
                *count += 1;
                Branch { line, ..Branch::default() }
            };
            branch = match step {
                Step::Key(key) => branch.keys.entry(key.clone()).or_insert_with(new),
                Step::Item(position) => branch.items.entry(*position).or_insert_with(new),
            };
        }
        match self.count {
            0..=MAX_BRANCHES => Ok(branch),
            _ => Err(format!("more than {MAX_BRANCHES} values")),
        }
    }

    /// Sets the value at a path. The last one counts.
    ///
    /// # Errors
    /// Fails with a message if a bound is exceeded.
    pub(crate) fn set(&mut self, path: &[Step], node: Node) -> Result<(), String> {
        let line = node.line;
        self.at(path, line)?.node = Some(node);
        Ok(())
    }

    pub(crate) fn into_node(self) -> Node {
        self.root.into_node()
    }
}

// === impl Branch ===

impl Branch {
    /// Returns the position after the last item.
    pub(crate) fn next_item(&self) -> usize {
        self.items.last_key_value().map_or(0, |(last, _)| last + 1)
    }

    /// Returns `true` if the branch is a list.
    pub(crate) fn has_items(&self) -> bool {
        !self.items.is_empty()
    }

    fn into_node(self) -> Node {
        let Self { line, node, keys, items } = self;
        if !items.is_empty() {
            return Node { line, value: Tree::List(items.into_values().map(Self::into_node).collect()) };
        }
        if let (true, Some(node)) = (keys.is_empty(), node) {
            return node;
        }
        let entry = |(key, branch): (String, Self)| Entry { key, line: branch.line, value: branch.into_node() };
        Node { line, value: Tree::Map(keys.into_iter().map(entry).collect()) }
    }
}

/// Returns a text, with its line.
pub(crate) fn scalar(line: u32, text: impl Into<String>, is_quoted: bool) -> Node {
    Node { line, value: Tree::Scalar { text: text.into(), is_quoted } }
}
