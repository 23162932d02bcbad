//! `defaults`: values of routes that do not set them.
//!
//! They are added to the tree of a route before the route is read, and keep their locations in `defaults`. So the checks of
//! routes apply to them as they are, and report their errors in `defaults`.

use std::collections::HashSet;

use super::ROUTE;
use super::keys::{Key, Kind, Note, Shape, is_none};
use crate::problem::Location;
use crate::yaml::node::{Entry, Node, Value};

/// The values of routes that do not set them: the keys that can be `none`.
pub(crate) static DEFAULTS: Shape = Shape {
    title: "`defaults`",
    description: "Values of all routes that do not set these keys. A value of a route replaces the default, and `none` leaves it \
                  out. In `limits`, `default` stands for the default limits, except those whose name the route gives to another \
                  limit; a map is a limit of each route, with its own buckets. Changes of header fields are merged: a route \
                  decides about the fields that it names. `request_headers` and `timeout` apply only to routes with `upstream`, \
                  and `authorize` routes take no limits.",
    keys: &[],
    shared_keys: Some((&ROUTE, |key| matches!(key.kind, Kind::OrNone(_)))),
};

const LIMITS: &str = "limits";

/// The item of `limits` that stands for the limits of `defaults`.
pub(crate) const DEFAULT_LIMITS: &str = "default";

/// A value of a route that comes from `defaults`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// The key, such as `cors`, `limits.per-ip` or `response_headers.set.Server`.
    pub(crate) key: String,
    /// The location of the value in `defaults`.
    pub(crate) location: Location,
}

/// Adds the values of outer defaults to inner ones, whose values take precedence.
pub(crate) fn inherit_defaults(outer: &Node, inner: &mut Node) {
    inherit(outer, inner, |_| true, |_| true);
}

/// Adds defaults to the tree of a route. Returns the added values.
pub(crate) fn inherit_into_route(defaults: &Node, route: &mut Node) -> Vec<Inherited> {
    let has = |key: &str| route.entries().iter().any(|entry| entry.key == key);
    let (forwards, authorizes, responds) = (has("upstream"), has("authorize"), has("redirect") || has("respond"));
    let applies = |key: &Key| {
        (forwards || !key.notes.contains(&Note::NeedsUpstream))
            && (!authorizes || !key.notes.contains(&Note::NotWithAuthorize))
    };
    // The status of the gateway's own responses is always the same.
    let limit_applies = |limit: &Node| !responds || limit.entries().iter().all(|entry| entry.key != "charge_on");
    inherit(defaults, route, applies, limit_applies)
}

fn inherit(
    defaults: &Node,
    map: &mut Node,
    applies: impl Fn(&Key) -> bool,
    limit_applies: impl Fn(&Node) -> bool,
) -> Vec<Inherited> {
    let mut inherited = Vec::new();
    let Value::Map(entries) = &mut map.value else { return inherited };
    let is_default = |entry: &&Entry| DEFAULTS.key(&entry.key).is_some_and(&applies) && !is_none(&entry.value);
    for default in defaults.entries().iter().filter(is_default) {
        let own = entries.iter_mut().find(|entry| entry.key == default.key);
        let key = default.key.as_str();
        match (own.map(|own| &mut own.value), &default.value.value) {
            (Some(own), _) if is_none(own) => {}
            (Some(own), Value::List(limits)) if key == LIMITS => {
                extend_limits(limits.iter().filter(|limit| limit_applies(limit)), own, &mut inherited);
            }
            (Some(own), Value::Map(changes)) if key.ends_with("_headers") => {
                merge_changes(key, changes, own, &mut inherited);
            }
            (Some(_), _) => {}
            (None, Value::List(limits)) if key == LIMITS => {
                let limits: Vec<_> = limits.iter().filter(|limit| limit_applies(limit)).cloned().collect();
                inherited.extend(limits.iter().map(Inherited::limit));
                let value = Node { value: Value::List(limits), ..default.value };
                entries.push(Entry { key: default.key.clone(), value, ..*default });
            }
            (None, Value::Map(changes)) if key.ends_with("_headers") => {
                inherited.extend(changes.iter().flat_map(|change| Inherited::changes(key, change)));
                entries.push(default.clone());
            }
            (None, _) => {
                inherited.push(Inherited { key: default.key.clone(), location: default.location });
                entries.push(default.clone());
            }
        }
    }
    inherited
}

/// Replaces `default` by the limits of `defaults` whose names are free.
fn extend_limits<'n>(limits: impl Iterator<Item = &'n Node>, own: &mut Node, inherited: &mut Vec<Inherited>) {
    let Value::List(items) = &mut own.value else { return };
    let is_default = |item: &Node| item.scalar().is_some_and(|scalar| scalar.text == DEFAULT_LIMITS);
    let Some(position) = items.iter().position(is_default) else { return };
    items.remove(position);
    let names: HashSet<String> = items.iter().filter_map(limit_name).map(str::to_owned).collect();
    let added = limits.filter(|limit| limit_name(limit).is_none_or(|name| !names.contains(name)));
    let added: Vec<_> = added.cloned().collect();
    inherited.extend(added.iter().map(Inherited::limit));
    items.splice(position..position, added);
}

/// Returns the name of an item of `limits`.
fn limit_name(item: &Node) -> Option<&str> {
    let name = item.entries().iter().find(|entry| entry.key == "name").map(|entry| &entry.value);
    name.unwrap_or(item).scalar().map(|scalar| scalar.text.as_str())
}

/// Adds the changes of fields that a route does not name.
fn merge_changes(key: &str, changes: &[Entry], own: &mut Node, inherited: &mut Vec<Inherited>) {
    let named: HashSet<String> =
        own.entries().iter().flat_map(|change| fields(&change.value)).map(str::to_ascii_lowercase).collect();
    let is_free = |name: &str| !named.contains(&name.to_ascii_lowercase());
    let Value::Map(own) = &mut own.value else { return };
    for change in changes {
        let free = match &change.value.value {
            Value::Map(fields) => Value::Map(fields.iter().filter(|field| is_free(&field.key)).cloned().collect()),
            Value::List(names) => {
                let is_free = |name: &&Node| name.scalar().is_some_and(|scalar| is_free(&scalar.text));
                Value::List(names.iter().filter(is_free).cloned().collect())
            }
            Value::Scalar(_) => continue, // reported in `defaults`
        };
        let free = Entry { key: change.key.clone(), value: Node { value: free, ..change.value }, ..*change };
        inherited.extend(Inherited::changes(key, &free));
        match own.iter_mut().find(|entry| entry.key == free.key) {
            None => own.push(free),
            Some(entry) => match (&mut entry.value.value, free.value.value) {
                (Value::Map(fields), Value::Map(more)) => fields.extend(more),
                (Value::List(names), Value::List(more)) => names.extend(more),
                _ => {} // reported in the route
            },
        }
    }
}

/// Returns the names of the fields in `set`, `add` or `remove`.
fn fields(change: &Node) -> Vec<&str> {
    match &change.value {
        Value::Map(fields) => fields.iter().map(|field| field.key.as_str()).collect(),
        Value::List(_) | Value::Scalar(_) => {
            change.items().iter().filter_map(|name| Some(name.scalar()?.text.as_str())).collect()
        }
    }
}

// === impl Inherited ===

impl Inherited {
    fn limit(limit: &Node) -> Self {
        Self { key: format!("{LIMITS}.{}", limit_name(limit).unwrap_or_default()), location: limit.location }
    }

    /// Returns the fields that `set`, `add` or `remove` changes.
    fn changes(key: &str, change: &Entry) -> Vec<Self> {
        let field = |name: &str, location| Self { key: format!("{key}.{}.{name}", change.key), location };
        match &change.value.value {
            Value::Map(fields) => fields.iter().map(|entry| field(&entry.key, entry.location)).collect(),
            Value::List(_) | Value::Scalar(_) => {
                let names = change.value.items().iter();
                names.filter_map(|name| Some(field(&name.scalar()?.text, name.location))).collect()
            }
        }
    }
}
