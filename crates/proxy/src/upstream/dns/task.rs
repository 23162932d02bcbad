//! The task that resolves a name.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::lookup::Lookup;
use super::probe::find_reachable_family;
use super::state::{LookupError, NameState};
use super::{DnsName, ResolvedName};
use tidegate_metrics::{DnsNameMetrics, DnsOutcome};

/// The task that resolves a name, until all handles of the name are dropped.
#[derive(Debug)]
pub(super) struct NameTask {
    name: DnsName,
    lookup: Arc<Lookup>,
    resolved: Weak<ResolvedName>,
    wake: Arc<Notify>,
    metrics: DnsNameMetrics,
    /// The outcome of the last resolution, so that only changes are logged.
    outcome: Option<DnsOutcome>,
}

impl NameTask {
    pub(super) fn new(resolved: &Arc<ResolvedName>, lookup: Arc<Lookup>, metrics: DnsNameMetrics) -> Self {
        let (name, wake) = (resolved.name.clone(), Arc::clone(&resolved.wake));
        Self { name, lookup, resolved: Arc::downgrade(resolved), wake, metrics, outcome: None }
    }

    pub(super) async fn run(mut self) {
        let mut state = NameState::new(Instant::now());
        loop {
            tokio::select! {
                () = sleep_until(state.next_start()) => self.resolve(&mut state).await,
                () = self.wake.notified() => {}
            }
            let Some(resolved) = self.resolved.upgrade() else { return };
            let unreachable = std::mem::take(&mut *resolved.unreachable.lock());
            let now = Instant::now();
            unreachable.into_iter().for_each(|address| state.record_unreachable(address, now));
        }
    }

    /// Resolves the name and publishes its addresses.
    async fn resolve(&mut self, state: &mut NameState) {
        state.start(Instant::now());
        let count_before = state.addresses().len();
        let result = self.lookup.resolve(&self.name).await;
        let outcome = match &result {
            Ok(answer) => {
                let family = if state.must_probe(answer) { find_reachable_family(answer).await } else { None };
                state.record_answer(answer, family, Instant::now());
                DnsOutcome::Found
            }
            Err(error) => {
                state.record_error(error, Instant::now());
                if *error == LookupError::Absent { DnsOutcome::Absent } else { DnsOutcome::Failed }
            }
        };
        self.metrics.resolved(outcome, state.addresses().len());
        self.log(outcome, result.err(), count_before, state);
        let is_changed = self.resolved.upgrade().is_some_and(|resolved| resolved.publish(state.addresses()));
        if is_changed && outcome == DnsOutcome::Found {
            let addresses: Vec<_> = state.addresses().iter().map(|resolved| resolved.address.to_string()).collect();
            tracing::debug!(name = %self.name, addresses = addresses.join(" "), "addresses of an upstream name changed");
        }
    }

    /// Logs a change of the outcome, and when the addresses of an absent name are removed.
    fn log(&mut self, outcome: DnsOutcome, error: Option<LookupError>, count_before: usize, state: &NameState) {
        let before = self.outcome.replace(outcome);
        let (name, addresses) = (&self.name, state.addresses().len());
        match error {
            None if before.is_some_and(|before| before != outcome) => {
                tracing::warn!(%name, addresses, "upstream name is resolved again");
            }
            Some(error) if before != Some(outcome) => {
                tracing::warn!(%name, %error, addresses, "upstream name cannot be resolved");
            }
            Some(error) if addresses < count_before => {
                tracing::warn!(%name, %error, "addresses of an upstream name are removed");
            }
            _ => {}
        }
    }
}
