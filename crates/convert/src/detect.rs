//! Finds the format of files by their content.

use crate::error::ConvertError;
use crate::format::Format;
use crate::sources::Input;
use crate::{ingress, kong, nginx, ratelimit, sentinel, spring, traefik};

/// Whether a file has the format. The arguments are the name of the file, and its text.
type Recognizes = fn(&str, &str) -> bool;

/// The formats, in the order in which they are tried: those with the most specific words first.
const FORMATS: [(Format, Recognizes); 7] = [
    (Format::IngressNginx, ingress::recognizes),
    (Format::Kong, kong::recognizes),
    (Format::Ratelimit, ratelimit::recognizes),
    (Format::Traefik, traefik::recognizes),
    (Format::Spring, spring::recognizes),
    (Format::Sentinel, sentinel::recognizes),
    (Format::Nginx, nginx::recognizes),
];

/// Returns the first format that one of the files has.
///
/// # Errors
/// Fails if no file has a known format, or a file cannot be read.
pub(crate) fn detect(input: &mut Input<'_>) -> Result<Format, ConvertError> {
    let mut texts = Vec::new();
    for path in input.paths {
        texts.push(input.peek(path)?);
    }
    let has = |recognizes: Recognizes| texts.iter().any(|text| recognizes(&text.name, &text.text));
    let found = FORMATS.into_iter().find(|(_, recognizes)| has(*recognizes));
    found.map(|(format, _)| format).ok_or(ConvertError::UnknownFormat)
}
