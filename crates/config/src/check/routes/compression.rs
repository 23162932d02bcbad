//! Compression of the responses of a route.

use std::sync::Arc;

use crate::check::{Checked, all};
use crate::file;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::{Problems, quote};
use tidegate_rules::route::{Compression, MediaTypePattern};

/// Converts `compression`. Returns `None` if responses are not compressed.
pub(crate) fn compression(route: &file::Route, problems: &mut Problems) -> Checked<Option<Arc<Compression>>> {
    let (raw, default) = (route.compression.optional(problems)?, Compression::default());
    let is_on = !matches!(raw, None | Some(ValueOrMap::Value(false)));
    if is_on && (route.redirect.is_present() || route.respond.is_present()) {
        let message = "`compression` has no effect without `upstream`";
        return Err(route.compression.report(message, "remove `compression`", problems));
    }
    let Some(ValueOrMap::Map(raw)) = raw else { return Ok(is_on.then(|| Arc::new(default))) };
    let codings = raw.codings.optional(problems).and_then(|list| match list {
        None => Ok(default.codings),
        Some(list) => all(list.iter().map(|raw| raw.required(problems).copied())),
    });
    let types = raw.types.optional(problems).and_then(|list| match list {
        None => Ok(default.types),
        Some(list) => all(list.iter().map(|raw| media_type(raw, problems))),
    });
    let min_size = raw.min_size.size(default.min_size, problems);
    Ok(Some(Arc::new(Compression { codings: codings?, types: types?, min_size: min_size? })))
}

fn media_type(raw: &Located<String>, problems: &mut Problems) -> Checked<MediaTypePattern> {
    let text = raw.required(problems)?;
    MediaTypePattern::parse(text).ok_or_else(|| {
        let help = "write it in lower case, as `application/json`, `text/*` or `application/*+json`";
        raw.report(format!("{} is not a media type", quote(text)), help, problems)
    })
}
