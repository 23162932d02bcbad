//! Protocols that clients may switch to with `Upgrade`.

use http::HeaderValue;

use super::{Checked, duration, needed, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote};
use crate::config::units::{Bytes, Millis};
use crate::upgrade::{TunnelLimits, Upgrades};

pub(super) fn upgrades(written: &file::Route, node: &Node, problems: &mut Problems) -> Checked<Upgrades> {
    let default = Upgrades::default();
    let Some(written) = part(&written.upgrades, node, "upgrades", problems)? else { return Ok(default) };
    let node = node.at("upgrades");
    match written {
        file::Upgrades::Protocols(list) => Ok(Upgrades { protocols: protocols(list, node, problems)?, ..default }),
        file::Upgrades::Bounded(written) => {
            let list = part(&written.protocols, node, "protocols", problems)?;
            let protocols = match list {
                Some(list) => protocols(list, node.at("protocols"), problems)?,
                None => default.protocols,
            };
            let limits = TunnelLimits {
                idle_timeout: duration(
                    part(&written.idle_timeout, node, "idle_timeout", problems)?.copied(),
                    default.limits.idle_timeout,
                ),
                max_time: part(&written.max_time, node, "max_time", problems)?.copied().map(Millis::duration),
                max_bytes: part(&written.max_bytes, node, "max_bytes", problems)?.map(|Bytes(bytes)| *bytes),
            };
            Ok(Upgrades { protocols, limits })
        }
    }
}

fn protocols(list: &[Option<String>], node: &Node, problems: &mut Problems) -> Checked<Vec<HeaderValue>> {
    let pairs = list.iter().zip(node.items());
    let checked: Vec<_> = pairs.map(|(text, node)| protocol(needed(text, node, problems)?, node, problems)).collect();
    checked.into_iter().collect()
}

fn protocol(text: &str, node: &Node, problems: &mut Problems) -> Checked<HeaderValue> {
    let lower = text.to_ascii_lowercase();
    if lower == "h2c" || lower == "h2" || lower.starts_with("http/") {
        let message = format!("{} is not allowed: its requests would bypass the limits", quote(text));
        return Err(problems.add(
            node.location,
            message,
            "leave it out: HTTP/2 starts with its preface and not with `Upgrade`",
        ));
    }
    match HeaderValue::from_str(text) {
        Ok(value) if is_protocol(text) => Ok(value),
        _ => {
            let message = format!("{} is not a protocol name", quote(text));
            Err(problems.add(node.location, message, "use a name with an optional version: `websocket`, `SPDY/3.1`"))
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
