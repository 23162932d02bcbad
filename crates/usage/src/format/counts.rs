//! The numbers in a response that make up its usage.

use crate::json::{Field, Sink, Value};
use crate::usage::Usage;

/// A number that a response reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Tokens of the input.
    Input,
    /// Tokens of the input from a cache.
    CachedInput,
    /// Tokens of the input that were written to a cache.
    CacheWrite,
    /// Tokens of the input from tools on the server (Gemini).
    ToolInput,
    /// Tokens of the output.
    Output,
    /// Tokens of the output for reasoning, if the output does not include them (Gemini).
    Thoughts,
    /// All tokens.
    Total,
}

/// The kinds, in the order of their declaration.
const KINDS: usize = 7;

/// The field of the text that a response has sent so far.
pub(super) const TEXT: Field = Field(255);

/// The largest count: counts of a decision stay exact in a double of Lua.
const MAX_COUNT: u64 = 1 << 53;

/// The latest value of each number, since streams report cumulative counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    latest: [Option<u64>; KINDS],
    text: u64,
}

impl Count {
    /// The field of this number in [`Pointers`](crate::json::Pointers).
    pub(super) fn field(self) -> Field {
        Field(self as u8)
    }
}

impl Counts {
    /// The bytes of text that the response has sent in a stream.
    pub fn text_bytes(&self) -> u64 {
        self.text
    }

    /// Returns `true` if the response has reported this number.
    pub(super) fn has(&self, count: Count) -> bool {
        self.latest[count as usize].is_some()
    }

    /// The usage. With `has_cache_in_input`, the input includes the tokens of caches.
    ///
    /// A total that exceeds its parts counts as output, so that no token is lost.
    pub(super) fn usage(&self, has_cache_in_input: bool) -> Usage {
        let count = |count: Count| self.latest[count as usize].unwrap_or(0);
        let (cached_input, cache_write) = (count(Count::CachedInput), count(Count::CacheWrite));
        let of_caches = if has_cache_in_input { cached_input + cache_write } else { 0 };
        let mut usage = Usage {
            input: count(Count::Input).saturating_sub(of_caches) + count(Count::ToolInput),
            cached_input,
            cache_write,
            output: count(Count::Output) + count(Count::Thoughts),
        };
        usage.output += count(Count::Total).saturating_sub(usage.total());
        usage
    }
}

impl Sink for Counts {
    fn value(&mut self, field: Field, value: Value<'_>, _: u64) {
        if let (Value::Number(number), Some(latest)) = (value, self.latest.get_mut(usize::from(field.0)))
            && let Some(count) = parse_count(number)
        {
            *latest = Some(count);
        }
    }

    fn text(&mut self, _: Field, bytes: usize) {
        self.text = self.text.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

/// Parses a number of tokens. Fractions are rounded up. Returns `None` for negative numbers and numbers above 2^53.
pub(crate) fn parse_count(number: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(number).ok()?;
    if let Ok(count) = number.parse::<u64>() {
        return Some(count).filter(|count| *count <= MAX_COUNT);
    }
    let count = number.parse::<f64>().ok()?.ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "in range"
    )]
    (0.0..=MAX_COUNT as f64).contains(&count).then_some(count as u64)
}

#[cfg(test)]
mod tests {
    use super::parse_count;

    #[test]
    fn counts_are_whole_and_bounded() {
        assert_eq!(parse_count(b"17"), Some(17));
        assert_eq!(parse_count(b"17.2"), Some(18));
        assert_eq!(parse_count(b"1e3"), Some(1_000));
        assert_eq!(parse_count(b"-0"), Some(0));
        for invalid in ["-1", "1e999", "9007199254740993", "18446744073709551616", "", "-", "1e", "nan", "inf"] {
            assert_eq!(parse_count(invalid.as_bytes()), None, "{invalid}");
        }
    }
}
