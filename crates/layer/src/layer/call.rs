//! Decides calls of the rate limit service: with the same store, metrics and failure policies as requests to routes.

use std::sync::Arc;

use tokio::time::Instant;

use super::active::Active;
use super::overrides::PreparedOverrides;
use super::post_paid::{AdmittedCall, admit_call};
use super::{LayerState, RateLimitLayer};
use crate::admission::{Denial, give_back_all, store_failure};
use crate::domains::FoundDomain;
use tidegate_metrics::CallMetrics;
use tidegate_rules::limits::rule::OnStoreFailure;
use tidegate_rules::rules::Charges;
use tidegate_service::{AnswerSettings, Call, CallCharges};
use tidegate_store::Store;

/// The milliseconds after which a proxy may repeat a call that the store could not decide. A guess, as for requests.
const RETRY_AFTER_FAILURE: u64 = 1_000;

/// The active domains and their store. A call uses one version of them.
#[derive(Debug)]
pub struct ActiveDomains {
    state: Arc<LayerState>,
    active: Arc<Active>,
}

/// The charges of a call, before the decision.
#[derive(Debug)]
pub struct DomainCall<'d> {
    domain: FoundDomain<'d>,
    charges: CallCharges<'d>,
    states_hits: bool,
}

/// A decided call.
#[derive(Debug)]
pub struct DecidedCall<'d> {
    /// The charges, with the decisions about them.
    pub charges: CallCharges<'d>,
    /// Whether the store did not decide, and a limit with `on_store_failure: deny` rejects the call.
    pub has_store_failed: bool,
    /// Counts the call.
    pub metrics: &'d CallMetrics,
}

impl RateLimitLayer {
    /// Returns the active domains of the rate limit service.
    #[doc(hidden)]
    pub fn active_domains(&self) -> ActiveDomains {
        ActiveDomains { state: Arc::clone(&self.state), active: self.state.active.load_full() }
    }
}

impl ActiveDomains {
    /// Returns the charges of a call, as overrides change them. The call has passed [`validate`](Call::validate). Returns `None`
    /// if no domain has its name.
    pub fn charges(&self, call: &Call<'_>) -> Option<DomainCall<'_>> {
        let domain = self.find(call.domain)?;
        let charges = match self.overrides() {
            None => domain.domain.charges(call),
            Some(overrides) => {
                let mut found = domain.domain.find_limits(call);
                overrides.change_call(domain.domain.route(), &mut found, self.store());
                CallCharges::new(found)
            }
        };
        Some(DomainCall { domain, charges, states_hits: call.states_hits() })
    }

    /// Returns the settings of answers.
    pub fn answers(&self) -> &AnswerSettings {
        self.active.rules.domains.answers()
    }

    /// Returns the counters of the calls without a domain.
    pub fn other_calls(&self) -> &CallMetrics {
        self.active.rules.domains.others()
    }

    /// Returns `true` if a control plane has not sent its domains yet.
    pub fn are_partial(&self) -> bool {
        self.active.rules.domains.are_partial()
    }

    /// Makes all charges of a call or none, but reports to post-paid limits in any case. No limit of a domain lets calls wait. At
    /// the deadline, the store has failed for this call.
    pub async fn decide<'d>(&'d self, call: DomainCall<'d>, deadline: Instant) -> DecidedCall<'d> {
        if call.charges.banned().next().is_some() {
            return Box::pin(self.reject_banned(call, deadline)).await;
        }
        let DomainCall { domain, mut charges, states_hits } = call;
        let store = self.store();
        let AdmittedCall { mut admitted, report_error, reported } =
            admit_call(store, &mut charges.charges, states_hits, deadline).await;
        // The store cannot let quotas reject a call together. So this rare call takes the permits of its other limits, and
        // gives them back at once. Reports stay charged.
        if charges.enforce_quotas(&reported) {
            let unchecked = admitted.ok().and_then(|admitted| admitted.unchecked);
            admitted = Err(Denial::Limited { wait: charges.charges.wait(), unchecked });
            give_back_all(&mut charges.charges, store, deadline).await;
        }
        domain.limits.count(&charges.charges, &admitted, |refusing| {
            if let (Some(rejected), Some(limit)) = (&self.state.options.rejected, domain.limits.id(refusing.index)) {
                rejected.record(self.state.worker.unwrap_or(0), limit, refusing.charge.client.as_ref(), store);
            }
        });
        if let Some(error) = store_failure(&admitted).or(report_error.as_ref()) {
            self.state.metrics.store_failed(error.cause());
        }
        let has_store_failed = matches!(admitted, Err(Denial::StoreFailed(_)));
        if has_store_failed {
            refuse_denying(&mut charges.charges);
        }
        DecidedCall { charges, has_store_failed, metrics: domain.calls }
    }

    /// Rejects a call with a client that an operator has banned. Only its reports are charged: they are the costs of requests that
    /// have happened.
    async fn reject_banned<'d>(&'d self, call: DomainCall<'d>, deadline: Instant) -> DecidedCall<'d> {
        let DomainCall { domain, mut charges, states_hits } = call;
        if states_hits {
            // Each other charge is only checked.
            let AdmittedCall { report_error, .. } =
                admit_call(self.store(), &mut charges.charges, states_hits, deadline).await;
            if let Some(error) = report_error {
                self.state.metrics.store_failed(error.cause());
            }
            charges.charges.forget_decisions();
        }
        self.state.metrics.rejected("banned");
        if let Some(rejected) = &self.state.options.rejected {
            for entry in charges.banned() {
                let client = entry.charge.client.as_ref();
                rejected.record(self.state.worker.unwrap_or(0), domain.bans, client, self.store());
            }
        }
        DecidedCall { charges, has_store_failed: false, metrics: domain.calls }
    }

    /// Returns the domain with this name.
    pub(super) fn find(&self, name: &str) -> Option<FoundDomain<'_>> {
        self.active.rules.domains.find(name)
    }

    pub(super) fn overrides(&self) -> Option<&PreparedOverrides> {
        self.active.overrides.as_ref()
    }

    pub(super) fn store(&self) -> &Store {
        self.state.store(&self.active)
    }
}

/// Records that the limits with `on_store_failure: deny` reject the call. An error instead would let the request pass: by
/// default, proxies pass requests if the service fails.
fn refuse_denying(charges: &mut Charges<'_>) {
    for position in 0..charges.len() {
        let limit = charges.at(position).limit;
        if limit.on_store_failure == OnStoreFailure::Deny && !limit.shadow {
            charges.refuse(position, 0, RETRY_AFTER_FAILURE);
        }
    }
}
