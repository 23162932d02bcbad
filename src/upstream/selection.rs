//! Selects the targets that a request tries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::time::Instant;

use super::entry::{Backend, Entry};
use super::target::{InFlightAttempt, TargetCondition};
use super::trace::Trace;

/// How one worker distributes requests to the targets of an upstream.
#[derive(Debug, Default)]
pub(super) struct Balancer {
    turn: AtomicUsize,
}

/// Selects the targets for one request.
pub(super) struct Selection<'e> {
    entries: &'e [Arc<Entry>],
    /// The position after the last one that was selected.
    next: usize,
    /// The positions that were selected. Allocates only for a second attempt.
    tried: Vec<usize>,
    last: Option<usize>,
}

/// A selected target.
pub(super) struct Selected<'e> {
    entry: &'e Entry,
    /// Whether the request has tried this target before, because no other is usable.
    pub(super) is_repeated: bool,
}

impl Balancer {
    /// Starts the selection for a request.
    pub(super) fn select<'e>(&self, entries: &'e [Arc<Entry>]) -> Selection<'e> {
        let next = if entries.len() > 1 { self.turn.fetch_add(1, Relaxed) } else { 0 };
        Selection { entries, next, tried: Vec::new(), last: None }
    }
}

impl<'e> Selection<'e> {
    /// Returns the next target to try. Returns a target twice only if it is the only one that is usable. Returns `None`
    /// if there is no other.
    pub(super) fn next(&mut self, now: Instant) -> Option<Selected<'e>> {
        self.tried.extend(self.last);
        let count = self.entries.len();
        let is_usable = |position: &usize| self.entries[*position].state.condition(now) == TargetCondition::Usable;
        let usable = (0..count).map(|step| self.next.wrapping_add(step) % count).filter(is_usable);
        let (mut only, mut others) = (None, 0);
        for position in usable {
            if !self.tried.contains(&position) && self.last != Some(position) {
                self.next = position + 1;
                self.last = Some(position);
                return Some(Selected { entry: &self.entries[position], is_repeated: false });
            }
            (only, others) = (Some(position), others + 1);
        }
        only.filter(|_| others == 1).map(|position| Selected { entry: &self.entries[position], is_repeated: true })
    }
}

impl<'e> Selected<'e> {
    /// Starts an attempt.
    pub(super) fn start_attempt(&self, trace: Option<&Trace>) -> InFlightAttempt<'e> {
        self.entry.state.start_attempt(trace)
    }

    /// Returns how requests are sent to the target.
    pub(super) fn backend(&self) -> &'e Backend {
        &self.entry.backend
    }
}
