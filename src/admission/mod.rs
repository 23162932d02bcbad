//! May this request go on? All its charges are made or none, and the answer is a [`Permit`] or a [`Denial`].
//!
//! Only this room makes permits, and only with one is a request forwarded.
//!
//! A refused request may wait, if every limit that refused it lets it (`max_wait`). It stands in a [line](mod@line) and
//! asks again when its permits have returned; it is charged when it goes on, not at all if its client leaves before.

mod line;
mod waiting;

use std::net::IpAddr;
use std::sync::Arc;

pub(crate) use self::line::Lines;
use self::waiting::Waiting;

use crate::clock::Timestamp;
use crate::limit::{Charge, Decision, Granted, Wait};
use crate::rule::{LimitCharge, OnStoreFailure};
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
}

/// Who asks, and for where: what a permit says beside having been given.
#[derive(Clone, Debug)]
pub(crate) struct Passage {
    pub(crate) upstream: Option<Arc<str>>,
    pub(crate) peer: IpAddr,
    pub(crate) trusted_peer: bool,
}

/// What the limits of a route said, each with its position among them, and the store's time when they did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing(pub(crate) Vec<(usize, Decision)>, pub(crate) Timestamp);

/// What a request was charged, so that it can be given back.
#[derive(Debug, Default)]
pub(crate) struct Receipt(Vec<Granted>);

/// A request that may go on.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) permit: Permit,
    pub(crate) receipt: Receipt,
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
pub(crate) fn free(passage: Passage) -> Admitted {
    let Passage { upstream, peer, trusted_peer } = passage;
    let permit = Permit { upstream, peer, trusted_peer };
    Admitted { permit, receipt: Receipt::default(), standing: Standing::default(), unchecked: None }
}

/// Takes all the permits that a request costs, or none; waits for them where its limits let it.
///
/// # Errors
/// See [`Denial`].
pub(crate) async fn admit(
    store: &Store,
    lines: &Lines,
    charges: &[LimitCharge<'_>],
    passage: Passage,
) -> Result<Admitted, Denial> {
    match admit_all(store, lines, charges, &passage).await {
        // What Java has not configured says nothing about the others, which are judged without it.
        Ok(Admitted { unchecked: Some(error), .. }) if error.is_about_adopted() => {
            let others: Vec<_> = charges.iter().filter(|one| !is_adopted(one)).cloned().collect();
            let admitted = admit_all(store, lines, &others, &passage).await?;
            Ok(Admitted { unchecked: admitted.unchecked.or(Some(error)), ..admitted })
        }
        admitted => admitted,
    }
}

async fn admit_all(
    store: &Store,
    lines: &Lines,
    charges: &[LimitCharge<'_>],
    passage: &Passage,
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

async fn decide(store: &Store, charges: &[LimitCharge<'_>], passage: &Passage) -> Result<Admitted, Denial> {
    let permit = passage.permit();
    let (standing, receipt) = match take(store, charges).await {
        Ok(taken) => taken,
        Err(error) if charges.iter().any(|one| denies_uncounted(one, &error)) => {
            return Err(Denial::StoreFailed(error));
        }
        Err(error) => {
            let (receipt, standing) = (Receipt::default(), Standing::default());
            return Ok(Admitted { permit, receipt, standing, unchecked: Some(error) });
        }
    };
    match standing.longest_wait(charges) {
        Wait::Now => Ok(Admitted { permit, receipt, standing, unchecked: None }),
        wait => Err(Denial::Limited { standing, wait }),
    }
}

async fn take(store: &Store, charges: &[LimitCharge<'_>]) -> Result<(Standing, Receipt), StoreError> {
    if charges.is_empty() {
        return Ok(Default::default());
    }
    let asked: Vec<Charge> = charges.iter().map(|one| one.charge.clone()).collect();
    let outcome = store.take(&asked).await?;
    let receipt = Receipt(outcome.made(asked));
    let standing = charges.iter().map(|one| one.index).zip(outcome.decisions).collect();
    Ok((Standing(standing, outcome.now), receipt))
}

/// Does this limit deny requests over such an error? One about adopted limits is theirs alone.
fn denies_uncounted(one: &LimitCharge<'_>, error: &StoreError) -> bool {
    let concerned = is_adopted(one) || !error.is_about_adopted();
    concerned && !one.limit.shadow && one.limit.on_store_failure == OnStoreFailure::Deny
}

fn is_adopted(one: &LimitCharge<'_>) -> bool {
    one.limit.limiter.quota.is_adopted()
}

impl Receipt {
    /// Gives back what a request was charged that nobody received. A receipt serves once.
    pub(crate) async fn give_back(self, store: &Store) {
        if self.0.is_empty() {
            return;
        }
        if let Err(error) = store.give_back(&self.0).await {
            tracing::debug!(%error, "permits were not given back, and return by themselves");
        }
    }
}

impl Passage {
    fn permit(&self) -> Permit {
        Permit { upstream: self.upstream.clone(), peer: self.peer, trusted_peer: self.trusted_peer }
    }
}

impl Standing {
    /// How long the request would have to wait for all its live limits.
    fn longest_wait(&self, charges: &[LimitCharge<'_>]) -> Wait {
        let live = charges.iter().zip(&self.0).filter(|(one, _)| !one.limit.shadow);
        live.map(|(_, (_, decision))| decision.wait).max().unwrap_or(Wait::Now)
    }

    /// What the limit at this position said, if it was asked and the store knew.
    pub(crate) fn said(&self, index: usize) -> Option<&Decision> {
        self.0.iter().find(|(position, _)| *position == index).map(|(_, decision)| decision)
    }

    /// Did this limit refuse?
    pub(crate) fn refused(&self, one: &LimitCharge<'_>) -> bool {
        self.said(one.index).is_some_and(|decision| !decision.granted)
    }

    /// Would a limit have refused the request that only watches?
    pub(crate) fn shadow_limited(&self, charges: &[LimitCharge<'_>]) -> bool {
        charges.iter().any(|one| one.limit.shadow && self.refused(one))
    }
}
