//! Converts the resources of a response to the keys of a file of envoyproxy/ratelimit. The check of files then finds all
//! errors.

use prost::Message;

use super::messages::{Any, RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit};
use super::size::{BadSize, MessageKind};
use crate::service::structs::{Kind, Struct, Value};
use tidegate_config::built::{Item, Map, Part};
use tidegate_config::quote;

/// The type of the resources.
pub(super) const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The most resources, as of files.
const MAX_RESOURCES: usize = 1_000;

/// Converts all resources.
///
/// # Errors
/// Returns the message of each resource that cannot be read.
pub(super) fn read(resources: &[Any]) -> Result<Vec<Part>, Vec<String>> {
    if resources.len() > MAX_RESOURCES {
        return Err(vec![format!("there are {} resources, more than {MAX_RESOURCES}", resources.len())]);
    }
    let (mut items, mut parts, mut errors) = (0, Vec::with_capacity(resources.len()), Vec::new());
    for (position, resource) in resources.iter().enumerate() {
        match decode(resource, &mut items) {
            Ok(config) => parts.push(part_of(config)),
            Err(error) => errors.push(format!("resource {}: {error}", position + 1)),
        }
    }
    if errors.is_empty() { Ok(parts) } else { Err(errors) }
}

fn decode(resource: &Any, items: &mut usize) -> Result<RateLimitConfig, String> {
    if resource.type_url != TYPE_URL {
        return Err(format!("its type is {}, not {}", quote(&resource.type_url), quote(TYPE_URL)));
    }
    MessageKind::Config.count(&resource.value, items, 0).map_err(|error| error.to_string())?;
    RateLimitConfig::decode(resource.value.clone()).map_err(|error| BadSize::Malformed(error).to_string())
}

fn part_of(RateLimitConfig { name, domain, descriptors }: RateLimitConfig) -> Part {
    let name = if name.is_empty() { domain.clone() } else { name };
    let mut keys = Map::default();
    keys.set("domain", domain);
    keys.set("descriptors", list(descriptors, descriptor));
    Part { kind: "resource", name, keys }
}

fn descriptor(from: RateLimitDescriptor) -> Item {
    let name = if from.value.is_empty() { from.key.clone() } else { format!("{}={}", from.key, from.value) };
    let mut keys = Map::default();
    keys.set("key", from.key);
    if !from.value.is_empty() {
        keys.set("value", from.value);
    }
    let flags =
        [("shadow_mode", from.shadow_mode), ("detailed_metric", from.detailed_metric), ("quota_mode", from.quota_mode)];
    flags.iter().filter(|(_, is_set)| *is_set).for_each(|(key, _)| keys.set(key, true));
    if let Some(limit) = from.rate_limit {
        keys.set("rate_limit", rate_limit(limit));
    }
    if !from.descriptors.is_empty() {
        keys.set("descriptors", list(from.descriptors, descriptor));
    }
    if let Some(metadata) = from.metadata {
        keys.set("metadata", map(metadata));
    }
    Part { kind: "descriptor", name, keys }.into()
}

fn rate_limit(RateLimitPolicy { unit, requests_per_unit, unlimited, name, replaces }: RateLimitPolicy) -> Map {
    let mut keys = Map::default();
    if unlimited {
        keys.set("unlimited", true);
    } else {
        keys.set("requests_per_unit", u64::from(requests_per_unit));
    }
    let unit =
        RateLimitUnit::try_from(unit).map_or_else(|_| unit.to_string(), |unit| format!("{unit:?}").to_uppercase());
    keys.set("unit", unit);
    if !name.is_empty() {
        keys.set("name", name);
    }
    if !replaces.is_empty() {
        keys.set(
            "replaces",
            list(replaces, |RateLimitReplace { name }| {
                let mut keys = Map::default();
                keys.set("name", name);
                keys.into()
            }),
        );
    }
    keys
}

fn map(Struct { fields }: Struct) -> Map {
    let mut keys = Map::default();
    fields.into_iter().for_each(|(key, from)| keys.add(&key, value(from)));
    keys
}

fn value(Value { kind }: Value) -> Item {
    match kind {
        None | Some(Kind::Null(_)) => Item::Plain("null".to_owned()),
        Some(Kind::Number(number)) => Item::Plain(number.to_string()),
        Some(Kind::Text(text)) => text.into(),
        Some(Kind::Bool(flag)) => flag.into(),
        Some(Kind::Object(fields)) => map(fields).into(),
        Some(Kind::List(values)) => list(values.values, value),
    }
}

fn list<T>(values: Vec<T>, item: impl Fn(T) -> Item) -> Item {
    Item::List(values.into_iter().map(item).collect())
}

#[cfg(test)]
mod tests {
    use tidegate_service::{Rate, Unit};

    use super::*;
    use crate::Gateway;
    use crate::service::structs::List;

    fn limited(unit: RateLimitUnit, requests_per_unit: u32) -> RateLimitPolicy {
        RateLimitPolicy { unit: unit.into(), requests_per_unit, ..RateLimitPolicy::default() }
    }

    fn descriptor(key: &str, value: &str, limit: RateLimitPolicy) -> RateLimitDescriptor {
        let (key, value, rate_limit) = (key.to_owned(), value.to_owned(), Some(limit));
        RateLimitDescriptor { key, value, rate_limit, ..RateLimitDescriptor::default() }
    }

    #[test]
    fn configuration_becomes_a_domain() {
        let replaces = vec![RateLimitReplace { name: "other".to_owned() }];
        let unlimited = RateLimitPolicy { name: "all".to_owned(), unlimited: true, ..RateLimitPolicy::default() };
        let outer = RateLimitDescriptor {
            descriptors: vec![descriptor("user", "", unlimited)],
            shadow_mode: true,
            metadata: Some(Struct::default()),
            ..descriptor("tenant", "a", RateLimitPolicy { replaces, ..limited(RateLimitUnit::Week, 5) })
        };
        let descriptors = vec![outer, descriptor("path", "/v1/*", limited(RateLimitUnit::Second, 0))];
        let config = RateLimitConfig { name: String::new(), domain: "edge".to_owned(), descriptors };
        let any = Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec().into() };
        let parts = read(&[any]).unwrap();
        assert_eq!((parts[0].kind, parts[0].name.as_str()), ("resource", "edge"), "without a name, its domain");

        let rules = "service: { grpc: 127.0.0.1:0, descriptors: { xds: 'http://plane:1' } }";
        let service = Gateway::parse_config(rules).unwrap().service.unwrap();
        let sent = service.with_sent_domains(&parts).unwrap();
        let limits: Vec<_> = sent.service.domains.get("edge").unwrap().rule_limits().collect();
        let rate = |requests_per_unit, unit| Rate::Limited { requests_per_unit, unit };
        let found: Vec<_> = limits.iter().map(|limit| (limit.name, limit.rule.rate, limit.rule.shadow)).collect();
        let expected = [
            ("tenant=a", rate(5, Unit::WEEK), true),
            ("tenant=a.user", Rate::Unlimited, false),
            ("path=/v1/*", rate(0, Unit::SECOND), false),
        ];
        assert_eq!(found, expected);
        assert_eq!(
            (limits[0].rule.replaces.as_slice(), limits[1].rule.name.as_deref()),
            (&["other".to_owned()][..], Some("all"))
        );
    }

    #[test]
    fn metadata_keeps_its_types() {
        let of = |kind| Value { kind: Some(kind) };
        let nulls = [of(Kind::Null(0)), Value { kind: None }];
        let list = List { values: [[of(Kind::Number(0.5)), of(Kind::Bool(true))], nulls].concat() };
        let fields = [("list".to_owned(), of(Kind::List(list))), ("tier".to_owned(), of(Kind::Text("2".to_owned())))];
        let shown = format!("{:?}", map(Struct { fields: fields.into() }));
        let list = r#"List([Plain("0.5"), Plain("true"), Plain("null"), Plain("null")])"#;
        assert_eq!(shown, format!(r#"Map([("list", {list}), ("tier", Text("2"))])"#));
    }
}
