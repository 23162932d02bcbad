//! `rewrite`, `request_headers` and `timeout` of a route.

use http::HeaderValue;
use http::uri::Authority;

use crate::check::{Checked, present_keys, reject_keys};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, quote, quote_all};
use tidegate_rules::request::path::{self, EncodedSlash};
use tidegate_rules::route::{HostRewrite, PathPattern, Rewrite, Route};

/// The highest number of paths that a message contains.
const MAX_SHOWN_PATHS: usize = 3;

/// Reports keys that change a request of a route without `upstream`.
pub(crate) fn check_keys(raw: &file::Route, problems: &mut Problems) -> Checked<()> {
    if raw.upstream.is_present() {
        return Ok(());
    }
    let keys = present_keys!(raw, rewrite request_headers timeout);
    reject_keys(&keys, "without `upstream`", "add `upstream`, or remove the key", problems)
}

/// Warns about a `strip_prefix` that no path of the route can have.
pub(super) fn check_prefix(raw: &file::Route, route: &Route, problems: &mut Problems) {
    let Some(prefix) = route.rewrite.as_ref().and_then(|rewrite| rewrite.strip_prefix.as_deref()) else { return };
    let paths = &route.matcher.paths;
    let (Ok(below), Some(rewrite)) = (PathPattern::parse(&format!("{prefix}/**")), raw.rewrite.get()) else {
        return;
    };
    if paths.is_empty() || paths.iter().any(|path| path.overlaps(&below)) {
        return;
    }
    let listed: Vec<_> = paths.iter().take(MAX_SHOWN_PATHS).map(ToString::to_string).collect();
    let paths = quote_all(listed.iter().map(String::as_str));
    let message = format!("{} is never at the start of a path of this route", quote(prefix));
    let help = format!("the route matches {paths}: correct one of them, or leave `strip_prefix` out");
    problems.warn(rewrite.strip_prefix.location, &message, help);
}

pub(crate) fn rewrite(raw: &Located<file::Rewrite>, problems: &mut Problems) -> Checked<Option<Rewrite>> {
    let Some(raw) = raw.optional(problems)? else { return Ok(None) };
    let (strip, add) = (prefix(&raw.strip_prefix, problems), prefix(&raw.add_prefix, problems));
    let host = match raw.host.optional(problems)?.map(String::as_str) {
        None => Ok(HostRewrite::Keep),
        Some("upstream") => Ok(HostRewrite::Upstream),
        Some(text) => match (text.parse::<Authority>(), HeaderValue::from_str(text)) {
            (Ok(authority), Ok(host)) if !authority.as_str().contains('@') => Ok(HostRewrite::Fixed(host)),
            _ => {
                let message = format!("{} is not a host", quote(text));
                Err(raw.host.report(message, "write `api.example.com`, or `upstream` for the target's name", problems))
            }
        },
    };
    let responses = raw.responses.optional(problems)?.copied();
    Ok(Some(Rewrite { strip_prefix: strip?, add_prefix: add?, host: host?, responses }))
}

/// Parses whole segments of a path, in the form that routes match.
fn prefix(raw: &Located<String>, problems: &mut Problems) -> Checked<Option<Box<str>>> {
    let Some(text) = raw.optional(problems)? else { return Ok(None) };
    let is_normal = path::normalize(text, EncodedSlash::Keep).is_ok_and(|path| path.matched() == text);
    if is_normal && !text.ends_with('/') && !text.contains(['?', '#', '{', '}', '*']) {
        return Ok(Some(text.as_str().into()));
    }
    let message = format!("{} is not a prefix of a normalized path", quote(text));
    let help =
        "a prefix starts with `/`, does not end with `/`, and has no `//`, `..`, `;`, `*` or `?`: for example `/v2`";
    Err(raw.report(message, help, problems))
}
