//! Parses the times of log lines into Unix milliseconds. Times without an offset are UTC.

use memchr::memchr_iter;

use super::text::Scanner;

/// The smallest number that is read as a Unix time. Smaller numbers are more likely durations.
const MIN_SECONDS: u64 = 100_000_000;
/// Larger numbers are milliseconds.
const MAX_SECONDS: u64 = 100_000_000_000;
/// Larger numbers are microseconds.
const MAX_MILLIS: u64 = MAX_SECONDS * 1_000;
/// Larger numbers are nanoseconds.
const MAX_MICROS: u64 = MAX_MILLIS * 1_000;

/// Parses a time in any format of this module.
pub(super) fn parse(text: &str) -> Option<u64> {
    let separator = |at: usize| text.as_bytes().get(at).filter(|byte| matches!(byte, b'-' | b'/'));
    if separator(2).is_some() {
        return parse_clf(text);
    }
    if separator(4).is_some() {
        return parse_rfc3339(text);
    }
    text.parse().map_or_else(|_| from_float(text.parse().ok()?), from_integer)
}

/// Finds a time of the Common Log Format in brackets after a space. Returns the text before it, the time, and the rest.
pub(super) fn find_clf(line: &str) -> Option<(&str, u64, Scanner<'_>)> {
    memchr_iter(b'[', line.as_bytes()).find_map(|at| {
        let (before, mut scanner) = (line[..at].strip_suffix(' ')?, Scanner::new(&line[at..]));
        Some((before, parse_clf(scanner.bracketed()?)?, scanner))
    })
}

/// Parses a time of the Common Log Format, such as `26/Nov/2026:07:10:35 +0100`. Fraction and offset are optional.
pub(super) fn parse_clf(text: &str) -> Option<u64> {
    let (date, rest) = text.as_bytes().split_at_checked(20)?;
    if [date[2], date[6], date[11]] != *b"//:" {
        return None;
    }
    let date_in_days = days((digits(&date[7..11])?, month(&date[3..6])?, digits(&date[..2])?))?;
    to_millis(date_in_days, &date[12..], rest)
}

/// Parses a time of RFC 3339. The separators of the date can be slashes, `T` can be a space, the offset is optional and
/// needs no colon.
pub(super) fn parse_rfc3339(text: &str) -> Option<u64> {
    let (date, rest) = text.as_bytes().split_at_checked(19)?;
    let is_date = matches!([date[4], date[7]], [b'-', b'-'] | [b'/', b'/']);
    if !is_date || !matches!(date[10], b'T' | b't' | b' ') {
        return None;
    }
    let date_in_days = days((digits(&date[..4])?, digits(&date[5..7])?, digits(&date[8..10])?))?;
    to_millis(date_in_days, &date[11..], rest)
}

/// Converts a Unix time. Its magnitude determines the unit, from seconds to nanoseconds.
pub(super) fn from_integer(number: u64) -> Option<u64> {
    match number {
        ..MIN_SECONDS => None,
        MIN_SECONDS..MAX_SECONDS => Some(number * 1_000),
        MAX_SECONDS..MAX_MILLIS => Some(number),
        MAX_MILLIS..MAX_MICROS => Some(number / 1_000),
        MAX_MICROS.. => Some(number / 1_000_000),
    }
}

/// Converts a Unix time. Rounds seconds to microseconds first, because `f64` has few decimal fractions exactly.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
pub(super) fn from_float(number: f64) -> Option<u64> {
    let seconds = number as u64;
    if !number.is_finite() {
        return None;
    }
    match seconds < MAX_SECONDS {
        true => from_integer(seconds).map(|_| (number * 1_000_000.0).round() as u64 / 1_000),
        false => from_integer(seconds),
    }
}

/// Converts a day, a time of the form `07:10:35`, and the optional fraction and offset after it.
fn to_millis(days: i64, time: &[u8], rest: &[u8]) -> Option<u64> {
    let &[_, _, b':', _, _, b':', _, _] = time else { return None };
    let (hour, minute, second) = (digits(&time[..2])?, digits(&time[3..5])?, digits(&time[6..])?);
    // 60 is a leap second.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, rest) = match rest.split_first() {
        Some((b'.' | b',', rest)) => {
            rest.split_at(rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len()))
        }
        _ => (&rest[..0], rest),
    };
    let millis = (0..3).fold(0, |millis, at| millis * 10 + fraction.get(at).map_or(0, |digit| i64::from(digit - b'0')));
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - offset(rest.trim_ascii())?;
    u64::try_from(seconds * 1_000 + millis).ok()
}

/// Returns the seconds of an offset, such as `+0100`, `-07:00` or `Z`.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, hours, minutes) = match *text {
        [] | [b'Z' | b'z'] => return Some(0),
        [sign, h1, h2] => (sign, [h1, h2], *b"00"),
        [sign, h1, h2, m1, m2] | [sign, h1, h2, b':', m1, m2] => (sign, [h1, h2], [m1, m2]),
        _ => return None,
    };
    let seconds = (digits(&hours)? * 60 + digits(&minutes)?) * 60;
    match sign {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

/// Returns the days since the Unix epoch. This is `days_from_civil` of Howard Hinnant.
fn days((year, month, day): (i64, i64, i64)) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    // Years start in March, so that the leap day is the last day of a year.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

fn month(name: &[u8]) -> Option<i64> {
    Some(match name {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    })
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_parsed() {
        for (text, time) in [
            ("26/Nov/2026:07:10:35 +0100", 1_795_673_435_000),
            ("26/Nov/2026:07:10:35.250 +0100", 1_795_673_435_250),
            ("06/Feb/2009:12:14:14.655", 1_233_922_454_655),
            ("29/Feb/2024:23:59:60 -0730", 1_709_278_200_000),
            ("01/Jan/1970:00:00:00 +0000", 0),
            ("2026-11-26T07:10:35+01:00", 1_795_673_435_000),
            ("2026-11-26T06:10:35.9999999Z", 1_795_673_435_999),
            ("2026-11-26t06:10:35,5z", 1_795_673_435_500),
            ("2026-11-26 05:10:35-01", 1_795_673_435_000),
            ("2026/11/26 06:10:35.012", 1_795_673_435_012),
            ("2026-11-26T07:10:35.1+0100", 1_795_673_435_100),
            ("1795673435", 1_795_673_435_000),
            ("1795673435.123", 1_795_673_435_123),
            ("1795673435123", 1_795_673_435_123),
            ("1795673435123.9", 1_795_673_435_123),
            ("1795673435123456", 1_795_673_435_123),
            ("1795673435123456789", 1_795_673_435_123),
        ] {
            assert_eq!(parse(text), Some(time), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "-",
            "0.003",
            "1",
            "nan",
            "inf",
            "-1795673435",
            "29/Feb/2026:07:10:35 +0100",
            "26/Nop/2026:07:10:35 +0100",
            "26/Nov/2026:24:10:35 +0100",
            "26/Nov/2026:07:60:35 +0100",
            "26/Nov/2026:07:10:61 +0100",
            "26/Nov/2026:07:10:35 0100",
            "26/Nov/2026:07:10:35 +01:0",
            "26/Nov/2026 07:10:35 +0100",
            "26/Nov/2026:07:10",
            "2026-13-26T07:10:35Z",
            "2026-00-26T07:10:35Z",
            "2026-11-00T07:10:35Z",
            "2026-11-26T07:10:35X",
            "2026-11/26T07:10:35Z",
            "2026-11-26",
            "1969-12-31T23:59:59Z",
            "2o26-11-26T07:10:35Z",
            "2026-11-26T07.10:35Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_agree_with_jiff(seconds in 0_i64..253_402_300_799, millis in 0_u32..1_000) {
            let time = jiff::Timestamp::new(seconds, i32::try_from(millis).unwrap() * 1_000_000).unwrap();
            let expected = u64::try_from(time.as_millisecond()).unwrap();
            prop_assert_eq!(parse(&format!("{time:.3}")), Some(expected));
            let clf = time.to_zoned(jiff::tz::TimeZone::UTC).strftime("%d/%b/%Y:%H:%M:%S.%3f %z").to_string();
            prop_assert_eq!(parse(&clf), Some(expected));
        }
    }
}
