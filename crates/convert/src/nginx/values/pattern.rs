//! Tests of a part of a request, and the conditions of the rule file for them.

use ipnet::IpNet;
use regex::Regex;

use super::Unknown;
use super::source::Source;
use crate::draft::Match;
use crate::draft::value::{Map, Value};
use crate::nginx::paths;

/// The longest regular expression of a rule file, in bytes.
const MAX_REGEX: usize = 1_000;

/// A test of a part of a request. It has one of these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) source: Source,
    pub(crate) values: Values,
}

/// The values of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    Patterns(Vec<Pattern>),
    Networks(Vec<IpNet>),
}

/// A pattern of a `map`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// This text, in any case.
    Text(String),
    /// A host and all hosts below it, from `.example.com`; or only the hosts below it, from `*.example.com`.
    Below {
        host: String,
        with_host: bool,
    },
    Regex {
        text: String,
        ignores_case: bool,
    },
}

// === impl Pattern ===

impl Pattern {
    /// Parses a pattern. `has_hosts` tells whether `*.example.com` is a pattern of hosts.
    pub(super) fn parse(text: &str, has_hosts: bool) -> Result<Self, Unknown> {
        if let Some(regex) = text.strip_prefix("~*") {
            return Ok(Self::Regex { text: regex.to_owned(), ignores_case: true });
        }
        if let Some(regex) = text.strip_prefix('~') {
            return Ok(Self::Regex { text: regex.to_owned(), ignores_case: false });
        }
        let text = text.strip_prefix('\\').unwrap_or(text);
        if has_hosts && text.ends_with(".*") {
            return Err(format!("`{text}` matches hosts by their start"));
        }
        let below =
            text.strip_prefix("*.").map(|host| (host, false)).or(text.strip_prefix('.').map(|host| (host, true)));
        Ok(match below.filter(|_| has_hosts) {
            Some((host, with_host)) => Self::Below { host: host.to_owned(), with_host },
            None => Self::Text(text.to_owned()),
        })
    }

    /// Returns the compiled regular expression, if this is one.
    pub(super) fn regex(&self) -> Option<Result<Regex, Unknown>> {
        let Self::Regex { text, ignores_case } = self else { return None };
        Some(compiled(text, *ignores_case))
    }

    /// Returns `true` if a text matches.
    pub(crate) fn matches(&self, text: &str) -> Result<bool, Unknown> {
        let below =
            |host: &str| text.len() > host.len() + 1 && text.to_ascii_lowercase().ends_with(&format!(".{host}"));
        match self {
            Self::Text(own) => Ok(own.eq_ignore_ascii_case(text)),
            Self::Below { host, with_host } => Ok(below(host) || *with_host && host.eq_ignore_ascii_case(text)),
            Self::Regex { text: regex, ignores_case } => {
                compiled(regex, *ignores_case).map(|regex| regex.is_match(text))
            }
        }
    }

    /// Returns `true` if the case of letters matters.
    fn needs_case(&self) -> bool {
        matches!(self, Self::Regex { ignores_case: false, .. })
    }

    /// Returns the condition on a header field, a query parameter or a cookie.
    fn condition(&self, ignores_case: bool) -> Result<Value, Unknown> {
        let regex = |text: String| Value::Map(Map::of([("regex", text.into())]));
        match self {
            Self::Text(text) if text.is_empty() => Ok("absent".into()),
            Self::Text(text) if ignores_case || !has_letters(text) => Ok(literal(text)),
            Self::Text(text) => Ok(regex(format!("(?i)^{}$", regex::escape(text)))),
            Self::Below { host, .. } => Err(format!("`{host}` is a pattern of hosts")),
            Self::Regex { text, ignores_case: own } => {
                compiled(text, *own)?;
                Ok(regex(if *own && !ignores_case { format!("(?i){text}") } else { text.clone() }))
            }
        }
    }
}

/// Returns a condition for exactly this text. A list of one word keeps its meaning as a value.
fn literal(text: &str) -> Value {
    match text {
        "present" | "absent" => Value::List(vec![text.into(), text.into()]),
        _ => text.into(),
    }
}

fn has_letters(text: &str) -> bool {
    text.chars().any(|letter| letter.is_ascii_alphabetic())
}

/// Compiles a regular expression of a source. Some features of PCRE, such as lookarounds, are not supported.
fn compiled(text: &str, ignores_case: bool) -> Result<Regex, Unknown> {
    let unsupported = || format!("the regular expression `{text}` is not supported");
    if text.len() > MAX_REGEX {
        return Err(unsupported());
    }
    let text = if ignores_case { format!("(?i){text}") } else { text.to_owned() };
    regex::RegexBuilder::new(&text).unicode(false).size_limit(1 << 18).build().map_err(|_| unsupported())
}

/// Returns the conditions of the rule file for requests that meet all of `when` and none of `unless`.
pub(crate) fn conditions(when: &[Test], unless: &[Test]) -> Result<Match, Unknown> {
    with_case(when, unless, false)
}

/// Like [`conditions`], but for a route whose paths are compared with their case.
pub(crate) fn sensitive_conditions(when: &[Test], unless: &[Test]) -> Result<Match, Unknown> {
    with_case(when, unless, true)
}

fn with_case(when: &[Test], unless: &[Test], is_sensitive: bool) -> Result<Match, Unknown> {
    let ignores_case = !is_sensitive && !when.iter().any(Test::needs_case);
    let mut matches = Match { ignores_case, ..Match::default() };
    for test in when {
        test.add_to(&mut matches)?;
    }
    for test in unless {
        let ignores_case = !is_sensitive && !test.needs_case();
        let mut not = Match { ignores_case, ..Match::default() };
        test.add_to(&mut not)?;
        not.ignores_case &= has_case(&not);
        if !matches.not.contains(&not) {
            matches.not.push(not);
        }
    }
    matches.ignores_case &= has_case(&matches);
    Ok(matches)
}

/// Returns `true` if conditions compare letters.
fn has_case(matches: &Match) -> bool {
    let values = [&matches.headers, &matches.query, &matches.cookies];
    !matches.paths.is_empty() || values.iter().any(|values| !values.is_empty())
}

// === impl Test ===

impl Test {
    fn needs_case(&self) -> bool {
        match &self.values {
            Values::Patterns(patterns) => patterns.iter().any(Pattern::needs_case),
            Values::Networks(_) => false,
        }
    }

    /// Adds the condition. Fails if there is a condition on this part of the request already.
    fn add_to(&self, matches: &mut Match) -> Result<(), Unknown> {
        let is_free = match (&self.source, &self.values) {
            (Source::Address, Values::Networks(networks)) => replace(&mut matches.clients, networks.clone()),
            (_, Values::Networks(_)) => return Err("`geo` reads another value than the address".to_owned()),
            (source, Values::Patterns(patterns)) => add_patterns(source, patterns, matches)?,
        };
        if is_free { Ok(()) } else { Err("two variables test the same part of the request".to_owned()) }
    }
}

/// Adds a condition on a part of a request that is not the address. Returns `false` if it has one already.
fn add_patterns(source: &Source, patterns: &[Pattern], matches: &mut Match) -> Result<bool, Unknown> {
    let ignores_case = matches.ignores_case;
    let values = match source {
        Source::Header(name) => Some((&mut matches.headers, name)),
        Source::Query(name) => Some((&mut matches.query, name)),
        Source::Cookie(name) => Some((&mut matches.cookies, name)),
        _ => None,
    };
    if let Some((map, name)) = values {
        let is_free = map.get(name).is_none();
        let conditions: Vec<_> =
            patterns.iter().map(|pattern| pattern.condition(ignores_case)).collect::<Result<_, _>>()?;
        map.set(name, one_or_list(conditions)?);
        return Ok(is_free);
    }
    match source {
        Source::Host => Ok(replace(&mut matches.hosts, each(patterns, hosts)?)),
        Source::Path => Ok(replace(&mut matches.paths, each(patterns, path)?)),
        Source::Method => Ok(replace(&mut matches.methods, each(patterns, method)?)),
        Source::Scheme => {
            let [Pattern::Text(scheme)] = patterns else { return Err("the scheme has several values".to_owned()) };
            let is_free = matches.more.get("scheme").is_none();
            matches.more.set("scheme", scheme.to_ascii_lowercase());
            Ok(is_free)
        }
        other => Err(format!("conditions cannot test {other:?}")),
    }
}

/// Returns a single condition, or a list. A list has no `absent`: there, it is a value.
fn one_or_list(mut conditions: Vec<Value>) -> Result<Value, Unknown> {
    let is_absent = |value: &Value| *value == Value::from("absent");
    match conditions.len() {
        1 => Ok(conditions.remove(0)),
        _ if conditions.iter().any(is_absent) => Err("an empty value and other values have the same result".to_owned()),
        _ => Ok(Value::List(conditions.into_iter().flat_map(flat).collect())),
    }
}

/// Returns the items of a list, or the only value.
fn flat(value: Value) -> Vec<Value> {
    match value {
        Value::List(mut items) => items.drain(..1).collect(),
        value => vec![value],
    }
}

/// Sets a list. Returns `false` if it has values already.
fn replace<T>(list: &mut Vec<T>, values: Vec<T>) -> bool {
    let is_free = list.is_empty();
    *list = values;
    is_free
}

fn each(
    patterns: &[Pattern],
    convert: impl Fn(&Pattern) -> Result<Vec<String>, Unknown>,
) -> Result<Vec<String>, Unknown> {
    let lists: Vec<_> = patterns.iter().map(convert).collect::<Result<_, _>>()?;
    Ok(lists.concat())
}

fn hosts(pattern: &Pattern) -> Result<Vec<String>, Unknown> {
    let hosts = match pattern {
        Pattern::Text(host) => vec![host.clone()],
        Pattern::Below { host, with_host: false } => vec![format!("*.{host}")],
        Pattern::Below { host, with_host: true } => vec![host.clone(), format!("*.{host}")],
        Pattern::Regex { text, .. } => return Err(format!("the regular expression `{text}` tests the host")),
    };
    let valid = |host: &String| tidegate_rules::route::HostPattern::parse(host).is_ok();
    if hosts.iter().all(valid) { Ok(hosts) } else { Err("a pattern is not a host".to_owned()) }
}

fn path(pattern: &Pattern) -> Result<Vec<String>, Unknown> {
    let found = match pattern {
        Pattern::Text(path) => paths::exact(path),
        Pattern::Regex { text, .. } => paths::of_regex(text),
        Pattern::Below { .. } => None,
    };
    found.ok_or_else(|| "a path has no equivalent pattern".to_owned())
}

fn method(pattern: &Pattern) -> Result<Vec<String>, Unknown> {
    match pattern {
        Pattern::Text(method) if paths::is_method(method) => Ok(vec![method.clone()]),
        _ => Err("a method is not a word in upper case".to_owned()),
    }
}
