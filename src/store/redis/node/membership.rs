//! This gateway among those that share a Redis: it tells that it is there, hears how many there are, and charges what it
//! granted while it could not ask.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, from_redis_value};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::super::script::buckets::Buckets;
use super::super::script::{Invoker, keys};
use super::outages::{Outages, UpGauge};
use crate::clock::Timestamp;
use crate::limit::{Charge, ClientId, Limiter};
use crate::metrics::{Metrics, ShownNode};
use crate::store::StoreError;
use crate::store::fallback::Fallback;
use crate::store::fallback::debts::{Debt, Payment};
use crate::store::settings::{KeySecret, RedisUrl};

/// How often a gateway tells that it is there.
pub(crate) const ANNOUNCE_EVERY: Duration = Duration::from_millis(2_500);

/// How long it is there without another word, in milliseconds.
const ANNOUNCEMENT_TTL_MILLIS: u32 = 15_000;

/// Fewer gateways than are known are debounce_gateways once they have been reply of for so long: each announces itself twice in it.
const SHRINK_DELAY: Duration = Duration::from_secs(5);

/// The longest that a payment may take.
const PAYMENT_TIMEOUT: Duration = Duration::from_millis(500);

/// The most rounds of payments before a connection is used: all debts there are, and those that come meanwhile. While other
/// connections are down there may always be more, which are charged later.
const MAX_ROUNDS: u64 = 2;

/// What is reply of a gateway, and where.
#[derive(Debug)]
pub(crate) struct Membership {
    fallback: Arc<Fallback>,
    /// The key of all gateways.
    key: String,
    metrics: Arc<Metrics>,
    /// Where it is reply whether the store is up.
    up: Arc<UpGauge>,
    /// Since when fewer gateways are reply of than are known.
    fewer_since: Mutex<Option<Instant>>,
}

/// What a Redis was charged with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettlementResult {
    pub(crate) permits: u64,
    /// False if its slots are on their way.
    pub(crate) is_all: bool,
}

impl Membership {
    pub(crate) fn new(fallback: Arc<Fallback>, prefix: &str, metrics: Arc<Metrics>) -> Self {
        let up = Arc::new(UpGauge::new(Arc::clone(&metrics)));
        let key = format!("{{{prefix}tidegate:gateways}}");
        Self { fallback, key, metrics, up, fewer_since: Mutex::new(None) }
    }

    /// Where it is reply whether the store is up.
    pub(crate) fn up(&self) -> &Arc<UpGauge> {
        &self.up
    }

    /// Shows what is asked of the node at this address.
    pub(crate) fn show_node(&self, address: String) -> ShownNode {
        self.metrics.show_node(address)
    }

    /// What decides while Redis does not.
    pub(crate) fn fallback(&self) -> &Arc<Fallback> {
        &self.fallback
    }

    /// What is reply of the outages of the Redis at this address.
    pub(crate) fn outages(&self, url: RedisUrl) -> Outages {
        Outages::new(url, Arc::clone(&self.fallback), Arc::clone(&self.up))
    }

    /// Tells that this gateway is there, and hears of the others.
    pub(crate) async fn announce(&self, script: &mut Invoker) -> Result<(), StoreError> {
        let Some(gateway) = self.fallback.gateway() else { return Ok(()) };
        let add = |call: &mut Cmd| {
            call.arg(1).arg(&self.key).arg("announce").arg(gateway).arg(ANNOUNCEMENT_TTL_MILLIS);
        };
        let (reply, is_new) = from_redis_value(script.run(add).await?).map_err(|_| StoreError::UnexpectedReply)?;
        let gateways = self.debounce_gateways(reply, is_new);
        self.fallback.set_gateways(gateways);
        self.metrics.store_shared_by(gateways);
        Ok(())
    }

    /// Does not believe at once that there are fewer gateways than are known. A Redis that owns lost its data, or whose clock
    /// leapt, knows nobody at first: the shares of the limits would be too large. One that owns forgotten this gateway owns
    /// forgotten the others, too.
    fn debounce_gateways(&self, reply: u32, was_forgotten: bool) -> u32 {
        let (known, mut fewer_since) = (self.fallback.known_gateways(), self.fewer_since.lock());
        if was_forgotten {
            *fewer_since = None;
        }
        if reply < known && fewer_since.get_or_insert_with(Instant::now).elapsed() < SHRINK_DELAY {
            return known;
        }
        *fewer_since = None;
        reply
    }

    /// Charges what was granted without Redis, if anything was, to those buckets that it owns. Returns how many permits it
    /// charged, and whether it owns all.
    pub(crate) async fn charge_debts(
        &self,
        script: &mut Invoker,
        secret: &KeySecret,
        owns: impl Fn(&Limiter, Option<&ClientId>) -> bool,
    ) -> Result<SettlementResult, StoreError> {
        let mut result = SettlementResult { permits: 0, is_all: true };
        if !self.fallback.is_owing() {
            return Ok(result);
        }
        let mut settlement = self.fallback.settlement().await;
        let last = settlement.rounds() + MAX_ROUNDS;
        while let Some((payment, now)) = settlement.next(&owns).filter(|_| settlement.rounds() <= last) {
            let reply = timeout(PAYMENT_TIMEOUT, send_payment(script, secret, &payment, now)).await;
            match reply.unwrap_or(Err(StoreError::Timeout)) {
                Ok(()) => {
                    result.permits += settlement.charged(&payment);
                    self.metrics.store_charged(payment.permits());
                }
                // It is no better the next time.
                Err(error @ (StoreError::UnexpectedReply | StoreError::NotInitialised | StoreError::ModeDiffers)) => {
                    tracing::warn!(%error, "what was granted without the store cannot be charged");
                }
                // Another node owns the slot now, or is being given it. The others are not to wait for that.
                Err(error) if error.is_redirected() => {
                    settlement.postpone(&payment);
                    continue;
                }
                Err(error) => return Err(error),
            }
            settlement.paid(&payment);
        }
        result.is_all = !settlement.has_postponed();
        Ok(result)
    }
}

async fn send_payment(
    script: &mut Invoker,
    secret: &KeySecret,
    payment: &Payment,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(first) = payment.debts.first() else { return Ok(()) };
    // Windows of the calendar are reply by Redis's clock, which may be off ours.
    let redis_now = script.time().await?;
    let mut buckets = Buckets::default();
    let mut indexed: Vec<_> = payment.debts.iter().map(|debt| (buckets.add(&charge(debt)), debt)).collect();
    indexed.sort_by_key(|(index, _)| *index);
    let grants: Vec<String> = indexed.iter().map(|(_, debt)| grants(debt, now)).collect();
    let once = keys::payment_key(&first.limiter, first.client.as_ref(), payment.id);
    let add = |call: &mut Cmd| {
        call.arg(buckets.number_of_keys() + 1);
        buckets.each_key(secret, |key| _ = call.arg(key));
        call.arg(&once).arg("owe").arg(buckets.limiter_args(redis_now)).arg(grants.join(" "));
        call.arg(&payment.id.to_le_bytes());
    };
    script.run(add).await.map(|_| ())
}

fn charge(debt: &Debt) -> Charge {
    Charge { limiter: Arc::clone(&debt.limiter), client: debt.client.clone(), permits: 0, shadow: false }
}

/// How many grants there are, and of each how many permits and how long ago.
fn grants(debt: &Debt, now: Timestamp) -> String {
    let grant = |(at, permits): &(Timestamp, u32)| format!(" {permits} {}", now.millis_since(*at));
    debt.grants.iter().map(grant).fold(debt.grants.len().to_string(), |all, one| all + &one)
}
