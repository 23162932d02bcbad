//! Problems of watched files: certificates, revocation lists, and the files of keys and users.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::entry::GatewayProblem;

/// The problems that the watcher of files found last.
#[derive(Debug, Default)]
pub(super) struct WatchedProblems(ArcSwap<Vec<GatewayProblem>>);

impl WatchedProblems {
    /// Replaces the problems. Called after each poll, so an unchanged list costs no allocation.
    pub(super) fn set(&self, problems: Vec<GatewayProblem>) {
        if **self.0.load() != problems {
            self.0.store(Arc::new(problems));
        }
    }

    /// Adds the problems.
    pub(super) fn find(&self, found: &mut Vec<GatewayProblem>) {
        found.extend(self.0.load().iter().cloned());
    }
}
