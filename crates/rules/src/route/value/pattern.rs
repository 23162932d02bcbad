//! Patterns of values: a whole value, or its parts.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

use crate::route::case::Case;

/// A pattern of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePattern {
    /// This value.
    Exact(Box<[u8]>),
    /// This value, with ASCII letters in any case.
    AnyCase(Box<[u8]>),
    /// Values with all of these parts.
    Parts(Box<ValueParts>),
}

/// The parts of a value. An empty text matches all values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueParts {
    /// The start.
    pub prefix: Box<[u8]>,
    /// The end. It may overlap the start.
    pub suffix: Box<[u8]>,
    /// A text at any place.
    pub contains: Box<[u8]>,
    /// A regular expression that matches at any place.
    pub regex: Option<ValueRegex>,
    /// How the texts are compared.
    pub case: Case,
}

/// A regular expression that is searched in bytes, in a time proportional to their number.
#[derive(Clone, Debug)]
pub struct ValueRegex {
    regex: Regex,
    case: Case,
}

// === impl ValuePattern ===

impl ValuePattern {
    /// Creates the pattern of a whole value.
    pub fn whole(value: &[u8], case: Case) -> Self {
        match case {
            Case::Sensitive => Self::Exact(value.into()),
            Case::Insensitive => Self::AnyCase(value.into()),
        }
    }

    /// Returns `true` if the pattern matches a value.
    pub fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(text) => **text == *value,
            Self::AnyCase(text) => text.eq_ignore_ascii_case(value),
            Self::Parts(parts) => parts.matches(value),
        }
    }

    /// Returns `true` if the pattern may match a text of several values, separated by commas, of which it matches none.
    pub(super) fn may_join(&self) -> bool {
        match self {
            Self::Exact(text) | Self::AnyCase(text) => text.contains(&b','),
            Self::Parts(parts) => parts.may_join(),
        }
    }

    /// Returns `true` if this pattern certainly matches all values that `narrow` matches.
    pub(super) fn covers(&self, narrow: &Self) -> bool {
        match (self, narrow) {
            (_, Self::Exact(value)) => self.matches(value),
            (Self::AnyCase(_), Self::AnyCase(value)) => self.matches(value),
            (Self::Parts(wide), Self::AnyCase(value)) => wide.case == Case::Insensitive && wide.matches(value),
            (Self::Parts(wide), Self::Parts(narrow)) => wide.covers(narrow),
            (Self::Exact(_), Self::AnyCase(_)) | (Self::Exact(_) | Self::AnyCase(_), Self::Parts(_)) => false,
        }
    }

    /// Returns `false` if certainly no value matches both patterns.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(value), pattern) | (pattern, Self::Exact(value)) => pattern.matches(value),
            (Self::AnyCase(own), Self::AnyCase(other)) => own.eq_ignore_ascii_case(other),
            (Self::Parts(_), _) | (_, Self::Parts(_)) => true,
        }
    }

    /// Returns a text that identifies the pattern. The pattern of a whole value is that value.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Exact(text) => text.to_vec(),
            Self::AnyCase(text) => [&b"any case: "[..], text].concat(),
            Self::Parts(parts) => parts.to_string().into_bytes(),
        }
    }

    /// Returns a value that matches and contains `middle`, unless the pattern has a regular expression.
    pub fn example(&self, middle: &str) -> Option<String> {
        let Self::Parts(parts) = self else { return None };
        let ValueParts { prefix, suffix, contains, regex: None, case: _ } = &**parts else { return None };
        String::from_utf8([prefix, contains, middle.as_bytes(), suffix].concat()).ok()
    }
}

impl From<&[u8]> for ValuePattern {
    fn from(value: &[u8]) -> Self {
        Self::Exact(value.into())
    }
}

// === impl ValueParts ===

impl ValueParts {
    fn matches(&self, value: &[u8]) -> bool {
        self.case.strip_prefix(value, &self.prefix).is_some()
            && self.case.strip_suffix(value, &self.suffix).is_some()
            && self.case.after(value, &self.contains).is_some()
            && self.regex.as_ref().is_none_or(|regex| regex.regex.is_match(value))
    }

    /// A single text without a comma is in one of the values, and at its start or end if the joined text has it there.
    fn may_join(&self) -> bool {
        let texts = [&self.prefix, &self.suffix, &self.contains];
        self.regex.is_some()
            || texts.iter().filter(|text| !text.is_empty()).count() > 1
            || texts.iter().any(|text| text.contains(&b','))
    }

    fn covers(&self, narrow: &Self) -> bool {
        let has_contained = [&narrow.prefix, &narrow.suffix, &narrow.contains]
            .iter()
            .any(|text| self.case.after(text, &self.contains).is_some());
        self == narrow
            || self.case.includes(narrow.case)
                && self.case.strip_prefix(&narrow.prefix, &self.prefix).is_some()
                && self.case.strip_suffix(&narrow.suffix, &self.suffix).is_some()
                && has_contained
                && (self.regex.is_none() || self.regex == narrow.regex)
    }
}

/// Displays the keys of the rule file. Quotes are not escaped, so that secrets can be found in the text.
impl fmt::Display for ValueParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let regex = self.regex.as_ref().map_or("", |regex| regex.regex.as_str());
        let texts = [("prefix", &self.prefix), ("suffix", &self.suffix), ("contains", &self.contains)];
        let texts = texts.map(|(key, text)| (key, String::from_utf8_lossy(text)));
        let parts = texts.iter().map(|(key, text)| (*key, &**text)).chain([("regex", regex)]);
        let parts: Vec<_> =
            parts.filter(|(_, text)| !text.is_empty()).map(|(key, text)| format!("{key}: \"{text}\"")).collect();
        write!(f, "{{ {} }}", parts.join(", "))?;
        if self.case == Case::Insensitive { f.write_str(" in any case") } else { Ok(()) }
    }
}

// === impl ValueRegex ===

impl ValueRegex {
    /// The longest expression, in bytes.
    pub const MAX_LENGTH: usize = 1_000;

    /// The most memory of a compiled expression, in bytes. It also bounds the time for each byte of a value.
    const MAX_SIZE: usize = 64 << 10;

    /// The memory of the automaton that a thread builds while it matches, in bytes.
    const CACHE_SIZE: usize = 256 << 10;

    /// Compiles an expression in the syntax of the crate `regex`. Classes such as `\d` are ASCII.
    ///
    /// # Errors
    /// The expression is invalid or too large, with the reason.
    pub fn new(text: &str, case: Case) -> Result<Self, String> {
        if text.len() > Self::MAX_LENGTH {
            return Err(format!("it has {} bytes, more than {}", text.len(), Self::MAX_LENGTH));
        }
        let mut builder = RegexBuilder::new(text);
        builder.unicode(false).case_insensitive(case == Case::Insensitive);
        builder.size_limit(Self::MAX_SIZE).dfa_size_limit(Self::CACHE_SIZE);
        let regex = builder.build().map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => format!("it needs more than {} KiB", Self::MAX_SIZE >> 10),
            error => last_line(&error.to_string()),
        })?;
        Ok(Self { regex, case })
    }
}

/// Returns the reason: the lines before it show the expression with a mark.
fn last_line(error: &str) -> String {
    error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

impl PartialEq for ValueRegex {
    fn eq(&self, other: &Self) -> bool {
        (self.regex.as_str(), self.case) == (other.regex.as_str(), other.case)
    }
}

impl Eq for ValueRegex {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(prefix: &str, suffix: &str, contains: &str, case: Case) -> ValuePattern {
        let [prefix, suffix, contains] = [prefix, suffix, contains].map(|text| text.as_bytes().into());
        ValuePattern::Parts(Box::new(ValueParts { prefix, suffix, contains, regex: None, case }))
    }

    fn regex(text: &str, case: Case) -> ValuePattern {
        let regex = ValueRegex::new(text, case).expect(text);
        ValuePattern::Parts(Box::new(ValueParts { regex: Some(regex), ..ValueParts::default() }))
    }

    #[test]
    fn parts_match_start_end_middle_and_expression() {
        let case = Case::Sensitive;
        for (pattern, yes, no) in [
            (parts("curl/", "", "", case), &["curl/", "curl/8.5"][..], &["Curl/8", "xcurl/", "curl"][..]),
            (parts("", "bot", "", case), &["bot", "a bot"], &["bots", "Bot"]),
            (parts("", "", "bot", case), &["bot", "a bot!"], &["bo", "BOT"]),
            (parts("a", "b", "c", case), &["acb"], &["ab", "cb", "ac"]),
            (parts("aba", "aba", "", case), &["aba", "ababa"], &["ab"]),
            (parts("CURL", "", "", Case::Insensitive), &["cUrL/8"], &["wget"]),
            (regex("^curl/[0-9]+$", case), &["curl/8"], &["curl/8.5", "xcurl/8", "CURL/8"]),
            (regex("bot|spider", Case::Insensitive), &["GoogleBot/2", "a spider"], &["curl"]),
            (regex(r"^\d+$", case), &["12"], &["", "1a", "\u{0661}"]),
        ] {
            assert!(yes.iter().all(|value| pattern.matches(value.as_bytes())), "{pattern:?}");
            assert!(!no.iter().any(|value| pattern.matches(value.as_bytes())), "{pattern:?}");
        }
    }

    #[test]
    fn invalid_or_large_expressions_are_errors() {
        for (text, reason) in [
            ("(", "unclosed group"),
            ("a{1000}{1000}", "it needs more than 64 KiB"),
            ("(?=a)", "look-around, including look-ahead and look-behind, is not supported"),
            (&"a".repeat(1_001), "it has 1001 bytes, more than 1000"),
        ] {
            assert_eq!(ValueRegex::new(text, Case::Sensitive).map(drop), Err(reason.to_owned()), "{text}");
        }
    }

    #[test]
    fn time_of_an_expression_is_linear() {
        // A backtracking matcher takes exponential time. Matching is also fast enough for the longest values by default.
        let pattern = regex("^(a|a|a?)*(a*)*$", Case::Sensitive);
        let value = [&b"a".repeat(1 << 20)[..], b"!"].concat();
        assert!(!pattern.matches(&value));
    }
}
