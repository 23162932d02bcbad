//! The keys of window algorithms: `segments`, `timezone` and calendar units.

use super::{Checked, needed, number, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote, quote_all};
use crate::config::suggest::nearest;
use crate::config::units::{Interval, Millis};
use crate::limit::calendar::{Calendar, Unit};
use crate::limit::{Algorithm, AlgorithmName, sliding_window};

/// Units that can also be written as a duration.
const DURATIONS: [Unit; 4] = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day];

const DEFAULT_ZONE: &str = "UTC";

pub(super) fn sliding(written: &file::Limit, node: &Node, problems: &mut Problems) -> Checked<Algorithm> {
    let segments = part(&written.segments, node, "segments", problems)?.copied();
    let segments = number(segments, sliding_window::DEFAULT_SEGMENTS, node.at("segments"), problems)?;
    Ok(Algorithm::SlidingWindow { segments })
}

pub(super) fn fixed(written: &file::Limit, node: &Node, problems: &mut Problems) -> Checked<Algorithm> {
    let zone = part(&written.timezone, node, "timezone", problems)?.map_or(DEFAULT_ZONE, String::as_str);
    let interval = needed(&written.interval, node, problems).and_then(|interval| unit(*interval, node, problems));
    // Check the time zone even if the interval has an error.
    let calendar = |unit| Calendar::new(unit, zone);
    match calendar(Unit::Day) {
        Ok(_) => {}
        Err(error) => return Err(problems.add(node.at("timezone").location, error.to_string(), suggest_zone(zone))),
    }
    calendar(interval?).map(Algorithm::FixedWindow).map_err(|_| problems.reported(node.location))
}

/// Returns the interval in milliseconds, or reports an interval that does not fit the algorithm.
pub(super) fn length(
    interval: &Interval,
    windows: Option<&Algorithm>,
    kind: AlgorithmName,
    node: &Node,
    problems: &mut Problems,
) -> Checked<u64> {
    match (interval, windows) {
        (Interval::Length(Millis(millis)), _) => Ok(*millis),
        (Interval::Unit(unit), Some(Algorithm::FixedWindow(_))) => Ok(unit.millis()),
        (Interval::Unit(unit), _) => {
            let message =
                format!("`interval: {}` is a calendar unit, which {} does not support", unit.name(), kind.name());
            let length = Millis::show(unit.millis());
            let help = format!("write {}, or use `algorithm: fixed_window`", quote(&length));
            Err(problems.add(node.at("interval").location, message, help))
        }
    }
}

fn unit(interval: Interval, node: &Node, problems: &mut Problems) -> Checked<Unit> {
    let found = match interval {
        Interval::Unit(unit) => Some(unit),
        Interval::Length(Millis(millis)) => DURATIONS.into_iter().find(|unit| unit.millis() == millis),
    };
    found.ok_or_else(|| {
        let help = format!("use one of {}, or another algorithm", quote_all(Unit::WORDS.iter().map(|word| word.name)));
        problems.add(node.at("interval").location, "`interval` of `fixed_window` must be a calendar unit", help)
    })
}

fn suggest_zone(zone: &str) -> String {
    let zones = Calendar::zones();
    match nearest(zone, zones.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => "use a time zone such as `UTC`, `Europe/Rome` or `America/New_York`".to_owned(),
    }
}
