//! Adds the tree of an included file to the tree of the rule file.

use crate::Team;
use crate::check::help_for_unknown;
use crate::file::defaults::DEFAULT_LIMITS;
use crate::file::include::RouteSources;
use crate::file::keys::Kind;
use crate::file::read::read_item;
use crate::file::{self, DEFAULTS, FILE};
use crate::problem::suggest::nearest;
use crate::problem::{Location, Problems, quote};
use crate::values::team::UpstreamUse;
use crate::yaml::key_value::{KeyValue, describe};
use crate::yaml::node::{Entry, MERGE_KEY, Node, Value};
use crate::yaml::scalar::Scalar;
use tidegate_rules::route::HostPattern;

/// The keys of an included file.
const KEYS: [&str; 3] = ["upstreams", "routes", "defaults"];

const KEYS_HELP: &str = "an included file has only `upstreams`, `routes` and `defaults`";

static DEFAULTS_KIND: Kind = Kind::Map(&DEFAULTS);

/// Removes and returns the `defaults` of an included file.
pub(super) fn take_defaults(included: &mut Node, problems: &mut Problems) -> Option<Node> {
    let Value::Map(entries) = &mut included.value else { return None };
    let position = entries.iter().position(|entry| entry.key == "defaults")?;
    let defaults = entries.remove(position).value;
    drop(read_item::<Box<file::Route>>(&defaults, "defaults", &DEFAULTS_KIND, problems)); // reports its errors
    Some(defaults)
}

/// Adds the upstreams and routes of an included file, which can belong to a team.
pub(super) fn merge(root: &mut Node, mut included: Node, team: Option<&Team>, problems: &mut Problems) {
    if let Some(team) = team {
        apply_team(&mut included, team, problems);
    }
    let location = included.location;
    let Value::Map(entries) = included.value else {
        let message = format!("an included file must be a map, not {}", describe(&included));
        problems.add(location, message, KEYS_HELP);
        return;
    };
    for entry in entries {
        let key = quote(&entry.key);
        match entry.key.as_str() {
            existing if KEYS.contains(&existing) => append(root, entry, problems),
            MERGE_KEY => {}
            "include" => {
                let message = "an included file must not include other files";
                problems.add(entry.location, message, "name all files in the rule file");
            }
            other if FILE.key(other).is_some() => {
                let help = format!("move it to the rule file; {KEYS_HELP}");
                problems.add(entry.location, format!("{key} must not be in an included file"), help);
            }
            other => {
                let help = match nearest(other, KEYS) {
                    Some(near) => format!("did you mean {}?", quote(near)),
                    None => KEYS_HELP.to_owned(),
                };
                problems.add(entry.location, format!("unknown key {key} in an included file"), help);
            }
        }
    }
}

/// Puts the name of the team before the names of its upstreams and routes, and adds its hosts to routes without `host`.
fn apply_team(included: &mut Node, team: &Team, problems: &mut Problems) {
    let Value::Map(entries) = &mut included.value else { return };
    let mut upstreams = Vec::new();
    if let Some(Value::Map(own)) =
        entries.iter_mut().find(|entry| entry.key == "upstreams").map(|own| &mut own.value.value)
    {
        for upstream in own.iter_mut().filter(|upstream| upstream.key != MERGE_KEY) {
            let name = name_in(team, &upstream.key);
            upstreams.push(std::mem::replace(&mut upstream.key, name));
        }
    }
    let Some(routes) = entries.iter_mut().find(|entry| entry.key == "routes") else { return };
    let Value::List(routes) = &mut routes.value.value else { return };
    for route in routes {
        let Value::Map(keys) = &mut route.value else { continue };
        for Entry { key, value, .. } in keys {
            let location = value.location;
            match &mut value.value {
                Value::Map(conditions) if key == "match" => add_hosts(conditions, location, &team.hosts),
                Value::Map(keys) if key == "on_limit" => {
                    for Entry { value, .. } in keys.iter_mut().filter(|entry| entry.key == "upstream") {
                        name_upstream(value, team, &upstreams, problems);
                    }
                }
                Value::Scalar(scalar) if key == "name" && scalar.is_text() => {
                    scalar.text = name_in(team, &scalar.text);
                }
                Value::Scalar(_) if key == "upstream" => name_upstream(value, team, &upstreams, problems),
                Value::Scalar(_) | Value::List(_) | Value::Map(_) => {}
            }
        }
    }
}

/// Returns the name of an upstream or a route of a team.
fn name_in(team: &Team, own: &str) -> String {
    format!("{}.{own}", team.name)
}

/// Adds the name of a team to its own upstream. Reports an upstream that it may not use.
fn name_upstream(value: &mut Node, team: &Team, upstreams: &[String], problems: &mut Problems) {
    let location = value.location;
    let Value::Scalar(scalar) = &mut value.value else { return };
    if upstreams.contains(&scalar.text) {
        scalar.text = name_in(team, &scalar.text);
    } else if scalar.is_text() && team.upstreams == UpstreamUse::Own {
        let message = format!("team {} has no upstream {}", quote(&team.name), quote(&scalar.text));
        let own = upstreams.iter().map(String::as_str);
        let help = help_for_unknown(&scalar.text, own, "upstreams of the team", || {
            "add it to `upstreams` of this file".to_owned()
        });
        problems.add(location, message, help);
        *scalar = Scalar::invalid();
    }
}

/// Adds the hosts of a team to conditions without `host`.
fn add_hosts(conditions: &mut Vec<Entry>, location: Location, hosts: &[HostPattern]) {
    if hosts.is_empty() || conditions.iter().any(|condition| condition.key == "host") {
        return;
    }
    let node = |value| Node { location, value };
    let hosts = hosts.iter().map(|host| node(Value::Scalar(Scalar::quoted(host.to_string()))));
    conditions.push(Entry { key: "host".to_owned(), location, value: node(Value::List(hosts.collect())) });
}

/// Reports a shared limit whose name stands for the limits of `defaults`.
pub(super) fn check_default_limits(root: &Node, sources: &RouteSources, problems: &mut Problems) {
    let shared = root.get("limits").into_iter().flat_map(Node::entries).find(|limit| limit.key == DEFAULT_LIMITS);
    if let Some(limit) = shared.filter(|_| sources.have_default_limits()) {
        let message = format!("{} in `limits` of a route stands for the limits of `defaults`", quote(DEFAULT_LIMITS));
        problems.add(limit.location, message, "rename the shared limit");
    }
}

/// Adds the values of a key to the values of the rule file.
fn append(root: &mut Node, mut entry: Entry, problems: &mut Problems) {
    let expected = if entry.key == "routes" { "a list" } else { "a map" };
    let is_expected = match &entry.value.value {
        Value::List(_) => entry.key == "routes",
        Value::Map(_) => entry.key != "routes",
        Value::Scalar(_) => false,
    };
    if !is_expected {
        let node = &entry.value;
        if !node.is_invalid() {
            let fault = format!("must be {expected}, not {}", describe(node));
            KeyValue { node, key: &entry.key }.report(&fault, "write it as in the rule file", problems);
        }
        // The key is not missing.
        entry.value.value = Value::Scalar(Scalar::invalid());
    }
    let Value::Map(entries) = &mut root.value else { return };
    let Some(existing) = entries.iter_mut().find(|existing| existing.key == entry.key) else {
        return entries.push(entry);
    };
    match (&mut existing.value.value, entry.value.value) {
        (Value::List(routes), Value::List(more)) => routes.extend(more),
        (Value::Map(upstreams), Value::Map(more)) => {
            for upstream in more {
                match upstreams.iter().find(|existing| existing.key == upstream.key) {
                    Some(existing) => {
                        let place = problems.place(existing.location, upstream.location);
                        let message = format!("upstream {} is already {place}", quote(&upstream.key));
                        problems.add(upstream.location, message, "give each upstream its own name");
                    }
                    None => upstreams.push(upstream),
                }
            }
        }
        // The included value has been reported, or the value of the rule file is reported with the other keys.
        _ => {}
    }
}
