//! Segments: their names, their parameters, and those that are dots or hide dots.
//!
//! Servlet containers cut a parameter off before they look for dots, so that `..;` and `..;x=1` are `..` to them; others
//! take it for a name. An encoded semicolon is cut as well: a proxy on the way may have decoded it.

use super::{EncodedSlash, PathError};

/// A segment of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'p> {
    /// With its parameters.
    pub(super) whole: &'p str,
    /// Without.
    pub(super) name: &'p str,
}

/// The segments of a path that is decoded, after dots and empty ones are gone. An empty one at the end stands for the
/// slash there.
pub(super) fn resolve(path: &str, slash: EncodedSlash) -> Result<Vec<Segment<'_>>, PathError> {
    let mut segments: Vec<Segment<'_>> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(whole) = parts.next() {
        let (name, is_last) = (name(whole), parts.peek().is_none());
        match whole {
            ".." => _ = segments.pop().ok_or(PathError::Escape)?,
            "" | "." => {}
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

/// A path of these.
pub(super) fn join<'p>(segments: impl Iterator<Item = &'p str>) -> String {
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        path.push_str(segment);
    }
    path
}

/// A segment without its parameters.
fn name(whole: &str) -> &str {
    let ends = [whole.find(';'), whole.find("%3B")];
    &whole[..ends.into_iter().flatten().min().unwrap_or(whole.len())]
}

/// Whether it hides what would be no data.
fn check(whole: &str, slash: EncodedSlash) -> Result<(), PathError> {
    let is_dots = |part: &str| part == ".." || (part == "." && part != whole);
    let has_dots = |text: &str| split(text).any(|part| is_dots(name(part)));
    if has_dots(whole) {
        return Err(PathError::Escape);
    }
    if !whole.contains("%25") {
        return Ok(());
    }
    // An origin that decodes twice would see it; honest clients do not encode it twice.
    let once = collapse_percent_layers(whole).to_ascii_uppercase();
    let has = |codes: &[&str]| codes.iter().any(|code| once.contains(code));
    match () {
        () if has_dots(&once.replace("%2E", ".")) => Err(PathError::Escape),
        () if has(&["%2F", "%5C"]) && slash == EncodedSlash::Reject => Err(PathError::Slash),
        () if has(&["%3B", "%00", "%0A", "%0D"]) => Err(PathError::Twice),
        () => Ok(()),
    }
}

/// The parts between encoded slashes.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split("%2F").flat_map(|part| part.split("%5C"))
}

/// Takes off all layers of encoded percent signs but the last, in one go: a client pays for a layer with two bytes.
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
