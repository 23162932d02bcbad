//! The matcher of a route.

use std::sync::Arc;

use http::Method;

use super::conditions::values;
use super::identity::of_all_kinds;
use super::spelling;
use crate::check::{Checked, all, help_for_unknown, network};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, Reported, quote};
use tidegate_rules::client::AddressRules;
use tidegate_rules::route::{Case, ClientNetworks, HostPattern, Matcher, PathPattern, PatternError};
use tidegate_rules::rules::{EncodedSlash, Requests};

/// The parts of the configuration that conditions depend on.
#[derive(Clone, Copy)]
pub(crate) struct MatchContext<'f> {
    /// The checked section `requests`, or `None` if it has errors.
    pub(crate) requests: Option<Requests>,
    /// How the addresses of clients are found.
    pub(crate) addresses: &'f Arc<AddressRules>,
    /// The names of the listeners, or `None` if a name is not known.
    pub(crate) listeners: Option<&'f [&'f str]>,
}

pub(crate) fn matcher(
    raw: &Located<file::Match>,
    context: MatchContext<'_>,
    problems: &mut Problems,
) -> Checked<Matcher> {
    let matcher = conditions(raw.required(problems)?, context, Case::Sensitive, problems)?;
    if matcher.has_contradiction() || matcher.excludes_all() {
        let message = "no request can meet these conditions";
        return Err(raw.report(message, "remove the conditions that exclude each other", problems));
    }
    Ok(matcher)
}

/// Converts conditions. `outer` is the case of the conditions that contain them.
pub(crate) fn conditions(
    raw: &file::Match,
    context: MatchContext<'_>,
    outer: Case,
    problems: &mut Problems,
) -> Checked<Matcher> {
    let own_case = raw.case.optional(problems);
    let case = own_case.ok().flatten().copied().unwrap_or(outer);
    let kept = context.requests.is_none_or(|requests| requests.encoded_slash == EncodedSlash::Keep);
    let hosts = all(raw.host.items().iter().map(|entry| host(entry, problems)));
    let paths = all(raw.path.items().iter().map(|entry| {
        let path = pattern(entry, PathPattern::parse, problems)?.with_case(case);
        if let Some(spelling) = entry.get().and_then(|text| spelling::of_path(text)) {
            spelling.warn(entry.location, problems);
        }
        if kept || !path.has_encoded_slash() { Ok(path) } else { Err(unmatchable_slash(&path, entry, problems)) }
    }));
    let methods = all(raw.methods.items().iter().map(|entry| method(entry, problems)));
    let values = values(raw, case, problems);
    let clients = all(raw.clients.items().iter().map(|entry| network(entry, problems)));
    let identity = of_all_kinds(&raw.identity, problems);
    let scheme = raw.scheme.optional(problems);
    let listeners = listeners(raw, context, problems);
    let not = all(raw.not.items().iter().map(|entry| conditions(entry.required(problems)?, context, case, problems)));
    own_case?;
    has_lists(raw, problems)?;
    let (hosts, paths, clients) = (hosts?, paths?, clients?);
    if hosts.len().saturating_mul(paths.len()) > Matcher::MAX_PAIRS {
        let message = format!("{} hosts and {} paths are too many pairs", hosts.len(), paths.len());
        let help = format!("use several routes: each has at most {} pairs of a host and a path", Matcher::MAX_PAIRS);
        return Err(raw.path.report(message, help, problems));
    }
    let clients = (!clients.is_empty()).then(|| ClientNetworks::new(clients, Arc::clone(context.addresses)));
    let (scheme, listeners) = (scheme?.copied(), listeners?);
    Ok(Matcher {
        hosts,
        paths,
        case,
        methods: methods?,
        values: values?,
        clients,
        scheme,
        listeners,
        identity: identity?,
        not: not?,
    })
}

/// Checks that each list was read: a condition without its values would match too much.
fn has_lists(raw: &file::Match, problems: &mut Problems) -> Checked<()> {
    let lists = [&raw.host, &raw.path, &raw.methods, &raw.clients, &raw.listener];
    let lists = all(lists.into_iter().map(|list| list.optional(problems)));
    raw.not.optional(problems)?;
    lists.map(drop)
}

/// Converts `listener`. A layer has the listeners of its service, which have no names here.
fn listeners(raw: &file::Match, context: MatchContext<'_>, problems: &mut Problems) -> Checked<Vec<Arc<str>>> {
    all(raw.listener.items().iter().map(|entry| {
        let name = entry.required(problems)?;
        let Some(listeners) = context.listeners else { return Ok(Arc::from(name.as_str())) };
        let names = || listeners.iter().copied();
        if names().any(|known| known == name) {
            return Ok(Arc::from(name.as_str()));
        }
        let help = help_for_unknown(name, names(), "listeners with a name", || {
            format!("give an entry of `listen` this name: `listen: [{{ address: 0.0.0.0:80, name: {name} }}]`")
        });
        Err(entry.report(format!("there is no listener {}", quote(name)), help, problems))
    }))
}

fn unmatchable_slash(path: &PathPattern, raw: &Located<String>, problems: &mut Problems) -> Reported {
    let message = format!("{} has an encoded slash, which no normalized path contains", quote(&path.to_string()));
    raw.report(message, "set `encoded_slash: keep` in `requests`, or remove the slash", problems)
}

/// Converts a host.
pub(crate) fn host(raw: &Located<String>, problems: &mut Problems) -> Checked<HostPattern> {
    pattern(raw, HostPattern::parse, problems)
}

fn pattern<P>(
    raw: &Located<String>,
    parse: impl Fn(&str) -> Result<P, PatternError>,
    problems: &mut Problems,
) -> Checked<P> {
    let text = raw.required(problems)?;
    parse(text).map_err(|error| {
        let (message, help) = match error {
            PatternError::Host(_) => (format!("{} is not a host", quote(text)), spelling::host_help(text)),
            PatternError::Path(_) => (format!("{} is not a normalized path", quote(text)), spelling::path_help(text)),
            PatternError::Parameters(_) => (
                format!("{} has path parameters", quote(text)),
                "remove everything from `;` to the next `/`: paths match with any parameters".into(),
            ),
            PatternError::Rest(_) => (
                format!("{} has more than one `**`", quote(text)),
                "`/a/**` matches everything below `/a`; `{name}` matches one segment".into(),
            ),
            PatternError::Segment(segment) => (
                format!("{} is neither a literal segment nor `{{name}}`", quote(&segment)),
                spelling::segment_help(&segment),
            ),
        };
        raw.report(message, help, problems)
    })
}

/// Parses a method. Custom methods are allowed, but a method that resembles a standard one is probably a typo. Methods
/// are case-sensitive.
pub(crate) fn method(raw: &Located<String>, problems: &mut Problems) -> Checked<Method> {
    let text = raw.required(problems)?.as_str();
    match (Method::from_bytes(text.as_bytes()), spelling::method_help(text)) {
        (Ok(method), None) => Ok(method),
        (_, help) => {
            let help = help.unwrap_or_else(|| "use a method such as `GET` or `POST`".into());
            Err(raw.report(format!("{} is not a method", quote(text)), help, problems))
        }
    }
}
