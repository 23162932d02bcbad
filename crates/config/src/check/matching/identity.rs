//! Conditions on values of credentials: in `require`, `identity` of a `match`, and `claims` of tokens.

use super::spelling;
use crate::check::{Checked, all};
use crate::file::located::{Located, OneOrList, ValueOrMap};
use crate::file::{Exclusion, IdentityConditions};
use crate::problem::{Location, Problems, quote, quote_all};
use tidegate_rules::request::identity::{IdentityCondition, IdentityKind, IdentityTest, IdentityValue};

/// The highest number of values of a condition.
const MAX_VALUES: usize = 100;

type Value = ValueOrMap<String, Exclusion>;

type Test = OneOrList<Value>;

/// Converts conditions on the values of one kind of credentials, which their names omit.
pub(crate) fn of_kind(
    raw: &Located<IdentityConditions>,
    kind: IdentityKind,
    problems: &mut Problems,
) -> Checked<Vec<IdentityCondition>> {
    conditions(raw, problems, |name, at, problems| {
        let (source, help) = match kind {
            IdentityKind::Token => {
                ("jwt", "write the name of a claim, or a JSON pointer such as `/realm_access/roles`")
            }
            IdentityKind::Key => ("key", "write `id`, `tier`, or the name of an attribute"),
            IdentityKind::User => ("basic", "write `user`"),
        };
        IdentityValue::parse(&format!("{source}:{name}"))
            .ok_or_else(|| problems.add(at, format!("{} is not a value of these credentials", quote(name)), help))
    })
}

/// Converts conditions on values of all kinds of credentials.
pub(crate) fn of_all_kinds(
    raw: &Located<IdentityConditions>,
    problems: &mut Problems,
) -> Checked<Vec<IdentityCondition>> {
    let conditions = conditions(raw, problems, |name, at, problems| {
        let value = IdentityValue::parse(name).filter(|value| !value.kinds().is_empty());
        value.ok_or_else(|| {
            let message = format!("{} is not a value of credentials", quote(name));
            problems.add(at, message, "write `jwt:CLAIM`, `key:id`, `key:tier`, `key:ATTRIBUTE` or `basic:user`")
        })
    })?;
    match conditions.is_empty() && raw.is_present() {
        true => Err(raw.report("`identity` has no condition", "for example `{ jwt:role: admin }`", problems)),
        false => Ok(conditions),
    }
}

fn conditions(
    raw: &Located<IdentityConditions>,
    problems: &mut Problems,
    read: impl Fn(&str, Location, &mut Problems) -> Checked<IdentityValue>,
) -> Checked<Vec<IdentityCondition>> {
    let Some(entries) = raw.optional(problems)? else { return Ok(Vec::new()) };
    all(entries.iter().map(|(name, raw)| {
        let value = read(name, raw.key_location(), problems);
        let test = test(name, raw, problems);
        let (value, test) = (value?, test?);
        if let IdentityValue::Claim(claim) = &value
            && let Some(spelling) = spelling::of_tested_claim(claim)
        {
            spelling.warn(raw.key_location(), problems);
        }
        Ok(IdentityCondition { value, test })
    }))
}

fn test(name: &str, raw: &Located<Test>, problems: &mut Problems) -> Checked<IdentityTest> {
    let is_text = |value: &Value, word: &str| matches!(value, ValueOrMap::Value(text) if text == word);
    match raw.required(problems)? {
        OneOrList::One(word) if is_text(word, "present") => Ok(IdentityTest::Present),
        OneOrList::One(word) if is_text(word, "absent") => Ok(IdentityTest::Absent),
        OneOrList::One(ValueOrMap::Value(text)) => {
            Ok(IdentityTest::OneOf(vec![value(text, raw.location, problems).into()]))
        }
        OneOrList::One(ValueOrMap::Map(exclusion)) => {
            let values = exclusion.not.required(problems)?;
            let values = values.iter().map(|raw| Ok(value(raw.required(problems)?, raw.location, problems).into()));
            bounded(name, all(values)?, raw, problems).map(IdentityTest::NoneOf)
        }
        OneOrList::List(list) => {
            let values = list.iter().map(|raw| match raw.required(problems)? {
                ValueOrMap::Value(text) => Ok(value(text, raw.location, problems).into()),
                ValueOrMap::Map(_) => Err(problems.reported(raw.location)), // a list has only values
            });
            bounded(name, all(values)?, raw, problems).map(IdentityTest::OneOf)
        }
    }
}

/// Warns about a value that is probably a pattern.
fn value<'t>(text: &'t str, at: Location, problems: &mut Problems) -> &'t str {
    if text.contains('*') {
        let message = format!("{} matches only this text: a `*` has no meaning", quote(text));
        problems.warn(at, &message, "list the values, or write `present` for any value");
    }
    text
}

fn bounded<T>(name: &str, values: Vec<Box<str>>, raw: &Located<T>, problems: &mut Problems) -> Checked<Vec<Box<str>>> {
    match values.len() {
        0..=MAX_VALUES => Ok(values),
        _ => {
            let message = format!("{} has more than {MAX_VALUES} values", quote(name));
            Err(raw.report(message, "let the issuer add a claim that stands for these values", problems))
        }
    }
}

/// Warns about conditions that tokens of several issuers can meet: an issuer of customers may grant a role that another
/// issuer means for employees.
pub(crate) fn warn_of_issuers(
    conditions: &[IdentityCondition],
    issuers: &[&str],
    at: Location,
    problems: &mut Problems,
) {
    let reads_token = conditions.iter().any(|condition| condition.value.reads_token());
    let is_of_issuer = |condition: &IdentityCondition| {
        let is_one_of = matches!(condition.test, IdentityTest::OneOf(_));
        is_one_of && matches!(&condition.value, IdentityValue::Claim(claim) if matches!(&**claim, "iss" | "/iss"))
    };
    if issuers.len() > 1 && reads_token && !conditions.iter().any(is_of_issuer) {
        let message = format!("tokens of each issuer can meet this condition: {}", quote_all(issuers.iter().copied()));
        problems.warn(at, &message, "add a condition on `iss`, unless you trust all of them with it");
    }
}
