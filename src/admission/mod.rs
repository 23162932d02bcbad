//! May this request go on? All its charges are made or none, and the answer is a [`Permit`] or a [`Denial`].
//!
//! Only this module makes permits, and no request is forwarded without one.
//!
//! A refused request may wait, if every limit that refused it lets it (`max_wait`). It waits in a
//! [queue](mod@queue) and asks again when its permits have returned. It is charged when it goes on; one whose client leaves
//! before is not charged.

mod queue;
mod receipt;
mod status;
mod waiting;

pub(crate) use self::queue::WaitQueues;
pub(crate) use self::receipt::Receipt;
pub(crate) use self::status::LimitStatus;
use self::waiting::Waiting;
use crate::limit::{Algorithm, Wait};
use crate::rule::{Limit, OnStoreFailure};
use crate::rules::{Charges, LimitCharge};
use crate::store::{Store, StoreError};

/// The proof that a request was judged and may go on.
#[must_use]
#[derive(Clone, Debug)]
pub(crate) struct Permit(());

/// A request that may go on.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) permit: Permit,
    pub(crate) status: LimitStatus,
    /// The store did not decide; what its limits do without it let the request pass.
    pub(crate) unchecked: Option<StoreError>,
}

/// Why a request may not go on.
#[derive(Debug)]
pub(crate) enum Denial {
    /// Limits refused it.
    Limited {
        /// What every limit said.
        status: LimitStatus,
        /// The longest of the waits of those that refused.
        wait: Wait,
    },
    /// The store did not decide, and a limit has `on_store_failure: deny`.
    StoreFailed(StoreError),
}

/// Why the store did not decide, if it did not.
pub(crate) fn store_failure(admitted: &Result<Admitted, Denial>) -> Option<&StoreError> {
    match admitted {
        Ok(Admitted { unchecked, .. }) => unchecked.as_ref(),
        Err(Denial::StoreFailed(error)) => Some(error),
        Err(Denial::Limited { status, .. }) => status.fallback_cause.as_ref(),
    }
}

/// Takes all the permits that a request costs, or none; waits for them where one of its limits [lets it](may_wait).
///
/// # Errors
/// See [`Denial`].
pub(crate) async fn admit(
    store: &Store,
    queues: &WaitQueues,
    charges: &Charges<'_>,
    may_wait: bool,
) -> Result<Admitted, Denial> {
    if charges.is_empty() {
        return Ok(admit_unlimited());
    }
    if !may_wait && let Some(said) = decide_immediately(store, charges) {
        return to_admission(store, said, charges);
    }
    // Boxed, so that requests that are decided at once do without the memory that waiting needs.
    Box::pin(admit_with_waiting(store, queues, charges)).await
}

/// A request that costs nothing.
pub(crate) fn admit_unlimited() -> Admitted {
    Admitted { permit: Permit(()), status: LimitStatus::default(), unchecked: None }
}

/// What the limits say where nothing has to be waited for: the store is here, or knows that they refuse.
fn decide_immediately(store: &Store, charges: &Charges<'_>) -> Option<Result<LimitStatus, StoreError>> {
    match store.take_at_once(charges.asked()) {
        Some(taken) => Some(taken.map(|outcome| LimitStatus::new(charges, outcome))),
        None => known_refusal(store, charges).map(Ok),
    }
}

/// Decides where the store must be asked, or the request may wait. Tries again without the adopted limits where Java has
/// not configured one.
async fn admit_with_waiting(store: &Store, queues: &WaitQueues, charges: &Charges<'_>) -> Result<Admitted, Denial> {
    match admit_from_queue(store, queues, charges).await {
        Ok(Admitted { unchecked: Some(error), .. }) if error.is_about_adopted() => {
            let others = charges.only(|one| !is_adopted(one));
            if others.is_empty() {
                return Ok(Admitted { unchecked: Some(error), ..admit_unlimited() });
            }
            let admitted = admit_from_queue(store, queues, &others).await?;
            Ok(Admitted { unchecked: admitted.unchecked.or(Some(error)), ..admitted })
        }
        admitted => admitted,
    }
}

/// Asks the store, and asks again for as long as the limits that refuse let the request wait.
async fn admit_from_queue(store: &Store, queues: &WaitQueues, charges: &Charges<'_>) -> Result<Admitted, Denial> {
    let mut waiting = Waiting::new(store, queues, charges);
    waiting.queue_behind_others().await?;
    loop {
        waiting.wait_until_first().await?;
        match to_admission(store, decide(store, charges).await, charges) {
            Ok(admitted) => return waiting.wait_for_time_slot(admitted).await,
            Err(Denial::Limited { status, wait }) => waiting.wait_for_permits(status, wait).await?,
            Err(denial) => return Err(denial),
        }
    }
}

/// What the limits say: from the negative cache, or from the store.
async fn decide(store: &Store, charges: &Charges<'_>) -> Result<LimitStatus, StoreError> {
    // What is known of the others was looked at before, by the one that found that it is time to ask again.
    let known = if charges.limits().iter().any(may_wait) { known_refusal(store, charges) } else { None };
    match known {
        Some(status) => Ok(status),
        None => Ok(LimitStatus::new(charges, store.take(charges.asked()).await?)),
    }
}

/// What follows for the request from what its limits said.
fn to_admission(
    store: &Store,
    said: Result<LimitStatus, StoreError>,
    charges: &Charges<'_>,
) -> Result<Admitted, Denial> {
    let (status, unchecked) = match said {
        Ok(status) => (status, None),
        Err(error) => (decide_without_store(store, charges, &error)?, Some(error)),
    };
    match status.wait {
        Wait::Now => Ok(Admitted { status, unchecked, ..admit_unlimited() }),
        wait => Err(Denial::Limited { status, wait }),
    }
}

/// What each limit says by its `on_store_failure`: those that are `local` are decided here, by this gateway's share.
///
/// # Errors
/// A limit would rather deny than not count.
fn decide_without_store(store: &Store, charges: &Charges<'_>, error: &StoreError) -> Result<LimitStatus, Denial> {
    if denying(charges, error).is_some() {
        return Err(Denial::StoreFailed(error.clone()));
    }
    let local = charges.only(|one| one.limit.on_store_failure == OnStoreFailure::Local && applies_to(one, error));
    if local.is_empty() {
        return Ok(LimitStatus::default());
    }
    let decided = store.take_alone(local.asked());
    Ok(decided
        .map_or_else(|_| LimitStatus::default(), |outcome| LimitStatus::new_local(&local, outcome, error.clone())))
}

/// Returns the first limit that denies a request when the store fails so.
pub(crate) fn denying<'c>(charges: &'c Charges<'_>, error: &StoreError) -> Option<LimitCharge<'c>> {
    let denies = |one: &LimitCharge<'_>| one.limit.on_store_failure == OnStoreFailure::Deny && applies_to(one, error);
    charges.iter().find(|one| !one.limit.shadow && denies(one))
}

/// What is known to refuse a request for good, so that the store need not be asked; the other limits are not. One that
/// lets it wait does so only if all that refuse it do, and whether they do is not known.
fn known_refusal(store: &Store, charges: &Charges<'_>) -> Option<LimitStatus> {
    let known = store.known_refusal(charges.asked())?;
    let mut refused = charges.iter().zip(&known.decisions).filter(|(_, decision)| decision.is_some());
    let for_good = refused.any(|(one, _)| one.limit.wait_policy.is_none());
    for_good.then(|| LimitStatus::from_known(charges, known))
}

/// Is such an error this limit's? One about adopted limits is theirs alone.
fn applies_to(one: &LimitCharge<'_>, error: &StoreError) -> bool {
    is_adopted(one) || !error.is_about_adopted()
}

/// May this limit need more than one decision: a wait, a slot in the future, a second try without limits that Java has not
/// configured?
pub(crate) fn may_wait(limit: &Limit) -> bool {
    let quota = &limit.limiter.quota;
    limit.wait_policy.is_some() || matches!(quota.algorithm(), Algorithm::LeakyBucket(_)) || quota.is_adopted()
}

fn is_adopted(one: &LimitCharge<'_>) -> bool {
    one.limit.limiter.quota.is_adopted()
}
