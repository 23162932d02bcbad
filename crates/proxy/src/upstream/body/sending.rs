//! How a body is sent: its progress, and the bytes that are kept to send it again.

use std::sync::Arc;

use crate::transport::Relay;
use crate::upstream::replay::ReplayBuffer;
use crate::upstream::replay_budget::{KeptBytes, ReplayBudget};
use crate::upstream::upload_progress::UploadProgress;

/// How the body is sent.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// The progress of this attempt.
    pub(super) progress: Option<Arc<UploadProgress>>,
    /// The start of the body, to send it again. `None` before the first attempt.
    pub(super) replay: Option<ReplayBuffer>,
    /// Bounds what the client's connection keeps. `None` if it has one request at a time.
    pub(super) replay_budget: Option<Arc<ReplayBudget>>,
    /// Moves the body if the upstream has a plaintext socket.
    pub(super) relay: Option<Relay>,
}

impl Sending {
    /// Starts an attempt, and tracks its progress. The first one keeps a body of at most `kept` bytes, or with `None`
    /// no body. If `is_held`, the body is held back until the upstream requests it (100).
    pub(super) fn start_attempt(&mut self, kept: Option<usize>, is_held: bool) -> Arc<UploadProgress> {
        self.replay.get_or_insert_with(|| {
            // The bytes that a relay moves are never in memory, so a body that is kept has none.
            self.relay.take_if(|_| kept.is_some());
            ReplayBuffer::new(kept.unwrap_or(0), KeptBytes::new(self.replay_budget.take()))
        });
        let progress = Arc::new(UploadProgress::new(is_held));
        self.progress = Some(Arc::clone(&progress));
        progress
    }
}
