//! Limits with `charge_on` are charged by the response to an admitted request. If no upstream received the request, its
//! permits are given back.

use futures_util::future::{join, join_all};
use http::StatusCode;
use tokio::time::{Instant, timeout_at};

use tidegate_rules::charge::{Charge, ChargeKind, Decision, Granted};
use tidegate_rules::rules::{Charges, LimitCharge};
use tidegate_store::Store;

/// Permits to give back to a store.
#[derive(Debug)]
pub(super) struct Refund {
    granted: Vec<Granted>,
    /// Whether this gateway's shares of the limits have granted them.
    is_local: bool,
}

/// The effect of a response on a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The limit is charged now.
    Charge,
    /// The permits are given back, and the response reports them as remaining.
    Return,
    /// The permits are given back.
    GiveBack,
}

/// Gives back all permits of an admitted request. To be called once.
pub async fn give_back(charges: &Charges<'_>, store: &Store) {
    Refund::new(charges, |_| true).send(store).await;
}

/// Like [`give_back`], and the decisions report the permits as remaining. Does not wait beyond the deadline for the reply of the
/// store.
pub async fn give_back_all(charges: &mut Charges<'_>, store: &Store, deadline: Instant) {
    let (refund, own) = (Refund::new(charges, |_| true), store.clone());
    match store.is_redis() {
        true => _ = timeout_at(deadline, tokio::spawn(async move { refund.send(&own).await })).await,
        false => refund.send(store).await, // never waits
    }
    for position in 0..charges.len() {
        let entry = charges.at(position);
        if let Some(decision) = entry.decision.filter(|decision| decision.granted && entry.charge.taken() > 0) {
            charges.set_decision(position, after_return(decision, entry.charge));
        }
    }
}

/// Charges the limits with `charge_on` that include the status of the response, and gives back the reserved permits of
/// those that do not. Gives all other permits back unless the request `was_sent`. To be called once for an admitted
/// request. A client that leaves does not interrupt the calls to the store, which a task makes.
pub async fn charge_by_response(charges: &mut Charges<'_>, store: &Store, response: StatusCode, was_sent: bool) {
    let change = |entry: &LimitCharge<'_>| Change::of(entry, response, was_sent);
    let refund = Refund::new(charges, |entry| matches!(change(entry), Some(Change::Return | Change::GiveBack)));
    let (mut due, mut returned) = (Vec::new(), Vec::new());
    for (position, entry) in charges.iter().enumerate() {
        match (change(&entry), entry.decision) {
            (Some(Change::Charge), _) => due.push((position, entry.charge.clone())),
            (Some(Change::Return), Some(decision)) => returned.push((position, after_return(decision, entry.charge))),
            _ => {}
        }
    }
    let calls = call(store.clone(), refund, due);
    let charged = match store.is_redis() {
        true => tokio::spawn(calls).await.unwrap_or_default(),
        false => calls.await, // never waits
    };
    charged.into_iter().chain(returned).for_each(|(position, decision)| charges.set_decision(position, decision));
}

/// Gives permits back and makes the charges that are due. Returns their decisions, each with the position of its charge.
async fn call(store: Store, refund: Refund, due: Vec<(usize, Charge)>) -> Vec<(usize, Decision)> {
    let charge = async |(position, charge): &(usize, Charge)| {
        (*position, store.charge_outcome(charge).await.unwrap_or(Decision::UNKNOWN))
    };
    join(refund.send(&store), join_all(due.iter().map(charge))).await.1
}

/// Returns the decision after the permits of a charge were given back.
fn after_return(decision: &Decision, charge: &Charge) -> Decision {
    let full = charge.on_shard(decision.shard).limiter.quota.full();
    let remaining = decision.remaining.saturating_add(charge.permits).min(full);
    Decision { remaining, reset: if remaining == full { 0 } else { decision.reset }, ..*decision }
}

impl Refund {
    /// Creates the refund of the charges that were made and match a predicate.
    pub(super) fn new(charges: &Charges<'_>, which: impl Fn(&LimitCharge<'_>) -> bool) -> Self {
        Self { granted: charges.granted(which), is_local: charges.is_local() }
    }

    /// Gives the permits back.
    pub(super) async fn send(self, store: &Store) {
        if self.granted.is_empty() {
            return;
        }
        if self.is_local {
            return store.give_back_locally(&self.granted);
        }
        if let Err(error) = store.give_back(&self.granted).await {
            tracing::debug!(%error, "failed to give permits back, they return later");
        }
    }
}

impl Change {
    fn of(entry: &LimitCharge<'_>, response: StatusCode, was_sent: bool) -> Option<Self> {
        if entry.is_refused() {
            return None; // a shadow refused, and a live limit would have rejected the request
        }
        let is_check = entry.charge.kind == ChargeKind::Check;
        match entry.limit.charge_on.as_ref().map(|on| on.includes(response)) {
            None => (!was_sent).then_some(Self::GiveBack),
            Some(true) => is_check.then_some(Self::Charge),
            Some(false) => (!is_check).then_some(Self::Return),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice;
    use std::sync::Arc;

    use super::*;
    use tidegate_limit::clock::Timestamp;
    use tidegate_limit::{Algorithm, Mode, Quota, Wait};
    use tidegate_rules::charge::{Limiter, Outcome};
    use tidegate_rules::limits::rule::{ChargeOn, Limit};
    use tidegate_rules::limits::status_range::StatusRange;

    /// Regression test: a shadow took the permits that remained, for a request that a live limit would have rejected.
    #[tokio::test]
    async fn shadow_that_refused_is_not_charged_by_the_response() {
        let store = Store::memory();
        let quota = Quota::new(3, 3_600_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter::new("l".to_owned(), Mode::Overall, quota));
        let charge = Charge { shadow: true, ..Charge::new(limiter, None, 2) };
        assert!(store.take(slice::from_ref(&charge)).await.expect("a decision").granted());
        for reserve in [false, true] {
            let statuses = vec![StatusRange { first: 401, last: 401 }];
            let charge_on = Some(Box::new(ChargeOn { statuses, reserve }));
            let limits = [Limit { charge_on, ..Limit::new("l".to_owned(), Arc::clone(&charge.limiter)) }];
            let kind = if reserve { ChargeKind::Take } else { ChargeKind::Check };
            let mut charges = Charges::new(&limits);
            charges.push(0, Charge { kind, ..charge.clone() });
            let refusal = Decision::new(1, Wait::Millis(1_000), 1_000);
            charges.decide(Outcome::new(Timestamp::default(), vec![refusal], charges.as_slice()));
            let response = if reserve { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            charge_by_response(&mut charges, &store, response, true).await;
            assert_eq!(charges.decisions().next(), Some((0, &refusal)));
            let read = Charge { permits: 0, ..charge.clone() };
            assert_eq!(store.take(&[read]).await.expect("a decision").decisions[0].remaining, 1);
        }
    }
}
