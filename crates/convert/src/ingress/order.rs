//! The order of paths: the first route that matches a request applies.

use std::cmp::Reverse;

use super::manifest::{Ingress, PathKind, PathRule};
use crate::nginx::paths::{self, Paths};

/// A path of a host, with its Ingress.
#[derive(Clone, Debug)]
pub(super) struct Item<'i, 't> {
    pub(super) ingress: &'i Ingress<'t>,
    pub(super) host: String,
    pub(super) rule: PathRule<'t>,
    pub(super) paths: Paths,
    pub(super) ignores_case: bool,
    /// The line of the rule of its host.
    pub(super) line: u32,
}

/// A path that the rule file cannot have, with its line.
pub(super) type Unmatched<'i, 't> = (&'i Ingress<'t>, PathRule<'t>);

/// Returns the paths of each host in their order: hosts, then wildcards from the longest to the shortest, then rules without
/// a host.
pub(super) fn hosts<'i, 't>(ingresses: &[&'i Ingress<'t>]) -> (Vec<Vec<Item<'i, 't>>>, Vec<Unmatched<'i, 't>>) {
    let mut hosts: Vec<&str> = Vec::new();
    for rule in ingresses.iter().flat_map(|ingress| &ingress.rules) {
        if !hosts.contains(&rule.host.as_str()) {
            hosts.push(&rule.host);
        }
    }
    hosts.sort_by_key(|host| match *host {
        "" => (2, Reverse(0)),
        host if host.starts_with("*.") => (1, Reverse(host.len())),
        _ => (0, Reverse(0)),
    });
    let mut unmatched = Vec::new();
    let groups = hosts.into_iter().map(|host| items(ingresses, host, &mut unmatched)).collect();
    (groups, unmatched)
}

/// Returns the paths of a host in their order.
fn items<'i, 't>(
    ingresses: &[&'i Ingress<'t>],
    host: &str,
    unmatched: &mut Vec<Unmatched<'i, 't>>,
) -> Vec<Item<'i, 't>> {
    let of_host = |ingress: &&&'i Ingress<'t>| ingress.rules.iter().any(|rule| rule.host == host);
    // A regular expression in one Ingress makes all paths of the host regular expressions.
    let has_regexes = ingresses.iter().filter(of_host).any(|ingress| has_regex(ingress));
    let mut items = Vec::new();
    for ingress in ingresses {
        for rule in ingress.rules.iter().filter(|rule| rule.host == host) {
            for path in &rule.paths {
                match patterns(path, has_regexes) {
                    Some(paths) => items.push(Item {
                        ingress,
                        host: host.to_owned(),
                        rule: path.clone(),
                        paths,
                        ignores_case: has_regexes && path.path != "/",
                        line: rule.line,
                    }),
                    None => unmatched.push((ingress, path.clone())),
                }
            }
        }
    }
    items.sort_by_key(|item: &Item<'_, '_>| {
        (!has_regexes && item.rule.kind != PathKind::Exact, Reverse(item.rule.path.len()))
    });
    items
}

/// Returns `true` if the paths of an Ingress are regular expressions.
fn has_regex(ingress: &Ingress<'_>) -> bool {
    ingress.is_on("use-regex") || ingress.annotation("rewrite-target").is_some()
}

fn patterns(rule: &PathRule<'_>, has_regexes: bool) -> Option<Paths> {
    let exact = |patterns| Paths { patterns, is_exact: true };
    if has_regexes {
        return paths::similar_to_regex(&format!("^{}", rule.path));
    }
    match rule.kind {
        PathKind::Exact => paths::exact(&rule.path).map(exact),
        PathKind::Prefix => {
            let folder = format!("{}/", rule.path.trim_end_matches('/'));
            paths::prefix(&folder).map(|pattern| exact(vec![pattern]))
        }
        PathKind::Specific => paths::prefix(&rule.path).map(|pattern| exact(vec![pattern])),
    }
}
