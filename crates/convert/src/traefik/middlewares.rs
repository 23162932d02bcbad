//! The middlewares of a router, and their effects on its routes.

use std::collections::HashMap;
use std::num::NonZeroU32;

use super::conditions::network;
use super::effects::Effect;
use super::headers;
use super::limits::{self, Source, read_source};
use super::model::{Item, Model, local_name, texts};
use crate::draft::Draft;
use crate::draft::value::{Map, Value};
use crate::fields::{Fields, Spelling};
use crate::guards::is_protective;
use crate::matching;
use crate::report::Report;
use crate::tree::{Entry, Node};

/// The most names that are resolved for a router.
const MAX_NAMES: usize = 200;

/// The effects of middlewares, by name. Each middleware is read and reported once.
#[derive(Debug)]
pub(super) struct Middlewares<'n> {
    model: &'n Model<'n>,
    replicas: NonZeroU32,
    effects: HashMap<&'n str, Vec<Effect>>,
}

/// The middlewares of a router until now.
#[derive(Default)]
struct Resolved<'n> {
    items: Vec<Item<'n>>,
    /// The chains that are open.
    open: Vec<&'n str>,
    names: usize,
    /// A middleware that is not known, and could protect the router.
    unknown: Option<String>,
}

// === impl Middlewares ===

impl<'n> Middlewares<'n> {
    pub(super) fn new(model: &'n Model<'n>, replicas: NonZeroU32) -> Self {
        Self { model, replicas, effects: HashMap::new() }
    }

    /// Returns the effects of middlewares, in their order. Chains are resolved.
    pub(super) fn effects(
        &mut self,
        names: &[&str],
        of: Item<'_>,
        draft: &mut Draft,
        report: &mut Report,
    ) -> Vec<Effect> {
        let mut resolved = Resolved::default();
        for name in names {
            self.resolve(local_name(name), of, &mut resolved, report);
        }
        let mut effects: Vec<_> = resolved.unknown.map(Effect::Close).into_iter().collect();
        for item in resolved.items {
            let name = item.entry.key.as_str();
            if !self.effects.contains_key(name) {
                let read = read(item, self.replicas, draft, report);
                self.effects.insert(name, read);
            }
            effects.extend(self.effects.get(name).into_iter().flatten().cloned());
        }
        effects
    }

    fn resolve(&self, name: &str, of: Item<'_>, resolved: &mut Resolved<'n>, report: &mut Report) {
        let setting = format!("{}.middlewares: {name}", of.entry.key);
        let Some(item) = self.model.middlewares.get(name) else {
            resolved.unknown.get_or_insert(format!("the middleware `{name}` ({})", of.place()));
            return report.lost(&of.place(), setting, "no file has this middleware: its routes respond with 403");
        };
        resolved.names += 1;
        let key = item.entry.key.as_str();
        match item.fields().take("chain").and_then(|chain| chain.value.get("middlewares")) {
            None => resolved.items.push(item),
            Some(_) if resolved.open.contains(&key) => report.lost(&of.place(), setting, "the chain contains itself"),
            Some(names) => {
                resolved.open.push(key);
                for name in texts(names) {
                    if resolved.names < MAX_NAMES {
                        self.resolve(local_name(name), item, resolved, report);
                    } else {
                        resolved.unknown.get_or_insert(format!("the middleware `{name}` ({})", of.place()));
                    }
                }
                resolved.open.pop();
            }
        }
    }

    /// Reports the middlewares that no router uses.
    pub(super) fn report_unused(&self, report: &mut Report) {
        for item in self.model.middlewares.iter() {
            let name = item.entry.key.as_str();
            let is_chain = item.fields().take("chain").is_some();
            if !is_chain && !self.effects.contains_key(name) {
                report.same(&item.place(), format!("middleware {name}"), "no router uses it");
            }
        }
    }
}

/// Reads a middleware, and reports it.
fn read(item: Item<'_>, replicas: NonZeroU32, draft: &mut Draft, report: &mut Report) -> Vec<Effect> {
    let mut effects = Vec::new();
    for entry in item.entry.value.entries() {
        let key = entry.key.to_ascii_lowercase();
        let found = match key.as_str() {
            "ratelimit" => {
                let plan = limits::read(item, entry, replicas, draft, report);
                effects.push(Effect::Limit { name: item.entry.key.clone(), plan });
                continue;
            }
            "headers" => {
                effects.extend(headers::read(item, entry, report));
                continue;
            }
            "inflightreq" => concurrency(item, entry, replicas, draft, report),
            "stripprefix" => strip(entry),
            "addprefix" => entry.value.get("prefix").and_then(Node::text).and_then(matching::exact).map(Effect::Add),
            "redirectscheme" => redirect(&entry.value),
            "ipallowlist" | "ipwhitelist" => allow(&entry.value),
            "forwardauth" => forward_auth(&entry.value),
            "buffering" => max_body(&entry.value),
            "compress" => Some(Effect::Key("compression", true.into())),
            _ => None,
        };
        let (place, name) = (item.place_of(entry), format!("{}.{}", item.entry.key, entry.key));
        match found {
            Some(effect) => {
                report.same(&place, name, effect.key());
                report_rest(item, entry, &key, report);
                effects.push(effect);
            }
            None => {
                if protects(&key, entry) {
                    effects.push(Effect::Close(format!("`{name}` ({place})")));
                }
                report.lost(&place, name, hint(&key));
            }
        }
    }
    effects
}

/// Returns `true` if a middleware that is not converted can reject requests.
fn protects(key: &str, entry: &Entry) -> bool {
    match key {
        "ipallowlist" | "ipwhitelist" => true,
        "plugin" => entry.value.entries().iter().any(|plugin| is_protective(&plugin.key)),
        key => is_protective(key),
    }
}

/// Reports the settings of a converted middleware that have no counterpart.
fn report_rest(item: Item<'_>, entry: &Entry, key: &str, report: &mut Report) {
    let read: &[&str] = match key {
        "inflightreq" => &["amount", "sourceCriterion"],
        "stripprefix" => &["prefixes", "forceSlash"],
        "addprefix" => &["prefix"],
        "redirectscheme" => &["scheme", "permanent", "port"],
        "ipallowlist" | "ipwhitelist" => &["sourceRange"],
        "forwardauth" => &["address", "authResponseHeaders", "trustForwardHeader", "authRequestHeaders"],
        "buffering" => &["maxRequestBodyBytes", "memRequestBodyBytes", "memResponseBodyBytes"],
        _ => return,
    };
    let mut fields = Fields::of(&entry.value, Spelling::Relaxed);
    fields.skip(read);
    for rest in fields.rest() {
        report.lost(&item.place_of(rest), item.setting(rest), "the rule file has no such key");
    }
}

/// Returns the replacement of a middleware that is not converted.
fn hint(key: &str) -> &'static str {
    match key {
        "basicauth" | "digestauth" => {
            "its routes respond with 403: configure `identities.basic`, and write `require: basic`"
        }
        "forwardauth" => "its routes respond with 403, until you write `require.service`",
        "ipallowlist" | "ipwhitelist" => {
            "its routes respond with 403: a range is not a network, or the address is not the client's"
        }
        "replacepath" | "replacepathregex" | "stripprefixregex" => "paths are NOT rewritten: see `rewrite` of a route",
        "redirectregex" => "see `redirect` of a route",
        "retry" => "see `retry` of the upstreams, which is on by default",
        "circuitbreaker" => "see `eject` of the upstreams, which is on by default",
        "errors" => "the rule file has no pages for errors",
        "inflightreq" => "`amount` is not a number above 0",
        "contenttype" | "grpcweb" | "passtlsclientcert" | "plugin" => "the rule file has no such middleware",
        _ => "a setting has no form in the rule file",
    }
}

fn concurrency(
    item: Item<'_>,
    entry: &Entry,
    replicas: NonZeroU32,
    draft: &mut Draft,
    report: &mut Report,
) -> Option<Effect> {
    const MAX: u64 = 1_000_000;
    let mut fields = Fields::of(&entry.value, Spelling::Relaxed);
    let amount = fields.take("amount").and_then(|amount| amount.value.number()).filter(|amount| *amount > 0)?;
    let source = read_source(item, fields.take("sourceCriterion"), Source::Host, draft, report);
    let client = match source {
        Source::Ip => "ip".to_owned(),
        Source::Host => "host".to_owned(),
        Source::Header(name) => format!("header:{name}"),
    };
    let amount = amount.saturating_mul(replicas.get().into()).min(MAX);
    Some(Effect::Concurrency(Map::of([("per_client", amount.into()), ("client", client.into())])))
}

fn strip(entry: &Entry) -> Option<Effect> {
    let prefixes = entry.value.get("prefixes").map(texts)?;
    let paths: Option<Vec<_>> = prefixes.into_iter().map(matching::exact).collect();
    Some(Effect::Strip(paths?)).filter(|effect| !matches!(effect, Effect::Strip(paths) if paths.is_empty()))
}

fn redirect(node: &Node) -> Option<Effect> {
    if node.get("scheme").and_then(Node::text) != Some("https") {
        return None;
    }
    let is_permanent = node.get("permanent").and_then(Node::flag) == Some(true);
    let port = node.get("port").and_then(Node::text).filter(|port| *port != "443");
    let port = port.map(|port| port.parse::<u16>().ok().map(|port| port.to_string()));
    let status = if is_permanent { 308 } else { 307 };
    match port {
        Some(None) => None,
        Some(port) => Some(Effect::ToHttps { status, port }),
        None => Some(Effect::ToHttps { status, port: None }),
    }
}

fn allow(node: &Node) -> Option<Effect> {
    // The address of another proxy must not admit its clients.
    if Fields::of(node, Spelling::Relaxed).take("ipStrategy").is_some_and(|entry| !entry.value.entries().is_empty()) {
        return None;
    }
    let ranges = node.get("sourceRange").map(texts)?;
    let networks: Option<Vec<_>> = ranges.into_iter().map(network).collect();
    networks.filter(|networks| !networks.is_empty()).map(Effect::Allow)
}

fn forward_auth(node: &Node) -> Option<Effect> {
    const MAX_FIELDS: usize = 20;
    let address = node.get("address").and_then(Node::text)?;
    let (scheme, rest) = address.split_once("://")?;
    let is_url = matches!(scheme, "http" | "https")
        && !rest.is_empty()
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:/?&=%".contains(&byte));
    if !is_url {
        return None;
    }
    let mut service = Map::of([("service", address.into())]);
    for (key, own) in [("authRequestHeaders", "headers"), ("authResponseHeaders", "pass")] {
        let names = Fields::of(node, Spelling::Relaxed).take(key).map(|entry| texts(&entry.value)).unwrap_or_default();
        let names: Option<Vec<_>> = names.into_iter().map(crate::header_fields::name).collect();
        let names = names.filter(|names| names.len() <= MAX_FIELDS)?;
        let values: Vec<_> = names.into_iter().map(Value::Text).collect();
        service.set_some(own, (!values.is_empty()).then_some(values));
    }
    Some(Effect::Key("require", service.into()))
}

fn max_body(node: &Node) -> Option<Effect> {
    let bytes = Fields::of(node, Spelling::Relaxed).take("maxRequestBodyBytes")?.value.number()?;
    (bytes > 0 && bytes <= 1 << 40).then(|| Effect::Key("max_body", format!("{bytes}B").into()))
}
