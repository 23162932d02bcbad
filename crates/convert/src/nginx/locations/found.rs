//! The locations of a server, and their order.

use std::rc::Rc;

use crate::draft::Match;
use crate::nginx::notes::Notes;
use crate::nginx::paths::{self, Paths};
use crate::nginx::scope::Scope;
use crate::nginx::syntax::Directive;

/// The most paths that a location excludes because its own patterns are only similar.
const MAX_NOT: usize = 50;

/// A location.
#[derive(Clone, Debug)]
pub(super) struct Location<'c> {
    pub(super) directive: &'c Directive,
    pub(super) scope: Rc<Scope<'c>>,
    pub(super) pattern: Pattern<'c>,
    pub(super) paths: Vec<String>,
    pub(super) ignores_case: bool,
    /// Paths of other locations that are more specific.
    pub(super) not: Vec<String>,
    pub(super) is_internal: bool,
    /// Why the patterns do not match exactly the paths of the location.
    difference: Option<String>,
}

/// The pattern of a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern<'c> {
    Exact(&'c str),
    /// All paths that start with the text. With `^~`, regular expressions are not tried.
    Prefix {
        text: &'c str,
        skips_regexes: bool,
    },
    Regex {
        text: &'c str,
        ignores_case: bool,
    },
}

/// The locations of a server, by the kind of their patterns.
#[derive(Debug, Default)]
pub(super) struct Found<'c> {
    exact: Vec<Location<'c>>,
    /// Regular expressions within prefixes, which are tried before all others.
    nested: Vec<Location<'c>>,
    regexes: Vec<Location<'c>>,
    prefixes: Vec<Location<'c>>,
}

// === impl Location ===

impl<'c> Location<'c> {
    /// Parses a location. Returns the reason if the rule file has no route for it.
    pub(super) fn new(directive: &'c Directive, scope: Rc<Scope<'c>>, outer: Option<&Self>) -> Result<Self, String> {
        let pattern = pattern(directive)?;
        let is_internal = scope.own_first("internal").is_some();
        let mut location = Self {
            directive,
            scope,
            pattern,
            paths: Vec::new(),
            ignores_case: false,
            not: Vec::new(),
            is_internal,
            difference: None,
        };
        let unmatched = || "no pattern of paths describes it".to_owned();
        match &location.pattern {
            Pattern::Exact(text) => location.paths = paths::exact(text).ok_or_else(unmatched)?,
            Pattern::Prefix { text, .. } => location.paths = vec![paths::prefix(text).ok_or_else(unmatched)?],
            Pattern::Regex { text, ignores_case } => {
                location.ignores_case = *ignores_case;
                let found = paths::similar_to_regex(text).ok_or_else(unmatched)?;
                location.set_paths(found, outer)?;
            }
        }
        if let (Some(Pattern::Regex { .. } | Pattern::Exact(_)), true) =
            (outer.map(|outer| &outer.pattern), outer.is_some())
        {
            return Err("a location within a regular expression or an exact path is not supported".to_owned());
        }
        Ok(location)
    }

    /// Sets the paths of a regular expression, which are below the prefix of the outer location.
    fn set_paths(&mut self, found: Paths, outer: Option<&Self>) -> Result<(), String> {
        let Paths { patterns, is_exact } = found;
        if !is_exact {
            self.difference = Some(format!("its patterns are only similar: {}", patterns.join(" ")));
        }
        self.paths = match outer.map(|outer| &outer.pattern) {
            Some(Pattern::Prefix { text, .. }) => {
                let below = patterns.iter().map(|pattern| paths::below(text, pattern)).collect::<Option<_>>();
                below.ok_or_else(|| "no pattern of paths describes it within its outer location".to_owned())?
            }
            _ => patterns,
        };
        Ok(())
    }

    /// Returns the conditions of its routes. `base` has the hosts and listeners of the server.
    pub(super) fn matches(&self, base: &Match) -> Match {
        let not = (!self.not.is_empty()).then(|| Match { paths: self.not.clone(), ..Match::default() });
        let (paths, not) = (self.paths.clone(), not.into_iter().collect());
        Match { paths, ignores_case: self.ignores_case, not, ..base.clone() }
    }

    /// Adds the finding about the location itself.
    pub(super) fn note(&self, notes: &mut Notes) {
        match (&self.difference, &self.pattern) {
            (Some(difference), _) => notes.lost(self.directive, difference),
            (None, Pattern::Prefix { text, .. }) if text.len() > 1 && text.ends_with('/') => {
                notes.same(self.directive, "a trailing slash makes no difference in the rule file");
            }
            (None, _) => notes.same(self.directive, ""),
        }
    }

    fn prefix(&self) -> &'c str {
        match self.pattern {
            Pattern::Prefix { text, .. } => text,
            Pattern::Exact(_) | Pattern::Regex { .. } => "",
        }
    }

    fn skips_regexes(&self) -> bool {
        matches!(self.pattern, Pattern::Prefix { skips_regexes: true, .. })
    }
}

/// Parses the arguments of a location. The modifier may be a part of the pattern.
fn pattern(directive: &Directive) -> Result<Pattern<'_>, String> {
    let (modifier, text) = match (directive.arg(0), directive.arg(1)) {
        (Some(modifier), Some(text)) => (modifier, text),
        (Some(text), None) => {
            let modifier = ["^~", "~*", "~", "="].into_iter().find(|modifier| text.starts_with(modifier));
            modifier.map_or(("", text), |modifier| (modifier, &text[modifier.len()..]))
        }
        (None, _) => return Err("it has no pattern".to_owned()),
    };
    match modifier {
        _ if text.starts_with('@') => Err("clients cannot request a named location".to_owned()),
        "=" => Ok(Pattern::Exact(text)),
        "^~" => Ok(Pattern::Prefix { text, skips_regexes: true }),
        "~" => Ok(Pattern::Regex { text, ignores_case: false }),
        "~*" => Ok(Pattern::Regex { text, ignores_case: true }),
        "" => Ok(Pattern::Prefix { text, skips_regexes: false }),
        other => Err(format!("`{other}` is not a modifier")),
    }
}

// === impl Found ===

impl<'c> Found<'c> {
    pub(super) fn add(&mut self, location: Location<'c>, outer: Option<&Location<'c>>) {
        let list = match (&location.pattern, outer) {
            (Pattern::Exact(_), _) => &mut self.exact,
            (Pattern::Prefix { .. }, _) => &mut self.prefixes,
            (Pattern::Regex { .. }, Some(_)) => &mut self.nested,
            (Pattern::Regex { .. }, None) => &mut self.regexes,
        };
        list.push(location);
    }

    pub(super) fn len(&self) -> usize {
        self.exact.len() + self.nested.len() + self.regexes.len() + self.prefixes.len()
    }

    /// Returns the locations in the order in which nginx selects them: exact paths, prefixes with `^~`, regular expressions
    /// in the order of the file, and prefixes from the longest to the shortest. A prefix with `^~` counts only if no longer
    /// prefix matches, so that it excludes the paths of longer ones.
    pub(super) fn in_order(self) -> Vec<Location<'c>> {
        let Self { exact, nested, mut regexes, mut prefixes } = self;
        prefixes.sort_by_key(|location| std::cmp::Reverse(location.prefix().len()));
        let has_regexes = !regexes.is_empty();
        let (mut first, last): (Vec<_>, Vec<_>) =
            prefixes.into_iter().partition(|location| has_regexes && location.skips_regexes());
        for location in &mut first {
            let is_longer = |other: &&Location<'_>| {
                other.prefix().len() > location.prefix().len() && other.prefix().starts_with(location.prefix())
            };
            location.not = last.iter().filter(is_longer).flat_map(|other| other.paths.iter().cloned()).collect();
        }
        // Patterns that are only similar must not take the paths of prefixes that they do not mean.
        for location in regexes.iter_mut().filter(|location| location.difference.is_some()) {
            let is_other = |path: &&String| !location.paths.iter().any(|own| paths::covers(path, own));
            location.not = last.iter().flat_map(|other| &other.paths).filter(is_other).take(MAX_NOT).cloned().collect();
        }
        exact.into_iter().chain(nested).chain(first).chain(regexes).chain(last).collect()
    }
}
