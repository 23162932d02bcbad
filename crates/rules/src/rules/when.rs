//! The conditions of limits: `when` in the rule file.

use crate::condition::Condition;
use crate::limits::rule::Limit;
use crate::request::facts::Facts;
use crate::request::identity::IdentityValue;
use crate::route::Matcher;
use tidegate_limit::calendar::schedule::Schedule;

/// The conditions of a limit. The limit counts only requests that meet all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// The properties of the request.
    pub matcher: Matcher,
    /// The tiers of the request; an empty list matches all tiers, and requests without a tier.
    pub tiers: Vec<Box<str>>,
    /// The times of the week; `None` matches all times.
    pub schedule: Option<Box<Schedule>>,
}

/// The first condition of a limit that a request does not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmet<'w> {
    /// A property of the request.
    Condition(Condition<'w>),
    /// The tier is not in this list.
    Tier(&'w [Box<str>]),
    /// The time is not in this schedule.
    Time(&'w Schedule),
}

impl When {
    /// Returns the first condition that a request does not meet. The tier comes from the limit, or else from `key:tier`.
    #[inline]
    pub fn unmet(&self, limit: &Limit, facts: &Facts<'_>) -> Option<Unmet<'_>> {
        if let Some(condition) = self.matcher.unmet(facts) {
            return Some(Unmet::Condition(condition));
        }
        // Without a time, the limit applies.
        if let (Some(schedule), Some(time)) = (&self.schedule, facts.time)
            && !schedule.includes(time)
        {
            return Some(Unmet::Time(schedule));
        }
        if self.tiers.is_empty() {
            return None;
        }
        let has = |tier: &str| self.tiers.iter().any(|other| **other == *tier);
        let is_met = match limit.rates.as_ref().and_then(|rates| rates.tier(facts)) {
            Some(tier) => has(tier),
            None => facts.identity_value(&IdentityValue::KeyTier).is_some_and(|tier| has(&tier)),
        };
        (!is_met).then_some(Unmet::Tier(&self.tiers))
    }
}

impl std::fmt::Display for Unmet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Condition(condition) => write!(f, "{condition} does not match"),
            Self::Tier(tiers) => write!(f, "the tier is not {}", tiers.join(" or ")),
            Self::Time(schedule) => write!(f, "the time is not {schedule}"),
        }
    }
}
