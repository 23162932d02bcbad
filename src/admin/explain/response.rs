//! The response of `POST /api/v1/explain`.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::super::{Active, overrides};
use super::Charges;
use tidegate_layer::layer::RateLimitLayer;
use tidegate_layer::overrides::{Action, Override};
use tidegate_limit::Wait;
use tidegate_replay::explain::{EarlyAnswer, Explanation, forwarded_path};
use tidegate_rules::charge::Charge;
use tidegate_rules::client::{AddressTrace, TraceEnd};
use tidegate_rules::limits::rule::{Limit, LimitLocation};
use tidegate_rules::rules::LimitCheck;
use tidegate_store::{Inspection, StoreError};

/// How the rules apply to a request.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(in crate::admin) struct Explained {
    /// Whether all live limits would grant the request now. False if the request is answered without a decision; null if
    /// the store does not decide.
    pub(super) admitted: Option<bool>,
    /// The status of a response that needs no decision of the limits.
    pub(super) status: Option<u16>,
    /// The status of the gateway's own answer if the limits grant the request; null if it is forwarded.
    pub(super) status_if_granted: Option<u16>,
    /// The status of the answer if a limit refuses the request; null if the limits are not asked.
    pub(super) status_if_refused: Option<u16>,
    /// Why the gateway sends this response.
    pub(super) reason: Option<String>,
    /// The request as the rules read it; null if it is answered before.
    pub(super) request: Option<NormalRequest>,
    /// The address of the client; null if the request is answered before.
    pub(super) client: Option<ClientAddress>,
    /// The first route that matches.
    pub(super) route: Option<MatchedRoute>,
    /// All other routes, in the order of the rule file.
    pub(super) other_routes: Vec<OtherRoute>,
    /// The limits of the route.
    pub(super) limits: Vec<ExplainedLimit>,
    /// The explanation as `tidegate explain --live` writes it.
    pub(super) text: String,
}

/// A request as the rules read it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NormalRequest {
    method: String,
    /// In lower case, without the port.
    host: String,
    /// The path that routes match.
    path: String,
    /// The path that upstreams receive.
    forwarded_path: String,
    /// The fields that are removed and have no effect.
    removed: Vec<String>,
}

/// How the address of the client was found.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClientAddress {
    pub(super) address: String,
    /// The trusted proxies that were skipped, starting with the peer.
    proxies: Vec<String>,
    /// The forwarded text that is not an address, at which the search ended.
    invalid: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MatchedRoute {
    pub(super) name: String,
    upstream: Option<String>,
    /// The action for admitted requests.
    action: String,
    /// The changes of the request and the response.
    changes: Vec<String>,
    conditions: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OtherRoute {
    name: String,
    /// The first condition that the request does not meet; null if only the order of the routes decides.
    unmet: Option<String>,
}

/// A limit of the route.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ExplainedLimit {
    limit: String,
    /// `OVERALL` or `PER_CLIENT`.
    mode: String,
    shadow: bool,
    /// The `file` and the `line` of the limit.
    #[schema(value_type = Object)]
    location: LimitLocation,
    check: Check,
    /// Why the limit skips or rejects the request.
    reason: Option<String>,
    /// The address or the hash of the client; null for an OVERALL limit.
    pub(super) client: Option<String>,
    /// The permits that the request costs.
    cost: Option<u32>,
    #[serde(flatten)]
    remaining: Remaining,
    /// The override that bans the client, or changes the limit for it.
    #[serde(rename = "override")]
    #[schema(value_type = Option<Object>)]
    in_force: Option<Value>,
}

/// The effect of a limit on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Check {
    /// It counts the request.
    Charge,
    /// It does not count the request.
    Skip,
    /// It rejects the request.
    Deny,
}

/// The decision that a limit would make now. All members are null if the limit does not count the request.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct Remaining {
    /// Whether the limit would grant the request now.
    admitted: Option<bool>,
    remaining: Option<u32>,
    used: Option<u64>,
    /// When the limit grants the request (RFC 3339); null if never.
    next_permit_at: Option<String>,
    /// Why the store did not answer.
    error: Option<String>,
}

// === impl Explained ===

impl Explained {
    /// Returns the response for a request that is answered before the rules are evaluated.
    pub(super) fn answered(answer: &EarlyAnswer<'_>) -> Self {
        let (status, reason) = (Some(answer.status), Some(answer.reason.clone()));
        Self { admitted: Some(answer.is_authorized), status, reason, text: answer.to_string(), ..Self::default() }
    }

    /// Returns the response without what remains, and the charge of each limit.
    pub(super) fn new(explanation: &Explanation<'_>, active: &Active, layer: &RateLimitLayer) -> (Self, Charges) {
        let (facts, checks) = (explanation.facts, &explanation.checks);
        let found =
            explanation.route().map(|route| layer.overrides_for(&route.name, facts, checks)).unwrap_or_default();
        let of_limit = |index: usize| found.limits.get(index).and_then(Option::as_ref);
        let in_force = |index| of_limit(index).map(|one| &one.in_force);
        let mut text = explanation.to_string();
        let rejection = explanation.early_rejection();
        let rejection = rejection.or_else(|| {
            let reason = describe_ban(found.ban.as_ref()?);
            let status = active.config.rules.bans.as_ref().map_or(403, |response| response.status.as_u16());
            text += &format!("\nnow: answered with {status}: {reason}\n");
            Some((status, reason))
        });
        let rejection = rejection.or_else(|| explanation.denial(|index| !is_exemption(in_force(index))));
        let rejection = rejection.or_else(|| explanation.identity_rejection());
        let (status, reason) = rejection.unzip();
        let status = status.map(|status| explanation.response_status(status));
        let forwarding = explanation.route().filter(|_| explanation.is_forwarded());
        let is_other = |name: &str| explanation.route().is_none_or(|route| *route.name != *name);
        let others = active.config.rules.routes.iter().filter(|route| is_other(&route.name));
        let explained = Self {
            admitted: status.map(|_| false),
            status,
            status_if_granted: explanation.granted_status().filter(|_| status.is_none()),
            status_if_refused: explanation.refused_status().filter(|_| status.is_none()),
            reason,
            request: Some(NormalRequest {
                method: facts.method.to_string(),
                host: facts.host.to_string(),
                path: facts.path.matched().to_owned(),
                forwarded_path: forwarded_path(forwarding, facts).into_owned(),
                removed: explanation.removed.iter().map(ToString::to_string).collect(),
            }),
            client: explanation.trace.as_ref().map(ClientAddress::new),
            route: explanation.route().map(|route| MatchedRoute {
                name: route.name.to_string(),
                upstream: forwarding.and_then(|route| route.action.upstream()).map(ToString::to_string),
                action: explanation.describe_action(route),
                changes: forwarding.map(|_| explanation.changes.clone()).unwrap_or_default(),
                conditions: route.matcher.conditions().map(|condition| condition.to_string()).collect(),
            }),
            other_routes: others
                .map(|route| OtherRoute {
                    name: route.name.to_string(),
                    unmet: route.matcher.unmet(facts).map(|condition| condition.to_string()),
                })
                .collect(),
            limits: (0..)
                .zip(checks)
                .map(|(index, (limit, check))| {
                    ExplainedLimit::new(explanation, (limit, check), in_force(index), active)
                })
                .collect(),
            text,
        };
        let charge = |(index, (_, check)): (usize, &(&Limit, LimitCheck))| match check {
            LimitCheck::Charge(charge) if !is_exemption(in_force(index)) => {
                let adjusted = of_limit(index).and_then(|one| one.limiter.clone());
                let limiter = adjusted.unwrap_or_else(|| charge.limiter.clone());
                Some(Charge { limiter, ..charge.clone() })
            }
            LimitCheck::Charge(_) | LimitCheck::Skip(_) | LimitCheck::Unmet | LimitCheck::Deny(_) => None,
        };
        (explained, checks.iter().enumerate().map(charge).collect())
    }

    /// Adds what remains of each limit.
    pub(super) fn add_remaining(&mut self, all: Vec<Option<Remaining>>) {
        for (limit, remaining) in self.limits.iter_mut().zip(all) {
            limit.remaining = remaining.unwrap_or_default();
        }
        if self.status.is_some() {
            return;
        }
        let live = || self.limits.iter().filter(|limit| !limit.shadow && limit.check == Check::Charge);
        // Without a status, the request is forwarded over its limits.
        let is_rejected =
            self.status_if_refused.is_some() && live().any(|limit| limit.remaining.admitted == Some(false));
        let is_unknown = live().any(|limit| limit.remaining.error.is_some());
        self.admitted = if is_rejected { Some(false) } else { (!is_unknown).then_some(true) };
        self.text += &self.describe_now();
    }

    /// Describes what the limits would decide now.
    fn describe_now(&self) -> String {
        let mut text = match self.admitted {
            Some(true) => "\nnow: admitted\n".to_owned(),
            Some(false) => "\nnow: not admitted\n".to_owned(),
            None => "\nnow: the store does not decide\n".to_owned(),
        };
        for (number, limit) in (1..).zip(&self.limits) {
            let state = limit.remaining.describe("request");
            let by = limit.in_force.as_ref().map(describe_override).unwrap_or_default();
            _ = writeln!(text, "  {number}. {}: {state}{by}", limit.limit); // writing to a String cannot fail
        }
        text
    }
}

// === impl ClientAddress, ExplainedLimit, Remaining ===

impl Remaining {
    /// Returns `true` if the store was asked.
    pub(super) fn is_read(&self) -> bool {
        self.remaining.is_some() || self.error.is_some()
    }

    /// Describes the decision about a request or a call, which `what` names.
    pub(super) fn describe(&self, what: &str) -> String {
        let Self { remaining, admitted, next_permit_at, error, .. } = self;
        let remaining = remaining.map(|permits| match permits {
            1 => "1 permit remains".to_owned(),
            permits => format!("{permits} permits remain"),
        });
        match (admitted, remaining, error) {
            (_, _, Some(error)) => format!("the store did not answer: {error}"),
            (Some(true), Some(remaining), _) => remaining,
            (Some(false), Some(remaining), _) => match next_permit_at {
                Some(at) => format!("{remaining}, grants this {what} at {at}"),
                None => format!("{remaining}, never grants this {what}"),
            },
            _ => format!("does not count the {what}"),
        }
    }
}

impl ClientAddress {
    fn new(trace: &AddressTrace<'_>) -> Self {
        let invalid = match trace.end {
            TraceEnd::Invalid(hop) => Some(String::from_utf8_lossy(hop).trim().to_owned()),
            TraceEnd::Untrusted | TraceEnd::Exhausted => None,
        };
        let proxies = trace.proxies.iter().map(ToString::to_string).collect();
        Self { address: trace.address.to_string(), proxies, invalid }
    }
}

impl ExplainedLimit {
    fn new(
        explanation: &Explanation<'_>,
        (limit, check): (&Limit, &LimitCheck),
        in_force: Option<&Override>,
        active: &Active,
    ) -> Self {
        let exemption = in_force.filter(|_| is_exemption(in_force));
        let (kind, charge) = match check {
            _ if exemption.is_some() => (Check::Skip, None),
            LimitCheck::Charge(charge) => (Check::Charge, Some(charge)),
            LimitCheck::Skip(_) | LimitCheck::Unmet => (Check::Skip, None),
            LimitCheck::Deny(_) => (Check::Deny, None),
        };
        Self {
            limit: limit.name.clone(),
            mode: limit.mode().to_string(),
            shadow: limit.shadow,
            location: limit.location.clone(),
            check: kind,
            reason: match exemption {
                Some(one) => Some(format!("override {} exempts the client", one.id)),
                None => explanation.reason_of_check(limit, check),
            },
            client: charge.and_then(|charge| active.client_name(charge)),
            cost: charge.map(|charge| charge.permits),
            remaining: Remaining::default(),
            in_force: in_force.map(overrides::show),
        }
    }
}

fn is_exemption(in_force: Option<&Override>) -> bool {
    in_force.is_some_and(|one| one.action == Action::Exempt)
}

/// Describes an override as the API shows it, with the rate that it changes.
pub(super) fn describe_override(one: &Value) -> String {
    let (Some(id), Some(action)) = (one["id"].as_str(), one["action"].as_str()) else { return String::new() };
    let change = ["rate", "multiply"].iter().find(|key| !one[**key].is_null());
    let change = change.map(|key| format!(" {key} {}", one[*key])).unwrap_or_default();
    format!(" (override {id}: {action}{change})")
}

fn describe_ban(ban: &Override) -> String {
    format!("override {} bans the client until {}: {}", ban.id, ban.until.to_rfc3339(), ban.reason)
}

impl From<Result<Inspection, StoreError>> for Remaining {
    fn from(read: Result<Inspection, StoreError>) -> Self {
        match read {
            Ok(inspection) => Self {
                admitted: Some(inspection.wait == Wait::Now),
                remaining: Some(inspection.remaining),
                used: Some(inspection.used),
                next_permit_at: inspection.next_permit_at().map(tidegate_limit::clock::Timestamp::to_rfc3339),
                error: None,
            },
            Err(error) => Self { error: Some(error.to_string()), ..Self::default() },
        }
    }
}
