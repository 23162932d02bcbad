//! Reports a node that refuses calls although it is reachable. If the node fails its self-test, that is an outage with
//! Redis's error as its cause. The connections stay open: a full Redis still rejects requests over a limit, and a user
//! without permission for one key can use the others. If the node passes the self-test, only some calls are refused,
//! which is logged at intervals.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::script::refused_calls::RefusedCalls;
use super::outages::{Outage, Outages};
use super::self_test::SelfTestResult;

/// The minimum time between two lines about calls that a usable node refuses.
const WARN_INTERVAL: Duration = Duration::from_secs(10);
/// The same for a line with the same error.
const SAME_WARN_INTERVAL: Duration = Duration::from_secs(600);

/// The calls that a node refuses.
#[derive(Debug)]
pub(super) struct Refusals {
    outages: Arc<Outages>,
    calls: Arc<RefusedCalls>,
    state: Mutex<State>,
    /// Held by the task that repeats the self-test.
    pub(super) testing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The outage since a self-test failed.
    outage: Option<Outage>,
    /// The last line about a node that passed its self-test.
    warned: Option<(Instant, String)>,
}

impl Refusals {
    pub(super) fn new(outages: Arc<Outages>) -> Self {
        let (calls, state, testing) = Default::default();
        Self { outages, calls, state, testing }
    }

    /// Returns the record of the calls that the node refuses.
    pub(super) fn calls(&self) -> Arc<RefusedCalls> {
        Arc::clone(&self.calls)
    }

    /// Waits until the node must be tested: it refused a call, or failed the last self-test.
    pub(super) async fn wait_until_suspected(&self) {
        let is_refusing = self.state.lock().outage.is_some();
        if !is_refusing {
            self.calls.refused().await;
        }
    }

    /// Records the result of a self-test.
    ///
    /// # Errors
    /// The connection cannot be used, with the cause.
    pub(super) fn record_test(&self, result: SelfTestResult) -> Result<(), String> {
        let (mut state, last) = (self.state.lock(), self.calls.take_last());
        match result {
            SelfTestResult::Failed(cause) => return Err(cause),
            SelfTestResult::Refused(cause) => match &state.outage {
                Some(outage) => outage.record_failure(&cause),
                None => state.outage = Some(self.outages.begin_refusal(&cause)),
            },
            SelfTestResult::Passed(denied) => match (last, denied) {
                // Since the last self-test, the node has refused a call: it may be about to run out of memory again.
                (Some(_), _) if state.outage.is_some() => {}
                (Some(refused), _) => state.warn("store refuses some calls", &refused),
                (None, denied) => {
                    state.outage.take().into_iter().for_each(Outage::recovered);
                    denied
                        .iter()
                        .for_each(|denied| state.warn("store refuses commands that some features need", denied));
                }
            },
        }
        Ok(())
    }

    /// Ends the outage of a node that is no longer used.
    pub(super) fn forget(&self) {
        self.state.lock().outage = None;
    }
}

impl State {
    fn warn(&mut self, event: &'static str, error: &str) {
        let pause = |(_, text): &(Instant, String)| if text == error { SAME_WARN_INTERVAL } else { WARN_INTERVAL };
        if self.warned.as_ref().is_none_or(|warned| warned.0.elapsed() >= pause(warned)) {
            self.warned = Some((Instant::now(), error.to_owned()));
            tracing::warn!(error, "{event}");
        }
    }
}
