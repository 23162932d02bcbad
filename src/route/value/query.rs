//! Reads the values of a query parameter (`application/x-www-form-urlencoded`).
//!
//! For some origins a semicolon separates parameters, for others it is data.

use super::Readings;
use crate::client::spelling;

pub(super) fn read(query: &str, name: &str, readings: &mut Readings<'_>) {
    for pair in query.as_bytes().split(|byte| *byte == b'&') {
        let is_split = pair.contains(&b';');
        for (index, part) in pair.split(|byte| *byte == b';').enumerate() {
            let (sent, value) = split(part);
            let Ok(sent) = spelling::decode(sent) else {
                readings.add_unknown();
                continue;
            };
            if !spelling::resembles(&sent, name) {
                continue;
            }
            readings.count += 1;
            add(value, readings);
            if is_split && index == 0 {
                add(split(pair).1, readings);
            }
            if index > 0 || *sent != *name.as_bytes() {
                // Some origins find no parameter of this name here.
                readings.add(None);
            }
        }
    }
}

fn split(part: &[u8]) -> (&[u8], &[u8]) {
    let equals = part.iter().position(|byte| *byte == b'=');
    let (name, value) = part.split_at(equals.unwrap_or(part.len()));
    (name, value.strip_prefix(b"=").unwrap_or(value))
}

fn add(value: &[u8], readings: &mut Readings<'_>) {
    match spelling::decode(value) {
        Ok(value) if !value.iter().any(u8::is_ascii_control) => {
            readings.add(Some(&value));
            let trimmed = spelling::trim(&value);
            if trimmed.len() < value.len() {
                readings.add(Some(trimmed));
            }
        }
        Ok(_) | Err(_) => readings.add_unreadable(),
    }
}
