//! Changes of header fields.

use super::At;
use crate::draft::value::{Map, Value};
use crate::report::Report;

/// Fields that the rule file cannot change: they frame or route a message.
const FIXED: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "retry-after",
];

/// Returns `true` for the keys of a route or virtual host that change header fields.
pub(super) fn is_field_key(key: &str) -> bool {
    let key = key.trim_start_matches("request_").trim_start_matches("response_");
    matches!(key, "headers_to_add" | "headers_to_remove")
}

/// Reads the changes of `request` or `response` fields of a virtual host and a route, the route last.
pub(super) fn changes(message: &str, nodes: &[At<'_>], report: &mut Report) -> Map {
    let (mut set, mut add, mut remove) = (Map::default(), Map::default(), Vec::new());
    for node in nodes {
        if let Some(removed) = node.get(&format!("{message}_headers_to_remove")) {
            let names = removed.node.items().iter().filter_map(|name| name.text());
            remove.extend(names.filter(|name| is_free(name)).map(Value::from));
            report.same(&removed.place(), format!("{message}_headers_to_remove"), "");
        }
        for item in node.items(&format!("{message}_headers_to_add")) {
            match field(item) {
                Ok((name, value, appends)) => {
                    let map = if appends { &mut add } else { &mut set };
                    map.set(&name, value);
                    report.same(&item.place(), format!("{message} field {name}"), "");
                }
                Err(reason) => report.lost(&item.place(), format!("{message} field"), reason),
            }
        }
    }
    let mut changes = Map::default();
    for (key, map) in [("set", set), ("add", add)] {
        changes.set_some(key, (!map.is_empty()).then_some(map));
    }
    changes.set_some("remove", (!remove.is_empty()).then_some(Value::List(remove)));
    changes
}

/// Returns the name and the value of a field, and whether it is appended to fields of the same name.
fn field(item: At<'_>) -> Result<(String, String, bool), &'static str> {
    let text = |key| item.at(&["header", key]).and_then(|value| value.node.text());
    let name = text("key").filter(|name| is_free(name)).ok_or("the rule file cannot change this field")?;
    let value = value(text("value").unwrap_or_default())?;
    let action = item.text("append_action").unwrap_or("APPEND_IF_EXISTS_OR_ADD");
    let appends = match (item.get("append").and_then(|append| append.node.flag()), action) {
        (Some(appends), _) => appends,
        (None, "APPEND_IF_EXISTS_OR_ADD") => true,
        (None, "OVERWRITE_IF_EXISTS_OR_ADD") => false,
        (None, _) => return Err("depends on whether the message has the field"),
    };
    Ok((name.to_ascii_lowercase(), value, appends))
}

/// Returns `true` if the rule file can change the field.
fn is_free(name: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(valid) && !FIXED.contains(&name.to_ascii_lowercase().as_str())
}

/// Returns the value of a field, with the commands of Envoy as variables.
fn value(text: &str) -> Result<String, &'static str> {
    let mut value = String::new();
    for (number, part) in text.split('%').enumerate() {
        match (number % 2, part) {
            (0, literal) => value.push_str(&literal.replace('{', "{{")),
            (_, "") => value.push('%'),
            (_, "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT") => value.push_str("{client_ip}"),
            (_, "REQ(:AUTHORITY)%" | "REQ(:AUTHORITY)") => value.push_str("{host}"),
            (_, "ROUTE_NAME") => value.push_str("{route}"),
            _ => return Err("the rule file has no such variable"),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_become_variables() {
        assert_eq!(value("a%%b"), Ok("a%b".to_owned()));
        assert_eq!(value("%ROUTE_NAME%/x"), Ok("{route}/x".to_owned()));
        assert!(value("%START_TIME%").is_err());
    }
}
