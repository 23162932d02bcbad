//! The field `grpc-timeout` (PROTOCOL-HTTP2.md of gRPC): how long a call may take.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::time::Instant;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The largest number in the field: eight digits.
const MAX: u128 = 99_999_999;

/// The time at which a request was received: an extension of requests that may have a deadline.
#[derive(Clone, Copy, Debug)]
pub struct Received(pub Instant);

/// The deadline of a gRPC call: an extension of its request.
#[derive(Clone, Copy, Debug)]
pub struct CallDeadline(pub Instant);

/// Returns the timeout of a call. Returns `None` if the field is missing or invalid.
pub fn grpc_timeout(fields: &HeaderMap) -> Option<Duration> {
    parse(fields.get(GRPC_TIMEOUT)?.as_bytes())
}

/// Returns `true` if the request may be a call with a timeout. Calls use POST.
pub fn has_grpc_timeout(method: &Method, fields: &HeaderMap) -> bool {
    method == Method::POST && fields.contains_key(GRPC_TIMEOUT)
}

/// Reduces the timeout of a call to the time that is left until `deadline`, or to 1 us if that is longer.
pub fn reduce_grpc_timeout(fields: &mut HeaderMap, deadline: Instant, now: Instant) {
    if let Some(value) = fields.get_mut(GRPC_TIMEOUT)
        && let Some(timeout) = parse(value.as_bytes())
        && let remaining = deadline.saturating_duration_since(now).max(Duration::from_micros(1))
        && remaining < timeout
        && let Ok(reduced) = HeaderValue::try_from(format(remaining))
    {
        *value = reduced;
    }
}

/// Parses a timeout: at most eight digits and a unit.
fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |count, digit| 10 * count + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(3_600 * count),
        b'M' => Duration::from_secs(60 * count),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Formats a timeout with the smallest unit of `u`, `m`, `S` and `H` that fits. Rounds down, but to at least one unit.
fn format(timeout: Duration) -> String {
    let units = [("u", timeout.as_micros()), ("m", timeout.as_millis()), ("S", timeout.as_secs().into())];
    let hours = ("H", u128::from(timeout.as_secs() / 3_600));
    let (unit, count) = units.into_iter().find(|(_, count)| *count <= MAX).unwrap_or(hours);
    format!("{}{unit}", count.clamp(1, MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_at_most_eight_digits_and_a_unit() {
        let read = |text: &str| parse(text.as_bytes()).map(|timeout| timeout.as_nanos());
        assert_eq!(read("2H"), Some(7_200_000_000_000));
        assert_eq!(read("3M"), Some(180_000_000_000));
        assert_eq!(read("5S"), Some(5_000_000_000));
        assert_eq!((read("7m"), read("8u"), read("9n")), (Some(7_000_000), Some(8_000), Some(9)));
        assert_eq!((read("0m"), read("99999999H")), (Some(0), Some(359_999_996_400_000_000_000)));
        for invalid in ["", "m", "1", "1s", "1h", "-1m", "+1m", "1.5S", " 1m", "1 m", "1m ", "123456789n", "1mm"] {
            assert_eq!(read(invalid), None, "{invalid:?}");
        }
    }

    #[test]
    fn timeout_is_rounded_down_to_at_least_one_unit() {
        let texts = ["1u", "99999999u", "100000m", "99999999m", "100000S", "99999999S", "27777H", "99999999H"];
        let seconds = Duration::from_secs;
        let timeouts = [
            Duration::from_nanos(1_999),
            Duration::from_micros(99_999_999),
            seconds(100),
            Duration::from_millis(99_999_999),
            seconds(100_000),
            seconds(99_999_999),
            seconds(100_000_000),
            seconds(u64::MAX),
        ];
        assert_eq!(timeouts.map(format), texts);
        assert_eq!(format(Duration::ZERO), "1u");
    }

    #[test]
    fn timeout_is_reduced_and_never_raised() {
        let now = Instant::now();
        let reduced = |value: &'static str, millis: u64| {
            let mut fields = HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(value))]);
            reduce_grpc_timeout(&mut fields, now + Duration::from_millis(millis), now);
            fields[GRPC_TIMEOUT].to_str().unwrap().to_owned()
        };
        assert_eq!([reduced("1S", 250), reduced("1S", 0)], ["250000u", "1u"]);
        assert_eq!(
            [reduced("1S", 1_000), reduced("1S", 9_000), reduced("soon", 1), reduced("9n", 0)],
            ["1S", "1S", "soon", "9n"]
        );
    }
}
