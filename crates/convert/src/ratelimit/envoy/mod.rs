//! Reads configurations of Envoy: a bootstrap with static resources, or a route configuration.
//!
//! `listener` finds the listeners, their filters and their virtual hosts; `hosts` brings virtual hosts into the order of
//! the rule file, in which the first route applies; `route` reads a route, and `cluster` an upstream.

mod action;
mod camel;
mod cluster;
mod fields;
mod filters;
mod guards;
mod hosts;
mod listener;
mod local;
mod matching;
mod route;
mod tls;

use std::collections::{HashMap, HashSet};

pub(super) use self::camel::{is_camel, to_snake};
use self::filters::Filters;
use self::guards::Guard;
use super::domain::Domain;
use super::plan::Plan;
use crate::draft::Draft;
use crate::draft::value::{Map, Value};
use crate::report::{Place, Report};
use crate::sources::Text;
use crate::tree::{Entry, Node};

/// A document of Envoy, and its file.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) file: Text,
    pub(super) root: Node,
}

/// A node of a document, with its file.
#[derive(Clone, Copy, Debug)]
struct At<'a> {
    file: &'a Text,
    node: &'a Node,
}

/// The state of a conversion.
struct Conversion<'a, 'd> {
    domains: &'a [Domain],
    clusters: HashMap<&'a str, At<'a>>,
    /// The names of the upstreams, by the clusters.
    upstreams: HashMap<String, String>,
    plan: Plan,
    /// The places of the local limits that were reported.
    local: HashSet<(String, u32)>,
    draft: &'d mut Draft,
    report: &'d mut Report,
    /// The number of Envoy processes.
    replicas: u64,
    /// Whether there are several listeners, so that routes name theirs.
    has_listeners: bool,
    /// Whether the present listener has TLS.
    is_tls: bool,
    /// The settings of the present listener that reject requests, and are lost.
    guards: Vec<Guard<'a>>,
    /// The rules that were compared with actions.
    compared: usize,
    /// The rules of all domains.
    rules: usize,
}

/// Returns `true` for a bootstrap, a listener or a route configuration of Envoy.
pub(super) fn is_envoy(document: &Node) -> bool {
    document.get("static_resources").is_some() || document.get("virtual_hosts").is_some()
}

/// Converts the documents. Limits of `domains` apply where a filter names the domain.
pub(super) fn write(documents: &[Document], domains: &[Domain], replicas: u64, draft: &mut Draft, report: &mut Report) {
    let mut clusters = HashMap::new();
    for Document { file, root } in documents {
        for node in root.at(&["static_resources", "clusters"]).map_or(&[][..], Node::items) {
            if let Some(name) = node.get("name").and_then(Node::text) {
                clusters.insert(name, At { file, node });
            }
        }
    }
    let (plan, upstreams, local) = (Plan::default(), HashMap::new(), HashSet::new());
    let listeners =
        |document: &Document| document.root.at(&["static_resources", "listeners"]).map(|it| it.items().len());
    let has_listeners = documents.iter().filter_map(listeners).sum::<usize>() > 1;
    let rules = domains.iter().map(|domain| 1 + domain.count()).sum();
    let (is_tls, compared) = (false, 0);
    let mut conversion = Conversion {
        domains,
        clusters,
        upstreams,
        plan,
        local,
        draft,
        report,
        replicas,
        has_listeners,
        is_tls,
        guards: Vec::new(),
        compared,
        rules,
    };
    for Document { file, root } in documents {
        conversion.document(At { file, node: root });
    }
    let Conversion { plan, draft, report, .. } = conversion;
    report_domains(domains, &plan, report);
    plan.finish(draft, report);
}

/// The most rules that are compared with actions, over all routes.
const MAX_COMPARED: usize = 50_000_000;

/// Reports each limit of the domains: whether a route has it.
fn report_domains(domains: &[Domain], plan: &Plan, report: &mut Report) {
    for domain in domains {
        domain.each_limit(&mut |rule, limit| match limit.combines {
            Some(key) => {
                report.lost(
                    &limit.place,
                    format!("{key} of {}", rule.show()),
                    "depends on the other limits of a request",
                );
            }
            None if plan.has(&limit.place) => rule.report(limit, "a limit of routes", report),
            None => rule.report(limit, "no route has its descriptor", report),
        });
    }
}

impl<'a> Conversion<'a, '_> {
    /// Counts rules that a route compares with its actions. Returns `false`, with a finding, if they are too many.
    fn compare(&mut self, rules: usize, place: &Place) -> bool {
        let fits = self.compared + rules <= MAX_COMPARED;
        match fits {
            true => self.compared += rules,
            false => self.report.lost(place, "rate_limits", "more routes and limits than can be compared"),
        }
        fits
    }

    fn document(&mut self, root: At<'a>) {
        for listener in root.items_at(&["static_resources", "listeners"]) {
            self.listener(listener);
        }
        if root.node.get("virtual_hosts").is_some() {
            // A route configuration by itself: a filter of each domain is assumed.
            let filters = Filters::of_domains(self.domains);
            self.virtual_hosts(root, &filters, None);
        }
        if let Some(dynamic) = root.get("dynamic_resources") {
            self.report.lost(&dynamic.place(), "dynamic_resources", "a control plane has the configuration");
        }
    }
}

// === impl At ===

impl<'a> At<'a> {
    fn place(self) -> Place {
        self.file.place(self.node.line)
    }

    fn get(self, key: &str) -> Option<Self> {
        self.node.get(key).filter(|node| !node.is_null()).map(|node| Self { node, ..self })
    }

    fn at(self, path: &[&str]) -> Option<Self> {
        self.node.at(path).filter(|node| !node.is_null()).map(|node| Self { node, ..self })
    }

    fn text(self, key: &str) -> Option<&'a str> {
        self.node.get(key).and_then(Node::text)
    }

    fn flag(self, key: &str) -> bool {
        self.node.get(key).and_then(Node::flag).unwrap_or(false)
    }

    fn items(self, key: &str) -> impl Iterator<Item = Self> + use<'a> {
        self.items_at(&[key])
    }

    fn items_at(self, path: &[&str]) -> impl Iterator<Item = Self> + use<'a> {
        let items = self.node.at(path).map_or(&[][..], Node::items);
        items.iter().map(move |node| Self { node, file: self.file })
    }

    /// Returns the keys of a map with their values, in order. The place of each is the line of its key.
    fn entries(self) -> impl Iterator<Item = (&'a str, Self, Place)> {
        let entry = move |entry: &'a Entry| {
            (entry.key.as_str(), Self { node: &entry.value, ..self }, self.file.place(entry.line))
        };
        self.node.entries().iter().map(entry)
    }
}

/// Returns a map with one text.
fn one(key: &str, value: impl Into<Value>) -> Map {
    Map::of([(key, value.into())])
}
