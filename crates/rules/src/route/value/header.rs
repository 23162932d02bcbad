//! Tests the values of a header field.

use http::{HeaderMap, HeaderName, header};

use super::{Met, Readings, ValueTest};
use crate::client::spelling;

pub(super) fn met(headers: &HeaderMap, name: &HeaderName, mut readings: Readings<'_>) -> Met {
    let lines = || headers.get_all(name).iter().map(|line| line.as_bytes().trim_ascii());
    let is_list = is_list(name);
    for value in lines() {
        if is_list && value.is_empty() && lines().any(|other| !other.is_empty()) {
            continue; // an empty line adds nothing to a list
        }
        readings.add(Some(value));
        // Some origins decode fields as Latin-1 and also trim its whitespace.
        let trimmed = spelling::trim(value);
        if trimmed.len() < value.len() {
            readings.add(Some(trimmed));
        } else if readings.passed && is_list && matches!(readings.test, ValueTest::OneOf(_)) {
            return Met::Yes; // one line of a list suffices
        }
        // Different values of a single-valued field are rejected for all routes. Equal lines are one value.
        readings.count = 1;
    }
    readings.met()
}

/// Returns `true` for list fields, which mean the same on several lines as on one (RFC 9110 section 5.3).
pub(super) fn is_list(name: &HeaderName) -> bool {
    const LISTS: [HeaderName; 5] = [
        header::CACHE_CONTROL,
        header::COOKIE,
        header::FORWARDED,
        header::VIA,
        HeaderName::from_static("x-forwarded-for"),
    ];
    LISTS.contains(name) || name.as_str().starts_with("accept")
}
