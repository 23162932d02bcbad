//! The limits of a domain.

use std::time::Duration;

use crate::error::ConvertError;
use crate::report::{Place, Report};
use crate::sources::Text;
use crate::tree::Node;

/// A domain: the limits of one filter of Envoy, or of several that share them.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) rules: Vec<Rule>,
    pub(super) place: Place,
}

/// A descriptor of a domain, with the descriptors below.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) key: String,
    /// The value, which can have `*`. `None` for any value.
    pub(super) value: Option<String>,
    pub(super) limit: Option<RuleLimit>,
    pub(super) rules: Vec<Rule>,
    /// Whether all values that a wildcard matches share a bucket.
    pub(super) shares_bucket: bool,
}

/// The limit of a descriptor.
#[derive(Clone, Debug)]
pub(super) struct RuleLimit {
    pub(super) rate: Rate,
    pub(super) name: Option<String>,
    pub(super) shadow: bool,
    /// Keys whose meaning depends on the other limits of a call: `quota_mode` and `replaces`.
    pub(super) combines: Option<&'static str>,
    pub(super) place: Place,
}

/// The rate of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    Unlimited,
    /// Requests in each unit of the clock.
    Limited(u64, Unit),
    /// Requests in each window of the clock with this length, of several units.
    Window(u64, Duration),
    /// A bucket that gets `fill` requests in each interval, evenly, up to `size`.
    Bucket {
        size: u64,
        fill: u64,
        interval: Duration,
    },
}

/// A unit of the clock in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    /// Seven days, from a Thursday.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

/// Reads a domain.
///
/// # Errors
/// Fails if a limit is invalid. envoyproxy/ratelimit rejects such a file, too.
pub(super) fn read(file: &Text, document: &Node) -> Result<Domain, ConvertError> {
    let name = document.get("domain").and_then(Node::text).unwrap_or_default().to_owned();
    let rules = read_rules(file, document)?;
    Ok(Domain { name, rules, place: file.place(document.line) })
}

fn read_rules(file: &Text, node: &Node) -> Result<Vec<Rule>, ConvertError> {
    let items = node.get("descriptors").map_or(&[][..], Node::items);
    items.iter().map(|item| read_rule(file, item)).collect()
}

fn read_rule(file: &Text, node: &Node) -> Result<Rule, ConvertError> {
    let place = file.place(node.line);
    let text = |key| node.get(key).and_then(Node::text).map(str::to_owned);
    let flag = |key| node.get(key).and_then(Node::flag).unwrap_or(false);
    let key = text("key").ok_or_else(|| ConvertError::syntax(&place, "a descriptor has no `key`"))?;
    let limit = node.get("rate_limit").filter(|limit| !limit.is_null());
    let limit = limit.map(|limit| read_limit(file, node, limit)).transpose()?;
    let shares_bucket = flag("share_threshold");
    Ok(Rule { key, value: text("value"), limit, rules: read_rules(file, node)?, shares_bucket })
}

fn read_limit(file: &Text, rule: &Node, limit: &Node) -> Result<RuleLimit, ConvertError> {
    let place = file.place(limit.line);
    let flag = |node: &Node, key| node.get(key).and_then(Node::flag).unwrap_or(false);
    let unit = limit.get("unit").and_then(Node::text).map(str::to_ascii_lowercase);
    let rate = match (flag(limit, "unlimited"), unit) {
        (true, _) => Rate::Unlimited,
        (false, Some(word)) => {
            let unit = Unit::from_word(&word);
            let unit = unit.ok_or_else(|| ConvertError::syntax(&place, format!("`{word}` is not a unit")))?;
            let number = |key, default| limit.get(key).and_then(Node::number).unwrap_or(default);
            let (requests, multiplier) = (number("requests_per_unit", 0), number("unit_multiplier", 1));
            match u32::try_from(multiplier).ok().and_then(|multiplier| unit.length().checked_mul(multiplier)) {
                Some(length) if multiplier > 1 => Rate::Window(requests, length),
                Some(_) if multiplier == 1 => Rate::Limited(requests, unit),
                _ => return Err(ConvertError::syntax(&place, format!("`{multiplier}` is not a multiplier"))),
            }
        }
        (false, None) => return Err(ConvertError::syntax(&place, "`unit` is missing")),
    };
    let replaces = limit.get("replaces").is_some_and(|list| !list.items().is_empty()).then_some("replaces");
    let combines = replaces.or_else(|| flag(rule, "quota_mode").then_some("quota_mode"));
    let name = limit.get("name").and_then(Node::text).map(str::to_owned);
    Ok(RuleLimit { rate, name, shadow: flag(rule, "shadow_mode"), combines, place })
}

// === impl Unit ===

impl Unit {
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "second" => Self::Second,
            "minute" => Self::Minute,
            "hour" => Self::Hour,
            "day" => Self::Day,
            "week" => Self::Week,
            "month" => Self::Month,
            "year" => Self::Year,
            _ => return None,
        })
    }

    /// Returns the length of a window.
    pub(super) fn length(self) -> Duration {
        const DAY: u64 = 86_400;
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }

    /// Returns the word of the unit.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

// === impl Domain ===

impl Domain {
    /// Returns the number of rules.
    pub(super) fn count(&self) -> usize {
        fn below(rules: &[Rule]) -> usize {
            rules.iter().map(|rule| 1 + below(&rule.rules)).sum()
        }
        below(&self.rules)
    }

    /// Calls `act` with each rule that has a limit.
    pub(super) fn each_limit<'d>(&'d self, act: &mut dyn FnMut(&'d Rule, &'d RuleLimit)) {
        fn below<'d>(rules: &'d [Rule], act: &mut dyn FnMut(&'d Rule, &'d RuleLimit)) {
            for rule in rules {
                if let Some(limit) = &rule.limit {
                    act(rule, limit);
                }
                below(&rule.rules, act);
            }
        }
        below(&self.rules, act);
    }
}

// === impl Rule, Rate ===

impl Rule {
    /// Reports the limit of the rule. `reason` is for a limit that decides in the same way.
    pub(super) fn report(&self, limit: &RuleLimit, reason: &str, report: &mut Report) {
        let setting = format!("{}: {}", self.show(), limit.rate.show());
        match limit.rate {
            Rate::Limited(_, Unit::Week) => {
                report.looser(&limit.place, setting, "a week starts on Monday; there, on Thursday");
            }
            Rate::Limited(_, Unit::Month) => {
                report.looser(&limit.place, setting, "a month is a calendar month; there, it has 30 days");
            }
            Rate::Limited(_, Unit::Year) | Rate::Window(..) => {
                report.stricter(&limit.place, setting, "applies to any such time; there, to windows of the clock");
            }
            Rate::Limited(..) | Rate::Bucket { .. } | Rate::Unlimited => report.same(&limit.place, setting, reason),
        }
    }

    /// Returns the rule as in the file, for the report.
    pub(super) fn show(&self) -> String {
        match &self.value {
            Some(value) => format!("{}={value}", self.key),
            None => self.key.clone(),
        }
    }
}

impl Rate {
    /// Returns the rate as in the file, for the report.
    pub(super) fn show(self) -> String {
        match self {
            Self::Unlimited => "unlimited".to_owned(),
            Self::Limited(requests, unit) => format!("{requests} per {}", unit.word()),
            Self::Window(requests, length) => format!("{requests} per {length:?}"),
            Self::Bucket { size, fill, interval } => format!("{fill} per {interval:?}, at most {size}"),
        }
    }
}
