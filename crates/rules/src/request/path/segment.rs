//! Path segments: names, parameters, and dot segments, including disguised ones.
//!
//! Servlet containers remove parameters before they resolve dot segments, so they treat `..;` and `..;x=1` as `..`.
//! Other servers treat them as names. An encoded semicolon also starts parameters, since a proxy may decode it.

use super::{EncodedSlash, PathError, Slashes};

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'p> {
    /// The segment with its parameters.
    pub(super) whole: &'p str,
    /// The segment without its parameters.
    pub(super) name: &'p str,
}

/// Resolves dot segments of a decoded path, and removes empty segments unless they are kept. An empty last segment
/// represents a trailing slash.
pub(super) fn resolve(path: &str, slash: EncodedSlash, slashes: Slashes) -> Result<Vec<Segment<'_>>, PathError> {
    let mut segments: Vec<Segment<'_>> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(whole) = parts.next() {
        let (name, is_last) = (name(whole), parts.peek().is_none());
        match whole {
            ".." if segments.pop().ok_or(PathError::Escape)?.whole.is_empty() => return Err(PathError::Empty),
            "" if slashes == Slashes::Keep && !is_last => {
                segments.push(Segment { whole: "", name: "" });
                continue;
            }
            "" | "." | ".." => {}
            _ if name.is_empty() && !is_last => return Err(PathError::Nameless),
            _ => {
                check(whole, slash)?;
                segments.push(Segment { whole, name });
                continue;
            }
        }
        if is_last {
            segments.push(Segment { whole: "", name: "" });
        }
    }
    Ok(segments)
}

/// Joins segments to a path.
pub(super) fn join<'p>(segments: impl Iterator<Item = &'p str>) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        path.push_str(segment);
    }
    path
}

/// Returns a segment without its parameters.
fn name(whole: &str) -> &str {
    let ends = [whole.find(';'), whole.find("%3B")];
    &whole[..ends.into_iter().flatten().min().unwrap_or(whole.len())]
}

/// Rejects a segment that a server may read as a dot segment or a separator.
fn check(whole: &str, slash: EncodedSlash) -> Result<(), PathError> {
    let is_dots = |part: &str| part == ".." || (part == "." && part != whole);
    let has_dots = |text: &str| split(text).any(|part| is_dots(name(part)));
    if has_dots(whole) {
        return Err(PathError::Escape);
    }
    if !whole.contains("%25") {
        return Ok(());
    }
    // An origin that decodes twice would see it. Legitimate clients do not encode it twice.
    let once = collapse_percent_layers(whole).to_ascii_uppercase();
    let has = |codes: &[&str]| codes.iter().any(|code| once.contains(code));
    match () {
        () if has_dots(&once.replace("%2E", ".")) => Err(PathError::Escape),
        () if has(&["%2F", "%5C"]) && slash == EncodedSlash::Reject => Err(PathError::Slash),
        () if has(&["%3B", "%00", "%0A", "%0D"]) => Err(PathError::Twice),
        () => Ok(()),
    }
}

/// Splits a segment at encoded slashes.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split("%2F").flat_map(|part| part.split("%5C"))
}

/// Reduces repeatedly encoded percent signs to one layer. This takes a single pass, for any number of layers.
pub(super) fn collapse_percent_layers(text: &str) -> String {
    let mut peeled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("%25") {
        peeled.push_str(before);
        peeled.push('%');
        rest = after.trim_start_matches("25");
    }
    peeled + rest
}
