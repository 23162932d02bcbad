//! The middleware `headers`: changes of header fields, and CORS.

use super::effects::Effect;
use super::model::{Item, texts};
use crate::cors::Cors;
use crate::draft::value::{Map, Value};
use crate::fields::{Fields, Spelling};
use crate::header_fields::changeable;
use crate::report::Report;
use crate::tree::Entry;
use crate::variables;

/// The most fields of a middleware.
const MAX_FIELDS: usize = 200;

/// Security settings that are a fixed field of the response.
const FLAGS: [(&str, &str, &str); 3] = [
    ("frameDeny", "x-frame-options", "DENY"),
    ("contentTypeNosniff", "x-content-type-options", "nosniff"),
    ("browserXssFilter", "x-xss-protection", "1; mode=block"),
];

/// Security settings whose value is the value of a field of the response.
const VALUES: [(&str, &str); 5] = [
    ("customFrameOptionsValue", "x-frame-options"),
    ("contentSecurityPolicy", "content-security-policy"),
    ("referrerPolicy", "referrer-policy"),
    ("permissionsPolicy", "permissions-policy"),
    ("featurePolicy", "feature-policy"),
];

/// Reads the middleware, and reports its settings.
pub(super) fn read(item: Item<'_>, entry: &Entry, report: &mut Report) -> Vec<Effect> {
    let mut fields = Fields::of(&entry.value, Spelling::Relaxed);
    let mut response = Map::default();
    let request = fields.take("customRequestHeaders").map(|entry| changes(item, entry, report));
    if let Some(own) = fields.take("customResponseHeaders") {
        response = changes(item, own, report);
    }
    let mut set = Map::default();
    read_security(item, &mut fields, &mut set, report);
    if !set.is_empty() {
        match response.get_mut("set") {
            Some(Value::Map(own)) => own.extend(set),
            _ => response.set("set", set),
        }
    }
    let mut effects = Vec::new();
    effects.extend(request.filter(|map| !map.is_empty()).map(Effect::RequestHeaders));
    effects.extend(Some(response).filter(|map| !map.is_empty()).map(Effect::ResponseHeaders));
    effects.extend(read_cors(item, &mut fields, report));
    for rest in fields.rest().filter(|rest| rest.value.flag() != Some(false)) {
        let reason = match rest.key.to_ascii_lowercase().as_str() {
            "sslredirect" | "ssltemporaryredirect" | "sslhost" | "sslforcehost" => "see `redirect` of a route",
            "allowedhosts" => "see `match.host`",
            _ => "the rule file has no such key",
        };
        report.lost(&item.place_of(rest), item.setting(rest), reason);
    }
    effects
}

/// Returns the changes of fields: an empty value removes a field.
fn changes(item: Item<'_>, entry: &Entry, report: &mut Report) -> Map {
    let (mut set, mut remove, mut is_lost) = (Map::default(), Vec::new(), false);
    for field in entry.value.entries().iter().take(MAX_FIELDS) {
        let text = field.value.text().unwrap_or_default();
        match changeable(&field.key).filter(|_| variables::is_field_value(text)) {
            Some(name) if text.is_empty() => remove.push(Value::Text(name)),
            Some(name) => set.set(&name, variables::literal(text)),
            None => is_lost = true,
        }
    }
    let place = item.place_of(entry);
    let setting = format!("{}.{}", item.entry.key, entry.key);
    match is_lost {
        true => report.lost(&place, setting, "the gateway sets one of these fields itself, or a value is not valid"),
        false => report.same(&place, setting, "`request_headers` or `response_headers`"),
    }
    let mut map = Map::default();
    map.set_some("set", (!set.is_empty()).then_some(set));
    map.set_some("remove", (!remove.is_empty()).then_some(remove));
    map
}

fn read_security(item: Item<'_>, fields: &mut Fields<'_>, set: &mut Map, report: &mut Report) {
    for (key, field, value) in FLAGS {
        let Some(entry) = fields.take(key).filter(|entry| entry.value.flag() == Some(true)) else { continue };
        set.set(field, value);
        report.same(&item.place_of(entry), item.setting(entry), "`response_headers`");
    }
    for (key, field) in VALUES {
        let Some(entry) = fields.take(key) else { continue };
        let Some(text) = entry.value.text().filter(|text| variables::is_field_value(text)) else { continue };
        set.set(field, variables::literal(text));
        report.same(&item.place_of(entry), item.setting(entry), "`response_headers`");
    }
    let seconds = fields.take("stsSeconds");
    let (subdomains, preload, force) =
        (fields.take("stsIncludeSubdomains"), fields.take("stsPreload"), fields.take("forceSTSHeader"));
    let Some(entry) = seconds else { return };
    let Some(age) = entry.value.number().filter(|age| *age > 0) else { return };
    let mut value = format!("max-age={age}");
    for (flag, word) in [(subdomains, "; includeSubDomains"), (preload, "; preload")] {
        if flag.and_then(|entry| entry.value.flag()) == Some(true) {
            value += word;
        }
    }
    set.set("strict-transport-security", value);
    let is_forced = force.and_then(|entry| entry.value.flag()) == Some(true);
    let reason =
        if is_forced { "`response_headers`" } else { "`response_headers`, also over HTTP, where browsers ignore it" };
    report.same(&item.place_of(entry), item.setting(entry), reason);
}

/// Reads CORS. Origins must be literal.
fn read_cors<'n>(item: Item<'_>, fields: &mut Fields<'n>, report: &mut Report) -> Option<Effect> {
    let origins = fields.take("accessControlAllowOriginList");
    let mut take = |key: &str| fields.take(key);
    let (methods, headers, expose) =
        (take("accessControlAllowMethods"), take("accessControlAllowHeaders"), take("accessControlExposeHeaders"));
    let (credentials, age) = (take("accessControlAllowCredentials"), take("accessControlMaxAge"));
    take("addVaryHeader");
    let entries = [origins, methods, headers, expose, credentials, age];
    let list = |entry: Option<&'n Entry>| entry.map(|entry| texts(&entry.value)).unwrap_or_default();
    let cors = Cors {
        origins: list(origins),
        methods: list(methods),
        headers: list(headers),
        expose: list(expose),
        credentials: credentials.and_then(|entry| entry.value.flag()) == Some(true),
        max_age: age.and_then(|entry| entry.value.number()),
    };
    let cors = cors.map();
    for entry in entries.into_iter().flatten() {
        match cors {
            Some(_) => report.same(&item.place_of(entry), item.setting(entry), "`cors`"),
            None => report.lost(&item.place_of(entry), item.setting(entry), "see `cors` of a route"),
        }
    }
    cors.map(|cors| Effect::Key("cors", cors.into()))
}
