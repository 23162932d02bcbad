//! Limits and tiers of the rule file.

use std::time::Duration;

use super::matcher::Match;
use super::value::{Map, Value};
use crate::report::Place;

/// A limit, of a route or shared. docs/rules.md describes its keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limit {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    /// The parts of a request that identify its client, such as `ip`. Empty for `OVERALL`.
    pub(crate) client: Vec<String>,
    /// `None` if `tier` is set.
    pub(crate) rate: Option<u64>,
    pub(crate) interval: Option<Interval>,
    /// `None` for the default of Tidegate, `token_bucket`.
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) burst: Option<u64>,
    pub(crate) queue: Option<u64>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) segments: Option<u64>,
    pub(crate) permits: Option<Value>,
    pub(crate) when: Match,
    pub(crate) shadow: bool,
    pub(crate) on_store_failure: Option<&'static str>,
    pub(crate) on_missing_client: Option<&'static str>,
    /// Other keys, such as `tier` and `timezone`.
    pub(crate) more: Map,
    pub(crate) place: Option<Place>,
}

/// Whether clients share a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Overall,
    PerClient,
}

/// The interval of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    /// A time of at least a millisecond.
    Time(Duration),
    /// A unit of the calendar: `second`, `minute`, `hour`, `day`, `week` or `month`. Only for `FixedWindow`.
    Calendar(&'static str),
}

/// The algorithm of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    TokenBucket,
    Gcra,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
}

/// A tier: the rate of some clients.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) name: String,
    pub(crate) rate: u64,
    pub(crate) interval: Interval,
    pub(crate) burst: Option<u64>,
    pub(crate) place: Option<Place>,
}

/// Returns a duration in the form of the rule file. Parts of a millisecond count as a whole one.
pub(crate) fn millis(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let millis = nanos.div_ceil(1_000_000);
    const UNITS: [(u128, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = UNITS.into_iter().find(|(length, _)| millis > 0 && millis.is_multiple_of(*length));
    unit.map_or_else(|| format!("{millis}ms"), |(length, unit)| format!("{}{unit}", millis / length))
}

// === impl Limit ===

impl Limit {
    /// Returns the map of the limit, without its name.
    pub(super) fn map(&self) -> Map {
        let mut map = Map { comment: self.place.as_ref().map(Place::to_string), ..Map::default() };
        map.set("mode", self.mode.word());
        map.set_list("client", self.client.iter().map(String::as_str));
        map.set_some("rate", self.rate);
        map.set_some("interval", self.interval.map(Interval::text));
        map.set_some("algorithm", self.algorithm.map(Algorithm::word));
        map.set_some("burst", self.burst);
        map.set_some("queue", self.queue);
        map.set_some("max_wait", self.max_wait.map(millis));
        map.set_some("segments", self.segments);
        map.set_some("permits", self.permits.clone());
        map.set_some("when", self.when.map_if_any());
        map.set_some("shadow", self.shadow.then_some(true));
        map.set_some("on_store_failure", self.on_store_failure);
        map.set_some("on_missing_client", self.on_missing_client);
        map.extend(self.more.clone());
        map
    }
}

// === impl Tier ===

impl Tier {
    /// Returns the map of the tier, without its name.
    pub(super) fn map(&self) -> Map {
        let mut map = Map::of([("rate", self.rate.into()), ("interval", self.interval.text().into())]);
        map.set_some("burst", self.burst);
        map.comment = self.place.as_ref().map(Place::to_string);
        map
    }
}

// === impl Mode, Interval, Algorithm ===

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Self::Overall => "OVERALL",
            Self::PerClient => "PER_CLIENT",
        }
    }
}

impl Interval {
    fn text(self) -> String {
        match self {
            Self::Time(time) => millis(time),
            Self::Calendar(unit) => unit.to_owned(),
        }
    }
}

impl Algorithm {
    fn word(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::Gcra => "gcra",
            Self::LeakyBucket => "leaky_bucket",
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_their_largest_unit() {
        let texts = [0, 1, 1_000, 90_000, 3_600_000, 86_400_000].map(|time| millis(Duration::from_millis(time)));
        assert_eq!(texts, ["0ms", "1ms", "1s", "90s", "1h", "1d"]);
        assert_eq!(millis(Duration::from_micros(1_001)), "2ms");
    }
}
