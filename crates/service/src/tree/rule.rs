//! The rules of a domain, as a configuration states them.

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

/// The limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLimit {
    /// The rate.
    pub rate: Rate,
    /// The name for `replaces`.
    pub name: Option<String>,
    /// The names of limits that do not apply to a call to which this limit applies.
    pub replaces: Vec<String>,
    /// Whether the limit is only counted. It never rejects.
    pub shadow: bool,
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
}

impl RuleLimit {
    /// Creates an unnamed limit with this rate.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            name: None,
            replaces: Vec::new(),
            shadow: false,
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
