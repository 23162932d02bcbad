//! The units of time in calls: their numbers in `RateLimitUnit` and `RateLimitResponse.RateLimit.Unit`, and their names in
//! JSON. Durations are in seconds.

use std::time::Duration;

use tidegate_service::Unit;

/// Each unit with its number and its name. 0 is `UNKNOWN`.
const UNITS: [(Unit, i32, &str); 7] = [
    (Unit::SECOND, 1, "SECOND"),
    (Unit::MINUTE, 2, "MINUTE"),
    (Unit::HOUR, 3, "HOUR"),
    (Unit::DAY, 4, "DAY"),
    (Unit::MONTH, 5, "MONTH"),
    (Unit::Year, 6, "YEAR"),
    (Unit::WEEK, 7, "WEEK"),
];

/// Returns the unit with this number.
pub(super) fn numbered(number: i32) -> Option<Unit> {
    UNITS.iter().find(|(_, other, _)| *other == number).map(|(unit, ..)| *unit)
}

/// Returns the unit with this name.
pub(super) fn named(name: &str) -> Option<Unit> {
    UNITS.iter().find(|(.., other)| *other == name).map(|(unit, ..)| *unit)
}

/// Returns the number of a unit; of `UNKNOWN` for other intervals.
pub(super) fn number(unit: Option<Unit>) -> i32 {
    UNITS.iter().find(|(other, ..)| Some(*other) == unit).map_or(0, |(_, number, _)| *number)
}

/// Returns the name of a unit. Returns `None` for other intervals.
pub(super) fn name(unit: Option<Unit>) -> Option<&'static str> {
    UNITS.iter().find(|(other, ..)| Some(*other) == unit).map(|(.., name)| *name)
}

/// Rounds a duration up to whole seconds, since proxies ignore fractions: a client that waits that long passes.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_has_a_number_and_a_name() {
        for unit in Unit::ALL {
            assert_eq!(numbered(number(Some(unit))), Some(unit));
            assert_eq!(name(Some(unit)).and_then(named), Some(unit));
        }
        assert_eq!((number(None), name(None), numbered(0), numbered(8)), (0, None, None, None));
    }
}
