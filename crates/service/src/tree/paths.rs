//! The paths of a domain's tree to its limits, for programs that name a limit.

use smallvec::SmallVec;

use super::{Level, Path, Spread};
use crate::call::Entry;

/// A rule on the path to a limit.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The position of the rule in its level.
    number: usize,
    /// The key of the rule.
    key: Box<str>,
}

/// Why the texts of a client do not lead to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OffPath {
    /// The rules of the path count another number of texts.
    Count,
    /// Another rule, or none, matches a text.
    OtherRule,
}

impl Level {
    /// Calls `each` with the path to each rule with a limit, and with the position of the limit in the domain. `path` is the
    /// path to this level.
    pub(crate) fn each_limit(&self, path: &mut Vec<Step>, each: &mut impl FnMut(&[Step], usize)) {
        let with_value = self.exact.iter().flat_map(|(key, values)| values.values().map(move |number| (key, *number)));
        for (key, number) in with_value.chain(self.keys.iter().map(|(key, number)| (key, *number))) {
            let Some(node) = self.nodes.get(number) else { continue };
            path.push(Step { number, key: key.clone() });
            if let Some(limit) = node.limit {
                each(path, limit);
            }
            node.next.each_limit(path, each);
            path.pop();
        }
    }

    /// Returns the number of texts that identify a client at the end of a path, and the keys of the rules that count them.
    pub(crate) fn counted<'p>(&self, path: &'p [Step]) -> (usize, Vec<&'p str>) {
        let (mut level, mut texts, mut keys) = (self, 0, Vec::new());
        for step in path {
            let Some(node) = level.nodes.get(step.number) else { break };
            let of_rule = match node.spread {
                Spread::Shared => 0,
                Spread::ByValue => 1,
                Spread::ByEntry => 2,
            };
            if of_rule > 0 {
                keys.push(&*step.key);
            }
            texts += of_rule;
            level = &node.next;
        }
        (texts, keys)
    }

    /// Returns the rules of a path, with the entry of a descriptor for each. `texts` has the value of each rule that counts
    /// values separately, and the key and the value of each rule with a wildcard in its key.
    ///
    /// # Errors
    /// A descriptor with these texts does not find the limit at the end of the path.
    pub(crate) fn follow<'t>(
        &'t self,
        steps: &'t [Step],
        texts: &[&'t str],
    ) -> Result<(Path<'t>, SmallVec<[Entry<'t>; 4]>), OffPath> {
        let (mut level, mut texts) = (self, texts.iter().copied());
        let (mut path, mut entries) = (Path::new(), SmallVec::new());
        for step in steps {
            let node = level.nodes.get(step.number).ok_or(OffPath::OtherRule)?;
            let mut next = || texts.next().ok_or(OffPath::Count);
            let entry = match node.spread {
                Spread::Shared => Entry { key: &step.key, value: "" },
                Spread::ByValue => Entry { key: &step.key, value: next()? },
                Spread::ByEntry => Entry { key: next()?, value: next()? },
            };
            let is_found = || level.find_one(&entry).is_some_and(|(found, _)| std::ptr::eq(found, node));
            if node.spread != Spread::Shared && !is_found() {
                return Err(OffPath::OtherRule);
            }
            path.push(node);
            entries.push(entry);
            level = &node.next;
        }
        if texts.next().is_some() { Err(OffPath::Count) } else { Ok((path, entries)) }
    }
}
