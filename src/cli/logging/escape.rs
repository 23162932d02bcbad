//! Escapes characters that could mislead a reader of a log line: terminal control, invisible and bidirectional
//! characters, and line separators.

use std::borrow::Cow;
use std::fmt::Write;

/// Escapes the unsafe characters of a line, which ends in a line feed, with JSON escapes or Rust escapes.
pub(super) fn escape_line(line: &str, is_json: bool) -> Cow<'_, str> {
    let text = line.strip_suffix('\n').unwrap_or(line);
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) || !text.contains(is_unsafe) {
        return Cow::Borrowed(line);
    }
    let mut escaped = String::with_capacity(line.len() + 64);
    for c in text.chars() {
        match is_unsafe(c) {
            false => escaped.push(c),
            true => escape_char(c, is_json, &mut escaped),
        }
    }
    escaped.push('\n');
    Cow::Owned(escaped)
}

fn escape_char(c: char, is_json: bool, out: &mut String) {
    // Writing to a string cannot fail.
    match is_json {
        true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(out, "\\u{unit:04x}")),
        false => _ = write!(out, "{}", c.escape_unicode()),
    }
}

/// Returns `true` for control and format characters (bidirectional marks, joiners, tags), line and paragraph
/// separators, whitespace other than the space, and noncharacters.
pub(in crate::cli) fn is_unsafe(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}'
            | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fdd0}'..='\u{fdef}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{fffe}'..='\u{ffff}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unsafe_characters_are_escaped() {
        for plain in ["GET /a status=200\n", "GET /straße/道\n", "no end"] {
            assert!(matches!(escape_line(plain, false), Cow::Borrowed(text) if text == plain), "{plain}");
        }
        let unsafe_texts =
            ["\u{202e}", "\u{2066}", "\u{2028}", "\u{2029}", "\u{200b}", "\u{feff}", "\u{85}", "\u{a0}", "\u{7f}"];
        for unsafe_text in unsafe_texts.into_iter().chain(["\r", "\n", "\t", "\u{1b}", "\u{e0041}"]) {
            let line = format!("a{unsafe_text}b\n");
            let human = escape_line(&line, false);
            assert!(human.starts_with("a\\u{") && human.ends_with("}b\n") && human.is_ascii(), "{human}");
            let json = format!("\"{}\"", escape_line(&line, true).trim_end());
            assert!(json.is_ascii(), "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), format!("a{unsafe_text}b"), "{json}");
        }
    }
}
