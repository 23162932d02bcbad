//! Escapes values for the place that a text goes to.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::HeaderValue;

use super::Variable;

/// The place that a text goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// The value of a header field. Without one of its values, the field is absent.
    Field,
    /// A URL.
    Url,
    /// A JSON document: values stand in quotes, and `{retry_after}` is a number or `null`.
    Json,
    /// An HTML or XML document.
    Html,
    /// A plain text.
    Text,
}

/// The longest header field value and URL, in bytes.
const MAX_FIELD: usize = 8 << 10;
/// The longest body, in bytes.
const MAX_BODY: usize = 64 << 10;

impl Escape {
    /// Returns the escapes of a body with this content type. Returns `None` if no escapes are known for it.
    pub(crate) fn of_content_type(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let has_suffix = |suffix: &str| essence.ends_with(suffix);
        match essence.as_str() {
            "text/plain" => Some(Self::Text),
            _ if essence == "application/json" || has_suffix("+json") => Some(Self::Json),
            "text/html" | "text/xml" | "application/xml" => Some(Self::Html),
            _ if has_suffix("+xml") => Some(Self::Html),
            _ => None,
        }
    }

    pub(super) fn max_length(self) -> usize {
        match self {
            Self::Field | Self::Url => MAX_FIELD,
            Self::Json | Self::Html | Self::Text => MAX_BODY,
        }
    }

    /// Returns `false` if the whole text cannot be used: recipients trim header fields, and would see another value.
    pub(super) fn is_valid(self, text: &str) -> bool {
        self != Self::Field || !(text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']))
    }

    /// Returns a value as a whole header field. Returns `None` if it cannot be one.
    pub(super) fn field_value(self, value: &str) -> Option<HeaderValue> {
        let is_valid = !value.is_empty() && !has_control(value) && value.len() <= MAX_FIELD && self.is_valid(value);
        if is_valid { HeaderValue::from_bytes(value.as_bytes()).ok() } else { None }
    }

    /// Appends the escaped value of a variable. Returns `None` if it cannot be a part of the text.
    pub(super) fn push(self, variable: &Variable, value: Option<Cow<'_, str>>, text: &mut String) -> Option<()> {
        let Some(value) = value else {
            match (self, variable) {
                // `https://` and a path would name another server.
                (Self::Field, _) | (Self::Url, Variable::Host) => return None,
                (Self::Json, Variable::RetryAfter) => text.push_str("null"),
                _ => {}
            }
            return Some(());
        };
        match (self, variable) {
            (Self::Field, _) if value.is_empty() || has_control(&value) => return None,
            (Self::Field | Self::Text, _) => text.push_str(&value),
            (Self::Url, Variable::Path) => push_path(&value, text),
            (Self::Url, Variable::Uri) => {
                let (path, query) = value.split_at(value.find('?').unwrap_or(value.len()));
                push_path(path, text);
                push_url(query, is_in_query, text);
            }
            (Self::Url, Variable::Query) => push_url(&value, is_in_query, text),
            (Self::Url, Variable::Host) => push_url(&value, is_in_host, text),
            (Self::Url, _) => push_url(&value, is_unreserved, text),
            (Self::Json, _) => push_json(&value, text),
            (Self::Html, _) => push_html(&value, text),
        }
        Some(())
    }
}

/// Returns `true` if a text has a control character.
fn has_control(text: &str) -> bool {
    match text.is_ascii() {
        // Without an early exit, so that the compiler vectorizes the loop.
        true => text.bytes().fold(false, |found, byte| found | byte.is_ascii_control()),
        false => text.chars().any(char::is_control),
    }
}

/// Returns `true` for unreserved characters (RFC 3986 section 2.3).
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
}

/// A path has percent-encoded characters already.
fn is_in_path(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@/%".contains(&byte)
}

fn is_in_query(byte: u8) -> bool {
    is_in_path(byte) || byte == b'?'
}

/// Appends a path with exactly one slash at its start: after `//`, it would name another authority.
fn push_path(path: &str, text: &mut String) {
    text.push('/');
    push_url(path.trim_start_matches(['/', '\\']), is_in_path, text);
}

/// Appends a value, and percent-encodes all bytes other than those for which `is_kept` returns `true`.
fn push_url(value: &str, is_kept: impl Fn(u8) -> bool, text: &mut String) {
    for byte in value.bytes() {
        if is_kept(byte) {
            text.push(char::from(byte));
        } else {
            _ = write!(text, "%{byte:02X}"); // writing to a String cannot fail
        }
    }
}

/// Appends the content of a JSON string (RFC 8259 section 7).
fn push_json(value: &str, text: &mut String) {
    for letter in value.chars() {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            letter if u32::from(letter) < 0x20 => _ = write!(text, "\\u{:04x}", u32::from(letter)), // cannot fail
            letter => text.push(letter),
        }
    }
}

fn push_html(value: &str, text: &mut String) {
    for letter in value.chars() {
        match letter {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            letter => text.push(letter),
        }
    }
}
