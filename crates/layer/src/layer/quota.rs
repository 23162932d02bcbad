//! The `quota` of a route: a client reads the state of the limits that apply to it, free of charge.

use std::sync::Arc;

use futures_util::future::try_join_all;
use ipnet::IpNet;
use serde::Serialize;
use serde_json::Value;

use super::LayerState;
use super::active::Snapshot;
use super::record::RequestRecord;
use super::respond::not_identified;
use crate::headers::retry_after;
use crate::local_response::{LocalResponse, ViolatedLimits};
use tidegate_limit::{Algorithm, Mode, Quota, Wait};
use tidegate_rules::charge::{Charge, ClientId, Limiter};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::route::Route;
use tidegate_store::{Inspection, Store, StoreError};

/// The requests for quotas that a client may send in a second.
const RATE: u64 = 10;
/// The highest number of clients that are counted one by one. Further clients share a bucket.
const MAX_CLIENTS: usize = 10_000;

/// Responds to requests for quotas, and limits them on this gateway.
#[derive(Debug)]
pub(super) struct QuotaEndpoint {
    store: Store,
    /// `None` if the constants above are invalid.
    limiter: Option<Arc<Limiter>>,
}

/// The body of a response.
#[derive(Serialize)]
struct Quotas<'r> {
    limits: Vec<LimitQuota<'r>>,
}

/// The state of a limit for one client.
#[derive(Serialize)]
struct LimitQuota<'r> {
    name: &'r str,
    /// Permits per interval.
    rate: u32,
    /// Seconds.
    interval: Value,
    /// The permits that the client can take now.
    remaining: u32,
    /// Seconds until the next used permit returns; 0 if no permit is used.
    reset: u64,
    /// The costs, reservations and debt of a budget.
    #[serde(flatten)]
    budget: Option<BudgetQuota>,
}

/// The permits of a budget.
#[derive(Serialize)]
struct BudgetQuota {
    /// The costs of earlier requests that count now.
    spent: u64,
    /// The most that requests in flight can cost.
    reserved: u64,
    /// The costs above the rate.
    debt: u64,
}

impl LayerState {
    /// Returns the response to an admitted request for the quota of this route.
    pub(super) async fn quota(
        &self,
        snapshot: Snapshot<'_>,
        route: &Route,
        facts: &Facts<'_>,
        record: &mut RequestRecord<'_>,
    ) -> LocalResponse {
        let response = QuotaEndpoint::respond(snapshot, route, facts).await;
        let depends_on_identity = matches!(response, LocalResponse::Quota(_) | LocalResponse::NoClient { .. });
        if let Some(fault) = facts.identity_fault().filter(|_| depends_on_identity) {
            return not_identified(&snapshot.active.rules, fault, (route, facts));
        }
        self.record_ban(snapshot, facts, &response, record);
        response
    }
}

impl QuotaEndpoint {
    pub(super) fn new() -> Self {
        let quota = Quota::new(RATE, 1_000, Algorithm::TokenBucket).ok();
        let limiter = quota.map(|quota| Arc::new(Limiter::new("quota".to_owned(), Mode::PerClient, quota)));
        Self { store: Store::memory_builder().max_buckets(MAX_CLIENTS).open(), limiter }
    }

    /// Removes unused buckets.
    pub(super) fn run_maintenance(&self) {
        self.store.run_maintenance();
    }

    /// Counts a request for a quota.
    ///
    /// # Errors
    /// The client sends too many requests.
    pub(super) fn admit(&self, client: Option<IpNet>) -> Result<(), LocalResponse> {
        match self.wait(client) {
            None => Ok(()),
            Some(wait) => {
                let retry_after = retry_after(wait);
                Err(LocalResponse::Limited { violated: ViolatedLimits::default(), retry_after })
            }
        }
    }

    /// Returns the response to an admitted request for the quota of this route.
    async fn respond(Snapshot { active, store }: Snapshot<'_>, route: &Route, facts: &Facts<'_>) -> LocalResponse {
        let charges = match active.visible_charges(store, route, facts) {
            Ok(charges) => charges,
            Err(rejection) => return rejection,
        };
        let read = charges.iter().map(|(limit, charge)| LimitQuota::read(store, limit, charge));
        match try_join_all(read).await {
            // The serialization of strings and numbers cannot fail.
            Ok(limits) => LocalResponse::Quota(serde_json::to_vec(&Quotas { limits }).unwrap_or_default()),
            Err(_) => LocalResponse::StoreFailed,
        }
    }

    /// Counts a request of this client. Returns the wait until its next request if it sends too many.
    fn wait(&self, client: Option<IpNet>) -> Option<Wait> {
        let unknown = IpNet::from(std::net::IpAddr::from([0, 0, 0, 0]));
        let client = Some(ClientId::Address(client.unwrap_or(unknown)));
        let charge = Charge::new(Arc::clone(self.limiter.as_ref()?), client, 1);
        let outcome = self.store.take_immediately(&[charge])?.ok()?;
        outcome.decisions.first().filter(|decision| !decision.granted).map(|decision| decision.wait)
    }
}

impl<'r> LimitQuota<'r> {
    async fn read(store: &Store, limit: &'r Limit, charge: &Charge) -> Result<Self, StoreError> {
        Ok(Self::new(&limit.name, &charge.limiter.quota, &store.inspect(charge).await?))
    }

    fn new(name: &'r str, quota: &Quota, inspection: &Inspection) -> Self {
        // The windows of a calendar vary in length.
        let interval = match quota.algorithm() {
            Algorithm::FixedWindow(_) => quota.refill(inspection.now),
            _ => quota.interval(),
        };
        let (spent, debt) = (inspection.used, inspection.debt(quota.full()));
        Self {
            name,
            rate: quota.rate(),
            interval: seconds(interval),
            remaining: inspection.remaining,
            reset: inspection.reset.div_ceil(1_000),
            budget: inspection.reserved.map(|reserved| BudgetQuota { spent, reserved, debt }),
        }
    }
}

/// Converts milliseconds to seconds, to a whole number if possible.
fn seconds(millis: u64) -> Value {
    match millis % 1_000 {
        0 => (millis / 1_000).into(),
        _ => (millis as f64 / 1_000.0).into(),
    }
}
