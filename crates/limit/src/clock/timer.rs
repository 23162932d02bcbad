//! A timer whose deadline moves with every request.
//!
//! Responses usually arrive long before the deadline. So the timer registers a new deadline with the runtime only when
//! the registered one has passed: a request usually needs no timer operation.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

/// The timer of a connection. It is not registered with the runtime before the first poll.
#[derive(Debug, Default)]
pub struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Creates a timer that is not registered with the runtime.
    pub fn new() -> Self {
        Self::default()
    }

    /// Becomes ready at `deadline`, which may change with every call.
    pub fn poll(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.deadline() < deadline {
            ready!(sleep.as_mut().poll(cx));
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn timer_is_ready_at_the_latest_deadline() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timer = Timer::new();
        let mut is_ready = |deadline| {
            let polled = timer.poll(deadline, &mut Context::from_waker(std::task::Waker::noop()));
            polled.is_ready()
        };
        assert!(!is_ready(at(30)));
        assert!(!is_ready(at(60)));
        assert!(!is_ready(at(40)));
        tokio::time::advance(Duration::from_secs(35)).await;
        assert!(!is_ready(at(40)));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(is_ready(at(40)));
        assert!(!is_ready(at(50)));
        poll_fn(|cx| timer.poll(at(50), cx)).await;
        assert_eq!(Instant::now(), at(50));
        poll_fn(|cx| timer.poll(at(45), cx)).await;
        assert_eq!(Instant::now(), at(50));
    }
}
