//! Conditions on values that clients send: header fields, query parameters, cookies and members of JSON bodies.
//!
//! Origins read some values differently: values that were sent twice, names in another case, percent-encoded cookies.
//! A condition is tested against every reading. If only some readings meet it, the request is ambiguous.

mod cookie;
mod header;
mod json;
mod pattern;
mod query;
#[cfg(test)]
mod tests;

use http::{HeaderName, header as names};

pub use self::pattern::{ValueParts, ValuePattern, ValueRegex};
use crate::request::facts::Facts;
use tidegate_usage::Pointer;

/// A condition on one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueCondition {
    /// The value.
    pub source: ValueSource,
    /// The requirement.
    pub test: ValueTest,
}

/// Where a request contains a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// A header field.
    Header(HeaderName),
    /// A query parameter.
    Query(Box<str>),
    /// A cookie.
    Cookie(Box<str>),
    /// A value of a JSON body. Only in conditions of limits.
    Json(Pointer),
}

/// The requirement of a condition on a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueTest {
    /// The request contains the value.
    Present,
    /// The request does not contain the value.
    Absent,
    /// One of these patterns matches the value.
    OneOf(Vec<ValuePattern>),
}

/// Whether a request meets a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Met {
    /// In no reading.
    No,
    /// Only in some readings.
    Maybe,
    /// In every reading.
    Yes,
}

/// The results of a test for the readings of a value.
struct Readings<'t> {
    test: &'t ValueTest,
    passed: bool,
    failed: bool,
    /// How often the request contains the value.
    count: usize,
}

// === impl Met ===

impl Met {
    /// Returns the result of the opposite condition.
    #[must_use]
    pub const fn inverted(self) -> Self {
        match self {
            Self::No => Self::Yes,
            Self::Maybe => Self::Maybe,
            Self::Yes => Self::No,
        }
    }
}

impl From<bool> for Met {
    fn from(is_met: bool) -> Self {
        if is_met { Self::Yes } else { Self::No }
    }
}

// === impl ValueCondition ===

impl ValueCondition {
    /// Creates the condition that a header field has this value.
    pub fn header(name: HeaderName, value: &str) -> Self {
        Self { source: ValueSource::Header(name), test: ValueTest::OneOf(vec![value.as_bytes().into()]) }
    }

    /// Tests the value of a request.
    pub fn met(&self, facts: &Facts<'_>) -> Met {
        let mut readings = Readings { test: &self.test, passed: false, failed: false, count: 0 };
        match &self.source {
            ValueSource::Header(name) => return header::met(facts.headers, name, readings),
            ValueSource::Query(name) => query::read(facts.query.unwrap_or_default(), name, &mut readings),
            ValueSource::Cookie(name) => cookie::read(facts.headers, name, &mut readings),
            ValueSource::Json(pointer) => json::read(facts.body.as_deref(), pointer, &mut readings),
        }
        readings.met()
    }

    /// Returns `true` if each request that meets `other` also meets this condition.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self.source == other.source
            && match (&self.test, &other.test) {
                (ValueTest::OneOf(wide), ValueTest::OneOf(narrow)) => {
                    let may_join = |patterns: &[ValuePattern]| patterns.iter().any(ValuePattern::may_join);
                    narrow.iter().all(|narrow| wide.iter().any(|wide| wide.covers(narrow)))
                        && (may_join(wide) || !may_join(narrow))
                }
                (ValueTest::Present, ValueTest::Present | ValueTest::OneOf(_)) => true,
                (wide, narrow) => wide == narrow,
            }
    }

    /// Returns `true` if no request meets both conditions.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        self.source == other.source
            && match (&self.test, &other.test) {
                // Each line of a list field is a value.
                (ValueTest::OneOf(some), ValueTest::OneOf(others)) => {
                    !matches!(&self.source, ValueSource::Header(name) if header::is_list(name))
                        && !some.iter().any(|pattern| others.iter().any(|other| pattern.overlaps(other)))
                }
                (ValueTest::Absent, test) | (test, ValueTest::Absent) => *test != ValueTest::Absent,
                (ValueTest::Present, _) | (_, ValueTest::Present) => false,
            }
    }

    /// Returns the header field that contains the value.
    pub fn field(&self) -> Option<&HeaderName> {
        match &self.source {
            ValueSource::Header(name) => Some(name),
            ValueSource::Cookie(_) => Some(&names::COOKIE),
            ValueSource::Query(_) | ValueSource::Json(_) => None,
        }
    }

    /// Returns the header field if a second value makes the request ambiguous.
    pub(super) fn single_field(&self) -> Option<&HeaderName> {
        match (&self.source, &self.test) {
            (ValueSource::Header(name), ValueTest::OneOf(_)) if !header::is_list(name) => Some(name),
            _ => None,
        }
    }
}

// === impl Readings ===

impl Readings<'_> {
    /// Adds a reading; `None` if origins find no value. Some origins treat an empty value as no value.
    fn add(&mut self, value: Option<&[u8]>) {
        match (self.test, value) {
            (ValueTest::Present | ValueTest::Absent, Some([])) => self.add_unknown(),
            (ValueTest::Present, value) => self.add_result(value.is_some()),
            (ValueTest::Absent, value) => self.add_result(value.is_none()),
            (ValueTest::OneOf(patterns), value) => {
                self.add_result(value.is_some_and(|value| patterns.iter().any(|pattern| pattern.matches(value))));
            }
        }
    }

    /// Adds a value that origins read differently.
    fn add_unreadable(&mut self) {
        match self.test {
            ValueTest::Present => self.passed = true,
            ValueTest::Absent => self.failed = true,
            ValueTest::OneOf(_) => self.add_unknown(),
        }
    }

    /// Adds a part of the request that may or may not be a value.
    fn add_unknown(&mut self) {
        (self.passed, self.failed) = (true, true);
    }

    fn add_result(&mut self, has_passed: bool) {
        self.passed |= has_passed;
        self.failed |= !has_passed;
    }

    /// Returns the result. Of two values, origins use the first, the last, a list or a text of both.
    fn met(mut self) -> Met {
        if self.count == 0 {
            self.add(None);
        }
        if let ValueTest::OneOf(patterns) = self.test
            && self.count > 1
            && (self.passed || patterns.iter().any(ValuePattern::may_join))
        {
            self.add_unknown();
        }
        match (self.passed, self.failed) {
            (true, false) => Met::Yes,
            (true, true) => Met::Maybe,
            (false, _) => Met::No,
        }
    }
}
