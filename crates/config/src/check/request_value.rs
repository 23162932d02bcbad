//! Values of requests: `header:NAME`, `cookie:NAME` and `query:NAME`.

use crate::check::Checked;
use crate::check::names::header_name;
use crate::file::located::Located;
use crate::problem::Problems;
use tidegate_rules::client::ClientSource;

/// Parses `header:NAME`, `cookie:NAME` or `query:NAME`. Returns `None` for other texts.
pub(super) fn request_value(
    text: &str,
    raw: &Located<String>,
    problems: &mut Problems,
) -> Checked<Option<ClientSource>> {
    let is_valid = |name: &str, excluded: &[char]| {
        let valid = |letter: char| letter.is_ascii_graphic() && !excluded.contains(&letter);
        !name.is_empty() && name.chars().all(valid)
    };
    Ok(match text.split_once(':') {
        // `host` also handles absolute targets and `:authority`.
        Some(("header", name)) if name.eq_ignore_ascii_case("host") => Some(ClientSource::Host),
        Some(("header", name)) => Some(ClientSource::Header(header_name(name, raw.location, problems)?)),
        Some(("cookie", name)) if is_valid(name, &['=', ';', ',', '"', '*']) => {
            Some(ClientSource::Cookie(name.to_owned()))
        }
        Some(("query", name)) if is_valid(name, &['=', '&', '#', '*', '?']) => {
            Some(ClientSource::Query(name.to_owned()))
        }
        _ => None,
    })
}
