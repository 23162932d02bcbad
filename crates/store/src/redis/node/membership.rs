//! This gateway's membership among the gateways that share a Redis: announces it, reads the number of gateways, and
//! charges the debts of an outage.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, from_redis_value};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::super::reset_log::{ResetLog, ResetTimes};
use super::super::script::buckets::Buckets;
use super::super::script::{Invoker, keys};
use super::outages::{Outages, UpGauge};
use crate::StoreError;
use crate::fallback::Fallback;
use crate::fallback::debts::{Debt, Payment};
use tidegate_limit::clock::Timestamp;
use tidegate_limit::{Charge, ChargeKind, ClientId, Limiter};
use tidegate_metrics::{Metrics, NodeSeries};
use tidegate_rules::settings::store::{KeySecret, RedisUrl};

/// The time between announcements.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_millis(2_500);

/// How long an announcement counts, in milliseconds.
const ANNOUNCEMENT_TTL_MILLIS: u32 = 15_000;

/// How long Redis must report fewer gateways before their number shrinks. Each gateway announces itself twice in this
/// time.
const SHRINK_DELAY: Duration = Duration::from_secs(5);

/// The timeout of a payment.
const PAYMENT_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum number of settlement rounds before a connection is used: the existing debts, and debts that arrive in
/// the meantime. Other connections that are down may add more debts, which are charged later.
const MAX_ROUNDS: u64 = 2;

/// The state that the gateway shares with other gateways and with its own metrics.
#[derive(Debug)]
pub(crate) struct Membership {
    fallback: Arc<Fallback>,
    reset_log: Arc<ResetLog>,
    /// The key of the set of gateways.
    key: String,
    /// The hash tag of the keys of the self-test.
    self_test_tag: String,
    metrics: Arc<Metrics>,
    /// Records whether the store is up.
    up: Arc<UpGauge>,
    /// Since when Redis has reported fewer gateways than are known.
    fewer_since: Mutex<Option<Instant>>,
}

/// The debts that a node was charged with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettlementResult {
    pub permits: u64,
    /// False if hash slots of some debts are migrating.
    pub is_all: bool,
}

impl Membership {
    pub(crate) fn new(fallback: Arc<Fallback>, prefix: &str, metrics: Arc<Metrics>) -> Self {
        let up = Arc::new(UpGauge::new(Arc::clone(&metrics)));
        let key = format!("{{{prefix}tidegate:gateways}}");
        Self {
            fallback,
            reset_log: Arc::new(ResetLog::new(prefix)),
            key,
            self_test_tag: format!("{prefix}tidegate:@self_test"),
            metrics,
            up,
            fewer_since: Mutex::new(None),
        }
    }

    /// Returns the resets of operators that this gateway knows.
    pub(crate) fn reset_log(&self) -> &Arc<ResetLog> {
        &self.reset_log
    }

    /// Returns the hash tag of the keys of the self-test.
    pub(crate) fn self_test_tag(&self) -> &str {
        &self.self_test_tag
    }

    /// Returns the gauge that records whether the store is up.
    pub(crate) fn up(&self) -> &Arc<UpGauge> {
        &self.up
    }

    /// Adds metrics for the node at this address.
    pub(crate) fn add_node(&self, address: String) -> NodeSeries {
        self.metrics.add_node(address)
    }

    /// Returns the store that decides while Redis does not.
    pub(crate) fn fallback(&self) -> &Arc<Fallback> {
        &self.fallback
    }

    /// Creates the outage log of the Redis at this address.
    pub(crate) fn outages(&self, url: RedisUrl) -> Arc<Outages> {
        Arc::new(Outages::new(url, Arc::clone(&self.fallback), Arc::clone(&self.up)))
    }

    /// Announces this gateway, and reads the number of gateways.
    pub(crate) async fn announce(&self, script: &mut Invoker) -> Result<(), StoreError> {
        let Some(gateway) = self.fallback.gateway() else { return Ok(()) };
        let add = |call: &mut Cmd| {
            call.arg(1).arg(&self.key).arg("announce").arg(gateway).arg(ANNOUNCEMENT_TTL_MILLIS);
        };
        let (reply, is_new) = from_redis_value(script.run(add).await?).map_err(|_| StoreError::UnexpectedReply)?;
        let gateways = self.debounce_gateways(reply, is_new);
        self.fallback.set_gateways(gateways);
        self.metrics.set_gateways(gateways);
        Ok(())
    }

    /// Returns the number of gateways to use. It shrinks only after a delay: a Redis that lost its data or whose clock
    /// jumped reports too few gateways at first, and the shares of limits would be too large. A Redis that forgot this
    /// gateway has forgotten the others too.
    fn debounce_gateways(&self, reply: u32, was_forgotten: bool) -> u32 {
        let (current, mut fewer_since) = (self.fallback.known_gateways(), self.fewer_since.lock());
        if was_forgotten {
            *fewer_since = None;
        }
        if reply < current && fewer_since.get_or_insert_with(Instant::now).elapsed() < SHRINK_DELAY {
            return current;
        }
        *fewer_since = None;
        reply
    }

    /// Charges debts to the buckets that the node owns. Returns the number of charged permits and whether all debts to
    /// the node were charged.
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
        self.forget_reset_debts(script, secret).await;
        let last = settlement.rounds() + MAX_ROUNDS;
        while let Some((payment, now)) = settlement.next(&owns).filter(|_| settlement.rounds() <= last) {
            let reply = timeout(PAYMENT_TIMEOUT, send_payment(script, secret, &payment, now)).await;
            match reply.unwrap_or(Err(StoreError::Timeout)) {
                Ok(()) => {
                    result.permits += settlement.charged(&payment);
                    self.metrics.store_charged(payment.permits());
                }
                // A retry would fail again.
                Err(error @ (StoreError::UnexpectedReply | StoreError::NotInitialised | StoreError::ModeDiffers)) => {
                    tracing::warn!(%error, "local grants cannot be charged to the store");
                }
                // Another node has the hash slot, or it is migrating. Other payments do not wait for it.
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

    /// Forgets debts to buckets that an operator has reset during the outage. Only the node of a cluster that has the list of
    /// resets returns them.
    async fn forget_reset_debts(&self, script: &mut Invoker, secret: &KeySecret) {
        let read = async {
            let resets = self.reset_log.read(script).await.unwrap_or_default();
            if resets.is_empty() {
                return;
            }
            let local = self.fallback.now();
            let Ok(redis) = script.time().await else { return };
            for reset in &resets {
                self.fallback.forget_reset(&reset.debts(ResetTimes { local, redis }), *secret);
            }
        };
        _ = timeout(PAYMENT_TIMEOUT, read).await;
    }
}

async fn send_payment(
    script: &mut Invoker,
    secret: &KeySecret,
    payment: &Payment,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(first) = payment.debts.first() else { return Ok(()) };
    // Calendar windows depend on Redis's clock, which may differ from this host's.
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
        if first.kind == ChargeKind::Settle {
            call.arg("settle");
        }
    };
    script.run(add).await.map(|_| ())
}

fn charge(debt: &Debt) -> Charge {
    Charge::new(Arc::clone(&debt.limiter), debt.client.clone(), 0)
}

/// Encodes the number of grants, and for each its permits and its age in milliseconds.
fn grants(debt: &Debt, now: Timestamp) -> String {
    let grant = |(at, permits): &(Timestamp, u32)| format!(" {permits} {}", now.millis_since(*at));
    debt.grants.iter().map(grant).fold(debt.grants.len().to_string(), |all, next| all + &next)
}
