//! May this request go on? All its charges are made or none, and the answer is a [`Permit`] or a [`Denial`].
//!
//! Only this room makes permits, and only with one is a request forwarded.
//!
//! A refused request may wait, if every limit that refused it lets it (`max_wait`). It stands in a [line](mod@line) and
//! asks again when its permits have returned; it is charged when it goes on, not at all if its client leaves before.

mod line;
mod receipt;
mod standing;
mod waiting;

pub(crate) use self::line::Lines;
pub(crate) use self::receipt::Receipt;
pub(crate) use self::standing::Standing;
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
    pub(crate) standing: Standing,
    /// The store did not decide; the limits let pass what they could not count.
    pub(crate) unchecked: Option<StoreError>,
}

/// Why a request may not go on.
#[derive(Debug)]
pub(crate) enum Denial {
    /// Limits refused it.
    Limited {
        /// What every limit said.
        standing: Standing,
        /// The longest of the waits of those that refused.
        wait: Wait,
    },
    /// The store did not decide, and a limit would rather deny than not count.
    StoreFailed(StoreError),
}

/// Why the store did not decide, if it did not.
pub(crate) fn store_failure(admitted: &Result<Admitted, Denial>) -> Option<&StoreError> {
    match admitted {
        Ok(Admitted { unchecked, .. }) => unchecked.as_ref(),
        Err(Denial::StoreFailed(error)) => Some(error),
        Err(Denial::Limited { .. }) => None,
    }
}

/// Takes all the permits that a request costs, or none; waits for them where one of its limits [lets it](may_wait).
///
/// # Errors
/// See [`Denial`].
pub(crate) async fn admit(
    store: &Store,
    lines: &Lines,
    charges: &Charges<'_>,
    may_wait: bool,
) -> Result<Admitted, Denial> {
    if charges.is_empty() {
        return Ok(free());
    }
    if !may_wait && let Some(said) = said_at_once(store, charges) {
        return conclude(said, charges);
    }
    // Boxed: most requests are spared the room that waiting needs.
    Box::pin(admit_later(store, lines, charges)).await
}

/// A request that costs nothing.
pub(crate) fn free() -> Admitted {
    Admitted { permit: Permit(()), standing: Standing::default(), unchecked: None }
}

/// What the limits say where nothing has to be waited for: the store is here, or knows that they refuse.
fn said_at_once(store: &Store, charges: &Charges<'_>) -> Option<Result<Standing, StoreError>> {
    match store.take_at_once(charges.asked()) {
        Some(taken) => Some(taken.map(|outcome| Standing::new(charges, outcome))),
        None => known_refusal(store, charges).map(Ok),
    }
}

/// What Java has not configured says nothing about the other limits, which are asked without it.
async fn admit_later(store: &Store, lines: &Lines, charges: &Charges<'_>) -> Result<Admitted, Denial> {
    match admit_in_line(store, lines, charges).await {
        Ok(Admitted { unchecked: Some(error), .. }) if error.is_about_adopted() => {
            let others = charges.only(|one| !is_adopted(one));
            if others.is_empty() {
                return Ok(Admitted { unchecked: Some(error), ..free() });
            }
            let admitted = admit_in_line(store, lines, &others).await?;
            Ok(Admitted { unchecked: admitted.unchecked.or(Some(error)), ..admitted })
        }
        admitted => admitted,
    }
}

/// Asks, and asks again as long as the limits that refuse let the request wait.
async fn admit_in_line(store: &Store, lines: &Lines, charges: &Charges<'_>) -> Result<Admitted, Denial> {
    let mut waiting = Waiting::new(store, lines, charges);
    waiting.behind_others().await?;
    loop {
        waiting.turn().await?;
        match conclude(ask(store, charges).await, charges) {
            Ok(admitted) => return waiting.slot(admitted).await,
            Err(Denial::Limited { standing, wait }) => waiting.permits(standing, wait).await?,
            Err(denial) => return Err(denial),
        }
    }
}

/// What the limits say, as the store knows already or when it is asked.
async fn ask(store: &Store, charges: &Charges<'_>) -> Result<Standing, StoreError> {
    // What is known of the others was looked at before, by the one that found that it is time to ask again.
    let known = if charges.limits().iter().any(may_wait) { known_refusal(store, charges) } else { None };
    match known {
        Some(standing) => Ok(standing),
        None => Ok(Standing::new(charges, store.take(charges.asked()).await?)),
    }
}

/// What follows for the request from what its limits said.
fn conclude(said: Result<Standing, StoreError>, charges: &Charges<'_>) -> Result<Admitted, Denial> {
    let standing = match said {
        Ok(standing) => standing,
        Err(error) if charges.iter().any(|one| denies_uncounted(&one, &error)) => {
            return Err(Denial::StoreFailed(error));
        }
        Err(error) => return Ok(Admitted { unchecked: Some(error), ..free() }),
    };
    match standing.wait {
        Wait::Now => Ok(Admitted { standing, ..free() }),
        wait => Err(Denial::Limited { standing, wait }),
    }
}

/// What is known to refuse a request for good, so that the store need not be asked; the other limits are not. One that
/// lets it wait does so only if all that refuse it do, and whether they do is not known.
fn known_refusal(store: &Store, charges: &Charges<'_>) -> Option<Standing> {
    let known = store.known_refusal(charges.asked())?;
    let mut refused = charges.iter().zip(&known.decisions).filter(|(_, decision)| decision.is_some());
    let for_good = refused.any(|(one, _)| one.limit.patience.is_none());
    for_good.then(|| Standing::known(charges, known))
}

/// Does this limit deny requests over such an error? One about adopted limits is theirs alone.
fn denies_uncounted(one: &LimitCharge<'_>, error: &StoreError) -> bool {
    let concerned = is_adopted(one) || !error.is_about_adopted();
    concerned && !one.limit.shadow && one.limit.on_store_failure == OnStoreFailure::Deny
}

/// May there be more to it than one decision: a place in a line, a slot that is not reached yet, a second try without
/// limits that others have not configured?
pub(crate) fn may_wait(limit: &Limit) -> bool {
    let quota = &limit.limiter.quota;
    limit.patience.is_some() || matches!(quota.algorithm(), Algorithm::LeakyBucket(_)) || quota.is_adopted()
}

fn is_adopted(one: &LimitCharge<'_>) -> bool {
    one.limit.limiter.quota.is_adopted()
}
