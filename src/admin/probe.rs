//! Asks the store whether it responds, at most once a second for all callers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::store::Store;

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

#[derive(Clone, Copy, Debug)]
struct Answer {
    is_up: bool,
    asked_at: Instant,
}

impl Probe {
    pub(super) fn new(store: Store) -> Self {
        Self(Arc::new(Shared { store, last: Mutex::default() }))
    }

    /// Returns `true` if the store answers, or did within the last second.
    pub(super) async fn is_up(&self) -> bool {
        let shared = Arc::clone(&self.0);
        // A separate task: otherwise a client that disconnects would cancel the call, and the next client would start
        // another one.
        tokio::spawn(async move { shared.is_up().await }).await.unwrap_or(false)
    }
}

impl Shared {
    async fn is_up(&self) -> bool {
        let mut last = self.last.lock().await;
        if let Some(answer) = last.filter(|answer| answer.asked_at.elapsed() < MAX_AGE) {
            return answer.is_up;
        }
        let asked_at = Instant::now();
        let is_up = self.store.is_up().await;
        *last = Some(Answer { is_up, asked_at });
        is_up
    }
}
