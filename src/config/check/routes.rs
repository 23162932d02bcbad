//! Routes: their names, what they match, and where they lead.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};

use super::{Checked, limits, needed, parsed, part, reach};
use crate::config::Purpose;
use crate::config::file::{self, File};
use crate::config::problem::{Place, Problems, quote, quote_all};
use crate::config::suggest::nearest;
use crate::config::tree::{Entry, Node};
use crate::route::{HostPattern, Matcher, PathPattern, PatternError, Route, Routes};

/// What a route is checked against.
#[derive(Clone, Copy)]
pub(super) struct Around<'f> {
    pub(super) purpose: Purpose,
    /// Put before the names of limiters.
    pub(super) prefix: &'f str,
}

pub(super) fn routes(file: &File, root: &Node, around: Around<'_>, problems: &mut Problems) -> Checked<Routes> {
    let written = needed(&file.routes, root, problems)?;
    let nodes = root.at("routes").items();
    duplicates(written.iter().map(|route| route.as_ref()?.name.as_deref()).zip(nodes), "route", problems);
    let mut routes = Vec::with_capacity(nodes.len());
    let mut matchers = Vec::with_capacity(nodes.len());
    for (written, node) in written.iter().zip(nodes) {
        let Ok(written) = needed(written, node, problems) else {
            routes.push(Err(problems.reported(node.place)));
            continue;
        };
        let matcher = matcher(written, node, problems);
        if let (Ok(matcher), Some(name)) = (&matcher, &written.name) {
            matchers.push((matcher.clone(), name.as_str(), node.place));
        }
        let upstream = upstream(written, node, file, around, problems);
        let limits = limits::limits(written, node, around.prefix, problems);
        routes.push(route(written, node, matcher, upstream, limits, problems));
    }
    reach::check(&matchers, problems);
    Ok(Routes::new(routes.into_iter().collect::<Checked<_>>()?))
}

fn route(
    written: &file::Route,
    node: &Node,
    matcher: Checked<Matcher>,
    upstream: Checked<Option<Arc<str>>>,
    limits: Checked<Vec<crate::rule::Limit>>,
    problems: &mut Problems,
) -> Checked<Route> {
    let name = Arc::from(needed(&written.name, node, problems)?.as_str());
    Ok(Route { name, matcher: matcher?, limits: limits?, upstream: upstream? })
}

/// Names that are given twice among their kind.
pub(super) fn duplicates<'f>(
    named: impl Iterator<Item = (Option<&'f str>, &'f Node)>,
    what: &str,
    problems: &mut Problems,
) {
    let mut seen: HashMap<&str, Place> = HashMap::new();
    for (name, node) in named {
        let (Some(name), place) = (name, node.at("name").place) else { continue };
        match seen.get(name) {
            Some(first) => {
                let message = format!("{what} {} is already on line {}", quote(name), first.line);
                problems.add(place, message, format!("give each {what} its own name"));
            }
            None => drop(seen.insert(name, place)),
        }
    }
}

fn upstream(
    written: &file::Route,
    node: &Node,
    file: &File,
    around: Around<'_>,
    problems: &mut Problems,
) -> Checked<Option<Arc<str>>> {
    let Some(name) = part(&written.upstream, node, "upstream", problems)? else {
        return match around.purpose {
            Purpose::Layer => Ok(None),
            Purpose::Gateway => {
                let help = "add `upstream: NAME`, with a NAME of `upstreams`";
                Err(problems.add(node.place, "a route of a gateway needs `upstream`", help))
            }
        };
    };
    let known = file.upstreams.iter().flatten().map(|(name, _)| name.as_str());
    if known.clone().any(|known| known == name) {
        return Ok(Some(Arc::from(name.as_str())));
    }
    let help = match (nearest(name, known.clone()), known.clone().next()) {
        (Some(near), _) => format!("did you mean {}?", quote(near)),
        (None, Some(_)) => format!("the upstreams are {}", quote_all(known.take(10))),
        (None, None) => "`upstreams` has none yet: add it there".to_owned(),
    };
    Err(problems.add(node.at("upstream").place, format!("unknown upstream {}", quote(name)), help))
}

fn matcher(written: &file::Route, node: &Node, problems: &mut Problems) -> Checked<Matcher> {
    let (written, node) = (needed(&written.r#match, node, problems)?, node.at("match"));
    let host = pattern(&written.host, node, "host", HostPattern::parse, problems);
    let path = pattern(&written.path, node, "path", PathPattern::parse, problems);
    let methods = methods(written, node.at("methods"), problems);
    let headers = headers(written, node.at("headers"), problems);
    Ok(Matcher { host: host?, path: path?, methods: methods?, headers: headers? })
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
                format!("{} is not a path in its normal form", quote(text)),
                "a path starts with `/` and has no `//`, `.`, `..`, `?` or `#`; only what must be is percent-encoded",
            ),
            PatternError::Rest(_) => (
                format!("`**` is not the last segment of {}", quote(text)),
                "`/a/**` is for everything below `/a`; `{name}` is for any one segment",
            ),
            PatternError::Segment(segment) => (
                format!("{} is neither a literal segment nor `{{name}}`", quote(&segment)),
                "a name in braces is a whole segment: `/users/{id}/posts`; for the rest of a path write `/**`",
            ),
        };
        problems.add(node.at(key).place, message, help)
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

/// Methods may be anybody's, but one that is nearly a common one is a slip: methods are case-sensitive, so it would
/// never match.
fn method(text: &str, node: &Node, problems: &mut Problems) -> Checked<Method> {
    const COMMON: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"];
    let meant = COMMON.into_iter().find(|common| {
        *common != text
            && (common.eq_ignore_ascii_case(text) || (text.len() > 2 && strsim::osa_distance(common, text) == 1))
    });
    match (Method::from_bytes(text.as_bytes()), meant) {
        (Ok(method), None) => Ok(method),
        (_, meant) => {
            let help = match meant {
                Some(common) => format!("did you mean {}?", quote(common)),
                None => "a method is a word such as `GET` or `POST`".to_owned(),
            };
            Err(problems.add(node.place, format!("{} is not a method", quote(text)), help))
        }
    }
}

fn headers(written: &file::Match, node: &Node, problems: &mut Problems) -> Checked<Vec<(HeaderName, HeaderValue)>> {
    let mut headers = Vec::new();
    for Entry { key, place, value } in written.headers.iter().flat_map(|_| node.entries()) {
        let text = written.headers.as_ref().and_then(|headers| headers.get(key)).and_then(Option::as_ref);
        let name = header_name(key, *place, problems);
        let value = match text {
            None => Err(problems.reported(value.place)),
            Some(text) => {
                let error = || format!("{} is not a value of a header field", quote(text));
                parsed(
                    HeaderValue::from_str(text).map_err(|_| error()),
                    "write it without control characters",
                    value,
                    problems,
                )
            }
        };
        headers.push(name.and_then(|name| Ok((name, value?))));
    }
    headers.into_iter().collect()
}

pub(super) fn header_name(text: &str, place: Place, problems: &mut Problems) -> Checked<HeaderName> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
        let message = format!("{} is not the name of a header field", quote(text));
        problems.add(place, message, "a name is letters, digits and `-`, without a colon")
    })
}
