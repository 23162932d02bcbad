//! Decides whether a request is admitted: makes all of its charges or none, and returns a [`Permit`] or a [`Denial`].
//!
//! Only this module creates permits, and no request is forwarded without one.
//!
//! A refused request may wait if every limit that refused it allows this (`max_wait`). It waits in the queue (`queue`) of
//! the narrowest of these limits, and retries when its permits have returned; [`wait`](tidegate_rules::evaluation::wait)
//! has the steps. It is charged when it is admitted; a request whose client disconnects before is not charged.

mod charge_on;
mod concurrency;
mod once;
mod queue;
mod waiting;

use tokio::time::Instant;

pub use self::charge_on::{charge_by_response, give_back, give_back_all};
use self::concurrency::SlotAsk;
pub use self::concurrency::{NewRequest, RequestInFlight};
pub use self::once::OnceAsk;
pub use self::queue::WaitQueues;
pub use self::waiting::RouteWaits;
use self::waiting::Waiting;
use tidegate_limit::Wait;
use tidegate_limit::boxed::boxed;
use tidegate_rules::charge::Charge;
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
        /// The longest wait of the limits that refused.
        wait: Wait,
        /// The error of the store, if this gateway's shares of the limits refused instead.
        unchecked: Option<StoreError>,
    },
    /// The store did not decide, and a limit has `on_store_failure: deny`.
    StoreFailed(StoreError),
    /// The limits grant it, and too many requests are in flight. Nothing is charged.
    Busy {
        /// The bounds that are reached.
        full: Full,
    },
}

/// The result of one attempt to admit a request.
struct Attempt {
    /// Whether the charges have their decisions.
    limits: Result<(), StoreError>,
    /// The slot, if the request needs one.
    slot: Option<Result<InFlightSlot, Full>>,
}

/// Returns why the store did not decide; `None` if it did.
pub fn store_failure(admitted: &Result<Admitted, Denial>) -> Option<&StoreError> {
    match admitted {
        Ok(Admitted { unchecked, .. }) | Err(Denial::Limited { unchecked, .. }) => unchecked.as_ref(),
        Err(Denial::StoreFailed(error)) => Some(error),
        Err(Denial::Busy { .. }) => None,
    }
}

/// Makes all charges of a request or none, and adds their decisions. Waits for permits if one of its limits
/// [allows it](may_wait), and counts the wait. `waits` is `None` if no limit of the route allows it, and boxed, so that
/// other routes do not pay for its memory.
///
/// # Errors
/// See [`Denial`].
#[expect(clippy::manual_async_fn, reason = "the future of an async fn stores its arguments twice")]
pub fn admit(
    store: &Store,
    queues: &WaitQueues,
    charges: &mut Charges<'_>,
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
            return to_admission(store, Attempt { limits, slot: None }, charges);
        }
        boxed(|| admit_without_waiting(store, charges)).await
    }
}

/// Like [`admit`], without waits, and with an earlier deadline than the store's.
///
/// # Errors
/// See [`Denial`].
pub async fn admit_until(store: &Store, charges: &mut Charges<'_>, deadline: Instant) -> Result<Admitted, Denial> {
    if charges.is_empty() {
        return Ok(admit_unlimited());
    }
    let limits = match decide_immediately(store, charges) {
        Some(limits) => limits,
        None => store.take_until(charges.as_slice(), deadline).await.map(|outcome| charges.decide(outcome)),
    };
    to_admission(store, Attempt { limits, slot: None }, charges)
}

/// Makes all charges of a request with an id or none, unless there is a result of an earlier request:
/// [`OnceAsk::earlier`]. `waits` has the id.
///
/// # Errors
/// See [`Denial`].
pub async fn admit_once(
    store: &Store,
    queues: &WaitQueues,
    charges: &mut Charges<'_>,
    waits: RouteWaits<'_>,
) -> Result<Admitted, Denial> {
    let Some(once) = waits.once else { return admit(store, queues, charges, Some(Box::new(waits))).await };
    if !charges.iter().any(|entry| may_wait(entry.limit)) {
        let attempt = once.take(store, charges, None).await;
        return to_admission(store, attempt, charges);
    }
    // A repeated request neither waits behind others, nor is it refused by the decision about another request.
    if once.look_up(store).await {
        return Ok(admit_unlimited());
    }
    let admitted = boxed(|| admit_with_waiting(store, queues, charges, waits, None)).await;
    if matches!(admitted, Err(Denial::Limited { .. })) && once.look_up(store).await {
        return Ok(admit_unlimited());
    }
    admitted
}

/// Makes all charges of a request and takes a slot, or does nothing. Does not wait for a slot.
///
/// # Errors
/// See [`Denial`].
async fn admit_with_slot(
    store: &Store,
    queues: &WaitQueues,
    charges: &mut Charges<'_>,
    waits: Option<RouteWaits<'_>>,
    ask: &SlotAsk<'_>,
) -> Result<Admitted, Denial> {
    if let Some(waits) = waits {
        return admit_with_waiting(store, queues, charges, waits, Some(ask)).await;
    }
    let attempt = match is_known_refusal(store, charges, |entry| entry.limit.wait_policy.is_none()) {
        true => Attempt { limits: Ok(()), slot: None },
        false => decide(store, charges, None, Some(ask)).await,
    };
    to_admission(store, attempt, charges)
}

/// Admits a request without limits.
pub fn admit_unlimited() -> Admitted {
    Admitted { permit: Permit(()), unchecked: None, slot: None }
}

/// Decides without I/O, if possible: the store is in memory, or a cached refusal applies.
fn decide_immediately(store: &Store, charges: &mut Charges<'_>) -> Option<Result<(), StoreError>> {
    match store.take_immediately(charges.as_slice()) {
        Some(taken) => Some(taken.map(|outcome| charges.decide(outcome))),
        None => is_known_refusal(store, charges, |entry| entry.limit.wait_policy.is_none()).then_some(Ok(())),
    }
}

/// Decides a request that cannot wait, if the store needs I/O.
async fn admit_without_waiting(store: &Store, charges: &mut Charges<'_>) -> Result<Admitted, Denial> {
    let limits = store.take(charges.as_slice()).await.map(|outcome| charges.decide(outcome));
    to_admission(store, Attempt { limits, slot: None }, charges)
}

/// Decides a request that may wait. Retries without the adopted limits if Java has not configured one of them.
async fn admit_with_waiting(
    store: &Store,
    queues: &WaitQueues,
    charges: &mut Charges<'_>,
    waits: RouteWaits<'_>,
    ask: Option<&SlotAsk<'_>>,
) -> Result<Admitted, Denial> {
    match admit_from_queue(store, queues, charges, waits, ask).await {
        Ok(Admitted { unchecked: Some(error), slot, .. }) if error.is_about_adopted() => {
            let mut others = charges.only(|entry| !is_adopted(entry));
            charges.decide_only(&others);
            if others.is_empty() {
                return Ok(Admitted { unchecked: Some(error), slot, ..admit_unlimited() });
            }
            drop(slot);
            let admitted = admit_from_queue(store, queues, &mut others, waits, ask).await;
            charges.decide_only(&others);
            let admitted = admitted?;
            Ok(Admitted { unchecked: admitted.unchecked.or(Some(error)), ..admitted })
        }
        admitted => admitted,
    }
}

/// Decides in the order of the wait queues, and retries while the limits that refuse let the request wait.
async fn admit_from_queue(
    store: &Store,
    queues: &WaitQueues,
    charges: &mut Charges<'_>,
    waits: RouteWaits<'_>,
    ask: Option<&SlotAsk<'_>>,
) -> Result<Admitted, Denial> {
    let mut waiting = Waiting::new(store, queues, charges, waits);
    let admitted = admit_in_order(&mut waiting, ask).await;
    waiting.end(admitted.is_ok());
    admitted
}

async fn admit_in_order(waiting: &mut Waiting<'_, '_>, ask: Option<&SlotAsk<'_>>) -> Result<Admitted, Denial> {
    loop {
        waiting.wait_until_first().await?;
        waiting.limit_delays();
        let attempt = match waiting.is_refused_without_decision().await? {
            true => Attempt { limits: Ok(()), slot: None },
            false => waiting.take(ask).await,
        };
        match to_admission(waiting.store, attempt, waiting.charges) {
            Ok(admitted) => return waiting.wait_for_time_slot(admitted).await,
            Err(Denial::Limited { wait, unchecked }) if !ask.is_some_and(|ask| ask.is_queued) => {
                waiting.wait_for_permits(wait, unchecked).await?;
            }
            Err(denial) => return Err(denial),
        }
    }
}

/// Asks the store, with `ticketed` instead of the charges if there are any. A request behind others that wait for a slot
/// only reads its limits, if the store replies.
async fn decide(
    store: &Store,
    charges: &mut Charges<'_>,
    ticketed: Option<Vec<Charge>>,
    ask: Option<&SlotAsk<'_>>,
) -> Attempt {
    if let Some(ask) = ask.filter(|ask| ask.waited_for != Full::default())
        && let Ok(outcome) = store.take(&charges.reads()).await
    {
        charges.decide(outcome);
        return Attempt { limits: Ok(()), slot: Some(Err(ask.waited_for)) };
    }
    let requested = ticketed.as_deref().unwrap_or(charges.as_slice());
    let (limits, slot) = match ask {
        None => (store.take(requested).await, None),
        Some(ask) => {
            let TakenWithSlot { limits, in_flight_slot } = store.take_with_slot(requested, ask.request).await;
            (limits, Some(in_flight_slot))
        }
    };
    Attempt { limits: limits.map(|outcome| charges.decide(outcome)), slot }
}

/// Converts the decisions about a request to an admission or a denial.
fn to_admission(store: &Store, attempt: Attempt, charges: &mut Charges<'_>) -> Result<Admitted, Denial> {
    let unchecked = attempt.limits.err();
    if let Some(error) = &unchecked {
        charges.forget_decisions();
        if let Some(Err(full)) = attempt.slot {
            return Err(Denial::Busy { full }); // without a slot, nothing is charged
        }
        decide_without_store(store, charges, error)?;
    }
    match (charges.wait(), attempt.slot.transpose()) {
        (Wait::Now, Ok(slot)) => Ok(Admitted { unchecked, slot, ..admit_unlimited() }),
        (Wait::Now, Err(full)) => Err(Denial::Busy { full }),
        (wait, _) => Err(Denial::Limited { wait, unchecked }),
    }
}

/// Decides by the `on_store_failure` of each limit. Limits with `local` are decided by this gateway's share.
///
/// # Errors
/// A limit has `on_store_failure: deny`.
fn decide_without_store(store: &Store, charges: &mut Charges<'_>, error: &StoreError) -> Result<(), Denial> {
    if denying(charges, error).is_some() {
        return Err(Denial::StoreFailed(error.clone()));
    }
    let mut local = charges.only(|entry| is_decided_locally(entry, error));
    if !local.is_empty()
        && let Ok(outcome) = store.take_locally(local.as_slice())
    {
        local.decide_locally(outcome);
        charges.decide_only(&local);
    }
    Ok(())
}

/// Returns the first limit that denies a request when the store fails so.
pub fn denying<'c>(charges: &'c Charges<'_>, error: &StoreError) -> Option<LimitCharge<'c>> {
    let denies =
        |entry: &LimitCharge<'_>| entry.limit.on_store_failure == OnStoreFailure::Deny && applies_to(entry, error);
    charges.iter().find(|entry| !entry.limit.shadow && denies(entry))
}

/// Returns `true` if the request may not wait for a limit with a cached refusal: then it is rejected without asking the
/// store. `is_final` returns `true` if the request may not wait for a limit that refused it.
fn is_known_refusal(store: &Store, charges: &mut Charges<'_>, is_final: impl Fn(&LimitCharge<'_>) -> bool) -> bool {
    let Some(outcome) = store.known_refusal(charges.as_slice()) else { return false };
    charges.decide(outcome);
    charges.refusing().any(|entry| is_final(&entry))
}

/// Returns `true` if this gateway's share of the limit decides after this error.
fn is_decided_locally(entry: &LimitCharge<'_>, error: &StoreError) -> bool {
    entry.limit.on_store_failure == OnStoreFailure::Local && applies_to(entry, error)
}

/// Returns `true` if the error concerns this limit. An error about adopted limits concerns only them.
fn applies_to(entry: &LimitCharge<'_>, error: &StoreError) -> bool {
    is_adopted(entry) || !error.is_about_adopted()
}

/// Returns `true` if this limit may need more than one decision: it lets requests wait, assigns time slots, or is
/// adopted.
pub fn may_wait(limit: &Limit) -> bool {
    let quota = &limit.limiter.quota;
    limit.wait_policy.is_some() || quota.algorithm().has_time_slots() || quota.is_adopted()
}

fn is_adopted(entry: &LimitCharge<'_>) -> bool {
    entry.limit.limiter.quota.is_adopted()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest allocation that the allocator serves from its size classes.
    const SMALL_ALLOCATION: usize = 1024;

    #[test]
    fn future_of_a_decision_fits_into_a_small_allocation() {
        let (store, mut charges) = (Store::memory(), Charges::default());
        let size = size_of_val(&admit_without_waiting(&store, &mut charges));
        assert!(size <= SMALL_ALLOCATION, "{size}");
    }
}
