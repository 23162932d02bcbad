//! The `match` of a route.

use super::At;
use crate::draft::Match;
use crate::matching;
use crate::ratelimit::values::{header_conditions, query_conditions};
use crate::report::Report;

/// Reads the `match` of a route. Returns `None` if the rule file cannot have a condition: the route is left out then.
pub(super) fn matches(node: At<'_>, report: &mut Report) -> Option<Match> {
    let mut matches = Match::default();
    for (key, value, place) in node.entries() {
        match key {
            "prefix" | "path" | "path_separated_prefix" | "safe_regex" | "path_match_policy" | "connect_matcher" => {
                matches.paths.extend(paths(key, value, report)?);
            }
            "case_sensitive" => matches.ignores_case = value.node.flag() == Some(false),
            "grpc" => matches.headers.set("content-type", super::one("prefix", "application/grpc")),
            "headers" | "query_parameters" => {
                let items = value.node.items();
                let own = if key == "headers" { header_conditions(items) } else { query_conditions(items) };
                match own {
                    Ok(own) => merge(&mut matches, own),
                    Err(reason) => {
                        report.lost(&place, key, format!("{reason}: the route is left out"));
                        return None;
                    }
                }
                report.same(&place, key, "`match` of the route");
            }
            "runtime_fraction" => report.lost(&place, key, "the route applies to all requests"),
            _ => report.lost(&place, key, "no key of the rule file"),
        }
    }
    Some(matches)
}

/// Returns the patterns of a path. `None`, with a finding, if the rule file cannot have it.
fn paths(key: &str, value: At<'_>, report: &mut Report) -> Option<Vec<String>> {
    let text = value.node.text().or_else(|| value.text("regex")).unwrap_or_default();
    let pattern = match key {
        "prefix" => prefix(text),
        "path_separated_prefix" => literal(text).map(|path| format!("{}/**", path.trim_end_matches('/'))),
        "path" => literal(text).map(|path| match path.trim_end_matches('/') {
            "" => "/".to_owned(),
            path => path.to_owned(),
        }),
        "safe_regex" => {
            // Envoy compares the whole path.
            let form = matching::path_of_regex(&format!("{}$", text.trim_end_matches('$')));
            if let Some(form) = form {
                let reason = format!("its patterns also match other paths: {}", form.paths.join(" "));
                match form.is_wider {
                    true => report.lost(&value.place(), format!("{key}: {text}"), reason),
                    false => report.same(&value.place(), format!("{key}: {text}"), "`match.path`"),
                }
                return Some(form.paths);
            }
            None
        }
        _ => None,
    };
    if pattern.is_none() {
        report.lost(&value.place(), format!("{key}: {text}"), "the route is left out: write patterns of its paths");
    }
    pattern.map(|pattern| vec![pattern])
}

fn merge(matches: &mut Match, own: Match) {
    matches.methods.extend(own.methods);
    matches.hosts.extend(own.hosts);
    matches.headers.extend(own.headers);
    matches.query.extend(own.query);
    matches.not.extend(own.not);
}

/// Returns the pattern of all paths that start with a text: `/a` includes `/ab`.
fn prefix(text: &str) -> Option<String> {
    let path = literal(text)?;
    match path.strip_suffix('/') {
        Some(folder) => Some(format!("{folder}/**")),
        None => Some(format!("{path}*/**")),
    }
}

/// Returns a path without characters that have a meaning in patterns, or several spellings.
fn literal(path: &str) -> Option<&str> {
    let is_plain = |segment: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()+,=:@".contains(c);
        segment != "." && segment != ".." && segment.chars().all(plain)
    };
    let mut segments = path.strip_prefix('/')?.trim_end_matches('/').split('/');
    let is_literal = path == "/" || segments.all(|segment| !segment.is_empty() && is_plain(segment));
    is_literal.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_patterns() {
        let patterns = ["/", "/a", "/a/", "/a/b", "/a*", "/%41", "a"].map(|text| prefix(text).unwrap_or_default());
        assert_eq!(patterns, ["/**", "/a*/**", "/a/**", "/a/b*/**", "", "", ""]);
    }
}
