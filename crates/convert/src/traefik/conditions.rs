//! The conditions of rules in the rule file.

use ipnet::IpNet;

use super::rule::Call;
use crate::draft::Match;
use crate::draft::value::{Map, Value};
use crate::header_fields;
use crate::matching;
use crate::report::Verdict;

/// The conditions of an alternative, and how they differ from the rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conditions {
    pub(super) matches: Match,
    pub(super) verdict: Option<(Verdict, &'static str)>,
}

/// Returns the conditions of an alternative. Returns `None` if the rule file cannot have them.
pub(super) fn of(calls: &[Call]) -> Option<Conditions> {
    let mut found = Conditions::default();
    for call in calls {
        if call.is_negated {
            let mut not = Conditions::default();
            not.add(call)?;
            // A wider exclusion excludes more.
            let verdict = match not.verdict {
                Some((Verdict::Looser, reason)) => Some((Verdict::Stricter, reason)),
                Some((Verdict::Stricter, reason)) => Some((Verdict::Looser, reason)),
                other => other,
            };
            found.verdict = found.verdict.max(verdict);
            found.matches.not.push(not.matches);
        } else {
            found.add(call)?;
        }
    }
    Some(found)
}

/// Joins alternatives that differ only in their hosts, or only in their paths.
pub(super) fn joined(alternatives: Vec<Conditions>) -> Vec<Conditions> {
    let mut joined: Vec<Conditions> = Vec::new();
    for next in alternatives {
        let Some(last) = joined.last_mut() else {
            joined.push(next);
            continue;
        };
        let verdict = last.verdict.max(next.verdict);
        let same_but_hosts = Match { hosts: next.matches.hosts.clone(), ..last.matches.clone() } == next.matches
            && !last.matches.hosts.is_empty();
        let same_but_paths = Match { paths: next.matches.paths.clone(), ..last.matches.clone() } == next.matches
            && !last.matches.paths.is_empty();
        if same_but_hosts && !next.matches.hosts.is_empty() {
            extend(&mut last.matches.hosts, next.matches.hosts);
            last.verdict = verdict;
        } else if same_but_paths && !next.matches.paths.is_empty() {
            extend(&mut last.matches.paths, next.matches.paths);
            last.verdict = verdict;
        } else {
            joined.push(next);
        }
    }
    joined
}

fn extend(list: &mut Vec<String>, more: Vec<String>) {
    for text in more {
        if !list.contains(&text) {
            list.push(text);
        }
    }
}

// === impl Conditions ===

impl Conditions {
    fn add(&mut self, call: &Call) -> Option<()> {
        let arguments = call.arguments.as_slice();
        match call.name.to_ascii_lowercase().as_str() {
            "host" | "hostheader" => self.set_hosts(all(arguments, matching::host)?),
            "hostregexp" => {
                self.differ(Verdict::Looser, "the pattern matches more hosts than the regular expression");
                self.set_hosts(all(arguments, host_of_regex)?)
            }
            "path" | "pathprefix" | "pathregexp" => self.add_paths(call),
            "method" => {
                let is_new = self.matches.methods.is_empty();
                self.matches.methods = all(arguments, matching::method)?;
                (is_new && !self.matches.methods.is_empty()).then_some(())
            }
            "clientip" => {
                let is_new = self.matches.clients.is_empty();
                self.matches.clients = all(arguments, network)?;
                (is_new && !self.matches.clients.is_empty()).then_some(())
            }
            "query" => self.add_query(arguments),
            "queryregexp" => set(&mut self.matches.query, arguments.first()?, matching::contained(arguments.get(1)?)?),
            "header" | "headers" => {
                let value = Value::List(vec![arguments.get(1)?.as_str().into()]);
                set(&mut self.matches.headers, &header_fields::name(arguments.first()?)?, value)
            }
            "headerregexp" | "headersregexp" => {
                let value = matching::contained(arguments.get(1)?)?;
                set(&mut self.matches.headers, &header_fields::name(arguments.first()?)?, value)
            }
            _ => None,
        }
    }

    fn add_paths(&mut self, call: &Call) -> Option<()> {
        let arguments = call.arguments.as_slice();
        match call.name.len() {
            4 => {
                self.differ(Verdict::Looser, "also with a slash at the end of the path");
                self.set_paths(all(arguments, |text| path(text, false))?)
            }
            _ if call.name.to_ascii_lowercase().ends_with("regexp") => {
                let forms = all(arguments, matching::path_of_regex)?.into_iter();
                let paths = forms.flat_map(|form| form.paths.into_iter().map(move |path| (path, form.is_wider)));
                self.set_paths(paths.collect())
            }
            _ => {
                let paths = all(arguments, |text| path(text, true))?;
                if paths.iter().any(|(path, _)| path != "/**") {
                    self.differ(Verdict::Stricter, "whole segments: `/a/**` does not match `/ab`");
                }
                self.set_paths(paths)
            }
        }
    }

    /// Adds ``Query(`k`, `v`)``, or, as in version 2, ``Query(`k=v`)``.
    fn add_query(&mut self, arguments: &[String]) -> Option<()> {
        let (key, value) = match arguments {
            [pair] => pair.split_once('=').unwrap_or((pair, "")),
            [key, value] => (key.as_str(), value.as_str()),
            _ => return None,
        };
        let value = if value.is_empty() { Value::from("present") } else { Value::List(vec![value.into()]) };
        set(&mut self.matches.query, key, value)
    }

    fn set_hosts(&mut self, hosts: Vec<String>) -> Option<()> {
        if hosts.is_empty() || !self.matches.hosts.is_empty() && self.matches.hosts != hosts {
            return None;
        }
        self.matches.hosts = hosts;
        Some(())
    }

    /// Sets paths. A second prefix must be below the first one, or above it.
    fn set_paths(&mut self, paths: Vec<(String, bool)>) -> Option<()> {
        if paths.iter().any(|(_, is_wider)| *is_wider) {
            self.differ(Verdict::Looser, "the pattern matches more paths than the regular expression");
        }
        let paths: Vec<_> = paths.into_iter().map(|(path, _)| path).collect();
        let is_below =
            |path: &String, above: &String| above.strip_suffix("**").is_some_and(|above| path.starts_with(above));
        match (self.matches.paths.as_slice(), paths.as_slice()) {
            (_, []) => None,
            ([], _) => {
                self.matches.paths = paths;
                Some(())
            }
            ([first], [second]) if first == second || is_below(first, second) => Some(()),
            ([first], [second]) if is_below(second, first) => {
                self.matches.paths = paths;
                Some(())
            }
            _ => None,
        }
    }

    fn differ(&mut self, verdict: Verdict, reason: &'static str) {
        self.verdict = self.verdict.max(Some((verdict, reason)));
    }
}

/// Converts all arguments.
fn all<T>(arguments: &[String], convert: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    arguments.iter().map(|text| convert(text)).collect()
}

/// Sets a condition once.
fn set(map: &mut Map, key: &str, value: Value) -> Option<()> {
    let is_new = !key.is_empty() && key.len() <= 256 && map.get(key).is_none();
    map.set(key, value);
    is_new.then_some(())
}

/// Returns a network, or a single address.
pub(super) fn network(text: &str) -> Option<IpNet> {
    let text = text.trim();
    let address = || text.parse().ok().map(|address: std::net::IpAddr| IpNet::from(address));
    text.parse().ok().or_else(address).map(|network: IpNet| network.trunc())
}

/// Returns the pattern of a path, which can have the variables of version 2: `/users/{id:[0-9]+}`.
fn path(text: &str, is_prefix: bool) -> Option<(String, bool)> {
    if !text.contains('{') {
        let path = if is_prefix { matching::below(text) } else { matching::exact(text) };
        return path.map(|path| (path, false));
    }
    let (mut pattern, mut is_wider) = (String::new(), false);
    for part in text.strip_prefix('/')?.split('/').filter(|part| !part.is_empty()) {
        let variable = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
        match variable {
            Some(variable) => {
                let name: String = variable.split(':').next()?.chars().filter(char::is_ascii_alphanumeric).collect();
                is_wider |= variable.contains(':');
                pattern += &format!("/{{{}}}", if name.is_empty() { "part" } else { &name });
            }
            None => pattern += &matching::exact(&format!("/{part}"))?,
        }
    }
    Some((if is_prefix { format!("{pattern}/**") } else { pattern }, is_wider))
}

/// Returns the hosts of a regular expression, or of version 2's `{sub:[a-z]+}.example.com`.
fn host_of_regex(text: &str) -> Option<String> {
    match text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        Some((_, suffix)) => matching::host(&format!("*{suffix}")).filter(|_| suffix.starts_with('.')),
        None => matching::host_of_regex(text),
    }
}
