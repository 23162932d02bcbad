//! The list of problems of this gateway: `problems` of `GET /api/v1/status`, of `tidegate status` and of the
//! dashboard. Each of the other files has one source of problems.

mod entry;
mod identities;
mod noticed;
mod rules;
mod store;
mod targets;
mod watched;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::time::Instant;

pub(crate) use self::entry::{GatewayProblem, ProblemKind};
use self::noticed::Noticed;
use self::watched::WatchedProblems;
use super::Admin;
use tidegate_limit::clock::wall_time;

/// The maximum length of the list. The kinds are listed in the order of [`ProblemKind`].
const MAX_PROBLEMS: usize = 1_000;

/// The problems of a gateway.
#[derive(Debug, Default)]
pub(super) struct Problems {
    watched: WatchedProblems,
    control_plane: WatchedProblems,
    noticed: Noticed,
    last: ArcSwap<Vec<GatewayProblem>>,
}

impl Admin {
    /// Collects the present problems, by kind and subject.
    pub(super) fn find_problems(&self) -> Arc<Vec<GatewayProblem>> {
        let (active, mut found) = (self.active.load(), Vec::new());
        store::find(&active.store, &mut found);
        rules::find(&self.status, &active.config.teams, &mut found);
        targets::find(&active, Instant::now(), &mut found);
        identities::find(&active.config, &mut found);
        self.problems.watched.find(&mut found);
        self.problems.control_plane.find(&mut found);
        // Several listeners can have one certificate file.
        found.sort();
        found.dedup();
        found.truncate(MAX_PROBLEMS);
        let mask = |text: &str| active.config.secrets.mask(text).into_owned();
        found.iter_mut().for_each(|problem| problem.mask(mask));
        self.problems.noticed.date(&mut found, wall_time());
        let found = Arc::new(found);
        self.problems.last.store(Arc::clone(&found));
        found
    }

    /// Returns the problems that were found last, at most a second ago while the admin listener is on.
    pub(super) fn last_problems(&self) -> Arc<Vec<GatewayProblem>> {
        self.problems.last.load_full()
    }

    /// Replaces the problems of the control plane.
    pub(crate) fn set_control_plane_problems(&self, problems: Vec<GatewayProblem>) {
        self.problems.control_plane.set(problems);
    }

    /// Replaces the problems of watched files.
    pub(crate) fn set_watched_problems(&self, problems: Vec<GatewayProblem>) {
        self.problems.watched.set(problems);
    }
}
