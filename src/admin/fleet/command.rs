//! A command for all gateways: what an operator requests, signed with a key that is derived from the operator's token. The
//! token is not part of it.

use blake3::Hash;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::problem::Problem;
use tidegate_config::Tokens;
use tidegate_limit::clock::Timestamp;
use tidegate_limit::random::random;

/// How long a command can be executed, in milliseconds of Redis's clock.
pub(super) const LIFETIME: u64 = 10_000;

/// How much later a command may end than its lifetime allows, in milliseconds: after a failover, the clock of the new
/// master may be behind.
const TOLERANCE: u64 = 2_000;

/// The longest command with its signature, in bytes.
pub(super) const MAX_COMMAND: usize = 2_048;

/// The action of all gateways.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub(in crate::admin) enum FleetAction {
    /// Reload the rule file.
    Reload,
    /// Send no new requests to a target for a time.
    Drain {
        /// The name of the upstream.
        upstream: String,
        /// The target, as in the rule file, without `http://` or `https://`.
        target: String,
        /// How long the drain lasts, such as `10m`; at most 30 days. One hour by default.
        #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
        duration: Option<String>,
        /// Why, for the audit list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(max_length = 256)]
        reason: Option<String>,
        /// Whether to drain even the last usable target of the upstream.
        #[serde(default)]
        force: bool,
    },
    /// End the drain of a target.
    EndDrain {
        /// The name of the upstream.
        upstream: String,
        /// The target.
        target: String,
    },
}

/// A command.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetCommand {
    /// Random, 32 hexadecimal digits.
    pub(super) id: String,
    /// The list that the command is for, so that a copy in the list of another prefix is invalid.
    list: String,
    /// The name of the operator at the gateway that signed the command.
    pub(super) by: String,
    /// When the command ends, in milliseconds of Redis's clock.
    expires: u64,
    pub(super) action: FleetAction,
}

impl FleetCommand {
    /// Creates a command for the gateways that read this list.
    pub(super) fn new(list: &str, by: String, now: Timestamp, action: FleetAction) -> Self {
        let id = format!("{:032x}", u128::from_le_bytes(random()));
        Self { id, list: list.to_owned(), by, expires: now.plus_millis(LIFETIME).as_millis(), action }
    }

    /// Returns when the command ends.
    pub(super) fn expires(&self) -> Timestamp {
        Timestamp::from_millis(self.expires)
    }

    /// Returns when the command was signed.
    pub(super) fn signed_at(&self) -> Timestamp {
        Timestamp::from_millis(self.expires.saturating_sub(LIFETIME))
    }

    /// Returns the signature of the command, a space, and the command.
    pub(super) fn to_signed(&self, token: &[u8]) -> Result<String, Problem> {
        let text = serde_json::to_string(self).unwrap_or_default();
        let signed = format!("{} {text}", Tokens::sign(token, &text).to_hex());
        if signed.len() > MAX_COMMAND {
            return Err(Problem::bad_request(format!("the command is longer than {MAX_COMMAND} bytes")));
        }
        Ok(signed)
    }

    /// Reads a signed text. Returns its signature, the text that it covers, and the command. `None` if it is not a command
    /// of this list.
    pub(super) fn parse<'t>(signed: &'t str, list: &str) -> Option<(Hash, &'t str, Self)> {
        let (signature, text) = signed.split_once(' ').filter(|_| signed.len() <= MAX_COMMAND)?;
        let (signature, command) = (Hash::from_hex(signature).ok()?, serde_json::from_str::<Self>(text).ok()?);
        let is_id = command.id.len() == 32 && command.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_id && command.list == list).then_some((signature, text, command))
    }

    /// Returns `true` if the command has not ended, and does not end too late.
    pub(super) fn is_current(&self, now: Timestamp) -> bool {
        (now.as_millis()..=now.as_millis().saturating_add(LIFETIME + TOLERANCE)).contains(&self.expires)
            && self.expires > now.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &[u8] = b"0123456789abcdef";

    #[test]
    fn signed_command_is_read_for_its_own_list() {
        let command = FleetCommand::new("list", "ann".to_owned(), Timestamp::from_millis(5), FleetAction::Reload);
        let signed = command.to_signed(TOKEN).expect("a short command");
        let (signature, text, read) = FleetCommand::parse(&signed, "list").expect("a command");
        assert_eq!((signature, &read.id), (Tokens::sign(TOKEN, text), &command.id));
        assert!(FleetCommand::parse(&signed, "other").is_none());
        assert!(FleetCommand::parse(&signed.replace("ann", &"a".repeat(MAX_COMMAND)), "list").is_none());
        for invalid in ["", " {}", "ab {}", &signed[1..]] {
            assert!(FleetCommand::parse(invalid, "list").is_none(), "{invalid}");
        }
    }

    #[test]
    fn command_is_current_until_its_end() {
        let at = Timestamp::from_millis;
        let command = FleetCommand::new("list", "ann".to_owned(), at(50_000), FleetAction::Reload);
        let current = [47_999, 48_000, 50_000, 59_999, 60_000].map(|now| command.is_current(at(now)));
        assert_eq!(current, [false, true, true, true, false]);
        assert_eq!(command.signed_at(), at(50_000));
    }
}
