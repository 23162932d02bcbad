//! The patterns of an alternative.

use super::expand::Token;
use super::{Paths, spelled};

/// A sequence of segments, each with its letters and wildcards. A segment that is only a wildcard is `{name}`.
#[derive(Debug, Default)]
struct Segments {
    /// The texts between slashes. The first one precedes the first slash.
    texts: Vec<String>,
    is_exact: bool,
}

/// Returns the patterns of an alternative. Returns `None` without an equivalent.
pub(super) fn globs(tokens: &[Token]) -> Option<Paths> {
    let parts: Vec<&[Token]> = tokens.split(|token| matches!(token, Token::Any { .. })).collect();
    let paths = match parts.as_slice() {
        [all] => whole(all),
        [before, after] => around(before, after),
        [[], middle, []] => inside(middle),
        _ => None,
    };
    let has_inexact = tokens.contains(&Token::Any { is_exact: false });
    paths.map(|paths| Paths { is_exact: paths.is_exact && !has_inexact, ..paths })
}

/// Returns the pattern of an alternative without `.*`.
fn whole(tokens: &[Token]) -> Option<Paths> {
    let segments = Segments::of(tokens)?;
    let pattern = joined(segments.after_slash()?);
    Some(Paths { patterns: vec![pattern], is_exact: segments.is_exact })
}

/// Returns the patterns of an alternative with one `.*`.
fn around(before: &[Token], after: &[Token]) -> Option<Paths> {
    let (left, right) = (Segments::of(before)?, Segments::of(after)?);
    let is_exact = left.is_exact && right.is_exact;
    let is_start = before.is_empty();
    let left = if is_start { vec![String::new()] } else { left.after_slash()?.to_vec() };
    let (last, folders) = left.split_last()?;
    let (first, tail) = right.texts.split_first()?;
    let folders = if folders.is_empty() { String::new() } else { joined(folders) };
    let tail_text = if tail.is_empty() { String::new() } else { joined(tail) };
    if after.is_empty() {
        let rest = if last.is_empty() { format!("{folders}/**") } else { format!("{folders}/{last}*/**") };
        return Some(Paths { patterns: vec![rest], is_exact });
    }
    let ends = |first: &str| match first {
        "" => tail_text.clone(),
        first => format!("/*{first}{tail_text}"),
    };
    if last.is_empty() {
        // `/a/.*/b` needs a segment between them, which the pattern does not.
        let is_exact = is_exact && (is_start || !first.is_empty());
        return Some(Paths { patterns: vec![format!("{folders}/**{}", ends(first))], is_exact });
    }
    let same = format!("{folders}/{last}*{first}{tail_text}");
    Some(Paths { patterns: vec![same, format!("{folders}/{last}*/**{}", ends(first))], is_exact })
}

/// Returns patterns of the paths that contain a text: in their first segment, or in their last one.
fn inside(tokens: &[Token]) -> Option<Paths> {
    let segments = Segments::of(tokens)?;
    let patterns = match segments.texts.as_slice() {
        [] => return Some(Paths { patterns: vec!["/**".to_owned()], is_exact: true }),
        [text] if text.is_empty() => vec!["/**".to_owned()],
        [text] => vec![format!("/*{text}*/**"), format!("/**/*{text}*")],
        [first, text] if first.is_empty() && !text.is_empty() => vec![format!("/{text}*/**"), format!("/**/{text}*")],
        [first, text, last] if first.is_empty() && last.is_empty() => {
            vec![format!("/{text}/**"), format!("/**/{text}/{{p}}")]
        }
        _ => return None,
    };
    Some(Paths { patterns, is_exact: false })
}

/// Returns segments as a path.
fn joined(segments: &[String]) -> String {
    let names = segments.iter().enumerate();
    names.map(|(number, text)| if text == "*" { format!("/{{p{number}}}") } else { format!("/{text}") }).collect()
}

// === impl Segments ===

impl Segments {
    fn of(tokens: &[Token]) -> Option<Self> {
        let mut segments = Self { texts: vec![String::new()], is_exact: true };
        let mut is_wild = false;
        for token in tokens {
            match token {
                Token::Text(text) => {
                    // Letters have the spelling of patterns; the first slash only makes the text a path.
                    let spelled = spelled(&format!("/{text}"))?;
                    for (number, part) in spelled[1..].split('/').enumerate() {
                        if number > 0 {
                            segments.texts.push(String::new());
                        }
                        segments.texts.last_mut()?.push_str(part);
                    }
                    is_wild = false;
                }
                Token::Segment { is_exact } if !is_wild => {
                    segments.is_exact &= is_exact;
                    segments.texts.last_mut()?.push('*');
                    is_wild = true;
                }
                _ => return None,
            }
        }
        Some(segments)
    }

    /// Returns the segments after the first slash, which must start the text. A last empty one is a trailing slash.
    fn after_slash(&self) -> Option<&[String]> {
        let (first, rest) = self.texts.split_first()?;
        let has_empty = rest.iter().rev().skip(1).any(String::is_empty);
        (first.is_empty() && !rest.is_empty() && !has_empty).then_some(rest)
    }
}
