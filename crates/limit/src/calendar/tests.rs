//! Tests window boundaries against a table, and that there are no gaps between windows.

use super::boundary::timestamp;
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
    // Zones whose hours are offset from UTC hours.
    (Unit::Hour, "Asia/Kolkata", "2026-01-01T10:10:00Z", "2026-01-01T09:30:00Z", "2026-01-01T10:30:00Z"),
    (Unit::Hour, "Asia/Kathmandu", "2026-01-01T10:20:00Z", "2026-01-01T10:15:00Z", "2026-01-01T11:15:00Z"),
    (Unit::Hour, "America/St_Johns", "2026-01-01T10:29:59Z", "2026-01-01T09:30:00Z", "2026-01-01T10:30:00Z"),
    // Clock changes by a whole hour do not move hour boundaries.
    (Unit::Hour, "Europe/Rome", "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"),
    (Unit::Hour, "Europe/Rome", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
    // Clock changes by half an hour, forward at 2:00 (15:30 UTC) and back at 2:00 (15:00 UTC).
    (Unit::Hour, "Australia/Lord_Howe", "2025-10-04T15:29:59Z", "2025-10-04T14:30:00Z", "2025-10-04T15:30:00Z"),
    (Unit::Hour, "Australia/Lord_Howe", "2025-10-04T15:31:00Z", "2025-10-04T15:30:00Z", "2025-10-04T16:00:00Z"),
    (Unit::Hour, "Australia/Lord_Howe", "2026-04-04T14:59:59Z", "2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z"),
    (Unit::Hour, "Australia/Lord_Howe", "2026-04-04T15:00:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"),
    // Days in western and eastern zones, at the boundary of the UTC day.
    (Unit::Day, "UTC", "2026-07-01T00:00:00Z", "2026-07-01T00:00:00Z", "2026-07-02T00:00:00Z"),
    (Unit::Day, "America/New_York", "2026-07-01T00:00:00Z", "2026-06-30T04:00:00Z", "2026-07-01T04:00:00Z"),
    (Unit::Day, "Asia/Tokyo", "2026-07-01T00:00:00Z", "2026-06-30T15:00:00Z", "2026-07-01T15:00:00Z"),
    (Unit::Day, "Pacific/Kiritimati", "2026-07-01T00:00:00Z", "2026-06-30T10:00:00Z", "2026-07-01T10:00:00Z"),
    // Days of 23, 25, 23.5 and 24.5 hours.
    (Unit::Day, "Europe/Rome", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
    (Unit::Day, "Europe/Rome", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
    (Unit::Day, "Australia/Lord_Howe", "2025-10-04T20:00:00Z", "2025-10-04T13:30:00Z", "2025-10-05T13:00:00Z"),
    (Unit::Day, "Australia/Lord_Howe", "2026-04-04T20:00:00Z", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"),
    // A date without midnight, a date with two midnights, a date that repeats after its end, and a date that is
    // skipped.
    (Unit::Day, "America/Sao_Paulo", "2018-11-04T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"),
    (Unit::Day, "America/Havana", "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"),
    (Unit::Day, "America/St_Johns", "2010-11-07T02:45:00Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"),
    (Unit::Day, "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"),
    (Unit::Day, "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
    // Weeks from Monday, across the end of a year and across a clock change.
    (Unit::Week, "UTC", "2026-01-04T23:59:59.999Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z"),
    (Unit::Week, "Europe/Rome", "2026-03-29T21:59:59Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"),
    // Months, including February in common and leap years.
    (Unit::Month, "Europe/Rome", "2026-03-15T00:00:00Z", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"),
    (Unit::Month, "UTC", "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
    (Unit::Month, "America/Los_Angeles", "2026-03-01T07:59:59Z", "2026-02-01T08:00:00Z", "2026-03-01T08:00:00Z"),
    (Unit::Month, "UTC", "2100-02-10T00:00:00Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"),
];

#[test]
fn window_boundaries_follow_the_clocks_of_the_zone() {
    for (unit, zone, moment, start, end) in TABLE {
        let calendar = Calendar::new(unit, zone).expect("a calendar");
        let window = calendar.window(at(moment));
        assert_eq!((window.start, window.end), (at(start), at(end)), "{calendar:?} at {moment}: {window:?}");
    }
}

#[test]
fn months_have_their_calendar_lengths() {
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
fn windows_have_no_gaps() {
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
fn windows_contain_moments_outside_the_calendar_range() {
    for zone in ["UTC", "Pacific/Kiritimati", "Pacific/Niue", "Africa/Monrovia"] {
        for unit in Unit::ALL.iter().copied() {
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
fn regular_windows_equal_cached_windows() {
    for unit in Unit::ALL.iter().copied() {
        let calendar = Calendar::utc(unit);
        for moment in [0, 1, 3_599_999, 3_600_000, 1_774_738_799_999, 1_774_738_800_000, 253_402_207_199_999] {
            let at = Timestamp::from_millis(moment);
            assert_eq!(calendar.window(at), calendar.span(at).middle(), "{calendar:?} at {moment}");
        }
    }
}

#[test]
fn zone_names_ignore_case_and_calendars_are_shared() {
    let rome = Calendar::new(Unit::Day, "europe/rome").expect("a calendar");
    assert_eq!((rome.zone(), rome), ("Europe/Rome", Calendar::new(Unit::Day, "Europe/Rome").expect("a calendar")));
    assert_ne!(Ok(rome), Calendar::new(Unit::Week, "Europe/Rome"));
    assert_eq!(Calendar::new(Unit::Day, "Europe/Roma"), Err(UnknownZone("Europe/Roma".into())));
    assert!(Calendar::zones().iter().any(|zone| zone == "Europe/Rome"));
}
