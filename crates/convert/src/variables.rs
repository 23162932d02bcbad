//! Texts of a source in places where the rule file can have variables.

use crate::draft::value::Value;

/// Returns a text in which no brace begins a variable: `{{route}` is the text `{route}`.
pub(crate) fn literal(text: &str) -> Value {
    let mut literal = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        literal.push(letter);
        if letter == '{' && letters.peek().is_some_and(char::is_ascii_alphanumeric) {
            literal.push('{');
        }
    }
    Value::Text(literal)
}

/// Returns `true` for a value that a header field can have.
pub(crate) fn is_field_value(text: &str) -> bool {
    text.len() <= 8_192 && text.bytes().all(|byte| (b' '..0x7f).contains(&byte))
}
