//! Reports to post-paid limits: callers check a limit while the cost of a request is unknown, and report the cost after its
//! response. A report is charged in any case, since the request has happened; what the bucket lacks is debt.
//!
//! A check makes a limit post-paid for all gateways that share the store, by a mark in Redis. Each process remembers the marks
//! that it has written or read: so a check and a report usually need one call, and reports are charged during an outage.

use std::sync::Arc;

use crate::post_paid::PostPaid;
use crate::{Backend, Store, StoreError, backend};
#[cfg(feature = "redis")]
use crate::{multi_slot, negative_cache::NegativeCache, redis::Redis};
use tidegate_limit::clock::poll_time;
use tidegate_rules::charge::{Charge, Decision, Limiter};

impl Store {
    /// Returns `true` if this process knows the limit as post-paid. Otherwise, it reads the mark of the limit once a minute,
    /// without waiting for it.
    ///
    /// # Panics
    /// The store is in Redis, and the caller is outside a Tokio runtime.
    #[doc(hidden)]
    pub fn is_post_paid(&self, limiter: &Arc<Limiter>) -> bool {
        let now = poll_time();
        backend!(self, |memory| memory.post_paid().get(&limiter.name, now) == PostPaid::Yes, |redis| {
            let known = redis.store().post_paid().get(&limiter.name, now);
            if known == (PostPaid::Unknown { is_old: true }) {
                redis.store().post_paid().asked(&limiter.name, now);
                let (redis, limiter) = (Arc::clone(redis), Arc::clone(limiter));
                tokio::spawn(async move { read_mark(redis.store(), &limiter).await });
            }
            known == PostPaid::Yes
        })
    }

    /// Makes a limit post-paid, since it was checked. A mark that cannot be written is written by a later check.
    #[doc(hidden)]
    pub async fn make_post_paid(&self, limiter: &Limiter) {
        let now = poll_time();
        backend!(
            self,
            |memory| {
                if memory.post_paid().checked(&limiter.name, now) {
                    memory.post_paid().written(&limiter.name, now);
                }
            },
            |redis| {
                let redis = redis.store();
                if redis.post_paid().checked(&limiter.name, now) {
                    match redis.write_post_paid_mark(limiter).await {
                        Ok(()) => redis.post_paid().written(&limiter.name, now),
                        Err(error) => tracing::debug!(%error, "failed to mark a limit as post-paid"),
                    }
                }
            }
        );
    }

    /// Returns `true` if a limit is post-paid, which this process may not know yet. Asks Redis, at most once in 100 ms.
    #[doc(hidden)]
    pub async fn has_become_post_paid(&self, limiter: &Limiter) -> bool {
        backend!(self, |_memory| false, |redis| {
            let (redis, now) = (redis.store(), poll_time());
            match redis.post_paid().get(&limiter.name, now) {
                PostPaid::Yes => true,
                PostPaid::Unknown { .. } if redis.post_paid().is_fresh(&limiter.name, now) => false,
                PostPaid::Unknown { .. } => read_mark(redis, limiter).await,
            }
        })
    }

    /// Charges reports: permits that were used, of different buckets. Returns a decision about each, which is granted if its
    /// bucket had the permits.
    ///
    /// # Errors
    /// The store did not reply in time. Permits that it has certainly not charged are charged to this gateway's share, and
    /// later to the store. Other permits may be lost, since nothing is charged twice.
    #[doc(hidden)]
    pub async fn report(&self, charges: &[Charge]) -> Result<Vec<Decision>, StoreError> {
        backend!(self, |memory| Ok(decisions(&memory.take(&of_reports(charges))?.decisions)), |redis| {
            report_to_redis(redis, charges).await
        })
    }
}

#[cfg(feature = "redis")]
async fn report_to_redis(redis: &NegativeCache<Redis>, charges: &[Charge]) -> Result<Vec<Decision>, StoreError> {
    match multi_slot::take(redis, &of_reports(charges)).await {
        Ok(outcome) => Ok(decisions(&outcome.decisions)),
        Err(error) => {
            tracing::debug!(%error, "failed to charge a report");
            if !error.may_have_charged() {
                charges.iter().for_each(|charge| redis.store().fallback().charge_later(charge));
            }
            Err(error)
        }
    }
}

/// Reads the mark of a limit. Returns `true` if it is marked.
#[cfg(feature = "redis")]
async fn read_mark(redis: &Redis, limiter: &Limiter) -> bool {
    let asked = poll_time();
    let is_marked = redis.has_post_paid_mark(limiter).await;
    if let Ok(is_marked) = is_marked {
        redis.post_paid().read(&limiter.name, is_marked, asked);
    }
    is_marked.unwrap_or(false)
}

fn of_reports(charges: &[Charge]) -> Vec<Charge> {
    charges.iter().flat_map(Charge::of_report).collect()
}

/// Returns the decision about each report.
fn decisions(of_charges: &[Decision]) -> Vec<Decision> {
    let of_report = |pair: &[Decision]| match pair {
        [taken, checked] => Decision::of_report(taken, checked),
        _ => Decision::UNKNOWN,
    };
    of_charges.chunks(2).map(of_report).collect()
}
