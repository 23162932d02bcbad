//! Rates that depend on the request: the rate of a tier, or a number. Both come from the identity of the client, or
//! from a header field of a trusted proxy.
//!
//! All rates of a limit use the same buckets, so a client keeps its permits in use when its rate changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use hashbrown::HashMap;

use crate::charge::Limiter;
use crate::request::facts::Facts;
use crate::request::identity::IdentityValue;

/// The number of distinct rates of a limit whose limiters are kept. The limiters of further rates are built for each
/// request, which costs an allocation. Cached refusals do not depend on it.
const MAX_KEPT: usize = 1_024;

/// The source of a limit's rate.
#[derive(Debug)]
pub struct Rates {
    /// The value of the request that determines the rate.
    pub by: IdentityValue,
    choice: Choice,
    /// The number of requests with an unknown tier that are not in the metrics yet.
    unknown: AtomicU64,
}

#[derive(Debug)]
enum Choice {
    Tier { default: (Box<str>, Arc<Limiter>), limiters: BTreeMap<Box<str>, Arc<Limiter>> },
    Number { default: Arc<Limiter>, min: u32, max: u32, kept: ArcSwap<HashMap<u32, Arc<Limiter>>> },
}

/// Why a rate applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateOrigin {
    /// The value of the request determines it.
    Value,
    /// The number of the request exceeds the largest rate.
    Bounded,
    /// The number of the request is below the smallest rate: a full bucket would have too few permits for a request.
    Raised,
    /// It is the default, because the request has no value.
    Missing,
    /// It is the default, because the value is neither a tier nor a valid number.
    Invalid,
}

// === impl Rates ===

impl Rates {
    /// Creates rates by tier. `limiters` contains the limiter of each tier. Returns `None` if the tier `default` has no
    /// limiter.
    pub fn by_tier(by: IdentityValue, default: &str, limiters: BTreeMap<Box<str>, Arc<Limiter>>) -> Option<Self> {
        let default = (default.into(), Arc::clone(limiters.get(default)?));
        Some(Self { by, choice: Choice::Tier { default, limiters }, unknown: AtomicU64::default() })
    }

    /// Creates rates by a number. Numbers above `max` are reduced to `max`. Numbers that are too small for a request of
    /// this `cost` are raised. `default` is the limiter for requests without a valid number.
    pub fn by_number(by: IdentityValue, default: Arc<Limiter>, max: u32, cost: u32) -> Self {
        let kept = HashMap::from([(default.quota.rate(), Arc::clone(&default))]);
        let min = least_rate(&default, cost, max);
        let choice = Choice::Number { default, min, max, kept: ArcSwap::from_pointee(kept) };
        Self { by, choice, unknown: AtomicU64::default() }
    }

    /// Returns the limiter of the default rate.
    pub fn default_limiter(&self) -> &Arc<Limiter> {
        match &self.choice {
            Choice::Tier { default: (_, limiter), .. } | Choice::Number { default: limiter, .. } => limiter,
        }
    }

    /// Returns the same rates with other limiters.
    pub fn map_limiters(&self, map: impl Fn(&Limiter) -> Arc<Limiter>) -> Self {
        let choice = match &self.choice {
            Choice::Tier { default: (name, default), limiters } => {
                let mut mapped: BTreeMap<_, _> =
                    limiters.iter().map(|(name, limiter)| (name.clone(), map(limiter))).collect();
                let default = Arc::clone(mapped.entry(name.clone()).or_insert_with(|| map(default)));
                Choice::Tier { default: (name.clone(), default), limiters: mapped }
            }
            Choice::Number { default, min, max, .. } => {
                let default = map(default);
                let kept = HashMap::from([(default.quota.rate(), Arc::clone(&default))]);
                Choice::Number { default, min: *min, max: *max, kept: ArcSwap::from_pointee(kept) }
            }
        };
        Self { by: self.by.clone(), choice, unknown: AtomicU64::default() }
    }

    /// Returns the limiter with the rate of the request, and why this rate applies. `None` for the limiter stands for
    /// the default.
    pub fn choose(&self, facts: &Facts<'_>) -> (Option<Arc<Limiter>>, RateOrigin) {
        let Some(value) = facts.identity_value(&self.by) else {
            let limiter = self.tier_of_items(facts).map(|(_, limiter)| Arc::clone(limiter));
            let origin = if limiter.is_some() { RateOrigin::Value } else { RateOrigin::Missing };
            return (limiter, origin);
        };
        self.of_value(&value)
    }

    /// Returns the limiter with the rate of a request with this value, as [`choose`](Self::choose) does.
    pub fn of_value(&self, value: &str) -> (Option<Arc<Limiter>>, RateOrigin) {
        match &self.choice {
            Choice::Tier { limiters, .. } => match limiters.get(value) {
                Some(limiter) => (Some(Arc::clone(limiter)), RateOrigin::Value),
                None => (None, RateOrigin::Invalid),
            },
            Choice::Number { default, min, max, kept } => match parse(value) {
                None => (None, RateOrigin::Invalid),
                Some(rate) if rate > *max => (Some(at_rate(default, kept, *max)), RateOrigin::Bounded),
                Some(rate) if rate < *min => (Some(at_rate(default, kept, *min)), RateOrigin::Raised),
                Some(rate) => (Some(at_rate(default, kept, rate)), RateOrigin::Value),
            },
        }
    }

    /// Returns the name of the default tier; `None` if the rate is a number.
    pub fn default_tier(&self) -> Option<&str> {
        match &self.choice {
            Choice::Tier { default: (name, _), .. } => Some(name),
            Choice::Number { .. } => None,
        }
    }

    /// Returns the tier of the request; `None` if the rate is a number.
    pub fn tier(&self, facts: &Facts<'_>) -> Option<&str> {
        let Choice::Tier { default: (default, _), limiters } = &self.choice else { return None };
        let found = match facts.identity_value(&self.by) {
            Some(value) => limiters.get_key_value(&*value).map(|(name, _)| &**name),
            None => self.tier_of_items(facts).map(|(name, _)| name),
        };
        Some(found.unwrap_or(default))
    }

    /// Returns the first item of a claim that is a tier. `None` if the claim is no array.
    fn tier_of_items(&self, facts: &Facts<'_>) -> Option<(&str, &Arc<Limiter>)> {
        let (Choice::Tier { limiters, .. }, IdentityValue::Claim(claim)) = (&self.choice, &self.by) else {
            return None;
        };
        let token = facts.identity.as_ref()?.token.as_ref()?;
        let (name, limiter) = token.items(claim).find_map(|item| limiters.get_key_value(&*item))?;
        Some((name, limiter))
    }

    /// Returns the largest rate that a number of a request can set; `None` for tiers.
    pub fn max(&self) -> Option<u32> {
        match self.choice {
            Choice::Number { max, .. } => Some(max),
            Choice::Tier { .. } => None,
        }
    }

    /// Returns all limiters of the tiers, by name. Empty if the rate is a number.
    pub fn tiers(&self) -> impl Iterator<Item = (&str, &Arc<Limiter>)> {
        let limiters = match &self.choice {
            Choice::Tier { limiters, .. } => Some(limiters),
            Choice::Number { .. } => None,
        };
        limiters.into_iter().flatten().map(|(name, limiter)| (&**name, limiter))
    }

    /// Counts the request if its tier is unknown.
    pub fn record(&self, origin: RateOrigin) {
        if origin == RateOrigin::Invalid && self.max().is_none() {
            self.unknown.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of counted requests since the last call.
    pub fn take_unknown(&self) -> u64 {
        match self.unknown.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.unknown.swap(0, Ordering::Relaxed),
        }
    }
}

/// Compares the settings, not the limiters that are kept.
impl PartialEq for Rates {
    fn eq(&self, other: &Self) -> bool {
        let is_same = match (&self.choice, &other.choice) {
            (Choice::Tier { default, limiters }, Choice::Tier { default: other, limiters: others }) => {
                (default, limiters) == (other, others)
            }
            (
                Choice::Number { default, min, max, .. },
                Choice::Number { default: other_default, min: other_min, max: other_max, .. },
            ) => (default, min, max) == (other_default, other_min, other_max),
            (Choice::Tier { .. }, Choice::Number { .. }) | (Choice::Number { .. }, Choice::Tier { .. }) => false,
        };
        self.by == other.by && is_same
    }
}

impl Eq for Rates {}

/// Parses a rate of at most 20 decimal digits. Returns `None` for other texts, and for 0, since each rate grants at
/// least one permit. Returns `u32::MAX` for larger numbers.
fn parse(text: &str) -> Option<u32> {
    if text.is_empty() || text.len() > 20 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let rate = text.parse().unwrap_or(u64::MAX);
    (rate > 0).then(|| u32::try_from(rate).unwrap_or(u32::MAX))
}

/// Returns the smallest rate whose full bucket has enough permits for a request of this cost, or `max` if no smaller
/// rate has.
fn least_rate(limiter: &Limiter, cost: u32, max: u32) -> u32 {
    let (mut least, mut enough) = (1, max);
    while least < enough {
        let rate = least + (enough - least) / 2;
        if limiter.at_rate(rate).quota.capacity() >= cost { enough = rate } else { least = rate + 1 }
    }
    least
}

/// Returns the limiter with this rate, from the kept ones if possible.
fn at_rate(default: &Arc<Limiter>, kept: &ArcSwap<HashMap<u32, Arc<Limiter>>>, rate: u32) -> Arc<Limiter> {
    let limiters = kept.load();
    if let Some(limiter) = limiters.get(&rate) {
        return Arc::clone(limiter);
    }
    let limiter = Arc::new(default.at_rate(rate));
    if limiters.len() < MAX_KEPT {
        kept.rcu(|limiters| {
            let mut limiters = HashMap::clone(limiters);
            limiters.entry(rate).or_insert_with(|| Arc::clone(&limiter));
            limiters
        });
        // Another thread may have added a limiter with this rate first.
        return kept.load().get(&rate).map_or(limiter, Arc::clone);
    }
    limiter
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method};

    use super::*;
    use tidegate_limit::{Algorithm, Mode, Quota};

    fn limiter(rate: u64) -> Arc<Limiter> {
        let quota = Quota::new(rate, 60_000, Algorithm::Gcra { burst: 2 * u32::try_from(rate).expect("a rate") });
        Arc::new(Limiter::new("{tidegate:r}:l".to_owned(), Mode::PerClient, quota.expect("a quota")))
    }

    fn by_number() -> Rates {
        Rates::by_number(IdentityValue::parse("header:x").expect("a value"), limiter(100), 1_000, 5)
    }

    /// Returns the rate and its origin for a request of a trusted proxy with this field.
    fn chosen(rates: &Rates, value: Option<&str>) -> (Option<u32>, RateOrigin) {
        chosen_of(rates, value, true)
    }

    fn chosen_of(rates: &Rates, value: Option<&str>, peer_is_trusted: bool) -> (Option<u32>, RateOrigin) {
        let mut headers = HeaderMap::new();
        value.map(|value| headers.insert("x", HeaderValue::from_str(value).expect("a value")));
        let uri = "/".parse().expect("a target");
        let facts = Facts::read(
            &Method::GET,
            &uri,
            crate::request::facts::HostRequirement::Optional,
            &headers,
            None,
            &crate::request::facts::Requests::default(),
        );
        let facts = Facts { peer_is_trusted, ..facts.expect("facts") };
        let (limiter, origin) = rates.choose(&facts);
        (limiter.map(|limiter| limiter.quota.rate()), origin)
    }

    #[test]
    fn number_sets_a_bounded_rate() {
        let rates = by_number();
        for (value, rate, origin) in [
            (Some("7"), Some(7), RateOrigin::Value),
            (Some("1000"), Some(1_000), RateOrigin::Value),
            (Some("1001"), Some(1_000), RateOrigin::Bounded),
            (Some("99999999999999999999"), Some(1_000), RateOrigin::Bounded),
            (Some("999999999999999999999"), None, RateOrigin::Invalid),
            (Some("0"), None, RateOrigin::Invalid),
            (Some("-1"), None, RateOrigin::Invalid),
            (Some("+1"), None, RateOrigin::Invalid),
            (Some("1.5"), None, RateOrigin::Invalid),
            (Some("2"), Some(3), RateOrigin::Raised), // 3 is the first rate whose burst, twice the rate, has 5 permits
            (Some(""), None, RateOrigin::Invalid),
            (None, None, RateOrigin::Missing),
        ] {
            assert_eq!(chosen(&rates, value), (rate, origin), "{value:?}");
        }
        assert_eq!(chosen_of(&rates, Some("7"), false), (None, RateOrigin::Missing), "from an untrusted peer");
    }

    #[test]
    fn kept_limiters_of_numbers_are_bounded() {
        let rates = Rates::by_number(IdentityValue::parse("header:x").expect("a value"), limiter(100), u32::MAX, 1);
        for rate in 1..=2 * MAX_KEPT {
            assert_eq!(chosen(&rates, Some(&rate.to_string())).0, u32::try_from(rate).ok());
        }
        let Choice::Number { kept, .. } = &rates.choice else { panic!("tiers") };
        assert_eq!(kept.load().len(), MAX_KEPT);
    }

    #[test]
    fn unknown_tier_has_the_default_and_is_counted() {
        let limiters = BTreeMap::from([("free".into(), limiter(1)), ("pro".into(), limiter(9))]);
        let rates =
            Rates::by_tier(IdentityValue::parse("header:x").expect("a value"), "free", limiters).expect("a default");
        for (value, rate, origin) in [
            (Some("pro"), Some(9), RateOrigin::Value),
            (Some("free"), Some(1), RateOrigin::Value),
            (Some("Pro"), None, RateOrigin::Invalid),
            (None, None, RateOrigin::Missing),
        ] {
            let found = chosen(&rates, value);
            rates.record(found.1);
            assert_eq!(found, (rate, origin), "{value:?}");
        }
        assert_eq!([rates.take_unknown(), rates.take_unknown()], [1, 0]);
    }
}
