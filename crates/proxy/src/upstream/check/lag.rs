//! Measures how late the event loop runs a task, so that a busy gateway does not blame its targets.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The time between two measurements.
const STEP: Duration = Duration::from_millis(20);

/// Awaits a future. Returns its output, and by how much the event loop was late at most in the meantime.
pub(super) async fn with_lag<F: Future>(future: F) -> (F::Output, Duration) {
    let mut future = pin!(future);
    let (mut longest, mut due) = (Duration::ZERO, Instant::now() + STEP);
    let output = loop {
        tokio::select! {
            biased;
            output = &mut future => break output,
            () = sleep_until(due) => {
                longest = longest.max(due.elapsed());
                due = Instant::now() + STEP;
            }
        }
    };
    (output, longest.max(due.elapsed()))
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn waiting_is_no_lag() {
        let ((), lag) = with_lag(sleep_until(Instant::now() + SECOND)).await;
        assert!(lag < Duration::from_millis(5), "{lag:?}");
    }

    /// The clock jumps while the task cannot run.
    #[tokio::test(start_paused = true)]
    async fn blocked_task_has_lag() {
        let blocked = async {
            sleep_until(Instant::now() + SECOND / 10).await;
            advance(SECOND).await;
            sleep_until(Instant::now() + SECOND / 10).await;
        };
        let ((), lag) = with_lag(blocked).await;
        assert!(lag >= SECOND - STEP && lag <= SECOND, "{lag:?}");
    }
}
