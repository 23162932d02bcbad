//! Texts with variables.

use tidegate_rules::template::{Escape, Template};

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    /// The name of a variable, without `$`. A number is a capture of a regular expression.
    Variable(String),
}

/// Returns the parts of a text: `$name` and `${name}` are variables.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut plain, mut rest) = (String::new(), text);
    while let Some(dollar) = rest.find('$') {
        plain.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        match variable(after) {
            Some((name, length)) => {
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                parts.push(Part::Variable(name.to_owned()));
                rest = &after[length..];
            }
            None => {
                plain.push('$');
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    parts
}

/// Returns a text for a template of the rule file, in which it has no variables. Returns `None` if no spelling has that meaning.
pub(crate) fn literal(text: &str) -> Option<String> {
    let doubled = text.replace('{', "{{").replace('}', "}}");
    [text.to_owned(), doubled].into_iter().find(|spelled| {
        let parsed = Template::parse(spelled, Escape::Field);
        parsed.is_ok_and(|template| match template.parts() {
            [] => text.is_empty(),
            [tidegate_rules::template::Part::Text(read)] => &**read == text,
            _ => false,
        })
    })
}

/// Returns the variable at the start of a text after its `$`, and the length of its name with braces.
fn variable(text: &str) -> Option<(&str, usize)> {
    if let Some(inner) = text.strip_prefix('{') {
        let name = &inner[..inner.find('}')?];
        return is_name(name).then_some((name, name.len() + 2));
    }
    let is_capture = text.starts_with(|letter: char| letter.is_ascii_digit());
    let end = text.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).unwrap_or(text.len());
    let end = if is_capture { 1 } else { end };
    is_name(&text[..end]).then_some((&text[..end], end))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
