//! The alternatives of a regular expression.

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

/// The most alternatives.
const MAX_ALTERNATIVES: usize = 64;

/// The most letters of a class that are alternatives.
const MAX_LETTERS: usize = 4;

/// The longest regular expression, in bytes.
const MAX_LENGTH: usize = 1_000;

/// A part of an alternative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Text(String),
    /// Any characters of a segment. `is_exact` is `false` if the regular expression allows only some of them.
    Segment {
        is_exact: bool,
    },
    /// Any characters, with slashes. `is_exact` is `false` if there must be some of them.
    Any {
        is_exact: bool,
    },
    /// `^`
    Start,
    /// `$`
    End,
}

type Alternatives = Vec<Vec<Token>>;

/// Returns the alternatives of a regular expression. Each starts with `Start` or `Any`, and ends with `End` or `Any`. Returns
/// `None` if they cannot be patterns.
pub(super) fn alternatives(regex: &str) -> Option<Alternatives> {
    if regex.len() > MAX_LENGTH {
        return None;
    }
    let mut parser = regex_syntax::ParserBuilder::new();
    let hir = parser.unicode(false).utf8(false).nest_limit(32).build().parse(regex).ok()?;
    expand(&hir)?.into_iter().map(anchored).collect()
}

/// Replaces anchors by nothing, and missing anchors by `Any`.
fn anchored(mut tokens: Vec<Token>) -> Option<Vec<Token>> {
    // `$` before `.*` leaves nothing for it, as in `(/|$)(.*)`.
    if let Some(end) = tokens.iter().position(|token| *token == Token::End)
        && tokens[end..].iter().all(|token| matches!(token, Token::End | Token::Any { .. }))
    {
        tokens.truncate(end + 1);
    }
    match tokens.first() {
        Some(Token::Start) => drop(tokens.remove(0)),
        _ => tokens.insert(0, Token::Any { is_exact: true }),
    }
    match tokens.last() {
        Some(Token::End) => drop(tokens.pop()),
        _ => tokens.push(Token::Any { is_exact: true }),
    }
    if tokens.iter().any(|token| matches!(token, Token::Start | Token::End)) {
        return None;
    }
    Some(joined(tokens))
}

/// Joins texts that follow each other, and wildcards that follow each other.
fn joined(tokens: Vec<Token>) -> Vec<Token> {
    let mut joined: Vec<Token> = Vec::new();
    for token in tokens {
        match (joined.last_mut(), token) {
            (Some(Token::Text(text)), Token::Text(more)) => text.push_str(&more),
            (Some(Token::Any { .. }), Token::Any { .. }) => {}
            (Some(Token::Any { is_exact }), Token::Segment { .. }) => *is_exact = false,
            (Some(last @ Token::Segment { .. }), Token::Any { .. }) => *last = Token::Any { is_exact: false },
            (Some(Token::Segment { is_exact }), Token::Segment { .. }) => *is_exact = false,
            (_, token) => joined.push(token),
        }
    }
    joined
}

fn expand(hir: &Hir) -> Option<Alternatives> {
    match hir.kind() {
        HirKind::Empty => Some(vec![Vec::new()]),
        HirKind::Literal(literal) => Some(vec![vec![Token::Text(std::str::from_utf8(&literal.0).ok()?.to_owned())]]),
        HirKind::Class(class) => Some(of_class(class)),
        HirKind::Look(Look::Start) => Some(vec![vec![Token::Start]]),
        HirKind::Look(Look::End) => Some(vec![vec![Token::End]]),
        HirKind::Look(_) => None,
        HirKind::Repetition(repetition) => of_repetition(repetition),
        HirKind::Capture(capture) => expand(&capture.sub),
        HirKind::Concat(parts) => {
            parts.iter().try_fold(vec![Vec::new()], |before, part| product(&before, &expand(part)?))
        }
        HirKind::Alternation(parts) => {
            let all: Vec<_> = parts.iter().map(expand).collect::<Option<_>>()?;
            bounded(all.concat())
        }
    }
}

fn product(before: &Alternatives, after: &Alternatives) -> Option<Alternatives> {
    if before.len().saturating_mul(after.len()) > MAX_ALTERNATIVES {
        return None;
    }
    Some(before.iter().flat_map(|first| after.iter().map(|second| [first.as_slice(), second].concat())).collect())
}

fn bounded(alternatives: Alternatives) -> Option<Alternatives> {
    (alternatives.len() <= MAX_ALTERNATIVES).then_some(alternatives)
}

/// Returns the alternatives of a single letter.
fn of_class(class: &Class) -> Alternatives {
    match letters(class) {
        Some(letters) => letters.into_iter().map(|letter| vec![Token::Text(letter.to_string())]).collect(),
        None => vec![vec![Token::Segment { is_exact: false }]],
    }
}

/// Returns the letters of a small class of ASCII letters.
fn letters(class: &Class) -> Option<Vec<char>> {
    let all = ranges(class).into_iter().flat_map(|(first, last)| first..=last).take(MAX_LETTERS + 1);
    let all: Vec<char> = all.map(|letter| char::from_u32(letter).filter(char::is_ascii)).collect::<Option<_>>()?;
    (all.len() <= MAX_LETTERS).then_some(all)
}

/// Returns the first and last letter of each range of a class.
fn ranges(class: &Class) -> Vec<(u32, u32)> {
    match class {
        Class::Bytes(class) => class.ranges().iter().map(|range| (range.start().into(), range.end().into())).collect(),
        Class::Unicode(class) => {
            class.ranges().iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
    }
}

fn of_repetition(repetition: &Repetition) -> Option<Alternatives> {
    let one = || expand(&repetition.sub);
    match (repetition.min, repetition.max) {
        (0, Some(1)) => bounded([vec![Vec::new()], one()?].concat()),
        (1, Some(1)) => one(),
        (min, max) => {
            let mut sub = &*repetition.sub;
            while let HirKind::Capture(capture) = sub.kind() {
                sub = &capture.sub;
            }
            let HirKind::Class(class) = sub.kind() else { return None };
            let ranges = ranges(class);
            let has = |byte: u8| ranges.iter().any(|(first, last)| (*first..=*last).contains(&u32::from(byte)));
            let missing = (b'!'..=b'~').filter(|byte| !has(*byte)).count();
            let is_unbounded = max.is_none() && min <= 1;
            Some(vec![vec![match (missing, has(b'/')) {
                (0, _) => Token::Any { is_exact: true },
                (1, false) => Token::Segment { is_exact: is_unbounded },
                (_, false) => Token::Segment { is_exact: false },
                (_, true) => return None,
            }]])
        }
    }
}
