//! The matcher of a route: host, path, methods and header fields.

use http::{HeaderName, HeaderValue, Method};

use super::{Checked, parsed};
use crate::config::file;
use crate::config::located::Located;
use crate::config::problem::{Location, Problems, Reported, quote};
use crate::route::{HostPattern, Matcher, PathPattern, PatternError};
use crate::rules::{EncodedSlash, Requests};

pub(super) fn matcher(written: &file::Route, requests: Option<Requests>, problems: &mut Problems) -> Checked<Matcher> {
    conditions(written.r#match.required(problems)?, requests, problems)
}

/// Converts the conditions of a route or of a limit.
pub(super) fn conditions(
    written: &file::Match,
    requests: Option<Requests>,
    problems: &mut Problems,
) -> Checked<Matcher> {
    let host = pattern(&written.host, HostPattern::parse, problems);
    let path = pattern(&written.path, PathPattern::parse, problems).and_then(|path| {
        let kept = requests.is_none_or(|requests| requests.encoded_slash == EncodedSlash::Keep);
        match &path {
            Some(path) if !kept && path.has_encoded_slash() => Err(unmatchable_slash(path, &written.path, problems)),
            _ => Ok(path),
        }
    });
    let methods: Vec<_> = written.methods.items().iter().map(|one| method(one, problems)).collect();
    let methods = methods.into_iter().collect::<Checked<_>>();
    let headers = headers(written, problems);
    Ok(Matcher { host: host?, path: path?, methods: methods?, headers: headers? })
}

fn unmatchable_slash(path: &PathPattern, written: &Located<String>, problems: &mut Problems) -> Reported {
    let message = format!("{} has an encoded slash, which no normalized path contains", quote(&path.to_string()));
    written.report(message, "set `encoded_slash: keep` in `requests`, or remove the slash", problems)
}

fn pattern<P>(
    written: &Located<String>,
    parse: impl Fn(&str) -> Result<P, PatternError>,
    problems: &mut Problems,
) -> Checked<Option<P>> {
    let Some(text) = written.optional(problems)? else { return Ok(None) };
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
        written.report(message, help, problems)
    })
}

/// Parses a method. Custom methods are allowed, but a method that resembles a standard one is probably a typo. Methods
/// are case-sensitive.
pub(super) fn method(written: &Located<String>, problems: &mut Problems) -> Checked<Method> {
    const COMMON: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];
    let text = written.required(problems)?.as_str();
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
            Err(written.report(format!("{} is not a method", quote(text)), help, problems))
        }
    }
}

fn headers(written: &file::Match, problems: &mut Problems) -> Checked<Vec<(HeaderName, HeaderValue)>> {
    let mut headers = Vec::new();
    for (key, value) in written.headers.get().into_iter().flatten() {
        let name = header_name(key, value.key_location(), problems);
        let value = value.required(problems).and_then(|text| {
            if text == "*" {
                let message = format!("{} matches only a literal `*`", quote(key));
                let help = "a header field must equal the value; leave it out to match any";
                problems.warn(value.location, &message, help);
            }
            let parse = HeaderValue::from_str(text).map_err(|_| format!("{} is not a header field value", quote(text)));
            parsed(parse, "remove the control characters", value.location, problems)
        });
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
