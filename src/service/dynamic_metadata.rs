//! The dynamic metadata of an answer: the call, and the metadata of its rules. They have the keys of envoyproxy/ratelimit.

use serde_json::map::Entry as MapEntry;
use serde_json::{Value, json};

use super::unit;
use tidegate_service::{Call, Descriptor, Entry, Metadata, Override, Status};

/// Returns the metadata of a call, before its decision.
pub(super) fn of_call(call: &Call<'_>) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.insert("domain".to_owned(), call.domain.into());
    metadata.insert("descriptors".to_owned(), call.descriptors.iter().map(of_descriptor).collect());
    if call.hits_addend > 0 {
        metadata.insert("hitsAddend".to_owned(), call.hits_addend.into());
    }
    metadata
}

/// Adds the metadata of the rules whose limits the call does not exceed. Of rules with the same key, the first one counts, and
/// objects are merged.
pub(super) fn add_rules(metadata: &mut Metadata, statuses: &[Status<'_>]) {
    let mut of_rules = Metadata::new();
    statuses.iter().filter_map(|status| status.metadata).for_each(|of_rule| merge(&mut of_rules, of_rule));
    if !of_rules.is_empty() {
        metadata.insert("metadata".to_owned(), of_rules.into());
    }
}

fn of_descriptor(descriptor: &Descriptor<'_>) -> Value {
    let entry = |Entry { key, value }: &Entry<'_>| format!("{key}={value}");
    let mut metadata = json!({ "entries": descriptor.entries.iter().map(entry).collect::<Vec<_>>() });
    if let Some(Override { requests_per_unit, unit }) = descriptor.limit {
        let unit = unit::name(Some(unit)).unwrap_or_default();
        metadata["limit"] = format!("requests_per_unit:{requests_per_unit} unit:{unit}").into();
    }
    if let Some(hits) = descriptor.hits_addend {
        metadata["hitsAddend"] = hits.into();
    }
    metadata
}

fn merge(merged: &mut Metadata, other: &Metadata) {
    for (key, value) in other {
        match (merged.entry(key), value) {
            (MapEntry::Vacant(entry), value) => _ = entry.insert(value.clone()),
            (MapEntry::Occupied(mut entry), Value::Object(other)) => {
                entry.get_mut().as_object_mut().into_iter().for_each(|own| merge(own, other));
            }
            (MapEntry::Occupied(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_service::Unit;

    use super::*;

    fn object(value: Value) -> Metadata {
        let Value::Object(members) = value else { panic!("{value} is no object") };
        members
    }

    #[test]
    fn metadata_repeat_the_call() {
        let limit = Some(Override { requests_per_unit: 7, unit: Unit::HOUR });
        let entries = ["ann", "bob=x"].map(|value| Entry { key: "user", value }).to_vec();
        let first = Descriptor { entries, limit, hits_addend: Some(0) };
        let mut call = Call { domain: "edge", descriptors: vec![first, Descriptor::default()], hits_addend: 3 };
        let descriptors = json!([
            { "entries": ["user=ann", "user=bob=x"], "limit": "requests_per_unit:7 unit:HOUR", "hitsAddend": 0 },
            { "entries": [] },
        ]);
        let expected = json!({ "domain": "edge", "descriptors": descriptors, "hitsAddend": 3 });
        assert_eq!(Value::from(of_call(&call)), expected);
        call.hits_addend = 0;
        assert_eq!(of_call(&call).get("hitsAddend"), None);
    }

    #[test]
    fn metadata_of_rules_are_merged() {
        let rules = [
            object(json!({ "tier": "gold", "tags": { "a": 1, "b": { "c": null } } })),
            object(json!({ "tier": { "not": "merged" }, "tags": { "a": 2, "b": { "d": [1, 2] } }, "new": true })),
            object(json!({ "tier": "late", "tags": 5 })),
        ];
        let mut statuses: Vec<_> =
            rules.iter().map(|metadata| Status { metadata: Some(metadata), ..Status::default() }).collect();
        statuses.push(Status::default());
        let mut metadata = Metadata::new();
        add_rules(&mut metadata, &statuses);
        let expected = json!({ "tier": "gold", "tags": { "a": 1, "b": { "c": null, "d": [1, 2] } }, "new": true });
        assert_eq!(metadata.get("metadata"), Some(&expected));
        metadata.clear();
        add_rules(&mut metadata, &statuses[3..]);
        assert!(metadata.is_empty());
    }
}
