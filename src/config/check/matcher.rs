//! The matcher of a route: host, path, methods and header fields.

use http::{HeaderName, HeaderValue, Method};

use super::{Checked, needed, parsed, part};
use crate::config::file;
use crate::config::node::{Entry, Node};
use crate::config::problem::{Location, Problems, Reported, quote};
use crate::route::{HostPattern, Matcher, PathPattern, PatternError};
use crate::rules::{EncodedSlash, Requests};

pub(super) fn matcher(
    written: &file::Route,
    node: &Node,
    requests: Option<Requests>,
    problems: &mut Problems,
) -> Checked<Matcher> {
    let (written, node) = (needed(&written.r#match, node, problems)?, node.at("match"));
    let host = pattern(&written.host, node, "host", HostPattern::parse, problems);
    let path = pattern(&written.path, node, "path", PathPattern::parse, problems).and_then(|path| {
        let kept = requests.is_none_or(|requests| requests.encoded_slash == EncodedSlash::Keep);
        match &path {
            Some(path) if !kept && path.has_encoded_slash() => Err(unmatchable_slash(path, node.at("path"), problems)),
            _ => Ok(path),
        }
    });
    let methods = methods(written, node.at("methods"), problems);
    let headers = headers(written, node.at("headers"), problems);
    Ok(Matcher { host: host?, path: path?, methods: methods?, headers: headers? })
}

fn unmatchable_slash(path: &PathPattern, node: &Node, problems: &mut Problems) -> Reported {
    let message = format!("{} has an encoded slash, which no normalized path contains", quote(&path.to_string()));
    problems.add(node.location, message, "set `encoded_slash: keep` in `requests`, or remove the slash")
}

fn pattern<P>(
    text: &Option<String>,
    node: &Node,
    key: &str,
    parse: impl Fn(&str) -> Result<P, PatternError>,
    problems: &mut Problems,
) -> Checked<Option<P>> {
    let Some(text) = part(text, node, key, problems)? else { return Ok(None) };
    parse(text).map(Some).map_err(|error| {
        let (message, help) = match error {
            PatternError::Host(_) => (
                format!("{} is not a host", quote(text)),
                "a host is `api.example.com`, or `*.example.com` for all hosts below it; no scheme, no port",
            ),
            PatternError::Path(_) => (
                format!("{} is not a normalized path", quote(text)),
                "a path starts with `/`, has no `//`, `.`, `..`, `?` or `#`, and has no needless percent-encoding",
            ),
            PatternError::Parameters(_) => (
                format!("{} has path parameters", quote(text)),
                "remove everything from `;` to the next `/`: paths match with any parameters",
            ),
            PatternError::Rest(_) => (
                format!("`**` is not the last segment of {}", quote(text)),
                "`/a/**` matches everything below `/a`; `{name}` matches one segment",
            ),
            PatternError::Segment(segment) => (
                format!("{} is neither a literal segment nor `{{name}}`", quote(&segment)),
                "use braces for a whole segment, as in `/users/{id}/posts`, and `/**` for the rest of a path",
            ),
        };
        problems.add(node.at(key).location, message, help)
    })
}

fn methods(written: &file::Match, node: &Node, problems: &mut Problems) -> Checked<Vec<Method>> {
    let written = written.methods.as_deref().unwrap_or_default();
    let mut methods = Vec::with_capacity(written.len());
    for (text, node) in written.iter().zip(node.items()) {
        methods.push(needed(text, node, problems).and_then(|text| method(text, node, problems)));
    }
    methods.into_iter().collect()
}

/// Parses a method. Custom methods are allowed, but a method that resembles a standard one is probably a typo. Methods
/// are case-sensitive.
fn method(text: &str, node: &Node, problems: &mut Problems) -> Checked<Method> {
    const COMMON: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];
    let similar = COMMON.into_iter().find(|common| {
        *common != text
            && (common.eq_ignore_ascii_case(text) || (text.len() > 2 && strsim::osa_distance(common, text) == 1))
    });
    match (Method::from_bytes(text.as_bytes()), similar) {
        (Ok(method), None) => Ok(method),
        (_, similar) => {
            let help = match similar {
                Some(common) => format!("did you mean {}?", quote(common)),
                None => "use a method such as `GET` or `POST`".to_owned(),
            };
            Err(problems.add(node.location, format!("{} is not a method", quote(text)), help))
        }
    }
}

fn headers(written: &file::Match, node: &Node, problems: &mut Problems) -> Checked<Vec<(HeaderName, HeaderValue)>> {
    let mut headers = Vec::new();
    for Entry { key, location, value } in written.headers.iter().flat_map(|_| node.entries()) {
        let text = written.headers.as_ref().and_then(|headers| headers.get(key)).and_then(Option::as_ref);
        let name = header_name(key, *location, problems);
        let value = match text {
            None => Err(problems.reported(value.location)),
            Some(text) => {
                if text == "*" {
                    let message = format!("{} matches only a literal `*`", quote(key));
                    problems.warn(
                        value.location,
                        &message,
                        "a header field must equal the value; leave it out to match any",
                    );
                }
                let error = || format!("{} is not a header field value", quote(text));
                parsed(
                    HeaderValue::from_str(text).map_err(|_| error()),
                    "remove the control characters",
                    value,
                    problems,
                )
            }
        };
        headers.push(name.and_then(|name| Ok((name, value?))));
    }
    headers.into_iter().collect()
}

pub(super) fn header_name(text: &str, location: Location, problems: &mut Problems) -> Checked<HeaderName> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
        let message = format!("{} is not a header field name", quote(text));
        problems.add(location, message, "use letters, digits and `-`, without a colon")
    })
}
