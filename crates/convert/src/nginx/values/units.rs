//! Times and sizes.

use std::time::Duration;

/// The units of times in milliseconds. `ms` comes before `m`, which is its start.
const TIMES: [(&str, u64); 8] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
    ("M", 2_592_000_000),
    ("y", 31_536_000_000),
];

/// Parses a time such as `60`, `60s`, `1m 30s` or `500ms`. Without a unit, it is in seconds.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let (mut rest, mut total) = (text.trim(), 0_u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let unit = TIMES.iter().find(|(unit, _)| rest.starts_with(unit));
        let (length, millis) = unit.map_or((0, 1_000), |(unit, millis)| (unit.len(), *millis));
        if length == 0 && !rest.trim_start().is_empty() {
            return None;
        }
        rest = rest[length..].trim_start();
        total = total.checked_add(number.checked_mul(millis)?)?;
    }
    Some(Duration::from_millis(total))
}

/// Parses a size such as `1m`, `16k` or `1024`, and returns the bytes.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (digits, factor) = match text.char_indices().last()? {
        (end, 'k' | 'K') => (&text[..end], 1 << 10),
        (end, 'm' | 'M') => (&text[..end], 1 << 20),
        (end, 'g' | 'G') => (&text[..end], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Returns a size in the form of the rule file.
pub(crate) fn shown_size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.into_iter().find(|(length, _)| bytes > 0 && bytes.is_multiple_of(*length));
    unit.map_or_else(|| format!("{bytes}B"), |(length, unit)| format!("{}{unit}", bytes / length))
}
