//! Hosts and paths.

use std::borrow::Cow;

use super::Spelling;
use crate::problem::quote;

const HOST_HELP: &str = "a host is `api.example.com`, or `*.example.com` for all hosts below it; no scheme, no port";

const PATH_HELP: &str =
    "a path starts with `/`, has no `//`, `.`, `..`, `?` or `#`, and has no needless percent-encoding";

const SEGMENT_HELP: &str =
    "use braces for a whole segment, as in `/users/{id}/posts`, `*` within a segment, and `/**` for the rest of a path";

const NO_REGEX: &str = "paths are not regular expressions: use `{name}` for a segment, `*` within a segment, and `/**` \
                        for the rest of a path";

/// Characters of regular expressions. A path can contain some of them.
const REGEX: [char; 8] = ['(', ')', '[', ']', '|', '^', '$', '\\'];

/// Returns the help for a text that is not a host.
pub(crate) fn host_help(text: &str) -> Cow<'static, str> {
    if matches!(text, "*" | "_" | "**") {
        return "to match all hosts, leave `host` out".into();
    }
    if text.contains(REGEX) && !text.starts_with('[') || text.starts_with(['~', '/']) {
        return "hosts are not regular expressions: list them, or use `*.example.com` for all hosts below a domain"
            .into();
    }
    if let Some(domain) = text.strip_prefix('.').filter(|domain| !domain.is_empty()) {
        return format!("for a domain and all hosts below it, write `[{domain}, \"*.{domain}\"]`").into();
    }
    if let Some(host) = text.strip_suffix('.').filter(|host| !host.is_empty()) {
        return format!("write {}: a dot at the end of a request's host is removed", quote(host)).into();
    }
    if !text.is_ascii() {
        return "write the host as clients send it, in its ASCII form `xn--...`".into();
    }
    HOST_HELP.into()
}

/// Returns the help for a text that is not a path in normal form.
pub(crate) fn path_help(text: &str) -> Cow<'static, str> {
    let is_extension =
        |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    match text {
        "*" => "to match all paths, write `/**`".into(),
        _ if text.strip_prefix("*.").is_some_and(is_extension) => {
            format!("for all paths that end so, write {}", quote(&format!("/**/{text}"))).into()
        }
        _ if text.starts_with('/') && text.contains(['<', '>']) => SEGMENT_HELP.into(),
        _ if text.contains(REGEX) || text.starts_with('~') => NO_REGEX.into(),
        _ => PATH_HELP.into(),
    }
}

/// Returns the help for a text that is not a segment.
pub(crate) fn segment_help(segment: &str) -> Cow<'static, str> {
    match segment {
        "*" => "write `{name}` for any single segment, or `/**` at the end for all paths below".into(),
        _ if segment.contains(REGEX) => NO_REGEX.into(),
        _ => SEGMENT_HELP.into(),
    }
}

/// Returns the right spelling of a valid path that probably has another meaning.
pub(crate) fn of_path(text: &str) -> Option<Spelling> {
    let segments = || text.split('/').skip(1);
    if let Some(segment) = segments().find(|segment| segment.starts_with(':') && segment.len() > 1) {
        let message = format!("{} matches only this text", quote(segment));
        return Some(Spelling::new(message, format!("for any single segment, write `{{{}}}`", &segment[1..])));
    }
    // `(` and `$` are valid in paths, but hardly used.
    let is_regex = |segment: &str| {
        matches!(segment, ".*" | ".+" | "*.")
            || segment.starts_with('(')
            || segment.ends_with([')', '$', '+']) && segment.contains('*')
    };
    if let Some(segment) = segments().find(|segment| is_regex(segment)) {
        let message =
            format!("{} looks like a regular expression, and matches only texts with these characters", quote(segment));
        return Some(Spelling::new(message, NO_REGEX));
    }
    let prefix = text.strip_suffix('/').filter(|prefix| !prefix.is_empty() && !prefix.ends_with("**"))?;
    let message = format!("{} matches only this path, with and without the slash at its end", quote(text));
    let (below, exact) = (quote(&format!("{prefix}/**")), quote(prefix));
    Some(Spelling::new(message, format!("for all paths below it, write {below}; for only this path, write {exact}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_other_products_are_warned_about() {
        for text in [
            "/",
            "/a",
            "/a/{id}",
            "/a/**",
            "/**/*.css",
            "/v1:list",
            "/a(b)",
            "/a*$",
            "/favicon.*",
            "/a+b",
            "/.well-known/x",
        ] {
            let expected = text == "/a*$";
            assert_eq!(of_path(text).is_some(), expected, "{text}");
        }
        for text in ["/users/:id", "/api/", "/api/.*", "/api/(.*)", "/a/(x|y)*"] {
            assert!(of_path(text).is_some(), "{text}");
        }
    }
}
