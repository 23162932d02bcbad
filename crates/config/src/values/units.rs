//! Durations such as `250ms`, `10s`, `1m30s`, `2h` and `1d`, calendar units such as `month`, and sizes such as `512B`,
//! `16KiB`, `10MiB` and `1GiB`.

use std::time::Duration;

use tidegate_limit::calendar::Unit;

/// A duration of the rule file, in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// A size of the rule file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// The interval of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    /// A fixed duration.
    Length(Millis),
    /// A calendar unit, whose length varies.
    Unit(Unit),
}

/// Units from the longest to the shortest, in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units from the largest to the smallest, in bytes.
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Millis {
    /// Parses whole numbers with units in descending order. Returns `None` if the text is no duration. Values that are
    /// too large saturate, so that they fail as out of range.
    pub fn parse(text: &str) -> Option<Self> {
        let (mut rest, mut units, mut total) = (text, &UNITS[..], 0_u64);
        while !rest.is_empty() {
            let (digits, after) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
            let (name, after) =
                after.split_at(after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len()));
            let found = units.iter().position(|(unit, _)| *unit == name)?;
            let count = match digits {
                "" => return None,
                digits => digits.parse().unwrap_or(u64::MAX),
            };
            total = total.saturating_add(units[found].1.saturating_mul(count));
            (rest, units) = (after, &units[found + 1..]);
        }
        (!text.is_empty()).then_some(Self(total))
    }

    /// Returns the duration that a text such as `1 minute` or `90 S` means, in the syntax of the rule file. Returns
    /// `None` if the text is no duration.
    pub fn guess(text: &str) -> Option<String> {
        let text = text.trim().to_ascii_lowercase();
        let (digits, word) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
        let unit = match word.trim_start() {
            "millisecond" | "milliseconds" | "msec" | "ms" => "ms",
            "second" | "seconds" | "sec" | "secs" | "s" => "s",
            "minute" | "minutes" | "min" | "mins" | "m" => "m",
            "hour" | "hours" | "hr" | "hrs" | "h" => "h",
            "day" | "days" | "d" => "d",
            _ => return None,
        };
        (!digits.is_empty()).then(|| format!("{digits}{unit}"))
    }

    /// Formats `millis` with the largest unit that divides it.
    pub fn show(millis: u64) -> String {
        let fits = UNITS.iter().find(|(_, length)| millis > 0 && millis.is_multiple_of(*length));
        let (unit, length) = fits.copied().unwrap_or(("ms", 1));
        format!("{}{unit}", millis / length)
    }

    /// Returns the duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl Bytes {
    /// Parses a whole number with a unit. Returns `None` if the text is no size. Values that are too large saturate.
    pub fn parse(text: &str) -> Option<Self> {
        let (digits, name) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
        let (_, length) = SIZES.iter().find(|(unit, _)| *unit == name)?;
        let count: u64 = if digits.is_empty() { return None } else { digits.parse().unwrap_or(u64::MAX) };
        Some(Self(count.saturating_mul(*length)))
    }

    /// Formats `bytes` with the largest unit that divides it.
    pub fn show(bytes: u64) -> String {
        let fits = SIZES.iter().find(|(_, length)| bytes > 0 && bytes.is_multiple_of(*length));
        let (unit, length) = fits.copied().unwrap_or(("B", 1));
        format!("{}{unit}", bytes / length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_numbers_with_descending_units() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("1m", 60_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1m30s", 90_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("90m", 5_400_000),
            ("0s", 0),
            ("99999999999999999999d", u64::MAX),
        ] {
            assert_eq!(Millis::parse(text), Some(Millis(millis)), "{text}");
        }
    }

    #[test]
    fn duration_in_words_has_a_suggestion() {
        for (text, guess) in [
            ("1 minute", "1m"),
            ("30 seconds", "30s"),
            ("5 S", "5s"),
            ("2hours", "2h"),
            (" 7 Days ", "7d"),
            ("1min", "1m"),
        ] {
            assert_eq!(Millis::guess(text).as_deref(), Some(guess), "{text}");
            assert!(Millis::parse(guess).is_some(), "{guess}");
        }
        for text in ["", "minute", "1", "1 month", "1 2 s", "x s"] {
            assert_eq!(Millis::guess(text), None, "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_durations() {
        for text in ["", "10", "s", "1.5s", "-1s", "1 s", "1s1m", "1s1s", "1S", "1w", "10s5", "٣s", "1sms"] {
            assert_eq!(Millis::parse(text), None, "{text}");
        }
    }

    #[test]
    fn duration_is_formatted_in_its_largest_whole_unit() {
        for (millis, text) in [(1, "1ms"), (0, "0ms"), (1500, "1500ms"), (60_000, "1m"), (172_800_000, "2d")] {
            assert_eq!(Millis::show(millis), text);
        }
    }

    #[test]
    fn size_is_a_whole_number_with_a_unit() {
        for (text, bytes) in [("512B", 512), ("16KiB", 16_384), ("3MiB", 3 << 20), ("2GiB", 2 << 30), ("0B", 0)] {
            assert_eq!(Bytes::parse(text), Some(Bytes(bytes)), "{text}");
            assert_eq!(Bytes::show(bytes), text);
        }
        assert_eq!(Bytes::parse("99999999999999999999GiB"), Some(Bytes(u64::MAX)));
        for text in ["", "10", "KiB", "1.5KiB", "-1B", "1 KiB", "1KB", "1kib", "1KiB1B"] {
            assert_eq!(Bytes::parse(text), None, "{text}");
        }
    }
}
