//! The conditions of a `match` on values that clients send: header fields, query parameters and cookies.

use http::HeaderValue;

use super::names::header_name;
use super::{Checked, parsed};
use crate::config::file;
use crate::config::located::{Located, TextOrList};
use crate::config::problem::{Location, Problems, quote};
use crate::route::{ValueCondition, ValueSource, ValueTest};

const MAX_VALUES: usize = 100;

type Written = Located<Vec<(String, Located<TextOrList>)>>;

pub(super) fn values(written: &file::Match, problems: &mut Problems) -> Checked<Vec<ValueCondition>> {
    let mut all = Vec::new();
    let mut add = |written: &Written, source: fn(&str, Location, &mut Problems) -> Checked<ValueSource>| {
        for (name, value) in written.get().into_iter().flatten() {
            all.push(condition(name, value, source, problems).and_then(|condition| {
                let is_same = |other: &Checked<ValueCondition>| {
                    other.as_ref().is_ok_and(|other| other.source == condition.source)
                };
                if all.iter().any(is_same) {
                    let message = format!("{} is repeated", quote(name));
                    return Err(problems.add(value.key_location(), message, "list all values under one name"));
                }
                Ok(condition)
            }));
        }
        written.optional(problems).map(drop)
    };
    let headers = add(&written.headers, header);
    let query = add(&written.query, query);
    let cookies = add(&written.cookies, cookie);
    headers.and(query).and(cookies)?;
    all.into_iter().collect()
}

fn condition(
    name: &str,
    written: &Located<TextOrList>,
    source: fn(&str, Location, &mut Problems) -> Checked<ValueSource>,
    problems: &mut Problems,
) -> Checked<ValueCondition> {
    let source = source(name, written.key_location(), problems);
    let test = match written.required(problems)? {
        TextOrList::Text(text) if text == "present" => ValueTest::Present,
        TextOrList::Text(text) if text == "absent" => ValueTest::Absent,
        TextOrList::Text(text) => {
            if text == "*" {
                let message = format!("{} matches only a literal `*`", quote(name));
                problems.warn(written.location, &message, "to match any value, use `present`");
            }
            ValueTest::OneOf(vec![value(text, written.location, &source, problems)?])
        }
        TextOrList::List(list) if list.len() > MAX_VALUES => {
            let message = format!("{} has more than {MAX_VALUES} values", quote(name));
            return Err(written.report(message, "distribute the values over several routes", problems));
        }
        TextOrList::List(list) => {
            let values: Vec<_> =
                list.iter().map(|item| value(item.required(problems)?, item.location, &source, problems)).collect();
            ValueTest::OneOf(values.into_iter().collect::<Checked<_>>()?)
        }
    };
    Ok(ValueCondition { source: source?, test })
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

fn header(name: &str, location: Location, problems: &mut Problems) -> Checked<ValueSource> {
    header_name(name, location, problems).map(ValueSource::Header)
}

fn query(name: &str, location: Location, problems: &mut Problems) -> Checked<ValueSource> {
    if is_name(name, &['&', ';', '=', '#', '[', '%', '+']) {
        return Ok(ValueSource::Query(name.into()));
    }
    let message = format!("{} is not a parameter name", quote(name));
    Err(problems.add(location, message, "write the decoded name, without `=` and `[]`"))
}

fn cookie(name: &str, location: Location, problems: &mut Problems) -> Checked<ValueSource> {
    if is_name(name, &['=', ';', ',', '"', '%', '+']) {
        return Ok(ValueSource::Cookie(name.into()));
    }
    let message = format!("{} is not a cookie name", quote(name));
    Err(problems.add(location, message, "use letters, digits, `-` and `_`"))
}

fn is_name(name: &str, excluded: &[char]) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_graphic() && !excluded.contains(&letter))
}
