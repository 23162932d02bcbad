//! Routers: the routes of the rule file, in the order of their priorities.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::num::NonZeroU32;

use super::conditions::{self, Conditions, joined};
use super::effects::{self, Effect};
use super::entry_points::{self, EntryPoints};
use super::limits::Plan;
use super::middlewares::Middlewares;
use super::model::{Item, Model, local_name, texts};
use super::rule;
use super::services::Services;
use crate::draft::value::{Map, Value};
use crate::draft::{Draft, Limit, LimitUse, Route};
use crate::error::ConvertError;
use crate::report::{Report, Verdict};
use crate::tree::{Entry, Node};

/// The most routes of the rule file.
const MAX_ROUTES: usize = 20_000;

/// A router with its conditions.
struct Router<'n> {
    item: Item<'n>,
    alternatives: Vec<Conditions>,
    priority: i64,
    service: Option<&'n Entry>,
    entry_points: Option<&'n Entry>,
    middlewares: Option<&'n Entry>,
    /// The name of its TLS options. `None` without TLS.
    tls_options: Option<&'n str>,
}

/// Converts the routers of a model.
///
/// # Errors
/// Fails if the rule file would have too many routes.
pub(super) fn convert(
    model: &Model<'_>,
    points: &EntryPoints<'_>,
    replicas: NonZeroU32,
    draft: &mut Draft,
    report: &mut Report,
) -> Result<(), ConvertError> {
    let mut routers: Vec<_> = model.routers.iter().filter_map(|item| Router::read(*item, report)).collect();
    routers.sort_by_key(|router| Reverse(router.priority));
    let (mut services, mut known) = (Services::new(model), Middlewares::new(model, replicas));
    let mut shared = HashMap::new();
    for router in &routers {
        router.write(points, &mut services, &mut known, &mut shared, draft, report);
        if draft.routes.len() > MAX_ROUTES {
            return Err(ConvertError::Bound(format!("the rule file would have more than {MAX_ROUTES} routes")));
        }
    }
    known.report_unused(report);
    Ok(())
}

// === impl Router ===

impl<'n> Router<'n> {
    /// Reads a router, and reports its settings. Returns `None` if the rule file cannot have its rule.
    fn read(item: Item<'n>, report: &mut Report) -> Option<Self> {
        let mut fields = item.fields();
        let rule = fields.take("rule");
        let (service, entry_points, middlewares) =
            (fields.take("service"), fields.take("entryPoints"), fields.take("middlewares"));
        let priority = fields.take("priority");
        let tls = fields.take("tls").filter(|tls| tls.value.flag() != Some(false));
        let options = |tls: &'n Entry| tls.value.get("options").map_or(Some("default"), option_name);
        let tls_options = tls.and_then(options);
        if let Some(tls) = tls {
            let reason = "write the certificates to `tls` of `listen`";
            report.lost(&item.place_of(tls), format!("{}.tls", item.entry.key), reason);
        }
        fields.skip(&["observability", "ruleSyntax"]);
        for rest in fields.rest() {
            report.lost(&item.place_of(rest), item.setting(rest), "the rule file has no such key");
        }
        let Some(rule) = rule else {
            report.lost(&item.place(), format!("router {}", item.entry.key), "it has no rule");
            return None;
        };
        let text = rule.value.text().unwrap_or_default();
        let alternatives = read_rule(item, rule, text, report)?;
        let number = priority.and_then(|entry| entry.value.text()?.parse::<i64>().ok()).filter(|number| *number > 0);
        if let Some(entry) = priority {
            report.same(&item.place_of(entry), item.setting(entry), "the order of the routes");
        }
        let priority = number.unwrap_or(i64::try_from(text.len()).unwrap_or(i64::MAX));
        Some(Self { item, alternatives, priority, service, entry_points, middlewares, tls_options })
    }

    /// Adds the routes of the router.
    fn write(
        &self,
        points: &EntryPoints<'n>,
        services: &mut Services<'n>,
        known: &mut Middlewares<'n>,
        shared: &mut HashMap<String, Vec<String>>,
        draft: &mut Draft,
        report: &mut Report,
    ) {
        let (listeners, of_points) = self.listeners(points, report);
        let own = self.middlewares.map(|entry| texts(&entry.value)).unwrap_or_default();
        let all: Vec<_> = of_points.into_iter().chain(own).collect();
        let mut effects = known.effects(&all, self.item, draft, report);
        let options = self.tls_options.into_iter().chain(points.tls_options());
        if let Some(name) = options.into_iter().find(|name| services.model.client_certificates.contains(name)) {
            effects.push(Effect::Close(format!("`clientAuth` of the TLS options {name}")));
        }
        let name = self.service.and_then(|entry| entry.value.text()).unwrap_or(&self.item.entry.key);
        let service = services.get(name, self.item, draft, report);
        let prefixes = effects.iter().find_map(|effect| match effect {
            Effect::Strip(prefixes) => Some(prefixes.as_slice()),
            _ => None,
        });
        let split = |conditions: &Conditions| effects::split(&conditions.matches, prefixes.unwrap_or_default());
        let alternatives: Vec<_> = self.alternatives.iter().flat_map(split).collect();
        let uses = self.limits(&effects, alternatives.len() > 1, shared, draft);
        for matches in alternatives {
            let mut route = Route {
                name: self.item.entry.key.clone(),
                matches,
                upstream: Some(service.upstream.clone()),
                limits: uses.clone(),
                place: Some(self.item.place()),
                ..Route::default()
            };
            route.matches.more.set_list("listener", listeners.clone());
            if !service.passes_host {
                route.more.set("rewrite", Map::of([("host", "upstream".into())]));
            }
            let above: Vec<_> = effects.iter().filter_map(|effect| effect.apply(&mut route)).collect();
            for mut route in above.into_iter().chain([route]) {
                route.name = draft.route_name(&route.name);
                draft.routes.push(route);
            }
        }
    }

    /// Returns the listeners of the router, and the middlewares of their entry points.
    fn listeners(&self, points: &EntryPoints<'n>, report: &mut Report) -> (Vec<Value>, Vec<&'n str>) {
        let (listeners, middlewares) = points.of_router(&entry_points::names(self.entry_points));
        if let Some(entry) = self.entry_points {
            let (verdict, reason) = match listeners.is_empty() {
                true => (Verdict::Looser, "the route serves all listeners: the files have no entry points"),
                false => (Verdict::Same, "`match.listener`"),
            };
            report.add(&self.item.place_of(entry), verdict, self.item.setting(entry), reason);
        }
        (listeners.into_iter().map(Value::Text).collect(), middlewares)
    }

    /// Returns the limits of the routes. Buckets in memory belong to the router, and buckets in Redis to the middleware.
    fn limits(
        &self,
        effects: &[Effect],
        has_alternatives: bool,
        shared: &mut HashMap<String, Vec<String>>,
        draft: &mut Draft,
    ) -> Vec<LimitUse> {
        let mut uses: Vec<LimitUse> = Vec::new();
        let mut names = std::collections::HashSet::new();
        for effect in effects {
            let Effect::Limit { name, plan: Plan { limits, is_shared } } = effect else { continue };
            if !names.insert(name.as_str()) {
                continue;
            }
            if !has_alternatives && !is_shared {
                uses.extend(limits.iter().cloned().map(|limit| LimitUse::Own(Box::new(limit))));
                continue;
            }
            let key = if *is_shared { name.clone() } else { format!("{}\0{name}", self.item.entry.key) };
            let found = shared.entry(key).or_insert_with(|| {
                let prefix = if *is_shared { String::new() } else { format!("{}-", self.item.entry.key) };
                limits.iter().map(|limit| share(limit, &prefix, draft)).collect()
            });
            uses.extend(found.iter().cloned().map(LimitUse::Shared));
        }
        uses
    }
}

/// Returns the name of TLS options: a text, or the `name` of a reference of Kubernetes.
fn option_name(options: &Node) -> Option<&str> {
    options.text().or_else(|| options.get("name")?.text()).map(local_name)
}

/// Adds a shared limit. Returns its name.
fn share(limit: &Limit, prefix: &str, draft: &mut Draft) -> String {
    let name = draft.limit_name(&format!("{prefix}{}", limit.name));
    draft.limits.push(Limit { name: name.clone(), ..limit.clone() });
    name
}

/// Reads a rule, and reports it. Alternatives that the rule file cannot have are left out.
fn read_rule(item: Item<'_>, entry: &Entry, text: &str, report: &mut Report) -> Option<Vec<Conditions>> {
    let place = item.place_of(entry);
    let alternatives = match rule::alternatives(text) {
        Ok(alternatives) => alternatives,
        Err(reason) => {
            report.lost(&place, item.setting(entry), reason);
            return None;
        }
    };
    let count = alternatives.len();
    let found: Vec<_> = alternatives.iter().filter_map(|calls| conditions::of(calls)).collect();
    let verdict = match found.len() {
        0 if text.contains("${") => {
            Some((Verdict::Lost, "replace the variables in the file first; the route is left out"))
        }
        0 => Some((Verdict::Lost, "a condition has no form in the rule file; the route is left out")),
        length if length < count => Some((Verdict::Lost, "an alternative has no form in the rule file")),
        _ => found.iter().filter_map(|conditions| conditions.verdict).max(),
    };
    let (verdict, reason) = verdict.unwrap_or((Verdict::Same, "`match`"));
    report.add(&place, verdict, item.setting(entry), reason);
    (!found.is_empty()).then(|| joined(found))
}
