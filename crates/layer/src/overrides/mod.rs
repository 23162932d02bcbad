//! Overrides: what operators change about limits for one client or network, for a bounded time.

mod factor;
mod index;
mod scope;
mod target;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::factor::Factor;
pub use self::index::{OverrideIndex, OverrideMatches};
pub use self::scope::Scope;
pub use self::target::{Target, parse_hash, parse_network};
use tidegate_limit::clock::Timestamp;

/// The longest time that an override may last: 30 days, in milliseconds.
pub const MAX_DURATION: u64 = 30 * 24 * 60 * 60 * 1000;

/// The effect of an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Requests are rejected, and no limit is charged. Open responses can be ended.
    Ban,
    /// Limits do not count requests.
    Exempt,
    /// Limits have another rate.
    Adjust,
}

/// An override. Its serialized form is stored, and read by other versions of this program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// Identifies the action, the scope and the target.
    pub id: String,
    pub action: Action,
    pub scope: Scope,
    pub target: Target,
    /// The new rate of `adjust`.
    #[serde(flatten)]
    pub adjustment: Adjustment,
    /// Whether a ban also ends open responses of the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disconnect: bool,
    /// The end, by the store's clock.
    #[serde(with = "millis")]
    pub until: Timestamp,
    /// Why, for other operators.
    pub reason: String,
    /// The operator.
    pub by: String,
}

/// The new rate of a limit: one of the two for `adjust`, otherwise none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Adjustment {
    /// The permits in each interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// The multiple of the rate in the rule file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiply: Option<Factor>,
}

impl Action {
    /// Returns the word in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ban => "ban",
            Self::Exempt => "exempt",
            Self::Adjust => "adjust",
        }
    }
}

impl Override {
    /// Returns the id of the override with this action, scope and target. Two overrides that differ in these have
    /// different ids.
    pub fn id_of(action: Action, scope: &Scope, target: &Target) -> String {
        let text = format!("{} {scope} {target}", action.name());
        blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
    }

    /// Returns `true` until the end.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

impl Adjustment {
    /// Returns the new rate of a limit with this rate.
    pub fn apply(self, rate: u32) -> u32 {
        self.rate.unwrap_or_else(|| self.multiply.map_or(rate, |factor| factor.apply(rate)))
    }
}

/// Serializes a time as milliseconds.
mod millis {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use tidegate_limit::clock::Timestamp;

    pub(super) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        time.as_millis().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        u64::deserialize(deserializer).map(Timestamp::from_millis)
    }
}
