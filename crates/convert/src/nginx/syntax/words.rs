//! The words of directives.

/// The name or an argument of a directive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// The text, without its quotes and with its escapes resolved.
    pub(crate) text: String,
    /// Whether the word was quoted.
    pub(crate) is_quoted: bool,
}

// === impl Word ===

impl Word {
    pub(super) fn quoted(raw: &str) -> Self {
        Self { text: unescaped(raw), is_quoted: true }
    }

    pub(super) fn unquoted(raw: &str) -> Self {
        Self { text: unescaped(raw), is_quoted: false }
    }
}

/// Resolves the escapes of quotes, backslashes, tabs and line breaks. Other backslashes stay, as in regular expressions.
fn unescaped(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut letters = raw.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        match letters.next() {
            Some(escaped @ ('"' | '\'' | '\\')) => text.push(escaped),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('n') => text.push('\n'),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    text
}
