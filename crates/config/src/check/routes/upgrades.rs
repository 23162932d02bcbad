//! Protocols that clients may switch to with `Upgrade`.

use http::HeaderValue;

use crate::check::{Checked, all};
use crate::file;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::{Problems, quote};
use crate::values::units::{Bytes, Millis};
use tidegate_rules::route::upgrade::{TunnelLimits, Upgrades};

pub(crate) fn upgrades(route: &file::Route, problems: &mut Problems) -> Checked<Upgrades> {
    let default = Upgrades::default();
    let read = |list: &[Located<String>], problems: &mut Problems| all(list.iter().map(|raw| protocol(raw, problems)));
    match route.upgrades.optional(problems)? {
        None => Ok(default),
        Some(ValueOrMap::Value(list)) => Ok(Upgrades { protocols: read(list, problems)?, ..default }),
        Some(ValueOrMap::Map(raw)) => {
            let protocols = match raw.protocols.optional(problems)? {
                Some(list) => read(list, problems)?,
                None => default.protocols,
            };
            raw.idle_timeout.optional(problems)?;
            let limits = TunnelLimits {
                idle_timeout: raw.idle_timeout.duration(default.limits.idle_timeout),
                max_time: raw.max_time.optional(problems)?.copied().map(Millis::duration),
                max_bytes: raw.max_bytes.optional(problems)?.map(|Bytes(bytes)| *bytes),
            };
            Ok(Upgrades { protocols, limits })
        }
    }
}

fn protocol(raw: &Located<String>, problems: &mut Problems) -> Checked<HeaderValue> {
    let text = raw.required(problems)?.as_str();
    let lower = text.to_ascii_lowercase();
    if lower == "h2c" || lower == "h2" || lower.starts_with("http/") {
        let message = format!("{} is not allowed: its requests would bypass the limits", quote(text));
        let help = "leave it out: HTTP/2 starts with its preface and not with `Upgrade`";
        return Err(raw.report(message, help, problems));
    }
    match HeaderValue::from_str(text) {
        Ok(value) if is_protocol(text) => Ok(value),
        _ => {
            let message = format!("{} is not a protocol name", quote(text));
            Err(raw.report(message, "use a name with an optional version: `websocket`, `SPDY/3.1`", problems))
        }
    }
}

/// Returns `true` for a protocol name with an optional version (RFC 9110 section 7.8).
fn is_protocol(text: &str) -> bool {
    let is_token = |token: &str| {
        let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !token.is_empty() && token.bytes().all(is_token_byte)
    };
    text.split_once('/').map_or_else(|| is_token(text), |(name, version)| is_token(name) && is_token(version))
}
