//! The limits of each resource: a route if the resource is a path, otherwise shared limits.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::clients;
use super::law::{self, Threshold, whole};
use super::rules::{Kind, Rule};
use crate::draft::value::Map;
use crate::draft::{Draft, Limit, LimitUse, Match, Route, valid_name};
use crate::matching;
use crate::report::{Place, Report, Verdict};
use crate::tree::Node;

/// The most requests in flight of the rule file.
const MAX_CONCURRENCY: u64 = 1_000_000;

/// The resources, by name.
#[derive(Debug)]
pub(super) struct Resources<'n> {
    replicas: NonZeroU32,
    /// The paths of API groups.
    groups: BTreeMap<&'n str, Group>,
    resources: BTreeMap<&'n str, Resource>,
}

/// An API group.
#[derive(Debug)]
struct Group {
    paths: Vec<String>,
    /// Whether all of its patterns have a form in the rule file.
    is_whole: bool,
}

/// A resource.
#[derive(Debug)]
struct Resource {
    place: Place,
    limits: Vec<Limit>,
    concurrency: Map,
    /// Whether a rule admits nothing.
    is_closed: bool,
    /// Whether the name is an API group.
    is_group: bool,
    /// The lost rule that rejects requests, for comments.
    guard: Option<String>,
}

// === impl Resources ===

impl<'n> Resources<'n> {
    pub(super) fn new(replicas: NonZeroU32) -> Self {
        Self { replicas, groups: BTreeMap::new(), resources: BTreeMap::new() }
    }

    /// Reads the paths of an API group.
    pub(super) fn add_group(&mut self, rule: &Rule<'n>) {
        let (Kind::Group, Some(name)) = (rule.kind(), rule.word("apiName")) else { return };
        let items = rule.node.get("predicateItems").map_or(&[][..], Node::items);
        let mut group = Group { paths: Vec::new(), is_whole: true };
        for item in items {
            let pattern = item.get("pattern").and_then(Node::text).unwrap_or_default();
            let paths = match item.get("matchStrategy").and_then(Node::number).unwrap_or(0) {
                0 => matching::exact(pattern).map(|path| vec![path]),
                1 => matching::below(pattern.trim_end_matches("**").trim_end_matches('*')).map(|path| vec![path]),
                _ => matching::path_of_regex(pattern).map(|form| form.paths),
            };
            group.is_whole &= paths.is_some();
            group.paths.extend(paths.unwrap_or_default());
        }
        self.groups.insert(name, group);
    }

    /// Adds the limit of a rule, and reports the rule.
    pub(super) fn add(&mut self, rule: &Rule<'n>, draft: &mut Draft, report: &mut Report) {
        match rule.kind() {
            Kind::Group => self.report_group(rule, report),
            Kind::Degrade => {
                let reason = "circuit breaking: see `eject` and `timeouts` of an upstream";
                report.lost(&rule.place(), format!("{}: DegradeRule", rule.resource()), reason);
            }
            Kind::Authority => {
                let name = rule.resource();
                if conditions(name).is_some() {
                    let resource = self.resources.entry(name).or_insert_with(|| Resource::new(rule.place()));
                    resource.guard.get_or_insert(format!("`AuthorityRule` ({})", rule.place()));
                }
                let reason =
                    "Java code finds the origin of a request; if the resource is a path, its route responds with 403";
                report.lost(&rule.place(), format!("{}: AuthorityRule", rule.resource()), reason);
            }
            Kind::System => report_system(rule, report),
            Kind::Flow | Kind::Param | Kind::Gateway => self.add_limit(rule, draft, report),
        }
    }

    fn report_group(&self, rule: &Rule<'n>, report: &mut Report) {
        let name = rule.word("apiName").unwrap_or_default();
        let shown = format!("apiName: {name}");
        match self.groups.get(name) {
            Some(group) if group.is_whole => {
                report.stricter(&rule.place(), shown, "`match.path`: prefixes are whole segments");
            }
            _ => report.lost(&rule.place(), shown, "a pattern has no form in the rule file"),
        }
    }

    fn add_limit(&mut self, rule: &Rule<'n>, draft: &mut Draft, report: &mut Report) {
        if !applies_to_all(rule, report) {
            return;
        }
        let (threshold, replicas) = self.threshold(rule, report);
        let law = law::of(rule, threshold);
        let name = rule.resource();
        let resource = self.resources.entry(name).or_insert_with(|| Resource::new(rule.place()));
        resource.is_group |= rule.kind() == Kind::Gateway && rule.number("resourceMode") == Some(1);
        if rule.counts_threads() {
            return resource.add_concurrency(rule, threshold, report);
        }
        let (verdict, reason) = match (law.verdict, replicas.get()) {
            (Verdict::Same, 2..) => (Verdict::Looser, "the sum of the processes, also for clients of only one of them"),
            (verdict, _) => (verdict, law.reason),
        };
        report.add(&rule.place_of("count"), verdict, rule.setting("count"), reason);
        for key in [
            "controlBehavior",
            "warmUpPeriodSec",
            "maxQueueingTimeMs",
            "maxQueueingTimeoutMs",
            "intervalSec",
            "durationInSec",
            "burst",
            "burstCount",
        ] {
            if rule.entry(key).is_some() {
                report.same(&rule.place_of(key), rule.setting(key), "");
            }
        }
        let Some(mut limit) = law.limit else {
            resource.is_closed = true;
            return;
        };
        limit.place = Some(rule.place());
        clients::set(rule, &mut limit, threshold.factor, draft, report);
        if rule.node.get("clusterMode").and_then(Node::flag) == Some(true) {
            limit.on_store_failure = Some(if falls_back(rule) { "local" } else { "allow" });
        }
        resource.limits.push(limit);
    }

    /// Returns the threshold over all processes, and the number of processes that count separately.
    fn threshold(&self, rule: &Rule<'n>, report: &mut Report) -> (Threshold, NonZeroU32) {
        let is_cluster = rule.node.get("clusterMode").and_then(Node::flag) == Some(true);
        let config = rule.node.get("clusterConfig");
        let is_global = config.and_then(|config| config.get("thresholdType")).and_then(Node::number) == Some(1);
        let factor = if is_cluster && is_global { NonZeroU32::MIN } else { self.replicas };
        if is_cluster {
            let reason = match is_global {
                true => "the threshold is for all processes together; set `store` to a Redis",
                false => {
                    "the threshold is an average: `rate` is the count for all processes of `--replicas`; set `store` to a Redis"
                }
            };
            report.same(&rule.place_of("clusterMode"), rule.setting("clusterMode"), reason);
        }
        let interval = ["intervalSec", "durationInSec"].into_iter().find_map(|key| rule.number(key));
        let unit = match (rule.number("interval"), rule.number("intervalUnit")) {
            (Some(length), Some(unit)) => {
                let factor = [1, 60, 3_600, 86_400].get(usize::try_from(unit).unwrap_or(usize::MAX)).copied();
                Some(length.saturating_mul(factor.unwrap_or(1)))
            }
            _ => None,
        };
        let seconds = unit.or(interval).unwrap_or(1).clamp(1, 366 * 86_400);
        let burst = ["burst", "burstCount"].into_iter().find_map(|key| rule.number(key)).unwrap_or(0);
        let burst = burst.saturating_mul(factor.get().into());
        let count = rule.count() * f64::from(factor.get());
        // Processes of a cluster share their counters.
        let separate = if is_cluster { NonZeroU32::MIN } else { factor };
        (Threshold { count, seconds, burst, is_cluster, factor: factor.get() }, separate)
    }

    /// Writes the routes and the shared limits.
    pub(super) fn write(self, draft: &mut Draft, report: &mut Report) {
        let (groups, mut routes) = (self.groups, Vec::new());
        for (name, resource) in self.resources {
            let matches = match groups.get(name).filter(|group| !group.paths.is_empty()) {
                Some(group) => Some(Match { paths: group.paths.clone(), ..Match::default() }),
                None if resource.is_group => None,
                None => conditions(name),
            };
            match matches {
                Some(matches) => routes.push(resource.into_route(name, matches)),
                None => resource.share(name, draft, report),
            }
        }
        // Longer and literal paths come first: Sentinel has no order of resources.
        let key = |route: &Route| {
            route.matches.paths.iter().map(|path| (path.contains(['*', '{']), usize::MAX - path.len())).min()
        };
        routes.sort_by_key(key);
        if routes.is_empty() && draft.limits.is_empty() {
            return;
        }
        let rest = Match { paths: vec!["/**".to_owned()], ..Match::default() };
        routes.push(Route { name: "rest".to_owned(), matches: rest, ..Route::default() });
        for mut route in routes {
            if route.more.get("respond").is_none() {
                route.upstream = Some(draft.unknown_upstream());
            }
            route.name = draft.route_name(&route.name);
            draft.routes.push(route);
        }
    }
}

/// Returns the conditions of a resource that is a path, or a method with a path.
fn conditions(name: &str) -> Option<Match> {
    let (method, path) = match name.split_once(':') {
        Some((method, path)) if !method.contains('/') => (Some(matching::method(method)?), path),
        _ => (None, name),
    };
    let mut pattern = String::new();
    for part in path.strip_prefix('/')?.split('/').filter(|part| !part.is_empty()) {
        let variable = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
        pattern += &match (part, variable) {
            ("**", _) if !pattern.contains("**") => "/**".to_owned(),
            ("*", _) => "/{any}".to_owned(),
            (_, Some(name))
                if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
            {
                format!("/{part}")
            }
            _ => matching::exact(&format!("/{part}"))?,
        };
    }
    let paths = vec![if pattern.is_empty() { "/".to_owned() } else { pattern }];
    Some(Match { methods: method.into_iter().collect(), paths, ..Match::default() })
}

/// Returns `true` if a rule counts all requests of its resource. Otherwise it is lost.
fn applies_to_all(rule: &Rule<'_>, report: &mut Report) -> bool {
    let app = rule.word("limitApp").unwrap_or("default");
    if !matches!(app, "default" | "") {
        let reason = "the rule is left out: the origin of a request is found by Java code";
        report.lost(&rule.place_of("limitApp"), rule.setting("limitApp"), reason);
        return false;
    }
    if let Some(strategy @ (1 | 2)) = rule.number("strategy").filter(|_| rule.kind() == Kind::Flow) {
        let reason = match strategy {
            1 => "the rule is left out: it counts the requests of another resource",
            _ => "the rule is left out: it counts the requests of one entrance",
        };
        report.lost(&rule.place_of("strategy"), rule.setting("strategy"), reason);
        return false;
    }
    true
}

/// Returns whether a process counts alone while the server of the cluster is unreachable.
fn falls_back(rule: &Rule<'_>) -> bool {
    let config = rule.node.get("clusterConfig");
    config.and_then(|config| config.get("fallbackToLocalWhenFail")).and_then(Node::flag) != Some(false)
}

fn report_system(rule: &Rule<'_>, report: &mut Report) {
    for key in ["highestSystemLoad", "highestCpuUsage", "avgRt", "maxThread", "qps"] {
        let is_on = rule.node.get(key).and_then(Node::float).is_some_and(|number| number >= 0.0);
        if is_on {
            rule.lose(key, "the rule file has no rules for the load of a process", report);
        }
    }
}

// === impl Resource ===

impl Resource {
    fn new(place: Place) -> Self {
        Self { place, limits: Vec::new(), concurrency: Map::default(), is_closed: false, is_group: false, guard: None }
    }

    fn add_concurrency(&mut self, rule: &Rule<'_>, threshold: Threshold, report: &mut Report) {
        let count = whole(threshold.count).min(MAX_CONCURRENCY);
        let place = rule.place_of("count");
        if count == 0 {
            self.is_closed = true;
            return report.same(&place, rule.setting("count"), "nothing is admitted");
        }
        let key = if rule.kind() == Kind::Flow { "max" } else { "per_client" };
        if !self.concurrency.is_empty() {
            return report.lost(
                &place,
                rule.setting("count"),
                "a route has one `concurrency`, which an earlier rule has set",
            );
        }
        self.concurrency = Map::of([(key, count.into())]);
        match key {
            "max" => report.same(&place, rule.setting("count"), "`concurrency.max`; rejected requests get 503"),
            _ => report.lost(&place, rule.setting("count"), "`concurrency.per_client` by address: set its `client`"),
        }
    }

    /// Returns the route of a resource.
    fn into_route(self, name: &str, matches: Match) -> Route {
        let (concurrency, place) = (self.concurrency, Some(self.place));
        let mut route = Route { name: valid_name(name), matches, concurrency, place, ..Route::default() };
        if self.is_closed {
            route.concurrency = Map::default();
            route.more.set("respond", Map::of([("status", 429_u64.into())]));
            return route;
        }
        let many = self.limits.len() > 1;
        for (number, limit) in (1..).zip(self.limits) {
            let name = if many { format!("flow-{number}") } else { "flow".to_owned() };
            route.limits.push(LimitUse::Own(Box::new(Limit { name, ..limit })));
        }
        route.closed = self.guard;
        route
    }

    /// Adds the limits of a resource in Java code as shared limits.
    fn share(self, name: &str, draft: &mut Draft, report: &mut Report) {
        let mut names = Vec::new();
        for limit in self.limits {
            let name = draft.limit_name(name);
            names.push(format!("@/{name}"));
            draft.limits.push(Limit { name, ..limit });
        }
        let reason = match names.is_empty() {
            true => "a name in Java code: give a route its `concurrency`".to_owned(),
            false => format!(
                "a name in Java code: use {} in a route, or take its permits with `POST /v1/take`",
                names.join(", ")
            ),
        };
        report.lost(&self.place, format!("resource: {name}"), reason);
    }
}
