//! The states of all targets in the process. They survive reloads and changes of addresses while any worker uses them.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::TargetState;
use crate::metrics::TargetMetrics;
use crate::upstream::trace::TargetName;

/// The states of the targets of all upstreams.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetStates(Arc<Mutex<HashMap<TargetName, Weak<TargetState>>>>);

impl TargetStates {
    /// Returns the state of a target, or of one address of the target. Creates the state if no worker uses it.
    pub(in crate::upstream) fn get_or_create(
        &self,
        upstream: &Arc<str>,
        target: &str,
        address: Option<SocketAddr>,
        metrics: &TargetMetrics,
    ) -> Arc<TargetState> {
        let name = TargetName { upstream: Arc::clone(upstream), target: target.to_owned(), address };
        let mut states = self.0.lock();
        if let Some(state) = states.get(&name).and_then(Weak::upgrade) {
            return state;
        }
        states.retain(|_, state| state.strong_count() > 0);
        let state = Arc::new(TargetState::new(name.clone(), metrics.clone()));
        states.insert(name, Arc::downgrade(&state));
        state
    }
}
