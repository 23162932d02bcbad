//! Asks the store whether it responds, at most once a second for all callers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use tidegate_store::Store;

/// How long a result is reused.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The last result of a store. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Probe(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store,
    last: Mutex<Option<Answer>>,
}

/// Whether the store answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) is_up: bool,
    /// The time until the answer; `None` if the probe was interrupted.
    pub(super) latency: Option<Duration>,
    asked_at: Instant,
}

impl Probe {
    pub(super) fn new(store: Store) -> Self {
        Self(Arc::new(Shared { store, last: Mutex::default() }))
    }

    /// Asks the store, or returns the answer of the last second.
    pub(super) async fn ask(&self) -> Answer {
        let shared = Arc::clone(&self.0);
        // A separate task: otherwise a client that disconnects would cancel the call, and the next client would start
        // another one.
        let answer = tokio::spawn(async move { shared.ask().await }).await;
        answer.unwrap_or_else(|_| Answer { is_up: false, latency: None, asked_at: Instant::now() })
    }
}

impl Shared {
    async fn ask(&self) -> Answer {
        let mut last = self.last.lock().await;
        if let Some(answer) = last.filter(|answer| answer.asked_at.elapsed() < MAX_AGE) {
            return answer;
        }
        let asked_at = Instant::now();
        let is_up = self.store.is_up().await;
        let answer = Answer { is_up, latency: Some(asked_at.elapsed()), asked_at };
        *last = Some(answer);
        answer
    }
}
