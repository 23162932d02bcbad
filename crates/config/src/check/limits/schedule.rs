//! The times at which a limit applies: `time`, `days` and `timezone` of `when`.

use super::windows::suggest_zone;
use crate::check::{Checked, all, present_keys};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use tidegate_limit::calendar::schedule::{Day, Schedule};

/// Converts `time`, `days` and `timezone`. Returns `None` without them.
pub(crate) fn schedule(raw: &file::When, problems: &mut Problems) -> Checked<Option<Schedule>> {
    let zone = raw.timezone.optional(problems);
    let days = days(&raw.days, problems);
    let minutes = raw.time.optional(problems).and_then(|time| match time {
        Some(text) => parse_time(text).ok_or_else(|| {
            let message = format!("{} is not a span of a day", quote(text));
            raw.time.report(message, "write `\"08:00-20:00\"`, or `\"22:00-06:00\"` for a night", problems)
        }),
        None => Ok((0, Schedule::DAY)),
    });
    let (zone, days, minutes) = (zone?, days?, minutes?);
    if present_keys!(raw, time days).is_empty() {
        return match zone {
            Some(_) => {
                let help = "add `time: \"08:00-20:00\"` or `days: [mon-fri]`";
                Err(raw.timezone.report("`timezone` has no effect without `time` or `days`", help, problems))
            }
            None => Ok(None),
        };
    }
    let zone = zone.map_or("UTC", String::as_str);
    let schedule = Schedule::new(days, minutes, zone);
    schedule.map(Some).map_err(|error| raw.timezone.report(error.to_string(), suggest_zone(zone), problems))
}

/// Converts a list of days and ranges of days, such as `mon-fri`. Returns all days without a list.
fn days(raw: &Located<Vec<Located<String>>>, problems: &mut Problems) -> Checked<[bool; 7]> {
    let Some(items) = raw.optional(problems)? else { return Ok([true; 7]) };
    let ranges = all(items.iter().map(|item| {
        let text = item.required(problems)?;
        parse_days(text).ok_or_else(|| {
            let message = format!("{} is not a day or a range of days", quote(text));
            item.report(message, "write `mon`, `tue`, `wed`, `thu`, `fri`, `sat`, `sun`, or `mon-fri`", problems)
        })
    }))?;
    let mut days = [false; 7];
    for (first, last) in ranges {
        // A range such as `sat-mon` continues after Sunday.
        let length = (last + 7 - first) % 7;
        (0..=length).for_each(|day| days[(first + day) % 7] = true);
    }
    Ok(days)
}

/// Returns the numbers of the first and the last day, from Monday.
fn parse_days(text: &str) -> Option<(usize, usize)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |name: &str| Day::ALL.iter().position(|day| day.name() == name.trim().to_ascii_lowercase());
    Some((number(first)?, number(last)?))
}

/// Parses a span such as `08:00-20:00`. The end may be `24:00`.
fn parse_time(text: &str) -> Option<(u16, u16)> {
    let (start, end) = text.split_once('-')?;
    let minute = |time: &str| {
        let (hour, minute) = time.trim().split_once(':')?;
        let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let (hour, minute): (u16, u16) =
            (is_number(hour).then(|| hour.parse().ok())??, is_number(minute).then(|| minute.parse().ok())??);
        (hour < 24 && minute < 60 || (hour, minute) == (24, 0)).then_some(hour * 60 + minute)
    };
    let (start, end) = (minute(start)?, minute(end)?);
    (start < Schedule::DAY && end > 0 && start != end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_parsed() {
        for (text, span) in [
            ("08:00-20:00", Some((480, 1_200))),
            (" 22:30 - 06:00 ", Some((1_350, 360))),
            ("00:00-24:00", Some((0, 1_440))),
            ("00:00-00:00", None),
            ("20:00-00:00", None),
            ("24:00-08:00", None),
            ("8:00-20:00", None),
            ("08:60-20:00", None),
            ("08:00-24:01", None),
            ("08:00", None),
            ("+8:00-20:00", None),
        ] {
            assert_eq!(parse_time(text), span, "{text}");
        }
        assert_eq!((parse_days("mon-fri"), parse_days("Sun")), (Some((0, 4)), Some((6, 6))));
        assert_eq!((parse_days("monday"), parse_days("mon-"), parse_days("")), (None, None, None));
    }
}
