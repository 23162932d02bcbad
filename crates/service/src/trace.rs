//! How a descriptor finds its limit, for operators.

use tidegate_rules::limits::rule::Limit;

use crate::tree::FoundRule;
use crate::tree::rule::RuleLimit;

/// The search for the limit of a descriptor.
#[derive(Clone, Debug)]
pub struct Trace<'d> {
    /// The rules of the first entries, one for each. An entry without a rule ends the search.
    pub rules: Vec<FoundRule<'d>>,
    /// The limit of the last entry. `None` if its rule has no limit, or if an entry has no rule.
    pub limit: Option<NamedLimit<'d>>,
}

/// The limit of a rule, for operators.
#[derive(Clone, Copy, Debug)]
pub struct NamedLimit<'d> {
    /// The name in metrics, logs and keys.
    pub name: &'d str,
    /// The keys and values that find the limit. `None` if its name contains them.
    pub rule_name: Option<&'d str>,
    /// The keys whose values the limit counts separately. Empty if all clients share a bucket.
    pub client: &'d str,
    /// The limit, as the configuration states it.
    pub rule: &'d RuleLimit,
    /// The limit with buckets. `None` if the rate is unlimited or 0.
    pub limit: Option<&'d Limit>,
}
