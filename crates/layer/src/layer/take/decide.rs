//! Decides a request for permits.

use std::time::Duration;

use tokio::time::Instant;

use super::buckets::Buckets;
use super::effect::{Bucket, Effect};
use super::{Take, TakeError, Taken, TakenLimit};
use crate::admission::{Admitted, Denial, OnceAsk, RouteWaits, admit, admit_once, may_wait, store_failure};
use crate::layer::active::Active;
use crate::layer::{LayerState, RateLimitLayer};
use crate::limit_counters::Verdict;
use tidegate_limit::Wait;
use tidegate_metrics::CallResult;
use tidegate_rules::charge::Decision;
use tidegate_rules::rules::{Charges, LimitCharge};
use tidegate_store::{ReturnedOnce, Store, StoreError, TakenOnce};

impl RateLimitLayer {
    /// Counts a request for permits, and the time until its response.
    #[doc(hidden)]
    pub fn count_take(&self, result: CallResult, took: Duration) {
        self.state.active.load().rules.domains.takes().calls.answered(result, took);
    }

    /// Takes permits of all named limits, or none. Limits with `concurrency`, conditions (`when`) and `charge_on` are charged like
    /// all others.
    ///
    /// If the returned future is dropped during a call to Redis, the permits may have been taken; they return with time.
    ///
    /// # Errors
    /// See [`TakeError`].
    #[doc(hidden)]
    pub async fn take(&self, take: &Take) -> Result<Taken, TakeError> {
        let active = self.state.active.load_full();
        let store = self.state.store(&active);
        match self.state.decide_take(&active, store, take).await {
            // The rules may have changed since the request with this id was granted.
            Err(error) if error.is_about_rules() => of_receipt(store, take).await.unwrap_or(Err(error)),
            taken => taken,
        }
    }

    /// Gives back the permits of the granted request with this id, at most once. Algorithms treat them as permits of a request that no
    /// upstream has received.
    ///
    /// # Errors
    /// The store did not reply. The permits may have been given back.
    #[doc(hidden)]
    pub async fn return_permits(&self, id: &str) -> Result<ReturnedOnce, StoreError> {
        let active = self.state.active.load_full();
        self.state.store(&active).return_once(id.as_bytes()).await
    }
}

impl LayerState {
    /// Decides a request by the active rules.
    async fn decide_take(&self, active: &Active, store: &Store, take: &Take) -> Result<Taken, TakeError> {
        let found = take.requests.iter().map(|request| Effect::find(active, store, request));
        let effects: Vec<Effect<'_>> = found.collect::<Result<_, _>>()?;
        let buckets = Buckets::new(take, &effects)?;
        if buckets.has_zero
            && let Some(earlier) = of_receipt(store, take).await
        {
            return earlier;
        }
        let limits = buckets.limits(take.max_wait);
        let mut charges = buckets.charges(take, &limits);
        let once = buckets.once(take);
        if once.is_some() && !store.can_take_once(charges.as_slice()) {
            return Err(TakeError::Apart);
        }
        let metrics = &active.rules.domains.takes().waits;
        let waits = RouteWaits { metrics, deadline: Some(Instant::now() + take.max_wait), once: once.as_ref() };
        let admitted = self.admit_take(store, &mut charges, waits).await;
        let mut limits: Vec<TakenLimit> = effects.iter().map(TakenLimit::before).collect();
        if let Some(earlier) = once.as_ref().and_then(OnceAsk::earlier) {
            return repeated(earlier, limits);
        }
        self.count_take(store, &buckets, &charges, &admitted);
        let wait = match admitted {
            Ok(_) | Err(Denial::Limited { .. }) if buckets.has_zero => Wait::Never,
            Ok(_) => Wait::Now,
            Err(Denial::Limited { wait, .. }) => wait,
            Err(Denial::Busy { .. }) => Wait::Millis(1), // no route bounds these requests
            Err(Denial::StoreFailed(error)) => return Err(TakeError::StoreFailed(error)),
        };
        for (entry, position) in charges.iter().zip(buckets.positions()) {
            limits[position] = TakenLimit::decided(entry);
        }
        let is_remembered = take.id.as_ref().map(|_| once.is_some_and(|once| once.has_receipt()));
        Ok(Taken { is_granted: wait == Wait::Now, wait, limits, is_remembered, is_repeated: false })
    }

    /// Makes all charges or none. Waits until the deadline of `waits`.
    async fn admit_take(
        &self,
        store: &Store,
        charges: &mut Charges<'_>,
        waits: RouteWaits<'_>,
    ) -> Result<Admitted, Denial> {
        if waits.once.is_some() {
            return admit_once(store, &self.queues, charges, waits).await;
        }
        let may_wait = charges.iter().any(|entry| may_wait(entry.limit));
        admit(store, &self.queues, charges, may_wait.then(|| Box::new(waits))).await
    }

    /// Counts the decision of each limit, and the clients that it rejects.
    fn count_take(
        &self,
        store: &Store,
        buckets: &Buckets<'_, '_>,
        charges: &Charges<'_>,
        admitted: &Result<Admitted, Denial>,
    ) {
        let verdict = Verdict::new(charges, admitted);
        for (entry, (_, Bucket { counters, index, .. })) in charges.iter().zip(buckets.iter()) {
            counters.count_one(*index, &entry, verdict, |refusing| {
                if let (Some(rejected), Some(limit)) = (&self.options.rejected, counters.id(*index)) {
                    rejected.record(self.worker.unwrap_or(0), limit, refusing.charge.client.as_ref(), store);
                }
            });
        }
        if let Some(error) = store_failure(admitted) {
            self.metrics.store_failed(error.cause());
        }
    }
}

/// Returns the decision of an earlier request with the id, if there is a receipt.
async fn of_receipt(store: &Store, take: &Take) -> Option<Result<Taken, TakeError>> {
    let earlier = store.find_receipt(&take.once_id()?).await.ok()??;
    Some(repeated(&earlier, vec![TakenLimit::UNKNOWN; take.requests.len()]))
}

/// Returns the decision of an earlier request with the id. `limits` are the decisions without their buckets.
fn repeated(earlier: &TakenOnce, mut limits: Vec<TakenLimit>) -> Result<Taken, TakeError> {
    let decisions = match earlier {
        TakenOnce::Repeated(decisions) => decisions,
        TakenOnce::Returned => return Err(TakeError::Returned),
        TakenOnce::NoCapacity => return Err(TakeError::NoCapacity),
        // The decision of this request is no result of an earlier one.
        TakenOnce::OtherRequest | TakenOnce::Decided(_) => return Err(TakeError::OtherRequest),
    };
    // A limit that is not in the receipt did not refuse.
    limits.fill(TakenLimit::UNKNOWN);
    for (position, decision) in decisions {
        if let Some(limit) = limits.get_mut(usize::from(*position)) {
            *limit = TakenLimit::granted(decision);
        }
    }
    Ok(Taken { is_granted: true, wait: Wait::Now, limits, is_remembered: Some(true), is_repeated: true })
}

impl TakenLimit {
    /// The decision of a limit that is not asked, and does not refuse.
    const UNKNOWN: Self = Self { is_granted: true, remaining: None, wait: Wait::Now, reset: None };

    /// Creates the decision of a limit before its bucket is asked.
    const fn before(effect: &Effect<'_>) -> Self {
        match effect {
            Effect::Zero { shadow: false } => {
                Self { is_granted: false, remaining: Some(0), wait: Wait::Never, reset: None }
            }
            Effect::Pass | Effect::Zero { shadow: true } | Effect::Bucket(_) => Self::UNKNOWN,
        }
    }

    /// Creates the decision of a limit whose bucket was asked.
    fn decided(LimitCharge { limit, decision, .. }: LimitCharge<'_>) -> Self {
        match decision {
            None => Self::UNKNOWN,
            Some(decision) if decision.granted || limit.shadow => Self::granted(decision),
            Some(decision) => Self { is_granted: false, wait: decision.wait, ..Self::granted(decision) },
        }
    }

    /// Creates the decision of a limit that does not refuse.
    const fn granted(decision: &Decision) -> Self {
        Self { is_granted: true, remaining: Some(decision.remaining), wait: Wait::Now, reset: Some(decision.reset) }
    }
}
