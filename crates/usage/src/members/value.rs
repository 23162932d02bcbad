//! One value of a JSON body, in the only form in which parsers read it.

use std::borrow::Cow;

use crate::json::Value;

/// A value that a rule reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberValue {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number in its shortest form: `7` is also `7.0` and `70e-1`.
    Number(Box<str>),
    /// A string of at most [`MemberValue::MAX_TEXT`] bytes.
    Text(Box<str>),
    /// A longer string.
    Long,
    /// An array or an object.
    Container,
}

/// A value that parsers read in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ambiguity {
    /// The number is above 2^53, so that some parsers round it, or above all numbers of others.
    Number,
    /// The string has half of a character of UTF-16.
    Text,
}

/// The largest whole number that all parsers read exactly.
const MAX_NUMBER: f64 = 9_007_199_254_740_991.0;

impl MemberValue {
    /// The longest string that is read, in bytes.
    pub const MAX_TEXT: usize = 1_024;

    /// Returns the text of a string, a number or a boolean. A string and a number can have the same text.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Bool(value) => Some(if *value { "true" } else { "false" }.into()),
            Self::Number(text) | Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Null | Self::Long | Self::Container => None,
        }
    }

    /// Reads a value at the start of `rest`, which is valid JSON.
    pub(super) fn read(value: Value<'_>, rest: &[u8]) -> Result<Self, Ambiguity> {
        match value {
            Value::Null => Ok(Self::Null),
            Value::Bool(value) => Ok(Self::Bool(value)),
            Value::Number(text) => number(text),
            Value::Long if rest.first() != Some(&b'"') => Err(Ambiguity::Number),
            Value::String(_) | Value::Long => text(rest),
            Value::Array | Value::Object => Ok(Self::Container),
        }
    }
}

fn number(text: &[u8]) -> Result<MemberValue, Ambiguity> {
    let number = str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let number = number.filter(|number| number.abs() <= MAX_NUMBER).ok_or(Ambiguity::Number)?;
    // The sum makes zero of minus zero.
    Ok(MemberValue::Number((number + 0.0).to_string().into()))
}

/// Reads a string. The scanner replaces halves of characters, which parsers read in different ways.
fn text(rest: &[u8]) -> Result<MemberValue, Ambiguity> {
    let text = serde_json::Deserializer::from_slice(rest).into_iter::<String>().next();
    let text = text.and_then(Result::ok).ok_or(Ambiguity::Text)?;
    Ok(if text.len() <= MemberValue::MAX_TEXT { MemberValue::Text(text.into()) } else { MemberValue::Long })
}
