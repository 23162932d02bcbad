//! Texts of the rule file with variables such as `{path}`. They are parsed at load, and values are escaped for the place
//! that the text goes to.
//!
//! A `{` starts a variable only if a name and a `}` follow. All other braces are literal, so JSON needs no escapes.
//! `{{name}}` is the text `{name}`. A `{` before the name of a variable that no `}` follows is an error, because it is
//! probably a typing error; `{{name` is the text `{name`.

mod escape;
mod values;

#[cfg(test)]
mod tests;

use std::fmt;

use http::HeaderValue;

pub use self::escape::Escape;
pub use self::values::Values;
use crate::request::identity::IdentityValue;

/// A text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Box<[Part]>,
    escape: Escape,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A literal text.
    Text(Box<str>),
    /// The value of a variable.
    Variable(Variable),
}

/// A variable of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// `{client_ip}`: the client's address.
    ClientIp,
    /// `{request_id}`: the id of the request.
    RequestId,
    /// `{path}`: the path of the request, normalized, before any rewriting.
    Path,
    /// `{query}`: the query with its question mark, or nothing.
    Query,
    /// `{uri}`: the path, and the query with its question mark.
    Uri,
    /// `{host}`: the host, in lower case and without a port.
    Host,
    /// `{route}`: the name of the route.
    Route,
    /// `{retry_after}`: the seconds of `Retry-After`.
    RetryAfter,
    /// `{limit}`: the first limit that rejected the request.
    Limit,
    /// `{jwt:CLAIM}`, `{key:NAME}` or `{basic:user}`.
    Identity(IdentityValue),
}

/// Why a text is not a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateError<'t> {
    /// No template has a variable with this name.
    Unknown(&'t str),
    /// The variable with this name has no `}`.
    Unclosed(&'t str),
}

// === impl Template ===

impl Template {
    /// Parses a template whose result is escaped with `escape`.
    ///
    /// # Errors
    /// The text has an unknown variable, or a variable that is not closed.
    pub fn parse(text: &str, escape: Escape) -> Result<Self, TemplateError<'_>> {
        let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(start) = rest.find('{') {
            let (before, braced) = rest.split_at(start);
            literal.push_str(before);
            let inner = &braced[1..];
            if let Some(name) = inner.strip_prefix('{').and_then(leading_name)
                && inner[1 + name.len()..].starts_with("}}")
            {
                literal.extend(["{", name, "}"]);
                rest = &inner[name.len() + 3..];
            } else if let Some(name) = leading_name(inner) {
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal).into()));
                }
                parts.push(Part::Variable(Variable::parse(name).ok_or(TemplateError::Unknown(name))?));
                rest = &inner[name.len() + 1..];
            } else if let Some(name) = inner.strip_prefix('{').and_then(|text| unclosed_name(text, escape)) {
                literal.extend(["{", name]);
                rest = &inner[1 + name.len()..];
            } else if let Some(name) = unclosed_name(inner, escape) {
                return Err(TemplateError::Unclosed(name));
            } else {
                literal.push('{');
                rest = inner;
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal.into()));
        }
        Ok(Self { parts: parts.into(), escape })
    }

    /// Returns the parts, in their order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the variables, in their order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(variable) => Some(variable),
            Part::Text(_) => None,
        })
    }

    /// Returns the values of identities that the template reads.
    pub fn identity_values(&self) -> impl Iterator<Item = &IdentityValue> {
        self.variables().filter_map(|variable| match variable {
            Variable::Identity(value) => Some(value),
            _ => None,
        })
    }

    /// Returns the text with the values of a request. Returns `None` if it is too long, or if a value cannot be a part
    /// of a header field.
    pub fn render(&self, values: &Values<'_>) -> Option<String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Variable(variable) => self.escape.push(variable, values.get(variable), &mut text)?,
            }
            if text.len() > self.escape.max_length() {
                return None;
            }
        }
        self.escape.is_valid(&text).then_some(text)
    }

    /// Returns the value of a header field. See [`render`](Self::render).
    pub fn render_field(&self, values: &Values<'_>) -> Option<HeaderValue> {
        match &*self.parts {
            // Most templates are one variable, whose value is copied once.
            [Part::Variable(variable)] if self.escape == Escape::Field => {
                self.escape.field_value(&values.get(variable)?)
            }
            _ => HeaderValue::try_from(self.render(values)?).ok(),
        }
    }
}

/// Displays the text of the rule file, except for escaped braces.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Variable(variable) => write!(f, "{{{variable}}}"),
        })
    }
}

/// Returns the name of the variable at the start of `text`, if a `}` follows it.
fn leading_name(text: &str) -> Option<&str> {
    let name = name_at_start(text);
    (!name.is_empty() && text[name.len()..].starts_with('}')).then_some(name)
}

/// Returns the name at the start of `text` if it is probably a variable whose `}` was forgotten: the name of a variable,
/// or in a URL or a header field any name. Documents can have other names after a brace.
fn unclosed_name(text: &str, escape: Escape) -> Option<&str> {
    let name = name_at_start(text);
    let is_closed = text[name.len()..].find(['{', '}']).is_some_and(|at| text[name.len() + at..].starts_with('}'));
    let has_few_braces = matches!(escape, Escape::Url | Escape::Field);
    let is_unclosed = Variable::parse(name).is_some() || has_few_braces && !is_closed;
    (!name.is_empty() && is_unclosed && !text[name.len()..].starts_with('}')).then_some(name)
}

/// Returns the longest name at the start of `text`, which may be empty. Claims may have any name without whitespace,
/// quotes and braces.
fn name_at_start(text: &str) -> &str {
    let is_identity = text.starts_with("jwt:") || text.starts_with("key:");
    let is_name_char = |letter: char| match letter {
        '{' | '}' | '"' => false,
        letter if is_identity => !letter.is_whitespace() && !letter.is_control(),
        letter => letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':' | '-' | '.'),
    };
    let end = text.find(|letter| !is_name_char(letter)).unwrap_or(text.len());
    &text[..end]
}

// === impl Variable ===

impl Variable {
    /// The names of all variables other than values of identities.
    pub const NAMES: [&'static str; 9] =
        ["client_ip", "request_id", "path", "query", "uri", "host", "route", "retry_after", "limit"];

    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "client_ip" => Self::ClientIp,
            "request_id" => Self::RequestId,
            "path" => Self::Path,
            "query" => Self::Query,
            "uri" => Self::Uri,
            "host" => Self::Host,
            "route" => Self::Route,
            "retry_after" => Self::RetryAfter,
            "limit" => Self::Limit,
            _ => Self::Identity(IdentityValue::parse(name).filter(|value| !value.kinds().is_empty())?),
        })
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClientIp => "client_ip",
            Self::RequestId => "request_id",
            Self::Path => "path",
            Self::Query => "query",
            Self::Uri => "uri",
            Self::Host => "host",
            Self::Route => "route",
            Self::RetryAfter => "retry_after",
            Self::Limit => "limit",
            Self::Identity(value) => return value.fmt(f),
        })
    }
}
