//! `if`: routes for the requests that meet a condition, if its block only has a `return` or a redirect.

use super::Conversion;
use super::locations::Target;
use super::redirect::rewritten;
use super::syntax::Directive;
use super::values::Unknown;
use super::values::pattern::{Pattern, Test, Values, sensitive_conditions};
use super::values::source::Source;
use crate::draft::Match;

impl<'c> Conversion<'c, '_> {
    /// Adds the routes of each `if` of a block, which come before the route of the block.
    pub(super) fn conditional_routes(&mut self, target: &Target<'_, 'c>, matches: &Match) {
        for directive in target.scope.own("if") {
            let conditions = match self.conditions(directive, target) {
                Ok(conditions) => conditions,
                Err(reason) => {
                    self.notes.lost(directive, reason);
                    continue;
                }
            };
            for condition in conditions {
                match joined(matches, condition) {
                    Some(matches) => self.conditional_route(directive, target, matches),
                    None => self.notes.lost(directive, "its location has a condition on the same part of the request"),
                }
            }
            self.notes.same(directive, "routes with conditions");
        }
    }

    fn conditional_route(&mut self, directive: &'c Directive, target: &Target<'_, 'c>, matches: Match) {
        let others =
            directive.inner().iter().filter(|inner| !matches!(inner.name(), "return" | "rewrite" | "access_log"));
        let response = directive.inner().iter().find(|inner| matches!(inner.name(), "return" | "rewrite"));
        let action = match response {
            Some(inner) if inner.name() == "return" && others.count() == 0 => self.returned(inner, target.server),
            Some(inner) => match rewritten(inner) {
                Some(to) => self.redirect(inner, &to, target.server),
                None => return self.notes.lost(directive, "only `return` and redirects are supported within `if`"),
            },
            None => return self.notes.lost(directive, "only `return` and redirects are supported within `if`"),
        };
        self.push(target, directive, matches, action);
    }

    /// Returns the conditions of an `if`: a request meets one of them.
    fn conditions(&self, directive: &Directive, target: &Target<'_, 'c>) -> Result<Vec<Match>, Unknown> {
        let words: Vec<&str> = directive.texts().collect();
        let text = words.join(" ");
        let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(&text).trim();
        let mut words = text.splitn(3, char::is_whitespace);
        let (variable, operator, value) = (words.next().unwrap_or_default(), words.next(), words.next());
        if !variable.starts_with('$') {
            return Err("only variables are supported in the condition of `if`".to_owned());
        }
        let comparison = operator.map(|operator| Comparison { operator, value: value.unwrap_or_default().trim() });
        let mut conditions = Vec::new();
        for branch in self.variables.values(variable, &target.scope.assigned)? {
            let (when, unless) = match (branch.constant(), branch.only_source()) {
                (Some(text), _) if is_true(&text, comparison)? => (Vec::new(), Vec::new()),
                (Some(_), _) => continue,
                (None, Some(source)) => comparison.ok_or("the condition has no comparison")?.tests(source)?,
                (None, None) => return Err("the condition reads several parts of the request".to_owned()),
            };
            let (when, unless) = ([branch.when, when].concat(), [branch.unless, unless].concat());
            conditions.push(sensitive_conditions(&when, &unless)?);
        }
        Ok(conditions)
    }
}

/// A comparison in an `if`.
#[derive(Clone, Copy, Debug)]
struct Comparison<'t> {
    operator: &'t str,
    value: &'t str,
}

impl Comparison<'_> {
    fn pattern(self) -> Result<Pattern, Unknown> {
        match self.operator.trim_start_matches('!') {
            "=" => Ok(Pattern::Regex { text: format!("^{}$", regex::escape(self.value)), ignores_case: false }),
            "~" => Ok(Pattern::Regex { text: self.value.to_owned(), ignores_case: false }),
            "~*" => Ok(Pattern::Regex { text: self.value.to_owned(), ignores_case: true }),
            _ => Err(format!("`{}` is not supported in `if`", self.operator)),
        }
    }

    /// Returns the tests that a request must meet, and those that it must not meet.
    fn tests(self, source: &Source) -> Result<(Vec<Test>, Vec<Test>), Unknown> {
        let is_text = matches!(self.operator, "=" | "!=");
        let is_word = matches!(source, Source::Host | Source::Method | Source::Scheme);
        let patterns = match source {
            Source::Method if !is_text => {
                let words = self.value.trim_start_matches(['^', '(']).trim_end_matches(['$', ')']).split('|');
                words.map(|word| Pattern::Text(word.to_owned())).collect()
            }
            _ if is_text && (is_word || self.value.is_empty()) => vec![Pattern::Text(self.value.to_owned())],
            _ => vec![self.pattern()?],
        };
        let test = Test { source: source.clone(), values: Values::Patterns(patterns) };
        let is_negated = self.operator.starts_with('!');
        Ok(if is_negated { (Vec::new(), vec![test]) } else { (vec![test], Vec::new()) })
    }
}

/// Returns `true` if a text meets a comparison. Without one, an empty text and `0` are false.
fn is_true(text: &str, comparison: Option<Comparison<'_>>) -> Result<bool, Unknown> {
    match comparison {
        None => Ok(!matches!(text, "" | "0")),
        Some(comparison) => Ok(comparison.pattern()?.matches(text)? != comparison.operator.starts_with('!')),
    }
}

/// Returns the conditions of a location with another condition. Returns `None` if both are about the same part.
fn joined(outer: &Match, condition: Match) -> Option<Match> {
    let mut joined = outer.clone();
    if !condition.hosts.is_empty() {
        // A request with another host does not reach the server.
        joined.hosts = condition.hosts;
    }
    if !condition.paths.is_empty() {
        (outer.paths == ["/**"]).then_some(())?;
        joined.paths = condition.paths;
    }
    joined.methods = condition.methods;
    joined.clients = condition.clients;
    joined.headers.extend(condition.headers);
    joined.query.extend(condition.query);
    joined.cookies.extend(condition.cookies);
    joined.more.extend(condition.more);
    joined.not.extend(condition.not);
    Some(joined)
}
