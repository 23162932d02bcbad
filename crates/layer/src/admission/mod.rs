//! Decides whether a request is admitted: makes all of its charges or none, and returns a [`Permit`] or a [`Denial`].
//!
//! Only this module creates permits, and no request is forwarded without one.
//!
//! A refused request may wait if every limit that refused it allows this (`max_wait`). It waits in the
//! queue (`queue`) of the narrowest (`order`) of these limits, and retries when its permits have returned. It is
//! charged when it is admitted; a request whose client disconnects before is not charged.

mod concurrency;
mod order;
mod queue;
mod receipt;
mod status;
mod waiting;

use self::concurrency::SlotAsk;
pub use self::concurrency::{NewRequest, RequestInFlight};
pub use self::order::narrowest_first;
pub use self::queue::MAX_LATENESS;
pub use self::queue::WaitQueues;
pub use self::receipt::Receipt;
pub use self::status::LimitStatus;
pub use self::waiting::RouteWaits;
use self::waiting::Waiting;
use tidegate_limit::boxed::boxed;
use tidegate_limit::{Algorithm, Charge, Wait};
use tidegate_rules::limits::rule::{Limit, OnStoreFailure};
use tidegate_rules::rules::{Charges, LimitCharge};
use tidegate_store::{Full, InFlightSlot, Store, StoreError, TakenWithSlot};

/// The proof that the limits have admitted a request.
#[must_use]
#[derive(Clone, Debug)]
pub struct Permit(());

/// An admitted request.
#[derive(Debug)]
pub struct Admitted {
    pub permit: Permit,
    pub status: LimitStatus,
    /// The error of the store, if it did not decide and `on_store_failure` admitted the request.
    pub unchecked: Option<StoreError>,
    /// The slot, if the route bounds its requests in flight.
    slot: Option<InFlightSlot>,
}

/// Why a request is rejected.
#[derive(Debug)]
pub enum Denial {
    /// Limits refused it.
    Limited {
        /// The decisions of all limits.
        status: LimitStatus,
        /// The longest wait of the limits that refused.
        wait: Wait,
    },
    /// The store did not decide, and a limit has `on_store_failure: deny`.
    StoreFailed(StoreError),
    /// The limits grant it, and too many requests are in flight. Nothing is charged.
    Busy {
        /// The bounds that are reached.
        full: Full,
        /// The decisions of all limits.
        status: Box<LimitStatus>,
    },
}

/// The decisions about a request, and its slot if it needs one.
struct Decided {
    limits: Result<LimitStatus, StoreError>,
    slot: Option<Result<InFlightSlot, Full>>,
}

/// Returns why the store did not decide; `None` if it did.
pub fn store_failure(admitted: &Result<Admitted, Denial>) -> Option<&StoreError> {
    match admitted {
        Ok(Admitted { unchecked, .. }) => unchecked.as_ref(),
        Err(Denial::StoreFailed(error)) => Some(error),
        Err(Denial::Limited { status, .. }) => status.fallback_cause.as_ref(),
        Err(Denial::Busy { .. }) => None,
    }
}

/// Makes all charges of a request, or none. Waits for permits if one of its limits [allows it](may_wait), and counts
/// the wait. `waits` is `None` if no limit of the route allows it, and boxed, so that other routes do not pay for its
/// memory.
///
/// # Errors
/// See [`Denial`].
#[expect(clippy::manual_async_fn, reason = "the future of an async fn stores its arguments twice")]
pub fn admit(
    store: &Store,
    queues: &WaitQueues,
    charges: &Charges<'_>,
    waits: Option<Box<RouteWaits<'_>>>,
) -> impl Future<Output = Result<Admitted, Denial>> {
    async move {
        if charges.is_empty() {
            return Ok(admit_unlimited());
        }
        // Futures are made in their boxes, so that requests that are decided immediately do not pay for their memory.
        if let Some(waits) = waits {
            return boxed(|| admit_with_waiting(store, queues, charges, *waits, None)).await;
        }
        if let Some(limits) = decide_immediately(store, charges) {
            return to_admission(store, Decided { limits, slot: None }, charges);
        }
        boxed(|| admit_without_waiting(store, charges)).await
    }
}

/// Makes all charges of a request and takes a slot, or does nothing. Does not wait for a slot.
///
/// # Errors
/// See [`Denial`].
async fn admit_with_slot(
    store: &Store,
    queues: &WaitQueues,
    charges: &Charges<'_>,
    waits: Option<RouteWaits<'_>>,
    ask: &SlotAsk<'_>,
) -> Result<Admitted, Denial> {
    if let Some(waits) = waits {
        return admit_with_waiting(store, queues, charges, waits, Some(ask)).await;
    }
    let decided = match known_refusal(store, charges, |one, _| one.limit.wait_policy.is_none()) {
        Some(refused) => Decided { limits: Ok(refused), slot: None },
        None => decide(store, charges, Some(ask)).await,
    };
    to_admission(store, decided, charges)
}

/// Admits a request without limits.
pub fn admit_unlimited() -> Admitted {
    Admitted { permit: Permit(()), status: LimitStatus::default(), unchecked: None, slot: None }
}

/// Decides without I/O, if possible: the store is in memory, or a cached refusal applies.
fn decide_immediately(store: &Store, charges: &Charges<'_>) -> Option<Result<LimitStatus, StoreError>> {
    match store.take_immediately(charges.as_slice()) {
        Some(taken) => Some(taken.map(|outcome| LimitStatus::new(charges, outcome))),
        None => known_refusal(store, charges, |one, _| one.limit.wait_policy.is_none()).map(Ok),
    }
}

/// Decides a request that cannot wait, if the store needs I/O.
async fn admit_without_waiting(store: &Store, charges: &Charges<'_>) -> Result<Admitted, Denial> {
    let limits = store.take(charges.as_slice()).await.map(|outcome| LimitStatus::new(charges, outcome));
    to_admission(store, Decided { limits, slot: None }, charges)
}

/// Decides a request that may wait. Retries without the adopted limits if Java has not configured one of them.
async fn admit_with_waiting(
    store: &Store,
    queues: &WaitQueues,
    charges: &Charges<'_>,
    waits: RouteWaits<'_>,
    ask: Option<&SlotAsk<'_>>,
) -> Result<Admitted, Denial> {
    match admit_from_queue(store, queues, charges, waits, ask).await {
        Ok(Admitted { unchecked: Some(error), slot, .. }) if error.is_about_adopted() => {
            let others = charges.only(|one| !is_adopted(one));
            if others.is_empty() {
                return Ok(Admitted { unchecked: Some(error), slot, ..admit_unlimited() });
            }
            drop(slot);
            let admitted = admit_from_queue(store, queues, &others, waits, ask).await?;
            Ok(Admitted { unchecked: admitted.unchecked.or(Some(error)), ..admitted })
        }
        admitted => admitted,
    }
}

/// Decides in the order of the wait queues, and retries while the limits that refuse let the request wait.
async fn admit_from_queue(
    store: &Store,
    queues: &WaitQueues,
    charges: &Charges<'_>,
    waits: RouteWaits<'_>,
    ask: Option<&SlotAsk<'_>>,
) -> Result<Admitted, Denial> {
    let mut waiting = Waiting::new(store, queues, charges, waits);
    let admitted = admit_in_order(&mut waiting, store, charges, ask).await;
    waiting.end(admitted.is_ok());
    admitted
}

async fn admit_in_order(
    waiting: &mut Waiting<'_>,
    store: &Store,
    charges: &Charges<'_>,
    ask: Option<&SlotAsk<'_>>,
) -> Result<Admitted, Denial> {
    loop {
        waiting.wait_until_first().await?;
        let timely = waiting.timely_charges();
        let charges = timely.as_deref().unwrap_or(charges);
        let decided = match waiting.refusal_without_decision(charges).await? {
            Some(refused) => Decided { limits: Ok(refused), slot: None },
            None => waiting.take(charges, ask).await,
        };
        match to_admission(store, decided, charges) {
            Ok(admitted) => return waiting.wait_for_time_slot(admitted).await,
            Err(Denial::Limited { status, wait }) if !ask.is_some_and(|ask| ask.is_queued) => {
                waiting.wait_for_permits(status, wait).await?;
            }
            Err(denial) => return Err(denial),
        }
    }
}

/// Asks the store. A request behind others that wait for a slot only reads its limits, if the store replies.
async fn decide(store: &Store, charges: &Charges<'_>, ask: Option<&SlotAsk<'_>>) -> Decided {
    decide_as(store, charges, charges.as_slice(), ask).await
}

/// The same, with these charges for the store.
async fn decide_as(store: &Store, charges: &Charges<'_>, asked: &[Charge], ask: Option<&SlotAsk<'_>>) -> Decided {
    let status = |outcome| LimitStatus::new(charges, outcome);
    let Some(ask) = ask else { return Decided { limits: store.take(asked).await.map(status), slot: None } };
    if ask.waited_for != Full::default()
        && let Ok(outcome) = store.take(&charges.reads()).await
    {
        return Decided { limits: Ok(status(outcome)), slot: Some(Err(ask.waited_for)) };
    }
    let TakenWithSlot { limits, in_flight_slot } = store.take_with_slot(asked, ask.request).await;
    Decided { limits: limits.map(status), slot: Some(in_flight_slot) }
}

/// Converts the decisions about a request to an admission or a denial.
fn to_admission(store: &Store, decided: Decided, charges: &Charges<'_>) -> Result<Admitted, Denial> {
    let (status, unchecked) = match (decided.limits, &decided.slot) {
        (Ok(status), _) => (status, None),
        (Err(_), Some(Err(_))) => (LimitStatus::default(), None), // without a slot, nothing is charged
        (Err(error), _) => (decide_without_store(store, charges, &error)?, Some(error)),
    };
    match (status.wait, decided.slot.transpose()) {
        (Wait::Now, Ok(slot)) => Ok(Admitted { status, unchecked, slot, ..admit_unlimited() }),
        (Wait::Now, Err(full)) => Err(Denial::Busy { full, status: Box::new(status) }),
        (wait, _) => Err(Denial::Limited { status, wait }),
    }
}

/// Decides by the `on_store_failure` of each limit. Limits with `local` are decided by this gateway's share.
///
/// # Errors
/// A limit has `on_store_failure: deny`.
fn decide_without_store(store: &Store, charges: &Charges<'_>, error: &StoreError) -> Result<LimitStatus, Denial> {
    if denying(charges, error).is_some() {
        return Err(Denial::StoreFailed(error.clone()));
    }
    let local = charges.only(|one| is_decided_locally(one, error));
    if local.is_empty() {
        return Ok(LimitStatus::default());
    }
    let decided = store.take_locally(local.as_slice());
    Ok(decided
        .map_or_else(|_| LimitStatus::default(), |outcome| LimitStatus::new_local(&local, outcome, error.clone())))
}

/// Returns the first limit that denies a request when the store fails so.
pub fn denying<'c>(charges: &'c Charges<'_>, error: &StoreError) -> Option<LimitCharge<'c>> {
    let denies = |one: &LimitCharge<'_>| one.limit.on_store_failure == OnStoreFailure::Deny && applies_to(one, error);
    charges.iter().find(|one| !one.limit.shadow && denies(one))
}

/// Returns the cached refusals if the request may not wait for one of them: then it is rejected without asking the
/// store. `is_final` returns `true` if the request may not wait for a limit that refused it.
fn known_refusal(
    store: &Store,
    charges: &Charges<'_>,
    is_final: impl Fn(&LimitCharge<'_>, &LimitStatus) -> bool,
) -> Option<LimitStatus> {
    let status = LimitStatus::from_known(charges, store.known_refusal(charges.as_slice())?);
    let is_rejected = status.refusing(charges).any(|one| is_final(&one, &status));
    is_rejected.then_some(status)
}

/// Returns `true` if this gateway's share of the limit decides after this error.
fn is_decided_locally(one: &LimitCharge<'_>, error: &StoreError) -> bool {
    one.limit.on_store_failure == OnStoreFailure::Local && applies_to(one, error)
}

/// Returns `true` if the error concerns this limit. An error about adopted limits concerns only them.
fn applies_to(one: &LimitCharge<'_>, error: &StoreError) -> bool {
    is_adopted(one) || !error.is_about_adopted()
}

/// Returns `true` if this limit may need more than one decision: it lets requests wait, assigns time slots, or is
/// adopted.
pub fn may_wait(limit: &Limit) -> bool {
    let quota = &limit.limiter.quota;
    limit.wait_policy.is_some() || matches!(quota.algorithm(), Algorithm::LeakyBucket(_)) || quota.is_adopted()
}

fn is_adopted(one: &LimitCharge<'_>) -> bool {
    one.limit.limiter.quota.is_adopted()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_rules::rules::LimitPositions;

    /// The largest allocation that the allocator serves from its size classes.
    const SMALL_ALLOCATION: usize = 1024;

    #[test]
    fn future_of_a_decision_fits_into_a_small_allocation() {
        let (store, charges) = (Store::memory(), Charges::from_parts(&[], LimitPositions::default(), Vec::new()));
        let size = size_of_val(&admit_without_waiting(&store, &charges));
        assert!(size <= SMALL_ALLOCATION, "{size}");
    }
}
