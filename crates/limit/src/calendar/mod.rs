//! Calendar windows: seconds, minutes, hours, days, weeks and months of a named time zone.
//!
//! A calendar is an infinite list of boundaries; windows are the spans between them. Days, weeks (from Monday) and
//! months begin at the start of a date, so their length depends on changes of the zone's clocks. Hours and shorter
//! units follow the zone's clocks: setting the clocks by whole units changes nothing, any other change adds a boundary.
//!
//! The rules of all zones are compiled in. Each calendar caches the window that was requested last, so that decisions
//! need no calendar arithmetic. Windows of UTC up to a day are computed without the cache.

mod boundary;
pub mod schedule;
mod span;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use self::boundary::window_bounds;
pub use self::span::{Span, Window};
use crate::clock::Timestamp;
use crate::text::words::words;

words! {
    /// A unit of the calendar, from the shortest to the longest.
    pub enum Unit {
        /// A second.
        Second = "second",
        /// A minute.
        Minute = "minute",
        /// An hour on the clocks of the zone.
        Hour = "hour",
        /// A day, from midnight.
        Day = "day",
        /// A week, from Monday.
        Week = "week",
        /// A month, from the first.
        Month = "month",
    }
}

/// A unit in a time zone. There are few calendars, and they are never freed: copying one is free, and all limits with
/// the same calendar share its cache.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(into = "SerializedCalendar", try_from = "SerializedCalendar")]
pub struct Calendar(&'static CalendarData);

/// A calendar as a handover writes it.
#[derive(Serialize, Deserialize)]
struct SerializedCalendar {
    unit: Unit,
    zone: String,
}

struct CalendarData {
    unit: Unit,
    zone: String,
    rules: TimeZone,
    /// The length of the windows, if all are equal and one begins at the Unix epoch.
    length: Option<u64>,
    cached: ArcSwap<Span>,
}

/// The error of an unknown time zone name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no time zone is called `{0}`")]
pub struct UnknownZone(pub String);

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
static CALENDARS: LazyLock<Mutex<HashMap<(Unit, String), Calendar>>> = LazyLock::new(Mutex::default);

// === impl Unit ===

impl Unit {
    /// Returns the length in milliseconds without clock changes; for a month, the length of the longest month.
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

    /// Returns the mean length in milliseconds.
    #[doc(hidden)]
    pub const fn mean_millis(self) -> u64 {
        match self {
            Self::Month => 2_629_746_000, // a 12th of 365.2425 days
            _ => self.millis(),
        }
    }
}

// === impl Calendar ===

impl Calendar {
    /// Creates the calendar of a unit in the time zone with this IANA name.
    ///
    /// # Errors
    /// The time zone does not exist.
    pub fn new(unit: Unit, zone: &str) -> Result<Self, UnknownZone> {
        let rules = ZONES.get(zone).map_err(|_| UnknownZone(zone.to_owned()))?;
        let zone = rules.iana_name().unwrap_or(zone).to_owned();
        Ok(Self::cached(unit, &zone, rules))
    }

    /// Creates the calendar of a unit in UTC.
    pub fn utc(unit: Unit) -> Self {
        Self::cached(unit, "UTC", TimeZone::UTC)
    }

    fn cached(unit: Unit, zone: &str, rules: TimeZone) -> Self {
        let leak_data = || {
            let (zone, cached) = (zone.to_owned(), ArcSwap::from_pointee(Span::default()));
            let is_regular = zone == "UTC" && !matches!(unit, Unit::Week | Unit::Month);
            let length = is_regular.then(|| unit.millis());
            let data = CalendarData { unit, zone, rules, length, cached };
            // At most one calendar for each unit and zone is leaked.
            Self(Box::leak(Box::new(data)))
        };
        *CALENDARS.lock().entry((unit, zone.to_owned())).or_insert_with(leak_data)
    }

    /// Returns the names of all time zones.
    pub fn zones() -> Vec<String> {
        ZONES.available().map(|name| name.to_string()).collect()
    }

    /// Returns the unit of the windows.
    pub fn unit(&self) -> Unit {
        self.0.unit
    }

    /// Returns the name of the time zone.
    pub fn zone(&self) -> &'static str {
        &self.0.zone
    }

    /// Returns `true` if the windows differ in length: months, and days and weeks of a zone with clock changes.
    pub fn varies(&self) -> bool {
        match self.0.unit {
            Unit::Second | Unit::Minute | Unit::Hour => false,
            Unit::Day | Unit::Week => self.0.zone != "UTC",
            Unit::Month => true,
        }
    }

    /// Returns the window that contains a moment.
    #[inline]
    pub fn window(&self, at: Timestamp) -> Window {
        match self.0.length {
            Some(length) => Window::regular(length, at),
            None => self.cached_window(at),
        }
    }

    fn cached_window(&self, at: Timestamp) -> Window {
        let cached = self.0.cached.load();
        cached.window(at).unwrap_or_else(|| self.span(at).middle())
    }

    /// Returns the window that contains a moment, with its neighbours.
    pub fn span(&self, at: Timestamp) -> Span {
        let cached = self.0.cached.load();
        if (cached.0[2]..cached.0[3]).contains(&at) {
            return **cached;
        }
        let around = |at| window_bounds(self.0.unit, &self.0.rules, at);
        let before = |start: Timestamp| around(Timestamp::from_millis(start.as_millis().saturating_sub(1))).0;
        let (start, end) = around(at);
        let previous = before(start);
        let span = Span([before(previous), previous, start, end, around(end).1]);
        self.0.cached.store(Arc::new(span));
        span
    }
}

impl From<Calendar> for SerializedCalendar {
    fn from(calendar: Calendar) -> Self {
        Self { unit: calendar.unit(), zone: calendar.zone().to_owned() }
    }
}

impl TryFrom<SerializedCalendar> for Calendar {
    type Error = UnknownZone;

    fn try_from(raw: SerializedCalendar) -> Result<Self, UnknownZone> {
        Self::new(raw.unit, &raw.zone)
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
