//! The names of the limits of a domain: from their rules, in characters that Redis keys, metrics and URLs can contain.

use std::fmt::Write;

use crate::tree::rule::Rule;

/// Returns the name of a rule: `KEY=VALUE`, or `KEY` without a value, after the name of the rule above it and a dot. Other
/// rules have other names: characters with a meaning are written as `%XX`.
pub(crate) fn rule_name(parent: &str, rule: &Rule) -> String {
    let mut name = String::with_capacity(parent.len() + rule.key.len() + 1);
    if !parent.is_empty() {
        name.push_str(parent);
        name.push('.');
    }
    push_escaped(&mut name, &rule.key);
    if let Some(value) = &rule.value {
        name.push('=');
        push_escaped(&mut name, value);
    }
    name
}

/// Returns the text as a name.
pub(crate) fn escaped(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    push_escaped(&mut name, text);
    name
}

fn push_escaped(name: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'/' | b'*' => name.push(byte.into()),
            // Writing to a string cannot fail.
            _ => _ = write!(name, "%{byte:02X}"),
        }
    }
}
