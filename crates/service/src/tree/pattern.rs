//! Texts in which each `*` stands for any characters, also for none.

/// A text with wildcards, split at them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    prefix: Box<str>,
    middle: Box<[Box<str>]>,
    suffix: Box<str>,
}

impl Pattern {
    /// Parses a pattern. Returns `None` if the text has no wildcard.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (prefix, rest) = text.split_once('*')?;
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|part| !part.is_empty()).map(Into::into).collect();
        Some(Self { prefix: prefix.into(), middle, suffix: suffix.into() })
    }

    /// Returns `true` if the pattern matches the whole text. The time is linear: each part is searched once, from the
    /// end of the part before it.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let rest = text.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_suffix(&*self.suffix));
        let Some(mut rest) = rest else { return false };
        self.middle.iter().all(|part| {
            let found = rest.find(&**part);
            found.is_some_and(|at| {
                rest = &rest[at + part.len()..];
                true
            })
        })
    }
}
