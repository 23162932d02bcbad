//! The deadline of a request: `timeouts.total` of its upstream, and `grpc-timeout` of a gRPC call.
//!
//! The upstream receives `grpc-timeout`, without the time that the gateway has spent, and enforces it, too. The gateway
//! does not rely on that: when the deadline passes, it ends the upstream's stream and responds to the client.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use tokio::time::Instant;

use crate::upstream::ResponseBody;
use tidegate_layer::local_response::{GrpcCall, LocalResponse};
use tidegate_limit::clock::timer::Timer;
use tidegate_rules::request::facts::grpc_timeout::{CallDeadline, Received, grpc_timeout, reduce_grpc_timeout};

/// The time that a request may spend in the gateway before its `grpc-timeout` is reduced.
const NEGLIGIBLE: Duration = Duration::from_millis(1);

/// The deadline of a request, if it has one.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    at: Option<Instant>,
    /// Whether the client has chosen it: its `grpc-timeout` ends before the timeouts of the rules.
    is_of_client: bool,
    timer: Timer,
}

impl Deadline {
    /// Returns the deadline of a request: none without the time of its receipt. Reduces `grpc-timeout` by the time since
    /// then.
    pub(super) fn new<B>(
        request: &mut Request<B>,
        received: Option<Received>,
        total: Option<Duration>,
        call: Option<GrpcCall>,
    ) -> Self {
        let Some(Received(received)) = received else { return Self::default() };
        let of_client = call.and_then(|_| grpc_timeout(request.headers()));
        let is_of_client = of_client.is_some_and(|timeout| total.is_none_or(|total| timeout < total));
        let timeout = if is_of_client { of_client } else { total };
        let at = timeout.and_then(|timeout| received.checked_add(timeout));
        if let (Some(at), Some(_)) = (at, call) {
            request.extensions_mut().insert(CallDeadline(at));
            let now = Instant::now();
            if now.saturating_duration_since(received) >= NEGLIGIBLE {
                reduce_grpc_timeout(request.headers_mut(), at, now);
            }
        }
        Self { at, is_of_client, timer: Timer::new() }
    }

    /// Returns `true` if the client has chosen the deadline.
    pub(super) fn is_of_client(&self) -> bool {
        self.is_of_client
    }

    /// Returns `true` if the deadline has passed.
    pub(super) fn has_passed(&self) -> bool {
        self.at.is_some_and(|at| at <= Instant::now())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(timeout: &str) -> Request<()> {
        Request::builder().header("grpc-timeout", timeout).body(()).unwrap()
    }

    #[test]
    fn deadline_is_the_earlier_timeout_since_the_receipt() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let received = Instant::now();
        let deadline = |total, call, timeout: &'static str| {
            Deadline::new(&mut request(timeout), Some(Received(received)), total, call).at.map(|at| at - received)
        };
        let call = Some(GrpcCall::Grpc);
        assert_eq!([deadline(None, None, "1M"), deadline(seconds(5), None, "1S")], [None, seconds(5)]);
        assert_eq!([deadline(None, call, "1M"), deadline(seconds(5), call, "1M")], [seconds(60), seconds(5)]);
        assert_eq!([deadline(seconds(5), call, "1S"), deadline(seconds(5), call, "soon")], [seconds(1), seconds(5)]);
        assert!(Deadline::new(&mut request("1S"), None, seconds(5), call).at.is_none());
    }

    #[test]
    fn time_in_the_gateway_is_taken_off_the_timeout_of_a_call() {
        let received = Received(Instant::now().checked_sub(Duration::from_secs(2)).unwrap());
        let mut request = request("10S");
        _ = Deadline::new(&mut request, Some(received), None, Some(GrpcCall::Grpc));
        let left = grpc_timeout(request.headers()).unwrap();
        assert!(left <= Duration::from_secs(8) && left > Duration::from_secs(7), "{left:?}");
    }
}
