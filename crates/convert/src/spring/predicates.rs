//! Predicates: the conditions of routes.

use ipnet::IpNet;

use super::parts::Part;
use crate::draft::Match;
use crate::draft::value::{Map, Value};
use crate::matching;
use crate::report::{Report, Verdict};

/// A verdict with its reason.
type Outcome = (Verdict, &'static str);

/// Returns the conditions of all predicates, and reports each. Returns `None` if the route would match other requests.
pub(super) fn convert(parts: &[Part<'_>], report: &mut Report) -> Option<Match> {
    let mut matches = Match::default();
    let mut is_lost = false;
    for part in parts {
        let outcome = add(part, &mut matches);
        let (verdict, reason) =
            outcome.unwrap_or((Verdict::Lost, "it has no form in the rule file; the route is left out"));
        is_lost |= outcome.is_none();
        report.add(&part.place, verdict, part.shown(), reason);
    }
    (!is_lost).then_some(matches)
}

fn add(part: &Part<'_>, matches: &mut Match) -> Option<Outcome> {
    let name = part.name.to_ascii_lowercase();
    match name.as_str() {
        "path" => add_paths(part, matches),
        "host" => add_hosts(part, matches),
        "method" => {
            let methods: Option<Vec<_>> = part.values.iter().map(|text| matching::method(text)).collect();
            matches.methods = methods.filter(|methods| !methods.is_empty())?;
            Some((Verdict::Same, "`match.methods`"))
        }
        "header" => add_value(part, &mut matches.headers, true),
        "query" => add_value(part, &mut matches.query, false),
        "cookie" => add_value(part, &mut matches.cookies, false),
        "remoteaddr" => {
            let networks: Option<Vec<IpNet>> = part.values.iter().map(|text| network(text)).collect();
            matches.clients = networks.filter(|networks| !networks.is_empty())?;
            Some((Verdict::Same, "`match.clients`"))
        }
        "after" | "before" | "between" => Some((Verdict::Lost, "the route applies at all times")),
        "weight" => Some((Verdict::Lost, "use one upstream with the `weight` of its targets")),
        _ => None,
    }
}

fn add_paths(part: &Part<'_>, matches: &mut Match) -> Option<Outcome> {
    let keeps_slash = part.arg("matchTrailingSlash").as_deref() == Some("false");
    let mut is_wider = false;
    // The full form can have the flag among its values.
    let texts: Vec<_> = part.values.iter().filter(|text| !matches!(text.as_str(), "true" | "false")).collect();
    let mut paths = Vec::new();
    for text in &texts {
        paths.push(path(text, &mut is_wider)?);
    }
    paths.dedup();
    matches.paths = Some(paths).filter(|paths| !paths.is_empty())?;
    Some(match () {
        () if is_wider => (Verdict::Looser, "the pattern matches more paths than the expression"),
        () if keeps_slash => (Verdict::Looser, "also with a slash at the end of the path"),
        () => (Verdict::Same, "`match.path`"),
    })
}

/// Returns a path pattern of the rule file.
fn path(text: &str, is_wider: &mut bool) -> Option<String> {
    let (mut pattern, mut has_rest) = (String::new(), false);
    for (number, part) in (1..).zip(text.trim_matches('/').split('/').filter(|part| !part.is_empty())) {
        let variable = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
        pattern += &match (part, variable) {
            ("**", _) | (_, Some("*")) => rest(&mut has_rest)?,
            (_, Some(name)) if name.starts_with('*') => rest(&mut has_rest)?,
            ("*", _) => format!("/{{p{number}}}"),
            (_, Some(variable)) => {
                let name: String = variable
                    .split(':')
                    .next()?
                    .chars()
                    .filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
                    .collect();
                *is_wider |= variable.contains(':');
                format!("/{{{}}}", if name.is_empty() { format!("p{number}") } else { name })
            }
            // `*` within a segment has the same meaning.
            (part, None) if part.contains('*') && !part.contains("**") && !part.contains('?') => {
                let literal = matching::exact(&format!("/{}", part.replace('*', "x")))?;
                (literal.len() == part.len() + 1).then(|| format!("/{part}"))?
            }
            (part, None) => matching::exact(&format!("/{part}"))?,
        };
    }
    Some(if pattern.is_empty() { "/".to_owned() } else { pattern })
}

/// Returns the pattern of any segments, which a path can have once.
fn rest(has_rest: &mut bool) -> Option<String> {
    let is_first = !std::mem::replace(has_rest, true);
    is_first.then(|| "/**".to_owned())
}

fn add_hosts(part: &Part<'_>, matches: &mut Match) -> Option<Outcome> {
    let (mut hosts, mut is_wider) = (Vec::new(), false);
    for text in &part.values {
        if let Some(domain) = text.strip_prefix("**.") {
            // `**` is any number of labels, also none.
            hosts.extend([matching::host(domain)?, matching::host(&format!("*.{domain}"))?]);
            continue;
        }
        let (first, rest) = text.split_once('.').unwrap_or((text, ""));
        match first == "*" || first.starts_with('{') && first.ends_with('}') {
            true => {
                is_wider = true;
                hosts.push(matching::host(&format!("*.{rest}"))?);
            }
            false => hosts.push(matching::host(text)?),
        }
    }
    hosts.dedup();
    matches.hosts = Some(hosts).filter(|hosts| !hosts.is_empty())?;
    Some(match is_wider {
        true => (Verdict::Looser, "`*` stands for several labels"),
        false => (Verdict::Same, "`match.host`"),
    })
}

/// Adds a condition on a named value: that it exists, or that an expression matches it as a whole.
fn add_value(part: &Part<'_>, map: &mut Map, is_field: bool) -> Option<Outcome> {
    let (name, regex) = match part.values.as_slice() {
        [name] => (name, None),
        // A comma belongs to the expression.
        [name, regex @ ..] => (name, Some(regex.join(","))),
        [] => return None,
    };
    let name = if is_field { name.to_ascii_lowercase() } else { name.clone() };
    let is_name = !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_name || is_field && name.contains('.') {
        return None;
    }
    let value = match regex {
        Some(regex) => matching::whole(&regex)?,
        None => Value::from("present"),
    };
    map.set(&name, value);
    Some((Verdict::Same, "`match`"))
}

fn network(text: &str) -> Option<IpNet> {
    let address = || text.parse().ok().map(|address: std::net::IpAddr| IpNet::from(address));
    text.parse().ok().or_else(address).map(|network: IpNet| network.trunc())
}
