//! This gateway's membership among the gateways that share a Redis: announces it, reads the number of gateways, and
//! charges what it granted locally during an outage.

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
use crate::fallback::local_grants::{BucketGrants, LateCharge, LocalGrant};
use tidegate_limit::clock::Timestamp;
use tidegate_metrics::{Metrics, NodeSeries};
use tidegate_rules::charge::{Charge, ChargeKind, ClientId, Limiter};
use tidegate_rules::settings::store::{KeySecret, RedisUrl};

/// The time between announcements.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_millis(2_500);

/// How long an announcement counts, in milliseconds.
const ANNOUNCEMENT_TTL_MILLIS: u32 = 15_000;

/// How long Redis must report fewer gateways before their number shrinks. Each gateway announces itself twice in this
/// time.
const SHRINK_DELAY: Duration = Duration::from_secs(5);

/// The timeout of a late charge, and of reading the resets before it.
const LATE_CHARGE_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum number of passes before a connection is used: the existing local grants, and grants that arrive in
/// the meantime. Other connections that are down may add more, which are charged later.
const MAX_PASSES: u64 = 2;

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

/// The local grants that a node was charged with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateChargeResult {
    pub permits: u64,
    /// False if hash slots of some local grants are migrating.
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

    /// Charges local grants to the buckets that the node owns. Returns the number of charged permits and whether all
    /// grants of the node were charged.
    pub(crate) async fn charge_local_grants(
        &self,
        script: &mut Invoker,
        secret: &KeySecret,
        owns: impl Fn(&Limiter, Option<&ClientId>) -> bool,
    ) -> Result<LateChargeResult, StoreError> {
        let mut result = LateChargeResult { permits: 0, is_all: true };
        if !self.fallback.has_uncharged_grants() {
            return Ok(result);
        }
        let mut late_charger = self.fallback.late_charger().await;
        self.forget_reset_grants(script, secret).await;
        let last = late_charger.passes() + MAX_PASSES;
        while let Some((late_charge, now)) = late_charger.next(&owns).filter(|_| late_charger.passes() <= last) {
            let reply = timeout(LATE_CHARGE_TIMEOUT, send_late_charge(script, secret, &late_charge, now)).await;
            match reply.unwrap_or(Err(StoreError::Timeout)) {
                Ok(()) => {
                    result.permits += late_charger.charged(&late_charge);
                    self.metrics.store_charged(late_charge.permits());
                }
                // A retry would fail again.
                Err(error @ (StoreError::UnexpectedReply | StoreError::NotInitialised | StoreError::ModeDiffers)) => {
                    tracing::warn!(%error, "local grants cannot be charged to the store");
                }
                // Another node has the hash slot, or it is migrating. Other late charges do not wait for it.
                Err(error) if error.is_redirected() => {
                    late_charger.postpone(&late_charge);
                    continue;
                }
                Err(error) => return Err(error),
            }
            late_charger.finish(&late_charge);
        }
        result.is_all = !late_charger.has_postponed();
        Ok(result)
    }

    /// Forgets local grants of buckets that an operator has reset during the outage. Only the node of a cluster that
    /// has the list of resets returns them.
    async fn forget_reset_grants(&self, script: &mut Invoker, secret: &KeySecret) {
        let read = async {
            let resets = self.reset_log.read(script).await.unwrap_or_default();
            if resets.is_empty() {
                return;
            }
            let local = self.fallback.now();
            let Ok(redis) = script.time().await else { return };
            for reset in &resets {
                self.fallback.forget_reset(&reset.grants(ResetTimes { local, redis }), *secret);
            }
        };
        _ = timeout(LATE_CHARGE_TIMEOUT, read).await;
    }
}

async fn send_late_charge(
    script: &mut Invoker,
    secret: &KeySecret,
    late_charge: &LateCharge,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(first) = late_charge.buckets.first() else { return Ok(()) };
    // Calendar windows depend on Redis's clock, which may differ from this host's.
    let redis_now = script.time().await?;
    let mut buckets = Buckets::default();
    let mut indexed: Vec<_> = late_charge.buckets.iter().map(|bucket| (buckets.add(&charge(bucket)), bucket)).collect();
    indexed.sort_by_key(|(index, _)| *index);
    let grants: Vec<String> = indexed.iter().map(|(_, bucket)| grants(bucket, now)).collect();
    let once = keys::late_charge_key(&first.limiter, first.client.as_ref(), late_charge.id);
    let add = |call: &mut Cmd| {
        call.arg(buckets.number_of_keys() + 1);
        buckets.each_key(secret, |key| _ = call.arg(key));
        call.arg(&once).arg("charge_later").arg(buckets.limiter_args(redis_now)).arg(grants.join(" "));
        call.arg(&late_charge.id.to_le_bytes());
        if first.kind == ChargeKind::Unconditional {
            call.arg("charge_unconditionally");
        }
    };
    script.run(add).await.map(|_| ())
}

fn charge(bucket: &BucketGrants) -> Charge {
    Charge::new(Arc::clone(&bucket.limiter), bucket.client.clone(), 0)
}

/// Encodes the number of grants, and for each its permits and its age in milliseconds.
fn grants(bucket: &BucketGrants, now: Timestamp) -> String {
    let grant = |grant: &LocalGrant| format!(" {} {}", grant.permits, now.millis_since(grant.at));
    bucket.grants.iter().map(grant).fold(bucket.grants.len().to_string(), |all, next| all + &next)
}
