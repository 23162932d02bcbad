//! The windows of a calendar: seconds, minutes, hours, days, weeks and months of a named time zone.
//!
//! A calendar is a list of boundaries without end, and the windows are what lies between them. Days, weeks (from Monday)
//! and months begin where a date does, so they are as long as the zone's clocks make them. Hours and less are counted on
//! the clocks of the zone: setting them by whole units changes nothing, any other change is a boundary of its own.
//!
//! The rules of all zones are compiled in. Each calendar remembers the window that it was asked for last, so that
//! deciding costs no calendar arithmetic.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use parking_lot::Mutex;

use crate::clock::Timestamp;

/// A natural unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour on the clocks of the zone.
    Hour,
    /// A day, from midnight.
    Day,
    /// A week, from Monday.
    Week,
    /// A month, from the first.
    Month,
}

/// A unit in a time zone. Calendars are few, and are kept for as long as the process lives: copying one costs nothing,
/// and all limits with the same calendar share what it remembers.
#[derive(Clone, Copy)]
pub struct Calendar(&'static Kept);

struct Kept {
    unit: Unit,
    zone: String,
    rules: TimeZone,
    near: ArcSwap<Span>,
}

/// Three windows that follow each other, and the start of the one before them: a list of boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub [Timestamp; 5]);

/// From its start until just before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When the window before it starts.
    pub previous: Timestamp,
    /// Its first moment.
    pub start: Timestamp,
    /// The first moment of the next.
    pub end: Timestamp,
}

/// No time zone has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no time zone is called `{0}`")]
pub struct UnknownZone(pub String);

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
static CALENDARS: LazyLock<Mutex<HashMap<(Unit, String), Calendar>>> = LazyLock::new(Mutex::default);

// === impl Unit ===

impl Unit {
    /// All of them, from the shortest to the longest.
    pub const ALL: [Self; 6] = [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month];

    /// Its name in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// Its length in milliseconds, if clocks were never set; a month's is the longest.
    pub const fn millis(self) -> u64 {
        const HOUR: u64 = 60 * 60 * 1000;
        match self {
            Self::Second => 1000,
            Self::Minute => 60 * 1000,
            Self::Hour => HOUR,
            Self::Day => 24 * HOUR,
            Self::Week => 7 * 24 * HOUR,
            Self::Month => 31 * 24 * HOUR,
        }
    }
}

// === impl Calendar ===

impl Calendar {
    /// The windows of a unit in the zone of this IANA name.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn new(unit: Unit, zone: &str) -> Result<Self, UnknownZone> {
        let rules = ZONES.get(zone).map_err(|_| UnknownZone(zone.to_owned()))?;
        let zone = rules.iana_name().unwrap_or(zone).to_owned();
        let keep = || {
            let kept = Kept { unit, zone: zone.clone(), rules, near: ArcSwap::from_pointee(Span::default()) };
            // There are no more calendars than units and zones.
            Self(Box::leak(Box::new(kept)))
        };
        Ok(*CALENDARS.lock().entry((unit, zone.clone())).or_insert_with(keep))
    }

    /// The names of all zones.
    pub fn zones() -> Vec<String> {
        ZONES.available().map(|name| name.to_string()).collect()
    }

    /// The unit whose windows these are.
    pub fn unit(&self) -> Unit {
        self.0.unit
    }

    /// The name of the time zone.
    pub fn zone(&self) -> &'static str {
        &self.0.zone
    }

    /// The window that a moment is in.
    pub fn window(&self, at: Timestamp) -> Window {
        let near = self.0.near.load();
        near.window(at).unwrap_or_else(|| self.span(at).middle())
    }

    /// The window that a moment is in, with its neighbours.
    pub fn span(&self, at: Timestamp) -> Span {
        let near = self.0.near.load();
        if (near.0[2]..near.0[3]).contains(&at) {
            return **near;
        }
        let (start, end) = self.bounds(at);
        let before = |start: Timestamp| self.bounds(Timestamp::from_millis(start.as_millis().saturating_sub(1))).0;
        let previous = before(start);
        let span = Span([before(previous), previous, start, end, self.bounds(end).1]);
        self.0.near.store(Arc::new(span));
        span
    }

    /// The boundaries before and after a moment. Beyond the years that calendars know, all days are equal.
    fn bounds(&self, at: Timestamp) -> (Timestamp, Timestamp) {
        let length = self.unit().millis();
        let start = at.as_millis() / length * length;
        let equal = (Timestamp::from_millis(start), Timestamp::from_millis(start).plus_millis(length));
        let moment = i64::try_from(at.as_millis()).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
        let found = moment.and_then(|at| match self.unit() {
            Unit::Second | Unit::Minute | Unit::Hour => self.clock_bounds(at),
            Unit::Day | Unit::Week | Unit::Month => self.date_bounds(at),
        });
        // Whatever happens, a moment is in its window.
        let known = found.map(|(start, end)| (timestamp(start), timestamp(end)));
        known.filter(|(start, end)| (*start..*end).contains(&at)).unwrap_or(equal)
    }

    /// Where the clocks of the zone show a whole unit, or were set by something else.
    fn clock_bounds(&self, at: jiff::Timestamp) -> Option<(jiff::Timestamp, jiff::Timestamp)> {
        let length = i64::try_from(self.unit().millis() / 1000).ok()?;
        let phase = |at: jiff::Timestamp| i64::from(self.0.rules.to_offset(at).seconds()).rem_euclid(length);
        let second = at.as_second();
        let start = second - (second + phase(at)).rem_euclid(length);
        let mut start = jiff::Timestamp::from_second(start).ok()?;
        let mut end = start.checked_add(length.seconds()).ok()?;
        if phase(start) != phase(at) {
            start = self.0.rules.preceding(at.checked_add(1.nanosecond()).ok()?).next()?.timestamp();
        }
        if phase(end.checked_sub(1.nanosecond()).ok()?) != phase(at) {
            end = self.0.rules.following(at).next()?.timestamp();
        }
        Some((start, end))
    }

    /// Where a date begins.
    fn date_bounds(&self, at: jiff::Timestamp) -> Option<(jiff::Timestamp, jiff::Timestamp)> {
        let mut first = self.first(self.0.rules.to_datetime(at).date())?;
        let mut next = self.next(first)?;
        // Clocks that are set back over midnight show a date again that has ended.
        while self.begin(next)? <= at {
            (first, next) = (next, self.next(next)?);
        }
        Some((self.begin(first)?, self.begin(next)?))
    }

    /// The first day of the window that a date is in.
    fn first(&self, date: Date) -> Option<Date> {
        match self.unit() {
            Unit::Week => date.checked_sub(i64::from(date.weekday().to_monday_zero_offset()).days()).ok(),
            Unit::Month => Some(date.first_of_month()),
            _ => Some(date),
        }
    }

    fn next(&self, first: Date) -> Option<Date> {
        let length = match self.unit() {
            Unit::Week => 1.week(),
            Unit::Month => 1.month(),
            _ => 1.day(),
        };
        first.checked_add(length).ok()
    }

    /// The moment of midnight: of two the earlier one, and of none when the clocks were set past it.
    fn begin(&self, date: Date) -> Option<jiff::Timestamp> {
        self.0.rules.to_timestamp(date.at(0, 0, 0, 0)).ok()
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Calendar {}

impl std::hash::Hash for Calendar {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.unit().name(), self.zone())
    }
}

// === impl Span ===

impl Span {
    /// The window in the middle, for which it was made.
    pub fn middle(&self) -> Window {
        let [_, previous, start, end, _] = self.0;
        Window { previous, start, end }
    }

    /// The window that a moment is in, if it is one of these.
    pub fn window(&self, at: Timestamp) -> Option<Window> {
        let found = self.0.windows(3).find(|three| (three[1]..three[2]).contains(&at));
        found.map(|three| Window { previous: three[0], start: three[1], end: three[2] })
    }
}

/// One that holds no moment.
impl Default for Span {
    fn default() -> Self {
        Self([Timestamp::default(); 5])
    }
}

/// In whole milliseconds from the epoch, before which nothing is decided.
fn timestamp(at: jiff::Timestamp) -> Timestamp {
    Timestamp::from_millis(u64::try_from(at.as_millisecond()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        timestamp(text.parse().expect("a moment"))
    }

    fn show(at: Timestamp) -> String {
        let millis = i64::try_from(at.as_millis()).expect("a moment");
        jiff::Timestamp::from_millisecond(millis).expect("a moment").to_string()
    }

    /// `(unit, zone, a moment, the start and the end of its window)`.
    const TABLE: [(Unit, &str, &str, &str, &str); 31] = [
        (Unit::Second, "UTC", "2026-01-01T00:00:00.999Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
        (Unit::Minute, "Asia/Kolkata", "2026-01-01T00:00:59Z", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
        (Unit::Hour, "UTC", "2026-01-01T10:59:59.999Z", "2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z"),
        // Zones whose hours do not begin with those of UTC.
        (Unit::Hour, "Asia/Kolkata", "2026-01-01T10:10:00Z", "2026-01-01T09:30:00Z", "2026-01-01T10:30:00Z"),
        (Unit::Hour, "Asia/Kathmandu", "2026-01-01T10:20:00Z", "2026-01-01T10:15:00Z", "2026-01-01T11:15:00Z"),
        (Unit::Hour, "America/St_Johns", "2026-01-01T10:29:59Z", "2026-01-01T09:30:00Z", "2026-01-01T10:30:00Z"),
        // Clocks that are set by an hour change no hour.
        (Unit::Hour, "Europe/Rome", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"),
        (Unit::Hour, "Europe/Rome", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
        // Clocks that are set by half an hour, forward at 2:00 (15:30 UTC) and back at 2:00 (15:00 UTC).
        (Unit::Hour, "Australia/Lord_Howe", "2025-10-04T15:29:59Z", "2025-10-04T14:30:00Z", "2025-10-04T15:30:00Z"),
        (Unit::Hour, "Australia/Lord_Howe", "2025-10-04T15:31:00Z", "2025-10-04T15:30:00Z", "2025-10-04T16:00:00Z"),
        (Unit::Hour, "Australia/Lord_Howe", "2026-04-04T14:59:59Z", "2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z"),
        (Unit::Hour, "Australia/Lord_Howe", "2026-04-04T15:00:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"),
        // Days west and east, at the moment in which UTC's day changes.
        (Unit::Day, "UTC", "2026-07-01T00:00:00Z", "2026-07-01T00:00:00Z", "2026-07-02T00:00:00Z"),
        (Unit::Day, "America/New_York", "2026-07-01T00:00:00Z", "2026-06-30T04:00:00Z", "2026-07-01T04:00:00Z"),
        (Unit::Day, "Asia/Tokyo", "2026-07-01T00:00:00Z", "2026-06-30T15:00:00Z", "2026-07-01T15:00:00Z"),
        (Unit::Day, "Pacific/Kiritimati", "2026-07-01T00:00:00Z", "2026-06-30T10:00:00Z", "2026-07-01T10:00:00Z"),
        // Days of 23, 25, 23.5 and 24.5 hours.
        (Unit::Day, "Europe/Rome", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        (Unit::Day, "Europe/Rome", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        (Unit::Day, "Australia/Lord_Howe", "2025-10-04T20:00:00Z", "2025-10-04T13:30:00Z", "2025-10-05T13:00:00Z"),
        (Unit::Day, "Australia/Lord_Howe", "2026-04-04T20:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"),
        // No midnight, and two of them; a date that comes back after it has ended; one that never was.
        (Unit::Day, "America/Sao_Paulo", "2018-11-04T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"),
        (Unit::Day, "America/Havana", "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"),
        (Unit::Day, "America/St_Johns", "2010-11-07T02:45:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"),
        (Unit::Day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"),
        (Unit::Day, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
        // Weeks from Monday, also over a year's end and over a clock that is set.
        (Unit::Week, "UTC", "2026-01-04T23:59:59.999Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z"),
        (Unit::Week, "Europe/Rome", "2026-03-29T21:59:59Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"),
        // Months, and Februaries of both kinds.
        (Unit::Month, "Europe/Rome", "2026-03-15T00:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"),
        (Unit::Month, "UTC", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        (Unit::Month, "America/Los_Angeles", "2026-03-01T07:59:59Z", "2026-02-01T08:00:00Z", "2026-03-01T08:00:00Z"),
        (Unit::Month, "UTC", "2100-02-10T00:00:00Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"),
    ];

    #[test]
    fn a_window_starts_and_ends_where_the_zones_clocks_say() {
        for (unit, zone, moment, start, end) in TABLE {
            let calendar = Calendar::new(unit, zone).expect("a calendar");
            let window = calendar.window(at(moment));
            assert_eq!((window.start, window.end), (at(start), at(end)), "{calendar:?} at {moment}: {window:?}");
        }
    }

    #[test]
    fn months_are_as_long_as_the_calendar_makes_them() {
        let calendar = Calendar::new(Unit::Month, "UTC").expect("a calendar");
        let mut start = at("2026-01-01T00:00:00Z");
        let days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 28];
        for days in days {
            let window = calendar.window(start);
            assert_eq!(window.end.millis_since(window.start), days * 86_400_000, "the month of {}", show(start));
            start = window.end;
        }
    }

    #[test]
    fn windows_follow_each_other_without_a_gap_and_remember_the_one_before() {
        for zone in ["UTC", "Europe/Rome", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia", "Africa/Cairo"] {
            for unit in [Unit::Hour, Unit::Day, Unit::Week, Unit::Month] {
                let calendar = Calendar::new(unit, zone).expect("a calendar");
                let mut last = calendar.window(at("2010-01-01T00:00:00Z"));
                for _ in 0..20_000_u64.min(3 * 366 * 86_400_000 / unit.millis()) {
                    let next = calendar.window(last.end);
                    let context = || format!("{calendar:?} at {}", show(last.end));
                    assert_eq!((next.previous, next.start), (last.start, last.end), "{}", context());
                    let middle = Timestamp::from_millis((next.start.as_millis() + next.end.as_millis()) / 2);
                    assert_eq!(calendar.window(middle), next, "{}", context());
                    let final_moment = Timestamp::from_millis(next.end.as_millis() - 1);
                    assert_eq!(calendar.window(final_moment), next, "{}", context());
                    last = next;
                }
            }
        }
    }

    #[test]
    fn every_moment_is_in_its_window_even_before_and_after_all_calendars() {
        for zone in ["UTC", "Pacific/Kiritimati", "Pacific/Niue", "Africa/Monrovia"] {
            for unit in Unit::ALL {
                let calendar = Calendar::new(unit, zone).expect("a calendar");
                for moment in [0, 1, 62_167_219_199_999, 253_402_207_199_999, 253_402_300_799_999, (1 << 53) - 1] {
                    let at = Timestamp::from_millis(moment);
                    let window = calendar.window(at);
                    assert!(window.start <= at && at < window.end, "{calendar:?} at {moment}: {window:?}");
                    assert!(window.previous <= window.start);
                }
            }
        }
    }

    #[test]
    fn zones_are_found_by_their_names_and_kept_once() {
        let rome = Calendar::new(Unit::Day, "europe/rome").expect("a calendar");
        assert_eq!((rome.zone(), rome), ("Europe/Rome", Calendar::new(Unit::Day, "Europe/Rome").expect("a calendar")));
        assert_ne!(Ok(rome), Calendar::new(Unit::Week, "Europe/Rome"));
        assert_eq!(Calendar::new(Unit::Day, "Europe/Roma"), Err(UnknownZone("Europe/Roma".into())));
        assert!(Calendar::zones().iter().any(|zone| zone == "Europe/Rome"));
    }
}
