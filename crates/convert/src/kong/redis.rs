//! The Redis of limiting plugins.

use super::model::Plugin;
use crate::draft::Draft;
use crate::draft::value::Value;
use crate::fields::{Fields, Spelling};
use crate::report::Report;
use crate::tree::{Entry, Node};

/// The settings of older versions, without `redis_`.
const FLAT: [&str; 9] =
    ["host", "port", "password", "username", "database", "timeout", "ssl", "ssl_verify", "server_name"];

/// Reads the address of the Redis. The first plugin decides about the store of the rule file.
pub(super) fn read(plugin: &Plugin<'_>, fields: &mut Fields<'_>, draft: &mut Draft, report: &mut Report) {
    let nested = fields.take("redis");
    let mut inner = nested.map(|entry| Fields::of(&entry.value, Spelling::Exact));
    let mut take = |key: &str| -> Option<&Entry> {
        let flat = fields.take(&format!("redis_{key}"));
        inner.as_mut().and_then(|inner| inner.take(key)).or(flat)
    };
    let (host, port, database) = (take("host"), take("port"), take("database"));
    let (user, password, tls) = (take("username"), take("password"), take("ssl"));
    take("timeout");
    let place = host.or(nested).map_or_else(|| plugin.entity.place(), |entry| plugin.entity.place_of(entry));
    let text = |entry: Option<&Entry>| entry.and_then(|entry| entry.value.text().map(str::to_owned));
    let number = |entry: Option<&Entry>| entry.and_then(|entry| entry.value.number());
    let Some(host) = text(host).filter(|host| is_host(host)) else {
        return report.lost(&place, plugin.setting("redis"), "set `store` to the Redis: the plugin has no plain host");
    };
    let scheme = if tls.and_then(|entry| entry.value.flag()) == Some(true) { "rediss" } else { "redis" };
    let port = number(port).and_then(|port| u16::try_from(port).ok()).unwrap_or(6379);
    let database = number(database).and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
    let credentials = credentials(text(user), text(password));
    let database = database.map_or_else(String::new, |number| format!("/{number}"));
    let url = Value::Text(format!("{scheme}://{credentials}{host}:{port}{database}"));
    if draft.store.as_ref().is_some_and(|store| *store != url) {
        let reason = "the rule file has one store, which an earlier plugin has set";
        return report.lost(&place, plugin.setting("redis"), reason);
    }
    draft.store = Some(url);
    report.same(&place, plugin.setting("redis"), "`store`");
    for entry in inner.into_iter().flat_map(Fields::rest) {
        if !is_default(&entry.value) {
            report.lost(&plugin.entity.place_of(entry), plugin.setting(&format!("redis.{}", entry.key)), "see `store`");
        }
    }
}

/// Returns the start of an URL with a user and a password. A reference to a vault is no password.
fn credentials(user: Option<String>, password: Option<String>) -> String {
    let is_written = |text: &String| !text.is_empty() && !text.starts_with("{vault:") && !text.contains("${");
    let password = password.filter(is_written).map(|password| encoded(&password));
    let user = user.filter(is_written).map(|user| encoded(&user)).unwrap_or_default();
    password.map_or_else(String::new, |password| format!("{user}:{password}@"))
}

/// Skips the settings of the Redis, which do not apply to other policies.
pub(super) fn skip(fields: &mut Fields<'_>) {
    fields.take("redis");
    for key in FLAT {
        fields.take(&format!("redis_{key}"));
    }
}

/// Returns `true` for values that change nothing.
fn is_default(value: &Node) -> bool {
    value.flag() == Some(false) || value.is_null()
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Percent-encodes a part of an URL.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
