//! Writes the routes in the order in which Kong tries them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::guards::Guards;
use super::keys::Keys;
use super::limiters::{LIMITERS, Plans};
use super::matches::{Conditions, Order, Path, rewrite};
use super::model::Model;
use super::plan::{Auth, By};
use super::plugins::{Sender, applying};
use super::services::Servers;
use super::{actions, model};
use crate::draft::value::{Map, Value};
use crate::draft::{Draft, Limit, LimitUse, Route, valid_name};
use crate::error::ConvertError;
use crate::fields::setting;
use crate::report::{Report, Verdict};
use crate::tree::Node;

/// The most routes of the rule file. Each consumer with own plugins can add as many as the source has.
const MAX_ROUTES: usize = 20_000;

/// The most pairs of a route, and a consumer or group with own limits.
const MAX_CHECKS: usize = 1_000_000;

/// A route of the rule file, before its limits are known.
struct Planned {
    route: Route,
    uses: Vec<Use>,
}

/// The limits of a plugin, for routes that identify consumers in the same way. Equal uses share buckets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    plugin: usize,
    auth: Auth,
    /// The service, if the plugin counts by service.
    service: Option<usize>,
}

/// The paths of a route that are next to each other in the order.
struct Block {
    /// The position of the route in the model.
    route: usize,
    conditions: usize,
    paths: Vec<Path>,
}

/// Converts the routes of a model.
///
/// # Errors
/// Fails if the rule file would have too many routes.
pub(super) fn convert(
    model: &Model<'_>,
    servers: &[Servers],
    keys: &Keys,
    plans: &mut Plans,
    draft: &mut Draft,
    report: &mut Report,
) -> Result<(), ConvertError> {
    let mut found = Vec::new();
    for (position, route) in model.routes.iter().enumerate() {
        if let Some(conditions) = read(route, report) {
            found.push((position, conditions));
        }
    }
    let (senders, guards) = (senders(model), Guards::of(model));
    let blocks = blocks(&found);
    if blocks.len().saturating_mul(senders.len()) > MAX_CHECKS {
        return Err(ConvertError::Bound(format!(
            "more than {MAX_CHECKS} pairs of a route and a consumer with own limits"
        )));
    }
    let mut planned = Vec::new();
    for block in blocks {
        let conditions = &found[block.conditions].1;
        let mut base = base_route(model, servers, &block, conditions, draft);
        let auth = keys.auth(model, block.route);
        let above = guards.apply(model, block.route, matches!(auth, Auth::Keys { .. }), &mut base);
        planned.extend(above.into_iter().map(|route| Planned { route, uses: Vec::new() }));
        add_variants(model, keys, plans, (&block, auth, &senders), &base, &mut planned);
        if planned.len() > MAX_ROUTES {
            return Err(ConvertError::Bound(format!("the rule file would have more than {MAX_ROUTES} routes")));
        }
    }
    for plan in &mut planned {
        plan.route.name = draft.route_name(&plan.route.name);
    }
    actions::report(model, report);
    add_limits(model, planned, plans, draft);
    Ok(())
}

/// Reads a route, and reports its settings.
fn read(route: &model::Route<'_>, report: &mut Report) -> Option<Conditions> {
    let entity = route.entity;
    let mut fields = entity.fields();
    let conditions = Conditions::read(route, &mut fields, report);
    let (strip, host, priority) =
        (fields.take("strip_path"), fields.take("preserve_host"), fields.take("regex_priority"));
    fields.skip(&["name", "service", "plugins", "request_buffering", "response_buffering", "priority"]);
    let mut conditions = conditions?;
    let flag = |entry: Option<&crate::tree::Entry>| entry.and_then(|entry| entry.value.flag());
    conditions.strips_path = flag(strip).unwrap_or(true);
    conditions.preserves_host = flag(host).unwrap_or(false);
    let number = priority.and_then(|entry| entry.value.text()?.parse().ok());
    conditions.regex_priority = number.unwrap_or(0);
    if let Some(entry) = strip {
        let is_lost =
            conditions.strips_path && conditions.paths.iter().any(|path| path.is_regex && path.prefix.is_none());
        let (verdict, reason) = match is_lost {
            true => (Verdict::Lost, "the text that a regular expression matches is not removed"),
            false => (Verdict::Same, "`rewrite.strip_prefix`"),
        };
        report.add(&entity.place_of(entry), verdict, setting(entry), reason);
    }
    for (entry, reason) in [(host, "`rewrite.host`"), (priority, "the order of the routes")] {
        if let Some(entry) = entry {
            report.same(&entity.place_of(entry), setting(entry), reason);
        }
    }
    if let Some(entry) = fields.take("path_handling").filter(|entry| entry.value.text() != Some("v0")) {
        report.lost(&entity.place_of(entry), setting(entry), "paths are joined with one slash, as in `v0`");
    }
    fields.report_rest(entity.text, "the rule file has no such key", report);
    Some(conditions)
}

/// Returns the blocks of all routes, in the order in which Kong tries them.
fn blocks(found: &[(usize, Conditions)]) -> Vec<Block> {
    type Key = (Reverse<Order>, Reverse<bool>, Reverse<i64>, Reverse<usize>, usize);
    let mut all: Vec<(Key, usize, Option<Path>)> = Vec::new();
    for (number, (_, conditions)) in found.iter().enumerate() {
        let key = |path: Option<&Path>| {
            let (is_regex, length) = path.map_or((false, 0), |path| (path.is_regex, path.length));
            (Reverse(conditions.order), Reverse(is_regex), Reverse(conditions.regex_priority), Reverse(length), number)
        };
        match conditions.paths.as_slice() {
            [] => all.push((key(None), number, None)),
            paths => all.extend(paths.iter().map(|path| (key(Some(path)), number, Some(path.clone())))),
        }
    }
    all.sort_by_key(|(key, _, _)| *key);
    let mut blocks: Vec<Block> = Vec::new();
    for (_, number, path) in all {
        let (route, conditions) = (found[number].0, &found[number].1);
        let strips = conditions.strips_path && path.as_ref().is_some_and(|path| path.prefix.is_some());
        match blocks.last_mut() {
            Some(last) if last.route == route && !strips && !last.strips(conditions) => last.paths.extend(path),
            _ => blocks.push(Block { route, conditions: number, paths: path.into_iter().collect() }),
        }
    }
    blocks
}

/// Returns the consumers and groups that have own limits.
fn senders<'n>(model: &Model<'n>) -> Vec<Sender<'n>> {
    let own = |plugin: &&model::Plugin<'_>| LIMITERS.contains(&plugin.name);
    let consumers: BTreeSet<_> = model.plugins.iter().filter(own).filter_map(|plugin| plugin.scope.consumer).collect();
    let groups: BTreeSet<_> = model.plugins.iter().filter(own).filter_map(|plugin| plugin.scope.group).collect();
    let groups_of = |consumer: usize| model.consumers[consumer].groups.clone();
    let senders =
        consumers.into_iter().map(|consumer| Sender { consumer: Some(consumer), groups: groups_of(consumer) });
    senders.chain(groups.into_iter().map(|group| Sender { consumer: None, groups: vec![group] })).collect()
}

/// Returns a route without its limits and credentials.
fn base_route(
    model: &Model<'_>,
    servers: &[Servers],
    block: &Block,
    conditions: &Conditions,
    draft: &mut Draft,
) -> Route {
    let source = &model.routes[block.route];
    let servers = source.service.and_then(|service| servers.get(service));
    let strip = block.paths.first().and_then(|path| path.prefix.as_deref()).filter(|_| conditions.strips_path);
    let mut matches = conditions.matches.clone();
    matches.paths = block.paths.iter().map(|path| path.pattern.clone()).collect();
    matches.paths.dedup();
    if matches.paths.is_empty() {
        matches.paths.push("/**".to_owned());
    }
    let mut more = Map::default();
    let rewrite = rewrite(strip, servers.and_then(|servers| servers.path.as_deref()), conditions.preserves_host);
    if !rewrite.is_empty() {
        more.set("rewrite", rewrite);
    }
    let upstream = servers.map_or_else(|| draft.unknown_upstream(), |servers| servers.upstream.clone());
    let service = source.service.and_then(|service| model.services[service].node.get("name"));
    let name = source.entity.node.get("name").or(service).and_then(Node::text).unwrap_or("route").to_owned();
    Route { name, matches, upstream: Some(upstream), more, place: Some(source.entity.place()), ..Route::default() }
}

/// Adds the route for each consumer and group with own limits, and the route for all others.
fn add_variants(
    model: &Model<'_>,
    keys: &Keys,
    plans: &Plans,
    (block, auth, senders): (&Block, Auth, &[Sender<'_>]),
    base: &Route,
    planned: &mut Vec<Planned>,
) {
    let mut base = base.clone();
    keys.require(model, block.route, auth, &mut base.more);
    actions::apply(model, block.route, &mut base);
    let others = plugins(model, block.route, &Sender::default());
    let service = model.routes[block.route].service;
    let mut add = |identity: Option<(&str, &str)>, plugins: &[usize]| {
        planned.push(variant(&base, identity, plugins, plans, (auth, service)));
    };
    for sender in senders.iter().filter(|_| matches!(auth, Auth::Keys { .. })) {
        let own = plugins(model, block.route, sender);
        if own == others {
            continue;
        }
        match (sender.consumer, sender.groups.first()) {
            (Some(consumer), _) => add(Some(("key:id", model.consumers[consumer].name)), &own),
            (None, Some(group)) => add(Some(("key:group", group)), &own),
            (None, None) => {}
        }
    }
    add(None, &others);
}

/// Returns the route for some senders, with the limits of these plugins.
fn variant(
    base: &Route,
    identity: Option<(&str, &str)>,
    plugins: &[usize],
    plans: &Plans,
    (auth, service): (Auth, Option<usize>),
) -> Planned {
    let mut route = base.clone();
    if let Some((key, value)) = identity {
        route.name = format!("{}.{}", valid_name(&base.name), valid_name(value));
        route.matches.more.set("identity", Map::of([(key, value.into())]));
    }
    let mut uses = Vec::new();
    for (plugin, plan) in plugins.iter().filter_map(|plugin| Some((*plugin, plans.get(*plugin)?))) {
        if route.reject.is_empty() {
            route.reject = plan.reject.clone();
        }
        if plan.hides_headers {
            route.more.set("headers", Vec::<Value>::new());
        }
        uses.push(Use { plugin, auth, service: service.filter(|_| plan.by == By::Service) });
    }
    Planned { route, uses }
}

/// Returns the limiting plugins that apply to a route and a sender.
fn plugins<'n>(model: &Model<'n>, route: usize, sender: &Sender<'n>) -> Vec<usize> {
    LIMITERS.into_iter().filter_map(|name| applying(model, name, route, sender)).collect()
}

/// Adds the limits: to the route itself if no other route uses them, otherwise as shared limits.
fn add_limits(model: &Model<'_>, planned: Vec<Planned>, plans: &mut Plans, draft: &mut Draft) {
    let mut counts: BTreeMap<Use, usize> = BTreeMap::new();
    for one in planned.iter().flat_map(|plan| &plan.uses) {
        *counts.entry(one.clone()).or_default() += 1;
    }
    let mut shared: BTreeMap<Use, Vec<String>> = BTreeMap::new();
    for Planned { mut route, uses } in planned {
        for one in uses {
            if counts.get(&one) == Some(&1) {
                let limits = plans.limits(one.plugin, one.auth);
                route.limits.extend(limits.into_iter().map(|limit| LimitUse::Own(Box::new(limit))));
                continue;
            }
            let names = shared.entry(one.clone()).or_insert_with(|| {
                let prefix = prefix(model, &one);
                plans.limits(one.plugin, one.auth).into_iter().map(|limit| share(limit, &prefix, draft)).collect()
            });
            route.limits.extend(names.iter().cloned().map(LimitUse::Shared));
        }
        rename_repeated(&mut route.limits);
        draft.routes.push(route);
    }
}

/// Adds a shared limit. Returns its name.
fn share(limit: Limit, prefix: &str, draft: &mut Draft) -> String {
    let name = draft.limit_name(&format!("{prefix}-{}", limit.name));
    draft.limits.push(Limit { name: name.clone(), ..limit });
    name
}

/// Returns the start of the names of the shared limits of a plugin.
fn prefix(model: &Model<'_>, one: &Use) -> String {
    let scope = &model.plugins[one.plugin].scope;
    let name = |entity: model::Entity<'_>| entity.node.get("name").and_then(Node::text).unwrap_or("service").to_owned();
    let of_service = scope.service.or(one.service).map(|service| name(model.services[service]));
    let of_route = scope.route.map(|route| name(model.routes[route].entity));
    let of_consumer = scope.consumer.map(|consumer| model.consumers[consumer].name.to_owned());
    let of_group = scope.group.map(str::to_owned);
    let parts: Vec<_> = [of_service, of_route, of_consumer, of_group].into_iter().flatten().collect();
    if parts.is_empty() { "all".to_owned() } else { valid_name(&parts.join(".")) }
}

/// Gives limits of a route different names.
fn rename_repeated(limits: &mut [LimitUse]) {
    let mut used = BTreeSet::new();
    for limit in limits {
        let LimitUse::Own(limit) = limit else { continue };
        while !used.insert(limit.name.clone()) {
            limit.name.push('x');
        }
    }
}

// === impl Block ===

impl Block {
    fn strips(&self, conditions: &Conditions) -> bool {
        conditions.strips_path && self.paths.iter().any(|path| path.prefix.is_some())
    }
}
