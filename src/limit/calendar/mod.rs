//! The windows of a calendar: seconds, minutes, hours, days, weeks and months of a named time zone.
//!
//! A calendar is a list of boundaries without end, and the windows are what lies between them. Days, weeks (from Monday)
//! and months begin where a date does, so they are as long as the zone's clocks make them. Hours and less are counted on
//! the clocks of the zone: setting them by whole units changes nothing, any other change is a boundary of its own.
//!
//! The rules of all zones are compiled in. Each calendar remembers the window that it was asked for last, so that
//! deciding costs no calendar arithmetic.

mod boundary;
mod span;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use parking_lot::Mutex;

use self::boundary::window_bounds;
pub use self::span::{Span, Window};
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

/// A unit in a time zone. Calendars are few, and are data for as long as the process lives: copying one costs nothing,
/// and all limits with the same calendar share what it remembers.
#[derive(Clone, Copy)]
pub struct Calendar(&'static CalendarData);

struct CalendarData {
    unit: Unit,
    zone: String,
    rules: TimeZone,
    cached: ArcSwap<Span>,
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
        let leak_data = || {
            let data = CalendarData { unit, zone: zone.clone(), rules, cached: ArcSwap::from_pointee(Span::default()) };
            // There are no more calendars than units and zones.
            Self(Box::leak(Box::new(data)))
        };
        Ok(*CALENDARS.lock().entry((unit, zone.clone())).or_insert_with(leak_data))
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

    /// Returns `true` if its windows can be longer than others of its own: months, and days and weeks of a zone whose clocks may
    /// be set.
    pub fn varies(&self) -> bool {
        match self.0.unit {
            Unit::Second | Unit::Minute | Unit::Hour => false,
            Unit::Day | Unit::Week => self.0.zone != "UTC",
            Unit::Month => true,
        }
    }

    /// The window that a moment is in.
    pub fn window(&self, at: Timestamp) -> Window {
        let cached = self.0.cached.load();
        cached.window(at).unwrap_or_else(|| self.span(at).middle())
    }

    /// The window that a moment is in, with its neighbours.
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
