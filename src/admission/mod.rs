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

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

pub(crate) use self::line::Lines;
pub(crate) use self::receipt::Receipt;
pub(crate) use self::standing::Standing;
use self::waiting::Waiting;
use crate::limit::{Algorithm, Wait};
use crate::rule::{Charges, Limit, LimitCharge, OnStoreFailure};
use crate::sift::{Seen, Sieve};
use crate::store::{Store, StoreError};

/// The proof that a request was judged and may go on. The layer leaves it in the request's extensions.
#[must_use]
#[derive(Clone, Debug)]
pub struct Permit {
    /// Where it may go.
    pub(crate) upstream: Option<Arc<str>>,
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
    /// Whether that is a trusted proxy, whose forwarding fields are kept.
    pub(crate) trusted_peer: bool,
    /// Whose share of the upstream's connections it uses.
    pub(crate) client: Option<IpNet>,
    /// The longest body that it may have.
    pub(crate) max_body: u64,
    /// Which of the fields that concern a proxy the request still has.
    pub(crate) seen: Seen,
    /// What its trailers are held against, if there may be any.
    pub(crate) sieve: Option<Arc<Sieve>>,
}

/// Who asks, and for where: what a permit says beside having been given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage<'r> {
    pub(crate) upstream: Option<&'r Arc<str>>,
    pub(crate) peer: IpAddr,
    pub(crate) trusted_peer: bool,
    pub(crate) client: Option<IpNet>,
    pub(crate) max_body: u64,
    pub(crate) seen: Seen,
    pub(crate) sieve: Option<&'r Arc<Sieve>>,
}

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

/// The permit of a request that costs none.
pub(crate) fn free(passage: Passage<'_>) -> Admitted {
    Admitted { permit: passage.permit(), standing: Standing::default(), unchecked: None }
}

/// The same as [`admit`], where nothing has to be waited for: no limit [lets wait](may_wait), and the store is here or
/// knows that they refuse. Most requests are spared the room that waiting needs.
pub(crate) fn admit_at_once(
    store: &Store,
    charges: &Charges<'_>,
    passage: Passage<'_>,
) -> Option<Result<Admitted, Denial>> {
    let said = match store.take_at_once(charges.asked()) {
        Some(taken) => taken.map(|outcome| Standing::new(charges, outcome)),
        None => Ok(known_refusal(store, charges)?),
    };
    Some(conclude(said, charges, passage))
}

/// Takes all the permits that a request costs, or none; waits for them where its limits let it.
///
/// # Errors
/// See [`Denial`].
pub(crate) async fn admit(
    store: &Store,
    lines: &Lines,
    charges: &Charges<'_>,
    passage: Passage<'_>,
) -> Result<Admitted, Denial> {
    match admit_all(store, lines, charges, passage).await {
        // What Java has not configured says nothing about the others, which are judged without it.
        Ok(Admitted { unchecked: Some(error), .. }) if error.is_about_adopted() => {
            let others = charges.only(|one| !is_adopted(one));
            let admitted = admit_all(store, lines, &others, passage).await?;
            Ok(Admitted { unchecked: admitted.unchecked.or(Some(error)), ..admitted })
        }
        admitted => admitted,
    }
}

async fn admit_all(
    store: &Store,
    lines: &Lines,
    charges: &Charges<'_>,
    passage: Passage<'_>,
) -> Result<Admitted, Denial> {
    let mut waiting = Waiting::new(store, lines, charges);
    waiting.behind_others().await?;
    loop {
        waiting.turn().await?;
        match decide(store, charges, passage).await {
            Ok(admitted) => return waiting.slot(admitted).await,
            Err(Denial::Limited { standing, wait }) => waiting.permits(standing, wait).await?,
            Err(denial) => return Err(denial),
        }
    }
}

async fn decide(store: &Store, charges: &Charges<'_>, passage: Passage<'_>) -> Result<Admitted, Denial> {
    conclude(take(store, charges).await, charges, passage)
}

/// What follows for the request from what its limits said.
fn conclude(
    said: Result<Standing, StoreError>,
    charges: &Charges<'_>,
    passage: Passage<'_>,
) -> Result<Admitted, Denial> {
    let permit = passage.permit();
    let standing = match said {
        Ok(standing) => standing,
        Err(error) if charges.iter().any(|one| denies_uncounted(&one, &error)) => {
            return Err(Denial::StoreFailed(error));
        }
        Err(error) => return Ok(Admitted { permit, standing: Standing::default(), unchecked: Some(error) }),
    };
    match standing.wait {
        Wait::Now => Ok(Admitted { permit, standing, unchecked: None }),
        wait => Err(Denial::Limited { standing, wait }),
    }
}

async fn take(store: &Store, charges: &Charges<'_>) -> Result<Standing, StoreError> {
    if charges.is_empty() {
        return Ok(Standing::default());
    }
    // What is known of the others was looked at before, by the one that found that it is time to ask again.
    let known = if charges.limits().iter().any(may_wait) { known_refusal(store, charges) } else { None };
    match known {
        Some(standing) => Ok(standing),
        None => Ok(Standing::new(charges, store.take(charges.asked()).await?)),
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

impl Passage<'_> {
    fn permit(self) -> Permit {
        let Self { upstream, peer, trusted_peer, client, max_body, seen, sieve } = self;
        Permit { upstream: upstream.cloned(), peer, trusted_peer, client, max_body, seen, sieve: sieve.cloned() }
    }
}
