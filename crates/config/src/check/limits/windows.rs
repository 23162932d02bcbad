//! The keys of window algorithms: `segments`, `timezone` and calendar units.

use crate::check::Checked;
use crate::file;
use crate::file::located::Located;
use crate::problem::suggest::nearest;
use crate::problem::{Location, Problems, quote, quote_all};
use crate::values::units::{Interval, Millis};
use tidegate_limit::algorithm::sliding_window;
use tidegate_limit::calendar::{Calendar, Unit};
use tidegate_limit::{Algorithm, AlgorithmName};

/// Units that can also be written as a duration.
const DURATIONS: [Unit; 4] = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day];

const DEFAULT_ZONE: &str = "UTC";

pub(super) fn sliding(raw: &file::Limit, problems: &mut Problems) -> Checked<Algorithm> {
    raw.segments.optional(problems)?;
    let segments = raw.segments.number(sliding_window::DEFAULT_SEGMENTS, problems)?;
    Ok(Algorithm::SlidingWindow { segments })
}

/// Converts the keys of `fixed_window`. `location` is the location of the limit.
pub(crate) fn fixed(
    raw: &file::Limit,
    interval: &Located<Interval>,
    location: Location,
    problems: &mut Problems,
) -> Checked<Algorithm> {
    let zone = raw.timezone.optional(problems)?.map_or(DEFAULT_ZONE, String::as_str);
    let unit = unit(interval, problems);
    // Check the time zone even if the interval has an error.
    let calendar = |unit| Calendar::new(unit, zone);
    match calendar(Unit::Day) {
        Ok(_) => {}
        Err(error) => return Err(raw.timezone.report(error.to_string(), suggest_zone(zone), problems)),
    }
    calendar(unit?).map(Algorithm::FixedWindow).map_err(|_| problems.reported(location))
}

/// Returns the interval in milliseconds, or reports an interval that does not fit the algorithm.
pub(crate) fn length(
    raw: &Located<Interval>,
    windows: Option<&Algorithm>,
    algorithm: AlgorithmName,
    problems: &mut Problems,
) -> Checked<u64> {
    match (raw.required(problems)?, windows) {
        (Interval::Length(Millis(millis)), _) => Ok(*millis),
        (Interval::Unit(unit), Some(Algorithm::FixedWindow(_))) => Ok(unit.millis()),
        (Interval::Unit(unit), _) => {
            let (unit, length, name) = (unit.name(), Millis::show(unit.millis()), algorithm.name());
            let message = format!("`interval: {unit}` is a calendar unit, which {name} does not support");
            let help = format!("write {}, or use `algorithm: fixed_window`", quote(&length));
            Err(raw.report(message, help, problems))
        }
    }
}

fn unit(raw: &Located<Interval>, problems: &mut Problems) -> Checked<Unit> {
    let found = match raw.required(problems)? {
        Interval::Unit(unit) => Some(*unit),
        Interval::Length(Millis(millis)) => DURATIONS.into_iter().find(|unit| unit.millis() == *millis),
    };
    found.ok_or_else(|| {
        let names = Unit::WORDS.iter().map(|word| word.name);
        let help = format!("use one of {}, or another algorithm", quote_all(names));
        raw.report("`interval` of `fixed_window` must be a calendar unit", help, problems)
    })
}

/// Returns the help for an unknown time zone.
pub(crate) fn suggest_zone(zone: &str) -> String {
    let zones = Calendar::zones();
    match nearest(zone, zones.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => "use a time zone such as `UTC`, `Europe/Rome` or `America/New_York`".to_owned(),
    }
}
