//! Fuzzes calls of the rate limit service, which are gRPC messages or JSON.

use std::fmt::Write;

use tidegate::internals::{ReadCall, ReadDescriptor};

/// The bounds of docs/service.md.
const MAX_DESCRIPTORS: usize = 100;
const MAX_ENTRIES: usize = 32;
const MAX_TEXT: usize = 60 << 10;

/// Each unit, in the order of its numbers in Protocol Buffers, from 1.
const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "month", "year", "week"];

/// Checks that a call keeps the bounds, and that both formats have the same meaning. Reads the input in both formats.
pub fn call(data: &[u8]) {
    for read in [ReadCall::from_message(data), ReadCall::from_json(data)] {
        match read {
            Err(error) => assert!(!error.is_empty(), "an error without a message"),
            Ok(call) => {
                check_bounds(&call);
                let json = json(&call);
                assert_eq!(ReadCall::from_json(json.as_bytes()).as_ref(), Ok(&call), "{json}");
                assert_eq!(ReadCall::from_message(&message(&call)).as_ref(), Ok(&call));
            }
        }
    }
}

fn check_bounds(call: &ReadCall) {
    assert!((1..=MAX_TEXT).contains(&call.domain.len()));
    assert!((1..=MAX_DESCRIPTORS).contains(&call.descriptors.len()));
    for descriptor in &call.descriptors {
        assert!(descriptor.entries.len() <= MAX_ENTRIES);
        assert!(descriptor.entries.iter().all(|(key, value)| key.len().max(value.len()) <= MAX_TEXT));
    }
}

// === JSON ===

fn json(call: &ReadCall) -> String {
    let descriptors: Vec<_> = call.descriptors.iter().map(json_descriptor).collect();
    let (domain, descriptors) = (json_text(&call.domain), descriptors.join(","));
    format!("{{\"domain\":{domain},\"descriptors\":[{descriptors}],\"hitsAddend\":{}}}", call.hits_addend)
}

fn json_descriptor(descriptor: &ReadDescriptor) -> String {
    let entry =
        |(key, value): &(String, String)| format!("{{\"key\":{},\"value\":{}}}", json_text(key), json_text(value));
    let entries: Vec<_> = descriptor.entries.iter().map(entry).collect();
    let mut text = format!("{{\"entries\":[{}]", entries.join(","));
    if let Some((requests, unit)) = descriptor.limit {
        let unit = unit.to_uppercase();
        _ = write!(text, ",\"limit\":{{\"requestsPerUnit\":{requests},\"unit\":\"{unit}\"}}");
    }
    if let Some(hits) = descriptor.hits_addend {
        _ = write!(text, ",\"hitsAddend\":\"{hits}\"");
    }
    text + "}"
}

/// Returns a text as JSON.
pub(super) fn json_text(text: &str) -> String {
    let mut result = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' | '\0'..='\x1f' => _ = write!(result, "\\u{:04x}", u32::from(character)),
            character => result.push(character),
        }
    }
    result + "\""
}

// === Protocol Buffers ===

fn message(call: &ReadCall) -> Vec<u8> {
    let mut message = bytes_field(1, call.domain.as_bytes());
    for descriptor in &call.descriptors {
        message.extend(bytes_field(2, &descriptor_message(descriptor)));
    }
    message.extend(number_field(3, call.hits_addend.into()));
    message
}

fn descriptor_message(descriptor: &ReadDescriptor) -> Vec<u8> {
    let mut message = Vec::new();
    for (key, value) in &descriptor.entries {
        let entry = [bytes_field(1, key.as_bytes()), bytes_field(2, value.as_bytes())].concat();
        message.extend(bytes_field(1, &entry));
    }
    if let Some((requests, unit)) = descriptor.limit {
        let (number, _) = (1..).zip(UNITS).find(|(_, other)| *other == unit).expect("a known unit");
        let limit = [number_field(1, requests.into()), number_field(2, number)].concat();
        message.extend(bytes_field(2, &limit));
    }
    if let Some(hits) = descriptor.hits_addend {
        message.extend(bytes_field(3, &number_field(1, hits)));
    }
    message
}

fn number_field(field: u8, number: u64) -> Vec<u8> {
    [vec![field << 3], varint(number)].concat()
}

fn bytes_field(field: u8, bytes: &[u8]) -> Vec<u8> {
    [vec![(field << 3) | 2], varint(length(bytes)), bytes.to_vec()].concat()
}

fn length(bytes: &[u8]) -> u64 {
    bytes.len().try_into().expect("a length of 64 bits")
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}
