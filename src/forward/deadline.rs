//! The deadline of a gRPC call (`grpc-timeout`, PROTOCOL-HTTP2.md of gRPC).
//!
//! The upstream receives the field and enforces it, too. The gateway does not rely on that: when the deadline passes,
//! it ends the upstream's stream and responds to the client.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Response};
use http_body::Body;
use tokio::time::Instant;

use crate::local_response::{GrpcCall, LocalResponse};
use crate::timer::Timer;
use crate::upstream::ResponseBody;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The deadline of a call, if it has one.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    at: Option<Instant>,
    timer: Timer,
}

impl Deadline {
    /// Reads `grpc-timeout`, counted from now. Ignores an invalid value: the upstream rejects it.
    pub(super) fn from_fields(call: Option<GrpcCall>, fields: &HeaderMap) -> Self {
        let timeout = call.and_then(|_| fields.get(GRPC_TIMEOUT));
        let at = timeout.and_then(|timeout| Instant::now().checked_add(parse(timeout.as_bytes())?));
        Self { at, timer: Timer::new() }
    }

    /// Awaits a future. Returns `None` if the deadline passes first.
    pub(super) fn run_until<F: Future>(&mut self, mut future: Pin<&mut F>) -> impl Future<Output = Option<F::Output>> {
        poll_fn(move |cx| match (future.as_mut().poll(cx), self.at) {
            (Poll::Ready(output), _) => Poll::Ready(Some(output)),
            (Poll::Pending, Some(at)) => self.timer.poll(at, cx).map(|()| None),
            (Poll::Pending, None) => Poll::Pending,
        })
    }

    /// Ends the body of a response at the deadline. Ends it with gRPC trailers if the client accepts them, else breaks
    /// it off.
    pub(super) fn limit_body(
        self,
        response: &mut Response<ResponseBody>,
        call: Option<GrpcCall>,
        takes_trailers: bool,
    ) {
        let Some(at) = self.at.filter(|_| !response.body().is_end_stream()) else { return };
        let can_have_trailers =
            call == Some(GrpcCall::Grpc) && takes_trailers && response.body().size_hint().exact().is_none();
        let trailers = can_have_trailers.then(|| LocalResponse::DeadlinePassed.trailers());
        response.body_mut().end_at(at, trailers);
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
    fn only_calls_have_a_deadline() {
        let fields = HeaderMap::from_iter([(GRPC_TIMEOUT, "1m".parse().unwrap())]);
        assert!(Deadline::from_fields(None, &fields).at.is_none());
        assert!(Deadline::from_fields(Some(GrpcCall::Grpc), &fields).at.is_some());
        assert!(Deadline::from_fields(Some(GrpcCall::Web), &HeaderMap::new()).at.is_none());
    }
}
