//! Reads the values of a cookie (RFC 6265 section 5.4).
//!
//! Some origins also accept commas as separators (RFC 2965), percent-encoded names and values, and quoted values.

use http::{HeaderMap, header};

use super::Readings;
use crate::client::spelling;

pub(super) fn read(headers: &HeaderMap, name: &str, readings: &mut Readings<'_>) {
    let lines = headers.get_all(header::COOKIE).iter();
    for pair in lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';')) {
        let is_split = pair.contains(&b',');
        for (index, part) in pair.split(|byte| *byte == b',').enumerate() {
            let (sent, value) = split(part);
            let is_exact = *sent == *name.as_bytes();
            if !is_exact {
                let decoded = spelling::decode(sent);
                if !spelling::resembles(decoded.as_deref().unwrap_or(sent), name) {
                    continue;
                }
            }
            readings.count += 1;
            add(value, readings);
            if is_split && index == 0 {
                add(split(pair).1, readings);
            }
            if !is_exact || index > 0 {
                readings.add(None);
            }
        }
    }
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
