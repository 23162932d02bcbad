//! The conditions of a `match` on values that clients send: header fields, query parameters and cookies; and of `when` on JSON
//! bodies.

use http::HeaderValue;

use super::spelling;
use crate::check::names::{header_name, pointer};
use crate::check::{Checked, all, parsed};
use crate::file::located::{Located, OneOrList, ValueOrMap};
use crate::file::{self, TextOrPattern};
use crate::problem::{Location, Problems, quote};
use tidegate_rules::route::{Case, ValueCondition, ValueParts, ValuePattern, ValueRegex, ValueSource, ValueTest};

const MAX_VALUES: usize = 100;

/// The longest text of a pattern, in bytes.
const MAX_PART: usize = 1_000;

type Condition = Located<OneOrList<TextOrPattern>>;

/// Reads the name of a condition.
type ReadSource = fn(&str, Location, &mut Problems) -> Checked<ValueSource>;

pub(crate) fn values(raw: &file::Match, case: Case, problems: &mut Problems) -> Checked<Vec<ValueCondition>> {
    all_values([(&raw.headers, header as ReadSource), (&raw.query, query), (&raw.cookies, cookie)], case, problems)
}

/// Converts the conditions on JSON bodies.
pub(crate) fn body_values(
    raw: &Located<file::Values>,
    case: Case,
    problems: &mut Problems,
) -> Checked<Vec<ValueCondition>> {
    all_values([(raw, body as ReadSource)], case, problems)
}

fn all_values<const N: usize>(
    raw: [(&Located<file::Values>, ReadSource); N],
    case: Case,
    problems: &mut Problems,
) -> Checked<Vec<ValueCondition>> {
    let mut conditions = Vec::new();
    let mut checked = Ok(());
    for (raw, source) in raw {
        for (name, value) in raw.get().into_iter().flatten() {
            conditions.push(condition(name, value, source, case, problems).and_then(|condition| {
                let is_same = |other: &Checked<ValueCondition>| {
                    other.as_ref().is_ok_and(|other| other.source == condition.source)
                };
                if conditions.iter().any(is_same) {
                    let message = format!("{} is repeated", quote(name));
                    return Err(problems.add(value.key_location(), message, "list all values under one name"));
                }
                Ok(condition)
            }));
        }
        checked = raw.optional(problems).map(drop).and(checked);
    }
    checked?;
    conditions.into_iter().collect()
}

fn condition(
    name: &str,
    raw: &Condition,
    source: ReadSource,
    case: Case,
    problems: &mut Problems,
) -> Checked<ValueCondition> {
    let source = source(name, raw.key_location(), problems);
    let test = match raw.required(problems)? {
        OneOrList::One(ValueOrMap::Value(text)) if text == "present" => ValueTest::Present,
        OneOrList::One(ValueOrMap::Value(text)) if text == "absent" => ValueTest::Absent,
        OneOrList::One(one) => ValueTest::OneOf(vec![pattern(one, raw.location, &source, case, problems)?]),
        OneOrList::List(list) if list.len() > MAX_VALUES => {
            let message = format!("{} has more than {MAX_VALUES} values", quote(name));
            return Err(raw.report(message, "distribute the values over several routes", problems));
        }
        OneOrList::List(list) => {
            let mut item = |item: &Located<TextOrPattern>| {
                let raw = item.required(problems)?;
                if let ValueOrMap::Value(text) = raw
                    && let Some(spelling) = spelling::of_item(text)
                {
                    spelling.warn(item.location, problems);
                }
                pattern(raw, item.location, &source, case, problems)
            };
            ValueTest::OneOf(all(list.iter().map(&mut item))?)
        }
    };
    Ok(ValueCondition { source: source?, test })
}

fn pattern(
    raw: &TextOrPattern,
    location: Location,
    source: &Checked<ValueSource>,
    case: Case,
    problems: &mut Problems,
) -> Checked<ValuePattern> {
    match raw {
        ValueOrMap::Value(text) => {
            if let Ok(source) = source
                && let Some(spelling) = spelling::of_value(text, source)
            {
                spelling.warn(location, problems);
            }
            Ok(ValuePattern::whole(&value(text, location, source, problems)?, case))
        }
        ValueOrMap::Map(map) => Ok(ValuePattern::Parts(Box::new(parts(map, location, source, case, problems)?))),
    }
}

fn parts(
    raw: &file::Pattern,
    location: Location,
    source: &Checked<ValueSource>,
    case: Case,
    problems: &mut Problems,
) -> Checked<ValueParts> {
    let texts = [&raw.prefix, &raw.suffix, &raw.contains];
    let [prefix, suffix, contains] = texts.map(|text| part(text, source, problems));
    let regex = regex(&raw.regex, case, problems);
    if ![&raw.prefix, &raw.suffix, &raw.contains, &raw.regex].iter().any(|key| key.is_present()) {
        let help = "add `prefix`, `suffix`, `contains` or `regex`";
        return Err(problems.add(location, "a pattern needs at least one key", help));
    }
    Ok(ValueParts { prefix: prefix?, suffix: suffix?, contains: contains?, regex: regex?, case })
}

fn part(raw: &Located<String>, source: &Checked<ValueSource>, problems: &mut Problems) -> Checked<Box<[u8]>> {
    let Some(text) = raw.optional(problems)? else { return Ok(Box::default()) };
    if text.len() > MAX_PART {
        let message = format!("the text has {} bytes, more than {MAX_PART}", text.len());
        return Err(raw.report(message, "use a shorter text", problems));
    }
    if let Some(spelling) = spelling::of_part(text) {
        spelling.warn(raw.location, problems);
    }
    // A part may start or end with a space.
    value(text, raw.location, source, problems).map(|_| text.as_bytes().into())
}

fn regex(raw: &Located<String>, case: Case, problems: &mut Problems) -> Checked<Option<ValueRegex>> {
    let Some(text) = raw.optional(problems)? else { return Ok(None) };
    ValueRegex::new(text, case).map(Some).map_err(|reason| {
        let message = format!("{} is not a regular expression: {reason}", quote(text));
        let help = "use the syntax of https://docs.rs/regex; for `\\` put the expression in single quotes";
        raw.report(message, help, problems)
    })
}

fn value(text: &str, location: Location, source: &Checked<ValueSource>, problems: &mut Problems) -> Checked<Box<[u8]>> {
    if matches!(source, Ok(ValueSource::Header(_))) {
        let parse = HeaderValue::from_str(text).map_err(|_| format!("{} is not a header field value", quote(text)));
        parsed(parse, "remove the control characters", location, problems)?;
    } else if text.chars().any(char::is_control) {
        let message = format!("{} has a control character", quote(text));
        return Err(problems.add(location, message, "remove the control characters"));
    }
    Ok(text.trim().as_bytes().into())
}

fn body(name: &str, location: Location, problems: &mut Problems) -> Checked<ValueSource> {
    pointer(name, location, problems).map(ValueSource::Json)
}

fn header(name: &str, location: Location, problems: &mut Problems) -> Checked<ValueSource> {
    header_name(name, location, problems).map(ValueSource::Header)
}

fn query(name: &str, location: Location, problems: &mut Problems) -> Checked<ValueSource> {
    if is_name(name, &['&', ';', '=', '#', '[', '%', '+', '?', '*']) {
        return Ok(ValueSource::Query(name.into()));
    }
    let message = format!("{} is not a parameter name", quote(name));
    Err(problems.add(location, message, "write the decoded name, without `?`, `=`, `*` and `[]`"))
}

fn cookie(name: &str, location: Location, problems: &mut Problems) -> Checked<ValueSource> {
    if is_name(name, &['=', ';', ',', '"', '%', '+', '*']) {
        return Ok(ValueSource::Cookie(name.into()));
    }
    let message = format!("{} is not a cookie name", quote(name));
    Err(problems.add(location, message, "use letters, digits, `-` and `_`"))
}

fn is_name(name: &str, excluded: &[char]) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_graphic() && !excluded.contains(&letter))
}
