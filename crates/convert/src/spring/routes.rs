//! Writes the routes in their order.

use std::collections::HashMap;
use std::time::Duration;

use super::parts::Part;
use super::properties::{Properties, resolved, setting};
use super::{PREFIXES, filters, limits, predicates};
use crate::cors::Cors;
use crate::draft::value::Map;
use crate::draft::{Draft, LimitUse, Route, Target, Upstream, millis};
use crate::error::ConvertError;
use crate::report::{Place, Report, Verdict};
use crate::tree::Node;

/// The most routes of the rule file.
const MAX_ROUTES: usize = 20_000;

/// A route of a file.
struct Source<'n> {
    properties: Properties<'n>,
    node: &'n Node,
    order: i64,
}

/// The settings of all routes.
struct Common<'n> {
    filters: Vec<Part<'n>>,
    timeouts: Map,
    cors: Option<Map>,
    /// The settings of Spring Security, for comments.
    security: Option<String>,
}

/// The state of the conversion.
struct State {
    /// The names of upstreams, by their targets.
    upstreams: HashMap<String, String>,
    /// The worst outcome of each filter of all routes, which is reported once.
    outcomes: Vec<Option<(Verdict, &'static str)>>,
    /// Whether the limit of all routes has been reported.
    has_common_limit: bool,
}

/// Converts the routes of all documents.
///
/// # Errors
/// Fails if the rule file would have too many routes.
pub(super) fn convert(
    documents: &[Properties<'_>],
    draft: &mut Draft,
    report: &mut Report,
) -> Result<(), ConvertError> {
    let common = Common::read(documents, report);
    let mut sources = Vec::new();
    for properties in documents {
        for prefix in PREFIXES {
            let Some(list) = properties.find(&format!("{prefix}.routes")) else { continue };
            sources.extend(list.value.items().iter().map(|node| Source::new(*properties, node)));
        }
    }
    if sources.len() > MAX_ROUTES {
        return Err(ConvertError::Bound(format!("the files have more than {MAX_ROUTES} routes")));
    }
    sources.sort_by_key(|source| source.order);
    let outcomes = vec![None; common.filters.len()];
    let mut state = State { upstreams: HashMap::new(), outcomes, has_common_limit: false };
    for source in &sources {
        source.convert(&common, documents, &mut state, draft, report);
    }
    for (part, outcome) in common.filters.iter().zip(state.outcomes) {
        if let Some(outcome) = outcome {
            filters::report(part, outcome, report);
        }
    }
    Ok(())
}

// === impl Source ===

impl<'n> Source<'n> {
    fn new(properties: Properties<'n>, node: &'n Node) -> Self {
        let order = node.get("order").and_then(|node| node.text()?.parse().ok()).unwrap_or(0);
        Self { properties, node, order }
    }

    fn place(&self) -> Place {
        self.properties.text.place(self.node.entries().first().map_or(self.node.line, |entry| entry.line))
    }

    fn convert(
        &self,
        common: &Common<'_>,
        documents: &[Properties<'_>],
        state: &mut State,
        draft: &mut Draft,
        report: &mut Report,
    ) {
        let get = |key: &str| self.node.get(key).and_then(Node::text);
        let id = get("id").map_or_else(|| "route".to_owned(), |id| resolved(id).0);
        self.report_entries(report);
        let text = self.properties.text;
        let parts = Part::list(text, self.node.get("predicates"));
        let matches = predicates::convert(&parts, report);
        let own = Part::list(text, self.node.get("filters"));
        let Some(matches) = matches.filter(|_| get("enabled") != Some("false")) else { return };
        let upstream = self.upstream(&id, common, &mut state.upstreams, draft, report);
        let mut route = Route {
            name: draft.route_name(&id),
            matches,
            upstream: Some(upstream),
            place: Some(self.place()),
            ..Route::default()
        };
        apply_filters(&own, common, state, &mut route, report);
        // A limit of the route replaces the limit of all routes: both have one configuration, by the id of the route.
        let is_limit = |part: &&Part<'_>| part.is("RequestRateLimiter");
        if let Some(part) = own.iter().find(is_limit) {
            add_limit(part, &id, documents, &mut route, report);
        } else if let Some(part) = common.filters.iter().find(is_limit) {
            // The limit of all routes is reported once.
            let is_first = !std::mem::replace(&mut state.has_common_limit, true);
            let mut unused = Report::default();
            add_limit(part, &id, documents, &mut route, if is_first { report } else { &mut unused });
        }
        if let Some(setting) = &common.security {
            route.close(setting.as_str());
        }
        filters::finish(&mut route);
        draft.clients.ipv6_prefix = Some(128);
        draft.routes.push(route);
    }

    /// Reports the settings that are not predicates, filters or the server.
    fn report_entries(&self, report: &mut Report) {
        for entry in self.node.entries().iter().filter(|entry| !entry.value.is_null()) {
            let place = self.properties.place(entry);
            match entry.key.as_str() {
                "id" | "uri" | "predicates" | "filters" | "enabled" => {}
                "order" => report.same(&place, setting(entry), "the order of the routes"),
                "metadata" => {
                    for inner in entry.value.entries().iter().filter(|inner| inner.key.contains("timeout")) {
                        let reason = "see `timeout` of the route, and `timeouts` of the upstream";
                        report.lost(&self.properties.place(inner), setting(inner), reason);
                    }
                }
                _ => report.lost(&place, setting(entry), "the rule file has no such key"),
            }
        }
    }

    /// Returns the upstream of the route, which is added if it is new.
    fn upstream(
        &self,
        id: &str,
        common: &Common<'_>,
        upstreams: &mut HashMap<String, String>,
        draft: &mut Draft,
        report: &mut Report,
    ) -> String {
        let entry = self.node.entries().iter().rev().find(|entry| entry.key == "uri");
        let text = entry.and_then(|entry| entry.value.text()).unwrap_or_default();
        let (uri, has_placeholder) = resolved(text);
        let place = entry.map_or_else(|| self.place(), |entry| self.properties.place(entry));
        let found = target(&uri);
        let shown = format!("uri: {text}");
        match &found {
            None => report.lost(&place, shown, "not the URI of an HTTP server"),
            Some((_, true)) => report.lost(&place, shown, "write the addresses of the service: there is no discovery"),
            Some(_) if has_placeholder => report.lost(&place, shown, "`targets` has the default of the placeholder"),
            Some(_) => report.same(&place, shown, "`targets`"),
        }
        let Some((url, _)) = found else { return draft.unknown_upstream() };
        if let Some(name) = upstreams.get(&url) {
            return name.clone();
        }
        let name = draft.upstream_name(id);
        let mut more = Map::default();
        if !common.timeouts.is_empty() {
            more.set("timeouts", common.timeouts.clone());
        }
        let targets = vec![Target { url: url.clone(), weight: 1 }];
        draft.upstreams.push(Upstream { name: name.clone(), targets, more, place: Some(place), ..Upstream::default() });
        upstreams.insert(url, name.clone());
        name
    }
}

/// Applies the filters of a route, and the filters of all routes.
fn apply_filters(own: &[Part<'_>], common: &Common<'_>, state: &mut State, route: &mut Route, report: &mut Report) {
    let keeps_host = own.iter().chain(&common.filters).any(|part| part.is("PreserveHostHeader"));
    if !keeps_host {
        filters::set_rewrite(route, "host", "upstream");
    }
    if let Some(cors) = &common.cors {
        route.more.set("cors", cors.clone());
    }
    for (part, outcome) in common.filters.iter().zip(&mut state.outcomes) {
        let found = filters::apply(part, route);
        *outcome = (*outcome).max(found);
    }
    for part in own {
        if let Some(outcome) = filters::apply(part, route) {
            filters::report(part, outcome, report);
        }
    }
}

/// Adds the limit of a filter to a route.
fn add_limit(part: &Part<'_>, id: &str, documents: &[Properties<'_>], route: &mut Route, report: &mut Report) {
    let found = limits::read(part, id, documents, report);
    route.limits.extend(found.limit.map(|limit| LimitUse::Own(Box::new(limit))));
    if !found.reject.is_empty() {
        route.reject = found.reject;
    }
}

/// Returns the URL of a target, and whether it is the name of a service.
fn target(uri: &str) -> Option<(String, bool)> {
    let (scheme, rest) = uri.split_once("://")?;
    let is_service = scheme == "lb" || scheme.starts_with("lb:");
    let scheme = match scheme.trim_start_matches("lb:") {
        "http" | "ws" | "lb" => "http",
        "https" | "wss" => "https",
        _ => return None,
    };
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    let (host, port) = authority.rsplit_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    let authority = if is_service { authority.to_ascii_lowercase() } else { authority.to_owned() };
    (is_host && is_port).then(|| (format!("{scheme}://{authority}"), is_service))
}

// === impl Common ===

impl<'n> Common<'n> {
    fn read(documents: &[Properties<'n>], report: &mut Report) -> Self {
        let mut common = Self { filters: Vec::new(), timeouts: Map::default(), cors: None, security: None };
        for properties in documents {
            common.read_security(properties, report);
            for prefix in PREFIXES {
                let list = properties.find(&format!("{prefix}.default-filters"));
                common.filters.extend(Part::list(properties.text, list.map(|entry| &entry.value)));
                for (key, own) in [("connect-timeout", "connect"), ("response-timeout", "response")] {
                    if let Some(entry) = properties.find(&format!("{prefix}.httpclient.{key}")) {
                        let millis = entry.value.text().and_then(|text| duration(&resolved(text).0));
                        common.timeouts.set_some(own, millis);
                        report.same(&properties.place(entry), setting(entry), "`timeouts` of the upstreams");
                    }
                }
                common.read_cors(properties, prefix, report);
            }
        }
        common
    }

    /// Reads settings of Spring Security, which authenticates all requests unless its Java code says otherwise.
    fn read_security(&mut self, properties: &Properties<'n>, report: &mut Report) {
        for key in ["oauth2.resourceserver", "oauth2.client.registration", "user"] {
            let Some(entry) = properties.find_below(&format!("spring.security.{key}")) else { continue };
            let place = properties.place(entry);
            let reason = "all routes respond with 403, until you write `require`: see identities.md";
            report.lost(&place, format!("spring.security.{key}"), reason);
            self.security.get_or_insert(format!("`spring.security.{key}` ({place})"));
        }
    }

    fn read_cors(&mut self, properties: &Properties<'n>, prefix: &str, report: &mut Report) {
        for key in ["globalcors.cors-configurations", "globalcors.corsConfigurations"] {
            let Some(entry) = properties.find(&format!("{prefix}.{key}")) else { continue };
            let place = properties.place(entry);
            let found = match entry.value.entries() {
                [only] if matches!(only.key.as_str(), "[/**]" | "/**") => cors(&only.value),
                _ => None,
            };
            match found {
                Some(cors) => {
                    self.cors = Some(cors);
                    report.same(&place, "globalcors", "`cors` of the routes");
                }
                None => report.lost(&place, "globalcors", "see `cors` of a route"),
            }
            return;
        }
    }
}

/// Returns a number of milliseconds, or a number with a unit, as a duration of the rule file.
fn duration(text: &str) -> Option<String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return None,
    };
    let time = number.checked_mul(factor).filter(|time| (1..=3_600_000).contains(time))?;
    Some(millis(Duration::from_millis(time)))
}

/// Returns the `cors` of a configuration whose origins are literal.
fn cors(node: &Node) -> Option<Map> {
    let entry = |key: &str| super::properties::find(node, key);
    let texts = |key: &str| -> Vec<&str> {
        let all = entry(key).map(|entry| entry.value.one_or_more()).unwrap_or_default();
        all.iter().filter_map(Node::text).flat_map(|text| text.split(',')).map(str::trim).collect()
    };
    let cors = Cors {
        origins: texts("allowedOrigins"),
        methods: texts("allowedMethods"),
        headers: texts("allowedHeaders"),
        credentials: entry("allowCredentials").and_then(|entry| entry.value.flag()) == Some(true),
        max_age: entry("maxAge").and_then(|entry| entry.value.number()),
        ..Cors::default()
    };
    cors.map()
}
