//! Problems that others report: of watched files (certificates, revocation lists, the files of keys and users), and of the
//! control plane.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::entry::GatewayProblem;

/// The problems that were reported last.
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
