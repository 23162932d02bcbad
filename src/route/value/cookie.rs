//! Reads the values of a cookie (RFC 6265 section 5.4).
//!
//! Some origins also accept commas as separators (RFC 2965), percent-encoded names and values, and quoted values. Names in
//! another case are other cookies: they count only in a request without the cookie, as for client keys.

use http::{HeaderMap, header};

use super::Readings;
use crate::client::spelling::{self, Name};

pub(super) fn read(headers: &HeaderMap, name: &str, readings: &mut Readings<'_>) {
    if !read_names(headers, name, &[Name::Same, Name::Indexed], readings) {
        read_names(headers, name, &[Name::OtherCase], readings);
    }
}

/// Reads the cookies whose names compare like this. Returns `true` if there are some.
fn read_names(headers: &HeaderMap, name: &str, names: &[Name], readings: &mut Readings<'_>) -> bool {
    let lines = headers.get_all(header::COOKIE).iter();
    let mut first = None;
    for pair in lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';')) {
        let is_split = pair.contains(&b',');
        for (index, part) in pair.split(|byte| *byte == b',').enumerate() {
            let (sent, value) = split(part);
            let is_exact = *sent == *name.as_bytes();
            if !names.contains(&compare(sent, name, is_exact)) {
                continue;
            }
            // No origin makes a list of cookies, so equal values are one value.
            if readings.count == 0 || is_split || first != Some(value) {
                readings.count += 1;
            }
            first.get_or_insert(value);
            add(value, readings);
            if is_split && index == 0 {
                add(split(pair).1, readings);
            }
            if !is_exact || index > 0 {
                readings.add(None);
            }
        }
    }
    first.is_some()
}

fn compare(sent: &[u8], name: &str, is_exact: bool) -> Name {
    if is_exact {
        return Name::Same;
    }
    let decoded = spelling::decode(sent);
    spelling::name(decoded.as_deref().unwrap_or(sent), name)
}

fn split(part: &[u8]) -> (&[u8], &[u8]) {
    let equals = part.iter().position(|byte| *byte == b'=');
    let (name, value) = part.split_at(equals.unwrap_or(part.len()));
    (spelling::trim(name), spelling::trim(value.strip_prefix(b"=").unwrap_or(value)))
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
