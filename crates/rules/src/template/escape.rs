//! Escapes values for the place that a text goes to.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

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
    pub fn of_content_type(content_type: &str) -> Option<Self> {
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
                push_url(query, IN_QUERY, text);
            }
            (Self::Url, Variable::Query) => push_url(&value, IN_QUERY, text),
            (Self::Url, Variable::Host) => push_url(&value, IN_HOST, text),
            (Self::Url, _) => push_url(&value, IN_PART, text),
            (Self::Json, _) => push_json(&value, text),
            (Self::Html, _) => push_html(&value, text),
        }
        Some(())
    }
}

fn has_control(text: &str) -> bool {
    match text.is_ascii() {
        // Without an early exit, so that the compiler vectorizes the loop.
        true => text.bytes().fold(false, |found, byte| found | byte.is_ascii_control()),
        false => text.chars().any(char::is_control),
    }
}

/// The bytes that are percent-encoded in a part of a URL (RFC 3986 section 2.3).
const IN_PART: &AsciiSet = &all_except(b"._~");
const IN_HOST: &AsciiSet = &all_except(b"._:[]");
/// A path and a query have percent-encoded characters already.
const IN_PATH: &AsciiSet = &all_except(b"._~!$&'()*+,;=:@/%");
const IN_QUERY: &AsciiSet = &all_except(b"._~!$&'()*+,;=:@/%?");

/// Returns the set of all bytes except letters, digits, `-` and these.
const fn all_except(mut kept: &[u8]) -> AsciiSet {
    let mut set = NON_ALPHANUMERIC.remove(b'-');
    while let Some((byte, rest)) = kept.split_first() {
        (set, kept) = (set.remove(*byte), rest);
    }
    set
}

/// Appends a path with exactly one slash at its start: after `//`, it would name another authority.
fn push_path(path: &str, text: &mut String) {
    text.push('/');
    push_url(path.trim_start_matches(['/', '\\']), IN_PATH, text);
}

fn push_url(value: &str, set: &'static AsciiSet, text: &mut String) {
    text.extend(utf8_percent_encode(value, set));
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
