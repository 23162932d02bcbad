//! Reads the values of a cookie.
//!
//! Some origins also accept percent-encoded names and values, and quoted values. Names in another case are other cookies:
//! they count only in a request without the cookie, as for client keys.

use http::HeaderMap;

use super::Readings;
use crate::client::spelling::{self, Name};
use crate::client::{cookie, pairs};

pub(super) fn read(headers: &HeaderMap, name: &str, readings: &mut Readings<'_>) {
    if !read_names(headers, name, &[Name::Same, Name::Indexed], readings) {
        read_names(headers, name, &[Name::OtherCase], readings);
    }
}

/// Reads the cookies whose names compare like this. Returns `true` if there are some.
fn read_names(headers: &HeaderMap, name: &str, names: &[Name], readings: &mut Readings<'_>) -> bool {
    let mut first = None;
    for pair in pairs::cookies(headers) {
        let (sent, value) = (spelling::trim(pair.name), spelling::trim(pair.value));
        let is_exact = *sent == *name.as_bytes();
        let compared = if is_exact { Name::Same } else { cookie::name(sent, name) };
        if !names.contains(&compared) {
            continue;
        }
        // No origin makes a list of cookies, so equal values are one value.
        if readings.count == 0 || pair.is_split || first != Some(value) {
            readings.count += 1;
        }
        first.get_or_insert(value);
        add(value, readings);
        if let Some(value) = pair.other_value() {
            add(spelling::trim(value), readings);
        }
        if !is_exact || !pair.is_first {
            readings.add(None);
        }
    }
    first.is_some()
}

fn add(value: &[u8], readings: &mut Readings<'_>) {
    readings.add(Some(value));
    if !value.iter().any(|byte| matches!(byte, b'%' | b'+' | b'"' | b'\\')) {
        return;
    }
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
    readings.add(Some(inner));
    match spelling::decode(inner) {
        Ok(decoded) if !decoded.iter().any(|byte| byte.is_ascii_control() || matches!(byte, b'"' | b'\\')) => {
            readings.add(Some(spelling::trim(&decoded)));
        }
        Ok(_) => readings.add_unreadable(),
        Err(_) => {}
    }
}
