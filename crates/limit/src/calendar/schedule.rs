//! Times of the week in a time zone: days, and a span of each of these days.

use std::fmt;
use std::num::NonZeroU32;

use jiff::civil::Weekday;
use jiff::tz::TimeZone;

use super::{UnknownZone, ZONES};
use crate::clock::Timestamp;
use crate::text::words::words;

words! {
    /// A day of the week.
    pub enum Day {
        /// Monday.
        Monday = "mon",
        /// Tuesday.
        Tuesday = "tue",
        /// Wednesday.
        Wednesday = "wed",
        /// Thursday.
        Thursday = "thu",
        /// Friday.
        Friday = "fri",
        /// Saturday.
        Saturday = "sat",
        /// Sunday.
        Sunday = "sun",
    }
}

/// A minute since the Unix epoch: the time of a request, as schedules need it. It has four bytes, since each request in
/// flight stores one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minute(NonZeroU32);

/// Times of the week. A span that ends before it starts continues on the next day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Whether each day is included, from Monday.
    days: [bool; 7],
    /// The first minute of a day, and the minute after the last, up to 1440.
    minutes: (u16, u16),
    zone: TimeZone,
    name: String,
}

impl Schedule {
    /// The minutes of a day.
    pub const DAY: u16 = 24 * 60;

    /// Creates a schedule of these days, from Monday, and of this span of each day. The first number of the span is a minute
    /// of the day below 1440, and the second is the minute at which it ends, from 1 to 1440 and not equal to the first.
    ///
    /// # Errors
    /// The time zone does not exist.
    pub fn new(days: [bool; 7], minutes: (u16, u16), zone: &str) -> Result<Self, UnknownZone> {
        let rules = ZONES.get(zone).map_err(|_| UnknownZone(zone.to_owned()))?;
        let name = rules.iana_name().unwrap_or(zone).to_owned();
        Ok(Self { days, minutes, zone: rules, name })
    }

    /// Returns `true` if the schedule includes a minute.
    pub fn includes(&self, Minute(minute): Minute) -> bool {
        let Ok(moment) = jiff::Timestamp::from_second(i64::from(minute.get()) * 60) else { return false };
        let local = self.zone.to_datetime(moment);
        let minute = u16::try_from(i32::from(local.hour()) * 60 + i32::from(local.minute())).unwrap_or(0);
        let is_on = |day: Weekday| self.days[usize::try_from(day.to_monday_zero_offset()).unwrap_or(0) % 7];
        let (today, (start, end)) = (local.weekday(), self.minutes);
        match start < end {
            true => is_on(today) && (start..end).contains(&minute),
            false => (minute >= start && is_on(today)) || (minute < end && is_on(today.previous())),
        }
    }

    /// Returns the included days.
    pub fn days(&self) -> impl Iterator<Item = Day> {
        Day::ALL.iter().zip(self.days).filter_map(|(day, is_on)| is_on.then_some(*day))
    }

    /// Returns the span of a day, such as `08:00-20:00`.
    pub fn time(&self) -> String {
        let time = |minute: u16| format!("{:02}:{:02}", minute / 60, minute % 60);
        let (start, end) = self.minutes;
        format!("{}-{}", time(start), time(end))
    }

    /// Returns the name of the time zone.
    pub fn zone(&self) -> &str {
        &self.name
    }
}

impl Minute {
    /// Returns the minute of a moment. `None` for the first minute of 1970, and after the year 10000.
    pub fn of(at: Timestamp) -> Option<Self> {
        let minute = u32::try_from(at.as_millis() / 60_000).ok()?;
        NonZeroU32::new(minute).map(Self)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days: Vec<_> = self.days().map(Day::name).collect();
        write!(f, "{} on {} in {}", self.time(), days.join(", "), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKDAYS: [bool; 7] = [true, true, true, true, true, false, false];

    fn at(text: &str) -> Minute {
        let moment: jiff::Timestamp = text.parse().expect(text);
        let moment = Timestamp::from_millis(u64::try_from(moment.as_millisecond()).expect("after 1970"));
        Minute::of(moment).expect("a minute")
    }

    #[test]
    fn span_follows_the_clocks_of_the_zone() {
        let schedule = Schedule::new(WORKDAYS, (8 * 60, 20 * 60), "Europe/Rome").expect("a zone");
        // 27 November 2026 is a Friday, at UTC+1; 31 July at UTC+2.
        for time in ["2026-11-27T07:00:00Z", "2026-11-27T18:59:59.999Z", "2026-07-31T06:00:00Z"] {
            assert!(schedule.includes(at(time)), "{time}");
        }
        for time in ["2026-11-27T06:59:59.999Z", "2026-11-27T19:00:00Z", "2026-11-28T12:00:00Z", "2026-07-31T18:00:00Z"]
        {
            assert!(!schedule.includes(at(time)), "{time}");
        }
        assert_eq!(schedule.to_string(), "08:00-20:00 on mon, tue, wed, thu, fri in Europe/Rome");
        assert!(Schedule::new(WORKDAYS, (0, 1), "Europe/Roma").is_err());
    }

    /// The night of Friday ends on Saturday morning.
    #[test]
    fn span_over_midnight_belongs_to_the_day_of_its_start() {
        let nights = Schedule::new(WORKDAYS, (22 * 60, 6 * 60), "UTC").expect("a zone");
        for time in ["2026-11-27T22:00:00Z", "2026-11-28T05:59:00Z", "2026-11-27T00:00:00Z"] {
            assert!(nights.includes(at(time)), "{time}");
        }
        for time in ["2026-11-28T22:00:00Z", "2026-11-30T05:00:00Z", "2026-11-27T06:00:00Z", "2026-11-27T21:59:59Z"] {
            assert!(!nights.includes(at(time)), "{time}");
        }
    }

    #[test]
    fn whole_day_has_no_gap() {
        let all = Schedule::new([true; 7], (0, Schedule::DAY), "UTC").expect("a zone");
        assert!(["2026-11-27T00:00:00Z", "2026-11-27T23:59:59.999Z"].iter().all(|time| all.includes(at(time))));
        assert_eq!(all.time(), "00:00-24:00");
    }
}
