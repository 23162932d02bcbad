//! Searches that need a processor for long.

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Runs one search at a time: operators must not take the processors from the workers.
#[derive(Debug)]
pub(super) struct Searches(Semaphore);

impl Searches {
    pub(super) const fn new() -> Self {
        Self(Semaphore::const_new(1))
    }

    /// Runs a search on a thread for blocking tasks, once no other search runs. If the operator disconnects, a search that has
    /// begun continues, and the next one waits for its end. Returns `None` if the search panicked.
    pub(super) async fn run<T: Send + 'static>(&'static self, find: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let slot = self.0.acquire().await.ok()?;
        let with_slot = move || {
            let _slot = slot;
            find()
        };
        spawn_blocking(with_slot).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use futures_util::poll;
    use tokio::sync::oneshot;

    use super::*;
    use crate::wire::until;

    #[tokio::test]
    async fn search_waits_for_an_abandoned_search() {
        static SEARCHES: Searches = Searches::new();
        let (begun, has_begun) = oneshot::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let first = tokio::spawn(SEARCHES.run(move || {
            _ = begun.send(());
            may_end.recv()
        }));
        has_begun.await.expect("a search");
        first.abort();
        assert!(first.await.expect_err("no result").is_cancelled());

        let has_run = Arc::new(AtomicBool::new(false));
        let run = Arc::clone(&has_run);
        let mut second = Box::pin(SEARCHES.run(move || run.store(true, Ordering::SeqCst)));
        assert!(poll!(&mut second).is_pending());
        drop(second);
        // The search has been dropped, or a thread runs it.
        until(|| Arc::strong_count(&has_run) == 1).await;
        assert!(!has_run.load(Ordering::SeqCst), "two searches at a time");

        end.send(()).expect("a search");
        assert_eq!(SEARCHES.run(|| 3).await, Some(3));
    }

    #[tokio::test]
    async fn search_runs_after_a_panic() {
        static SEARCHES: Searches = Searches::new();
        assert_eq!(SEARCHES.run(|| panic!("a bug")).await, None::<()>);
        assert_eq!(SEARCHES.run(|| 1).await, Some(1));
    }
}
