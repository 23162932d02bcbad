//! `map`: values by a part of the request.

use super::Unknown;
use super::branch::Branch;
use super::pattern::{Pattern, Test, Values};
use super::source::Source;
use crate::nginx::syntax::Directive;

/// The most entries.
const MAX_ENTRIES: usize = 10_000;

/// Values by the text of another value.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    /// The text with variables that is compared.
    pub(super) source: String,
    default: String,
    /// Texts and patterns of hosts come first, then regular expressions in the order of the file.
    entries: Vec<(Pattern, String)>,
}

// === impl Map ===

impl Map {
    /// Parses the entries of a block.
    pub(super) fn parse(source: &str, block: &[Directive]) -> Result<Self, Unknown> {
        let has_hosts = block.iter().any(|entry| entry.name() == "hostnames");
        let mut map = Self { source: source.to_owned(), ..Self::default() };
        for entry in block {
            match (entry.name(), entry.arg(0)) {
                ("hostnames" | "volatile", None) => {}
                ("default", Some(value)) if !entry.name.is_quoted => map.default = value.to_owned(),
                (pattern, Some(value)) => map.entries.push((Pattern::parse(pattern, has_hosts)?, value.to_owned())),
                (other, None) => return Err(format!("`{other}` of `map` is not supported")),
            }
        }
        if map.entries.len() > MAX_ENTRIES {
            return Err(format!("`map` has more than {MAX_ENTRIES} entries"));
        }
        map.entries.sort_by_key(|(pattern, _)| rank(pattern));
        Ok(map)
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the value for a text, with its variables.
    pub(super) fn value_of(&self, text: &str) -> Result<&str, Unknown> {
        for (pattern, value) in &self.entries {
            if pattern.matches(text)? {
                return Ok(value);
            }
        }
        Ok(&self.default)
    }

    /// Returns a branch for each value, which is still a text with variables.
    pub(super) fn groups(&self, source: &Source) -> Result<Vec<(Branch, String)>, Unknown> {
        self.check(source)?;
        let mut values: Vec<&str> = vec![&self.default];
        for (_, value) in &self.entries {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        if values.len() > super::branch::MAX_BRANCHES {
            return Err(format!("`map` has more than {} values", super::branch::MAX_BRANCHES));
        }
        values.iter().map(|value| Ok((self.group(source, value)?, (*value).to_owned()))).collect()
    }

    /// Returns the conditions under which a request has this value.
    fn group(&self, source: &Source, value: &str) -> Result<Branch, Unknown> {
        let is_default = value == self.default;
        let last = self.entries.iter().rposition(|(_, own)| own == value);
        // Only entries before an entry of the group, or all of them for the default, take requests away.
        let others = match last {
            _ if is_default => &self.entries[..],
            Some(last) => &self.entries[..last],
            None => &[],
        };
        let own: Vec<Pattern> = self.patterns(|own| own == value);
        if is_default && self.is_regex_hidden(value) {
            return Err("regular expressions of `map` overlap".to_owned());
        }
        let has_regex = own.iter().any(|pattern| matches!(pattern, Pattern::Regex { .. }));
        let others: Vec<Pattern> =
            others.iter().filter(|(_, other)| other != value).map(|(pattern, _)| pattern.clone()).collect();
        let tests = |patterns: Vec<Pattern>| match patterns.is_empty() {
            true => Vec::new(),
            false => vec![Test { source: source.clone(), values: Values::Patterns(patterns) }],
        };
        let unless = if is_default || has_regex {
            split_absent(others).into_iter().flat_map(tests).collect()
        } else {
            Vec::new()
        };
        let when = if is_default { Vec::new() } else { tests(own) };
        Ok(Branch { when, unless, value: Vec::new() })
    }

    fn patterns(&self, has_value: impl Fn(&str) -> bool) -> Vec<Pattern> {
        self.entries.iter().filter(|(_, value)| has_value(value)).map(|(pattern, _)| pattern.clone()).collect()
    }

    /// Returns `true` if an entry with this value precedes a regular expression with another one: a request may match both.
    fn is_regex_hidden(&self, value: &str) -> bool {
        let first = self.entries.iter().position(|(_, own)| own == value);
        let is_other = |(pattern, own): &(Pattern, String)| matches!(pattern, Pattern::Regex { .. }) && own != value;
        first.is_some_and(|first| self.entries[first..].iter().any(is_other))
    }

    /// A missing field has an empty value, but meets no condition on values: so no regular expression may match it.
    fn check(&self, source: &Source) -> Result<(), Unknown> {
        if source.is_always_present() {
            return Ok(());
        }
        for regex in self.entries.iter().filter_map(|(pattern, _)| pattern.regex()) {
            if regex?.is_match("") {
                return Err("a regular expression of `map` matches a missing value".to_owned());
            }
        }
        Ok(())
    }
}

/// Separates the empty text from other patterns, because `absent` is no item of a list.
fn split_absent(patterns: Vec<Pattern>) -> [Vec<Pattern>; 2] {
    let (absent, others) = patterns.into_iter().partition(|pattern| *pattern == Pattern::Text(String::new()));
    [absent, others]
}

/// Returns the order in which entries are tried. Entries of a rank keep their order.
fn rank(pattern: &Pattern) -> (u8, std::cmp::Reverse<usize>) {
    match pattern {
        Pattern::Text(_) => (0, std::cmp::Reverse(0)),
        Pattern::Below { host, .. } => (1, std::cmp::Reverse(host.len())),
        Pattern::Regex { .. } => (2, std::cmp::Reverse(0)),
    }
}
