//! The Redis of the limits.

use super::properties::{Properties, resolved};
use crate::draft::Draft;
use crate::draft::value::Value;
use crate::report::Report;

/// Reads the connection to Redis. The first document with one decides.
pub(super) fn read(properties: &Properties<'_>, draft: &mut Draft, report: &mut Report) {
    for prefix in ["spring.data.redis", "spring.redis"] {
        let Some(section) = properties.find(prefix) else { continue };
        let text = |key: &str| {
            let entry = properties.find(&format!("{prefix}.{key}"))?;
            entry.value.text().map(|text| resolved(text).0)
        };
        let place = properties.place(section);
        if text("sentinel.master").is_some() || properties.find(&format!("{prefix}.cluster")).is_some() {
            return report.lost(&place, prefix, "set `store` to the sentinels or nodes");
        }
        let scheme =
            if text("ssl.enabled").or_else(|| text("ssl")).as_deref() == Some("true") { "rediss" } else { "redis" };
        let database = text("database").and_then(|text| text.parse::<u16>().ok()).filter(|number| *number > 0);
        let database = database.map_or_else(String::new, |number| format!("/{number}"));
        let host = text("host").unwrap_or_else(|| "localhost".to_owned());
        let port = text("port").map_or(Some(6379), |port| port.parse::<u16>().ok()).filter(|port| *port > 0);
        let (Some(port), true, None) = (port, is_host(&host), text("url")) else {
            return report.lost(&place, prefix, "set `store` to the Redis: its address is not in the file");
        };
        if draft.store.is_none() {
            let url = format!("{scheme}://{host}:{port}{database}");
            match text("password").filter(|password| !password.is_empty()) {
                Some(_) => {
                    draft.store = Some(Value::Text(url));
                    let reason = "`store`; write the password to a file, and name it in `password_file`";
                    report.lost(&place, prefix, reason);
                }
                None => {
                    draft.store = Some(Value::Text(url));
                    report.same(&place, prefix, "`store`");
                }
            }
        }
        return;
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
