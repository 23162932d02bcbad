//! Computes the window boundaries of a time zone. All calendar arithmetic is in this file.

use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::Unit;
use crate::clock::Timestamp;

/// Returns the boundaries before and after a moment. Outside the range of years that the calendar library supports, all
/// days have 24 hours.
pub(super) fn window_bounds(unit: Unit, zone: &TimeZone, at: Timestamp) -> (Timestamp, Timestamp) {
    let length = unit.millis();
    let start = at.as_millis() / length * length;
    let equal = (Timestamp::from_millis(start), Timestamp::from_millis(start).plus_millis(length));
    let moment = i64::try_from(at.as_millis()).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    let found = moment.and_then(|at| match unit {
        Unit::Second | Unit::Minute | Unit::Hour => clock_bounds(unit, zone, at),
        Unit::Day | Unit::Week | Unit::Month => date_bounds(unit, zone, at),
    });
    // Guarantees that the window contains the moment, even if the calendar library returned other boundaries.
    let bounds = found.map(|(start, end)| (timestamp(start), timestamp(end)));
    bounds.filter(|(start, end)| (*start..*end).contains(&at)).unwrap_or(equal)
}

/// Returns the boundaries of units up to an hour. A boundary is a moment at which the zone's clocks show a whole unit,
/// or at which they are set by an amount other than whole units.
fn clock_bounds(unit: Unit, zone: &TimeZone, at: jiff::Timestamp) -> Option<(jiff::Timestamp, jiff::Timestamp)> {
    let length = i64::try_from(unit.millis() / 1000).ok()?;
    let phase = |at: jiff::Timestamp| i64::from(zone.to_offset(at).seconds()).rem_euclid(length);
    let second = at.as_second();
    let start = second - (second + phase(at)).rem_euclid(length);
    let mut start = jiff::Timestamp::from_second(start).ok()?;
    let mut end = start.checked_add(length.seconds()).ok()?;
    if phase(start) != phase(at) {
        start = zone.preceding(at.checked_add(1.nanosecond()).ok()?).next()?.timestamp();
    }
    if phase(end.checked_sub(1.nanosecond()).ok()?) != phase(at) {
        end = zone.following(at).next()?.timestamp();
    }
    Some((start, end))
}

/// Returns the boundaries of units from a day on: the starts of dates.
fn date_bounds(unit: Unit, zone: &TimeZone, at: jiff::Timestamp) -> Option<(jiff::Timestamp, jiff::Timestamp)> {
    let mut first = first_of(unit, zone.to_datetime(at).date())?;
    let mut next = next_after(unit, first)?;
    // Clocks that are set back over midnight repeat a date that has already ended.
    while start_of_date(zone, next)? <= at {
        (first, next) = (next, next_after(unit, next)?);
    }
    Some((start_of_date(zone, first)?, start_of_date(zone, next)?))
}

/// Returns the first day of the window that contains a date.
fn first_of(unit: Unit, date: Date) -> Option<Date> {
    match unit {
        Unit::Week => date.checked_sub(i64::from(date.weekday().to_monday_zero_offset()).days()).ok(),
        Unit::Month => Some(date.first_of_month()),
        _ => Some(date),
    }
}

fn next_after(unit: Unit, first: Date) -> Option<Date> {
    let length = match unit {
        Unit::Week => 1.week(),
        Unit::Month => 1.month(),
        _ => 1.day(),
    };
    first.checked_add(length).ok()
}

/// Returns the moment of midnight. If a date has two midnights, it is the earlier one; if clocks skip midnight, it is
/// the moment when they are set.
fn start_of_date(zone: &TimeZone, date: Date) -> Option<jiff::Timestamp> {
    zone.to_timestamp(date.at(0, 0, 0, 0)).ok()
}

/// Converts a moment to milliseconds since the epoch. Earlier moments become the epoch: no decision is made before it.
pub(super) fn timestamp(at: jiff::Timestamp) -> Timestamp {
    Timestamp::from_millis(u64::try_from(at.as_millisecond()).unwrap_or_default())
}
