//! The normal form of a path (RFC 3986 section 6.2.2), and the paths that have none.
//!
//! `/a//b`, `/a/./b`, `/a/x/../b` and `/%61/b` are all `/a/b`. What is forwarded is that form; what routes and clients are
//! found by is its [`Path::matched`], which leaves out the parameters of segments (`;v=1`) and in which no character is
//! encoded that need not be. Where servers disagree about what a path means (`..;`, `..%2f`, a backslash, an encoded NUL,
//! bytes that are no UTF-8), there is no normal form.

use std::borrow::Cow;

mod encoding;
mod readings;
mod segment;

#[cfg(test)]
mod tests;

pub(crate) use self::readings::{Readings, readings};

/// A path in its normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    normalized: Cow<'a, str>,
    /// Only if it is another.
    matched: Option<String>,
}

/// What an encoded slash or backslash in a path is: `%2F`, `%5C`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedSlash {
    /// A reason to answer with 400: some origins take it for a separator, others do not.
    #[default]
    Reject,
    /// Data within a segment.
    Keep,
    /// A separator like any other, which is forwarded as `/`.
    Decode,
}

/// Why a path has no normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// `*`, or anything else that does not start with a slash.
    #[error("does not start with /")]
    Relative,
    /// A percent sign without two hexadecimal digits.
    #[error("broken percent-encoding")]
    Encoding,
    /// An encoded NUL or another control character, a backslash, a byte that is not ASCII, encoded bytes that are no
    /// UTF-8 (RFC 3629).
    #[error("ambiguous character")]
    Character,
    /// An encoded slash or backslash, once or more than once, unless the rules keep or decode it.
    #[error("encoded slash")]
    Slash,
    /// `..` above the root, beside an encoded slash, with parameters, or encoded twice.
    #[error("leaves its root")]
    Escape,
    /// Parameters of a segment without a name, in the middle of a path.
    #[error("parameters of an empty segment")]
    Nameless,
    /// A semicolon or a control character that is encoded twice.
    #[error("encoded twice")]
    Twice,
    /// Dot segments that lead from the limits of one route to the limits of another.
    #[error("dot segments lead to another route")]
    Detour,
}

/// The normal form of `path`; borrowed where it is in that form already.
///
/// # Errors
/// See [`PathError`].
pub(crate) fn normalize(path: &str, slash: EncodedSlash) -> Result<Path<'_>, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::Relative);
    }
    if is_plain(path.as_bytes()) {
        return Ok(Path::from(path));
    }
    let decoded = encoding::decode(path, slash)?;
    let segments = segment::resolve(&decoded, slash)?;
    let whole = segment::join(segments.iter().map(|segment| segment.whole));
    let matched = encoding::encode_canonically(&segment::join(segments.iter().map(|segment| segment.name)));
    let matched = Some(matched).filter(|matched| *matched != whole);
    Ok(Path { normalized: Cow::Owned(whole), matched })
}

/// All characters may stand where they stand, and no segment is empty or starts with a dot.
fn is_plain(path: &[u8]) -> bool {
    let plain = path.iter().all(|byte| *byte == b'/' || encoding::needs_no_encoding(*byte));
    plain && !path.windows(2).any(|pair| pair[0] == b'/' && matches!(pair[1], b'/' | b'.'))
}

// === impl Path ===

impl Path<'_> {
    /// What is forwarded.
    pub fn normalized(&self) -> &str {
        &self.normalized
    }

    /// What routes and clients are found by: no parameters, and each character spelt in one way.
    pub fn matched(&self) -> &str {
        self.matched.as_deref().unwrap_or(&self.normalized)
    }
}

/// A path that is in its normal form, with nothing that is not matched.
impl<'a> From<&'a str> for Path<'a> {
    fn from(path: &'a str) -> Self {
        Self { normalized: Cow::Borrowed(path), matched: None }
    }
}

impl From<String> for Path<'_> {
    fn from(path: String) -> Self {
        Self { normalized: Cow::Owned(path), matched: None }
    }
}

// === impl EncodedSlash ===

impl EncodedSlash {
    /// The word of the rule file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Keep => "keep",
            Self::Decode => "decode",
        }
    }
}
