//! The rules of a domain, as a configuration states them.

use std::sync::Arc;

use serde_json::Value;
use tidegate_limit::{Mode, Quota};
use tidegate_rules::limits::rule::{LimitLocation, OnStoreFailure};

use crate::unit::Unit;

/// A level of a domain's tree. It matches an entry of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The key of the entry. A `*` stands for any characters of the text `KEY_VALUE` of the entry.
    pub key: String,
    /// The value of the entry, in which each `*` stands for any characters. `None` matches each value that no other rule
    /// of the level matches.
    pub value: Option<String>,
    /// Whether all values that match the wildcards share one bucket. Otherwise each value has its own.
    pub shares_bucket: bool,
    /// The limit of descriptors whose last entry this is.
    pub limit: Option<RuleLimit>,
    /// The rules for the next entry.
    pub rules: Vec<Rule>,
}

/// Data of a rule for the proxy: a JSON object.
pub type Metadata = serde_json::Map<String, Value>;

/// The limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLimit {
    /// The rate.
    pub rate: Rate,
    /// The name for responses and `replaces`.
    pub name: Option<String>,
    /// The name of the limit in metrics, logs and keys, unique in its domain. `None` for a name from the keys and values of
    /// its rules.
    pub limit_name: Option<String>,
    /// Whether clients share one bucket. `None` if each value has a bucket that a rule without a value, or with a wildcard,
    /// matches.
    pub mode: Option<Mode>,
    /// The names of limits that do not apply to a call to which this limit applies.
    pub replaces: Vec<String>,
    /// Whether the limit is only counted. It never rejects.
    pub shadow: bool,
    /// Whether the limit rejects a call only together with all other such limits of the call.
    pub quota_mode: bool,
    /// Data for the proxy in the dynamic metadata of an answer, unless the descriptor exceeds this limit.
    pub metadata: Option<Arc<Metadata>>,
    /// The decision while the store is unreachable.
    pub on_store_failure: OnStoreFailure,
    /// The position in the configuration.
    pub location: LimitLocation,
}

/// The rate of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// All requests pass, and are not counted.
    Unlimited,
    /// At most this many requests pass in each unit of time.
    Limited {
        /// The number of requests. 0 rejects all.
        requests_per_unit: u32,
        /// The unit of time.
        unit: Unit,
    },
    /// A quota with its own algorithm and any interval.
    Quota(Quota),
}

impl Rate {
    /// Returns the requests in each unit or interval. Returns `None` if all requests pass.
    pub fn requests(&self) -> Option<u32> {
        match self {
            Self::Unlimited => None,
            Self::Limited { requests_per_unit, .. } => Some(*requests_per_unit),
            Self::Quota(quota) => Some(quota.rate()),
        }
    }

    /// Returns the unit of time. Returns `None` if all requests pass, or if the interval of a quota is no unit.
    pub fn unit(&self) -> Option<Unit> {
        match self {
            Self::Unlimited => None,
            Self::Limited { unit, .. } => Some(*unit),
            Self::Quota(quota) => Unit::of_quota(quota),
        }
    }
}

impl RuleLimit {
    /// Creates an unnamed limit with this rate.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            name: None,
            limit_name: None,
            mode: None,
            replaces: Vec::new(),
            shadow: false,
            quota_mode: false,
            metadata: None,
            on_store_failure: OnStoreFailure::default(),
            location: LimitLocation::default(),
        }
    }
}

impl Rule {
    /// Returns `true` if the rule matches several texts.
    pub fn has_wildcard(&self) -> bool {
        self.key.contains('*') || self.value.as_ref().is_some_and(|value| value.contains('*'))
    }
}
