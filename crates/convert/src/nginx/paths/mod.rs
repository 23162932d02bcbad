//! Paths of locations as patterns of the rule file.

mod expand;
mod glob;

#[cfg(test)]
mod tests;

use std::fmt::Write;

use tidegate_rules::route::{Matcher, PathPattern};

use self::expand::alternatives;
use self::glob::globs;

/// Patterns of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paths {
    pub(crate) patterns: Vec<String>,
    /// Whether they match the same paths as the source.
    pub(crate) is_exact: bool,
}

/// Returns the pattern of exactly this path. Returns `None` if the rule file has none.
pub(crate) fn exact(path: &str) -> Option<Vec<String>> {
    valid(spelled(path)?).map(|pattern| vec![pattern])
}

/// Returns the pattern of all paths that start with a text. `/a` includes `/ab`.
pub(crate) fn prefix(path: &str) -> Option<String> {
    let path = spelled(path)?;
    let rest = if path.ends_with('/') { "**" } else { "*/**" };
    valid(format!("{path}{rest}"))
}

/// Returns the patterns that match the same paths as a regular expression.
pub(crate) fn of_regex(regex: &str) -> Option<Vec<String>> {
    similar_to_regex(regex).filter(|paths| paths.is_exact).map(|paths| paths.patterns)
}

/// Returns patterns for a regular expression, which may match other paths as well. Returns `None` without a
/// similar pattern.
pub(crate) fn similar_to_regex(regex: &str) -> Option<Paths> {
    let mut paths = Paths { patterns: Vec::new(), is_exact: true };
    for tokens in alternatives(regex)? {
        let found = globs(&tokens)?;
        paths.is_exact &= found.is_exact;
        for pattern in found.patterns {
            let pattern = valid(pattern)?;
            if !paths.patterns.contains(&pattern) {
                paths.patterns.push(pattern);
            }
        }
    }
    without_covered(&mut paths.patterns);
    (!paths.patterns.is_empty()).then_some(paths)
}

/// Returns the paths that match a pattern and are below a prefix, such as `/app/**/*.php`. Returns `None` if no pattern
/// describes them.
pub(crate) fn below(prefix: &str, pattern: &str) -> Option<String> {
    let prefix = spelled(prefix)?;
    if prefix == "/" || pattern.starts_with(&prefix) {
        return Some(pattern.to_owned());
    }
    let folder = prefix.strip_suffix('/')?;
    pattern.starts_with("/**/").then(|| format!("{folder}{pattern}")).and_then(valid)
}

/// Returns `true` if all paths that match `narrow` match `wide`. Both are patterns.
pub(crate) fn covers(wide: &str, narrow: &str) -> bool {
    let matcher = |pattern| PathPattern::parse(pattern).map(|path| Matcher { paths: vec![path], ..Matcher::default() });
    matches!((matcher(wide), matcher(narrow)), (Ok(wide), Ok(narrow)) if wide.covers(&narrow))
}

/// Returns `true` for a method that a rule file can contain.
pub(crate) fn is_method(text: &str) -> bool {
    !text.is_empty() && text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Removes patterns whose paths match another pattern.
fn without_covered(patterns: &mut Vec<String>) {
    let mut index = 0;
    while index < patterns.len() {
        let is_covered = |(other, wide): (usize, &String)| other != index && covers(wide, &patterns[index]);
        if patterns.iter().enumerate().any(is_covered) {
            patterns.remove(index);
        } else {
            index += 1;
        }
    }
}

/// Returns a path in the spelling of patterns. Returns `None` for characters that have a meaning in patterns.
fn spelled(path: &str) -> Option<String> {
    let mut spelled = String::new();
    for byte in path.bytes() {
        match byte {
            b'*' | b'{' | b'}' | b';' | b'\\' => return None,
            b'/' | b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'+' | b',' | b'=' | b':'
            | b'@' => {
                spelled.push(char::from(byte));
            }
            _ if byte.is_ascii_alphanumeric() => spelled.push(char::from(byte)),
            _ => write!(spelled, "%{byte:02X}").ok()?,
        }
    }
    path.starts_with('/').then_some(spelled)
}

fn valid(pattern: String) -> Option<String> {
    PathPattern::parse(&pattern).is_ok().then_some(pattern)
}
