//! Other plugins of routes: those with a counterpart in the rule file.

use super::guards;
use super::limiters::LIMITERS;
use super::model::{Model, Plugin};
use super::plugins::{Sender, applying};
use crate::cors::Cors;
use crate::draft::Route;
use crate::draft::value::Map;
use crate::fields::setting;
use crate::guards::is_protective;
use crate::report::Report;
use crate::tree::Node;

const TERMINATION: &str = "request-termination";
const SIZE: &str = "request-size-limiting";
const CORS: &str = "cors";

/// Plugins that have nothing to do with limits, routes, servers, header fields, timeouts or TLS.
const UNRELATED: [&str; 16] = [
    "prometheus",
    "file-log",
    "http-log",
    "tcp-log",
    "udp-log",
    "syslog",
    "loggly",
    "datadog",
    "statsd",
    "statsd-advanced",
    "zipkin",
    "opentelemetry",
    "kafka-log",
    "app-dynamics",
    "application-registration",
    "standard-webhooks",
];

/// Applies the plugins to a route.
pub(super) fn apply(model: &Model<'_>, position: usize, route: &mut Route) {
    let sender = Sender::default();
    let plugin = |name| applying(model, name, position, &sender).map(|plugin| &model.plugins[plugin]);
    if let Some(size) = plugin(SIZE).and_then(max_body) {
        route.more.set("max_body", size);
    }
    if let Some(cors) = plugin(CORS).and_then(cors) {
        route.more.set("cors", cors);
    }
    if let Some(respond) = plugin(TERMINATION).and_then(respond) {
        route.upstream = None;
        route.more.entries.retain(|(key, _)| !matches!(key.as_str(), "rewrite" | "request_headers"));
        route.more.set("respond", respond);
    }
}

/// Reports the plugins that limit nothing.
pub(super) fn report(model: &Model<'_>, report: &mut Report) {
    for plugin in &model.plugins {
        if LIMITERS.contains(&plugin.name) || plugin.name == "key-auth" || UNRELATED.contains(&plugin.name) {
            continue;
        }
        let place = plugin.entity.place();
        let is_of_all = plugin.scope.consumer.is_none() && plugin.scope.group.is_none();
        let found = match plugin.name {
            TERMINATION => respond(plugin).map(|_| "`respond`"),
            SIZE => max_body(plugin).map(|_| "`max_body`"),
            CORS => cors(plugin).map(|_| "`cors`"),
            guards::ADDRESSES => guards::denied(plugin).map(|_| "routes above that respond with 403"),
            _ => None,
        };
        match found.filter(|_| is_of_all) {
            Some(key) => {
                report.same(&place, plugin.name, key);
                report_settings(plugin, report);
            }
            None => report.lost(&place, plugin.name, hint(plugin.name)),
        }
    }
}

/// Returns what to do about a plugin that is not converted.
fn hint(name: &str) -> &'static str {
    match name {
        "jwt" | "openid-connect" | "oauth2" | "oauth2-introspection" => {
            "its routes respond with 403: configure `identities.jwt`, and write `require: jwt`"
        }
        "basic-auth" | "ldap-auth" | "ldap-auth-advanced" => {
            "its routes respond with 403: configure `identities.basic`, and write `require: basic`"
        }
        "hmac-auth" | "session" | "mtls-auth" | "key-auth-enc" | "acl" | "opa" => {
            "its routes respond with 403, until you write `require`"
        }
        "ip-restriction" => "its routes respond with 403: add a route with `match.clients` and `respond` above",
        "bot-detection" => "add a route with `match.headers` and `respond` above",
        "request-transformer" | "request-transformer-advanced" => "see `request_headers` and `rewrite` of a route",
        "response-transformer" | "response-transformer-advanced" => "see `response_headers` of a route",
        "correlation-id" => "see `requests.request_id`",
        "response-ratelimiting" => "see `charge_on` and `permits` of a limit",
        "request-termination" | "cors" | "request-size-limiting" => "a setting has no form in the rule file",
        _ if is_protective(name) => "its routes respond with 403: the rule file has no such plugin",
        _ => "the rule file has no such plugin",
    }
}

/// Reports the settings of a converted plugin that change nothing.
fn report_settings(plugin: &Plugin<'_>, report: &mut Report) {
    let mut fields = plugin.settings();
    let read: &[&str] = match plugin.name {
        TERMINATION => &["status_code", "message", "body", "content_type"],
        guards::ADDRESSES => &["allow", "deny", "whitelist", "blacklist", "status", "message"],
        SIZE => &["allowed_payload_size", "size_unit", "require_content_length"],
        _ => &["origins", "methods", "headers", "exposed_headers", "credentials", "max_age"],
    };
    fields.skip(read);
    for entry in fields.rest().filter(|entry| entry.value.flag() != Some(false)) {
        let place = plugin.entity.place_of(entry);
        report.lost(&place, plugin.setting(&setting(entry)), "the rule file has no such key");
    }
}

fn respond(plugin: &Plugin<'_>) -> Option<Map> {
    const MAX_BODY: usize = 65_536;
    let get = |key: &str| plugin.config.and_then(|config| config.get(key)).filter(|node| !node.is_null());
    if get("trigger").is_some() || get("echo").and_then(Node::flag) == Some(true) {
        return None;
    }
    let status = get("status_code").map_or(Some(503), Node::number).filter(|status| (200..600).contains(status))?;
    let (body, kind) = match (get("body").and_then(Node::text), get("message").and_then(Node::text)) {
        (Some(body), _) => {
            (body.to_owned(), get("content_type").and_then(Node::text).unwrap_or("application/json; charset=utf-8"))
        }
        (None, message) => {
            let message = message.unwrap_or("Service unavailable");
            (serde_json::json!({ "message": message }).to_string(), "application/json; charset=utf-8")
        }
    };
    let is_valid =
        body.len() <= MAX_BODY && kind.bytes().all(|byte| (b' '..0x7f).contains(&byte)) && kind.contains('/');
    is_valid.then(|| Map::of([("status", status.into()), ("body", body.into()), ("content_type", kind.into())]))
}

fn max_body(plugin: &Plugin<'_>) -> Option<String> {
    let get = |key: &str| plugin.config.and_then(|config| config.get(key));
    let size = get("allowed_payload_size").map_or(Some(128), Node::number).filter(|size| *size <= 1 << 30)?;
    // Kong counts in powers of 2.
    let unit = match get("size_unit").and_then(Node::text) {
        Some("bytes") => "B",
        Some("kilobytes") => "KiB",
        _ => "MiB",
    };
    Some(format!("{size}{unit}"))
}

fn cors(plugin: &Plugin<'_>) -> Option<Map> {
    let get = |key: &str| plugin.config.and_then(|config| config.get(key)).filter(|node| !node.is_null());
    let texts = |key: &str| -> Vec<&str> {
        get(key).map_or(&[][..], Node::one_or_more).iter().filter_map(Node::text).collect()
    };
    let origins = texts("origins");
    let cors = Cors {
        origins: if origins.is_empty() { vec!["*"] } else { origins },
        methods: texts("methods"),
        headers: texts("headers"),
        expose: texts("exposed_headers"),
        credentials: get("credentials").and_then(Node::flag) == Some(true),
        max_age: get("max_age").and_then(Node::number),
    };
    cors.map()
}
