//! The states of all targets in the process. They survive reloads and changes of addresses while any worker uses them.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::TargetState;
use crate::upstream::retry::RetryBudget;
use crate::upstream::trace::TargetName;
use tidegate_metrics::TargetMetrics;

/// The states of the targets of all upstreams, and the retry budgets of the upstreams.
#[derive(Clone, Debug, Default)]
pub struct TargetStates(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    states: Mutex<HashMap<TargetName, Weak<TargetState>>>,
    /// Held while a worker decides whether to eject a target, so that two workers do not eject the last two targets.
    ejections: Mutex<()>,
    retry_budgets: Mutex<HashMap<Arc<str>, Weak<RetryBudget>>>,
}

impl TargetStates {
    /// Returns the state of a target, or of one address of the target. Creates the state if no worker uses it. `is_new`
    /// starts the slow start of a state that is created.
    pub(in crate::upstream) fn get_or_create(
        &self,
        upstream: &Arc<str>,
        target: &str,
        address: Option<SocketAddr>,
        metrics: &TargetMetrics,
        is_new: bool,
    ) -> Arc<TargetState> {
        let name = TargetName { upstream: Arc::clone(upstream), target: target.to_owned(), address };
        let mut states = self.0.states.lock();
        if let Some(state) = states.get(&name).and_then(Weak::upgrade) {
            return state;
        }
        states.retain(|_, state| state.strong_count() > 0);
        // A drain of a host name is also one of addresses that DNS adds later.
        let same = states.iter().filter(|(other, _)| (&other.upstream, &*other.target) == (upstream, target));
        let drain = same.filter_map(|(_, state)| state.upgrade()?.conditions.drain()).max();
        let state = Arc::new(TargetState::new(name.clone(), metrics.clone()));
        if is_new {
            state.conditions.set_new(Instant::now());
        }
        state.conditions.drain_until(drain);
        states.insert(name, Arc::downgrade(&state));
        state
    }

    /// Waits until no other worker decides about an ejection. No worker decides until the guard is dropped.
    pub(in crate::upstream) fn lock_ejections(&self) -> MutexGuard<'_, ()> {
        self.0.ejections.lock()
    }

    /// Returns the retry budget of an upstream. Creates the budget if no worker uses it.
    pub(in crate::upstream) fn retry_budget(&self, upstream: &Arc<str>) -> Arc<RetryBudget> {
        let mut budgets = self.0.retry_budgets.lock();
        if let Some(budget) = budgets.get(upstream).and_then(Weak::upgrade) {
            return budget;
        }
        budgets.retain(|_, budget| budget.strong_count() > 0);
        let budget = Arc::new(RetryBudget::new(Instant::now()));
        budgets.insert(Arc::clone(upstream), Arc::downgrade(&budget));
        budget
    }
}
