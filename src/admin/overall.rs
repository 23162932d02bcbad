//! The permits in use of OVERALL limits, for `/api/v1/limits`. They are read at most once a second for all callers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::limit_list::all;
use tidegate_config::Config;
use tidegate_limit::Mode;
use tidegate_rules::charge::Charge;
use tidegate_store::{Inspection, Store};

/// How long the permits are reused.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The maximum number of limits whose permits are read: the first of the rule file.
const MAX_LIMITS: usize = 64;

/// The permits of all OVERALL limits. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct OverallPermits(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store,
    /// The charges, with the positions of their limits in the list of all limits.
    charges: Vec<(usize, Charge)>,
    last: Mutex<Option<Permits>>,
}

#[derive(Debug)]
struct Permits {
    asked_at: Instant,
    /// The permits of each charge as JSON; `None` if the store did not reply.
    shown: Vec<Option<Value>>,
}

impl OverallPermits {
    pub(super) fn new(config: &Config, store: Store) -> Self {
        let limits = all(config).map(|listed| listed.limit).enumerate();
        let overall = limits.filter(|(_, limit)| limit.mode() == Mode::Overall).take(MAX_LIMITS);
        let charge = |(position, limit): (usize, &tidegate_rules::limits::rule::Limit)| {
            (position, Charge { shadow: limit.shadow, ..Charge::new(limit.limiter.clone(), None, 1) })
        };
        Self(Arc::new(Shared { store, charges: overall.map(charge).collect(), last: Mutex::default() }))
    }

    /// Adds the permits to the list of all limits. PER_CLIENT limits, OVERALL limits after the first 64, and limits
    /// without a reply have `null`.
    pub(super) async fn add_permits(&self, limits: &mut Value) {
        let shared = Arc::clone(&self.0);
        // A separate task: a client that disconnects must not cancel calls that other clients wait for.
        let read = tokio::spawn(async move { shared.read().await }).await.unwrap_or_default();
        let Some(limits) = limits.as_array_mut() else { return };
        limits.iter_mut().for_each(|limit| limit["permits"] = Value::Null);
        for ((position, _), shown) in self.0.charges.iter().zip(read) {
            if let (Some(limit), Some(shown)) = (limits.get_mut(*position), shown) {
                limit["permits"] = shown;
            }
        }
    }
}

impl Shared {
    async fn read(&self) -> Vec<Option<Value>> {
        let mut last = self.last.lock().await;
        if let Some(permits) = last.as_ref().filter(|permits| permits.asked_at.elapsed() < MAX_AGE) {
            return permits.shown.clone();
        }
        let asked_at = Instant::now();
        let inspections = join_all(self.charges.iter().map(|(_, charge)| self.store.inspect(charge))).await;
        let read = inspections.into_iter().zip(&self.charges);
        let shown: Vec<_> = read.map(|(read, (_, charge))| Some(show(&read.ok()?, charge))).collect();
        *last = Some(Permits { asked_at, shown: shown.clone() });
        shown
    }
}

/// Returns the permits of a limit as JSON; of a budget, also the reservations and the debt.
fn show(inspection: &Inspection, charge: &Charge) -> Value {
    let mut shown = json!({ "used": inspection.used, "remaining": inspection.remaining });
    if let Some(reserved) = inspection.reserved {
        shown["reserved"] = reserved.into();
        shown["debt"] = inspection.debt(charge.limiter.quota.full()).into();
    }
    shown
}
