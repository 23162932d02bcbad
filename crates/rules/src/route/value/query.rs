//! Reads the values of a query parameter.

use super::Readings;
use crate::client::{pairs, spelling};

pub(super) fn read(query: &str, name: &str, readings: &mut Readings<'_>) {
    for pair in pairs::parameters(query) {
        let Ok(sent) = spelling::decode(pair.name) else {
            readings.add_unknown();
            continue;
        };
        if !spelling::resembles(&sent, name) {
            continue;
        }
        readings.count += 1;
        add(pair.value, readings);
        if let Some(value) = pair.other_value() {
            add(value, readings);
        }
        if !pair.is_first || *sent != *name.as_bytes() {
            // Some origins find no parameter of this name here.
            readings.add(None);
        }
    }
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
