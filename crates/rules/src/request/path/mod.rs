//! The normal form of a path (RFC 3986 section 6.2.2), and rejection of ambiguous paths.
//!
//! `/a//b`, `/a/./b`, `/a/x/../b` and `/%61/b` all have the normal form `/a/b`, which the gateway forwards. Routes and
//! client keys use [`Path::matched`]: the normal form without the parameters of segments (`;v=1`), in which only
//! characters that need it are percent-encoded. If servers disagree about the meaning of a path (`..;`, `..%2f`, a
//! backslash, an encoded NUL, bytes that are not UTF-8), it has no normal form.

use std::borrow::Cow;

mod encoding;
mod readings;
mod segment;

#[cfg(test)]
mod tests;

pub use self::readings::readings;
use tidegate_limit::text::words::words;

/// A path in its normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path<'a> {
    normalized: Cow<'a, str>,
    /// The matched form; `None` if it equals the normal form.
    matched: Option<String>,
}

words! {
    /// How to interpret an encoded slash or backslash in a path: `%2F`, `%5C`.
    pub enum EncodedSlash, default Reject {
        // Origins disagree whether it is a separator.
        /// Rejected with 400.
        Reject = "reject",
        /// Kept as part of its segment.
        Keep = "keep",
        /// Decoded to a slash.
        Decode = "decode",
    }
}

words! {
    /// How to treat empty segments of a path: `//`.
    pub enum Slashes, default Merge {
        /// The upstream receives one slash.
        Merge = "merge",
        /// The upstream receives all slashes. Routes and client keys still ignore empty segments.
        Keep = "keep",
    }
}

/// Why a path has no normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not start with a slash, for example `*`.
    #[error("does not start with /")]
    Relative,
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("broken percent-encoding")]
    Encoding,
    /// A backslash, a byte that is not ASCII, an encoded control character, or encoded bytes that are not UTF-8 (RFC
    /// 3629).
    #[error("ambiguous character")]
    Character,
    /// A slash or backslash that is encoded once or several times, unless the rules keep or decode it.
    #[error("encoded slash")]
    Slash,
    /// `..` above the root, next to an encoded slash, with parameters, or encoded twice.
    #[error("leaves its root")]
    Escape,
    /// `..` after an empty segment that is kept: some servers remove that segment, others the one before.
    #[error("dot segment after an empty segment")]
    Empty,
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

/// Returns the normal form of `path`, borrowed if `path` is in normal form.
///
/// # Errors
/// See [`PathError`].
pub fn normalize(path: &str, slash: EncodedSlash) -> Result<Path<'_>, PathError> {
    normalize_with(path, slash, Slashes::Merge)
}

/// Returns the normal form of `path`, in which empty segments can be kept.
///
/// # Errors
/// See [`PathError`].
pub fn normalize_with(path: &str, slash: EncodedSlash, slashes: Slashes) -> Result<Path<'_>, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::Relative);
    }
    if is_plain(path.as_bytes()) {
        return Ok(Path::from(path));
    }
    let decoded = encoding::decode(path, slash)?;
    let segments = segment::resolve(&decoded, slash, slashes)?;
    let whole = segment::join(segments.iter().map(|segment| segment.whole));
    let named =
        segments.iter().enumerate().filter(|(at, segment)| at + 1 == segments.len() || !segment.whole.is_empty());
    let matched = encoding::encode_canonically(&segment::join(named.map(|(_, segment)| segment.name)));
    let matched = Some(matched).filter(|matched| *matched != whole);
    Ok(Path { normalized: Cow::Owned(whole), matched })
}

/// Returns `true` if no character needs encoding or decoding, and no segment is empty or starts with a dot.
fn is_plain(path: &[u8]) -> bool {
    let mut follows_slash = false;
    path.iter().all(|byte| {
        let is_empty_or_dot = follows_slash && matches!(byte, b'/' | b'.');
        follows_slash = *byte == b'/';
        PLAIN[usize::from(*byte)] && !is_empty_or_dot
    })
}

/// Whether each byte needs neither encoding nor decoding.
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte.is_ascii() {
        plain[byte as usize] = byte == b'/' || encoding::needs_no_encoding(byte);
        byte += 1;
    }
    plain
};

// === impl Path ===

impl Path<'_> {
    /// Returns the normal form, which is forwarded.
    pub fn normalized(&self) -> &str {
        &self.normalized
    }

    /// Returns the form for routes and client keys: without parameters, and with a unique encoding of each character.
    pub fn matched(&self) -> &str {
        self.matched.as_deref().unwrap_or(&self.normalized)
    }
}

/// Converts a path that is in normal form and has no parameters.
impl<'a> Path<'a> {
    /// Returns the path as it was sent, if it was not changed.
    pub fn as_sent(&self) -> Option<&'a str> {
        match self.normalized {
            Cow::Borrowed(path) => Some(path),
            Cow::Owned(_) => None,
        }
    }
}

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
