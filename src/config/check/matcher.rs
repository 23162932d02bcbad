//! The matcher of a route.

use std::sync::Arc;

use http::Method;

use super::conditions::values;
use super::{Checked, network};
use crate::client::AddressRules;
use crate::config::file;
use crate::config::located::Located;
use crate::config::problem::{Problems, Reported, quote};
use crate::route::{ClientNetworks, HostPattern, Matcher, PathPattern, PatternError};
use crate::rules::{EncodedSlash, Requests};

/// The parts of the configuration that conditions depend on.
#[derive(Clone, Copy)]
pub(super) struct MatchContext<'f> {
    /// The checked section `requests`, or `None` if it has errors.
    pub(super) requests: Option<Requests>,
    /// How the addresses of clients are found.
    pub(super) addresses: &'f Arc<AddressRules>,
}

pub(super) fn matcher(
    written: &Located<file::Match>,
    context: MatchContext<'_>,
    problems: &mut Problems,
) -> Checked<Matcher> {
    let matcher = conditions(written.required(problems)?, context, problems)?;
    if matcher.has_contradiction() || matcher.excludes_all() {
        let message = "no request can meet these conditions";
        return Err(written.report(message, "remove the conditions that exclude each other", problems));
    }
    Ok(matcher)
}

pub(super) fn conditions(
    written: &file::Match,
    context: MatchContext<'_>,
    problems: &mut Problems,
) -> Checked<Matcher> {
    let kept = context.requests.is_none_or(|requests| requests.encoded_slash == EncodedSlash::Keep);
    let hosts = all(&written.host, |one| pattern(one, HostPattern::parse, problems));
    let paths = all(&written.path, |one| {
        let path = pattern(one, PathPattern::parse, problems)?;
        if kept || !path.has_encoded_slash() { Ok(path) } else { Err(unmatchable_slash(&path, one, problems)) }
    });
    let methods = all(&written.methods, |one| method(one, problems));
    let values = values(written, problems);
    let clients = all(&written.clients, |one| network(one, problems));
    let not = all(&written.not, |one| conditions(one.required(problems)?, context, problems));
    let (hosts, paths, clients) = (hosts?, paths?, clients?);
    if hosts.len().saturating_mul(paths.len()) > Matcher::MAX_PAIRS {
        let message = format!("{} hosts and {} paths are too many pairs", hosts.len(), paths.len());
        let help = format!("use several routes: each has at most {} pairs of a host and a path", Matcher::MAX_PAIRS);
        return Err(written.path.report(message, help, problems));
    }
    let clients = (!clients.is_empty()).then(|| ClientNetworks::new(clients, Arc::clone(context.addresses)));
    Ok(Matcher { hosts, paths, methods: methods?, values: values?, clients, not: not? })
}

/// Checks all items of a list, so that each error is reported.
fn all<W, T>(written: &Located<Vec<Located<W>>>, mut check: impl FnMut(&Located<W>) -> Checked<T>) -> Checked<Vec<T>> {
    let checked: Vec<_> = written.items().iter().map(&mut check).collect();
    checked.into_iter().collect()
}

fn unmatchable_slash(path: &PathPattern, written: &Located<String>, problems: &mut Problems) -> Reported {
    let message = format!("{} has an encoded slash, which no normalized path contains", quote(&path.to_string()));
    written.report(message, "set `encoded_slash: keep` in `requests`, or remove the slash", problems)
}

fn pattern<P>(
    written: &Located<String>,
    parse: impl Fn(&str) -> Result<P, PatternError>,
    problems: &mut Problems,
) -> Checked<P> {
    let text = written.required(problems)?;
    parse(text).map_err(|error| {
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
