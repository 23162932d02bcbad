//! A limit of one or several routes: the client that it counts, the cost of a request, and the fallbacks if one of them
//! is unknown.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;

use crate::charge::{Charge, Limiter};
use crate::client::{ClientSource, Duplicates};
use crate::json;
use crate::limits::cost::Cost;
use crate::limits::rates::Rates;
use crate::limits::status_range::StatusRange;
use crate::request::facts::Facts;
use crate::request::identity::IdentityKinds;
use tidegate_limit::Mode;
use tidegate_limit::text::words::words;
use tidegate_usage::Pointer;

/// One entry of `limits:`, of a route or of the rule file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The name in the rule file, metrics, headers and logs. Unique within the route, or within the shared limits.
    pub name: String,
    /// The buckets that the limit takes permits from.
    #[serde(skip)]
    pub limiter: Arc<Limiter>,
    /// The source of other rates than the limiter's. `None` if all requests have the same rate.
    #[serde(skip)]
    pub rates: Option<Arc<Rates>>,
    /// The position of the limit's conditions in the rules. `None` if the limit applies to all requests of its routes.
    #[serde(skip)]
    pub when: Option<usize>,
    /// Whether `when` compares the tier of the API key.
    #[serde(skip)]
    pub reads_key_tier: bool,
    /// The places in bodies that `when` compares.
    #[serde(skip)]
    pub body_conditions: Vec<Pointer>,
    /// How a client is identified. Used only for PER_CLIENT.
    #[serde(skip)]
    pub client: ClientSource,
    /// The cost of a request.
    pub permits: Cost,
    /// The action for requests without a client.
    pub on_missing_client: OnMissingClient,
    /// The action for requests with several different clients.
    pub duplicates: Duplicates,
    /// The action while the store does not decide.
    pub on_store_failure: OnStoreFailure,
    /// How long rejected requests may wait for permits. `None` rejects them immediately.
    #[serde(skip)]
    pub wait_policy: Option<WaitPolicy>,
    /// The responses for which a request is charged. `None` charges every request.
    #[serde(flatten)]
    pub charge_on: Option<Box<ChargeOn>>,
    /// Whether the limit is only evaluated and counted. A shadow never rejects a request and takes no permits from
    /// live limits.
    pub shadow: bool,
    /// Whether the rule file sets the number of partitions.
    #[serde(skip)]
    pub sets_partitions: bool,
    /// Whether the limit is one of the top-level `limits`, so that several routes may use it.
    #[serde(rename = "shared")]
    pub is_shared: bool,
    /// The entry in the rule file.
    #[serde(skip)]
    pub location: LimitLocation,
}

/// The name for operators of the route that shared limits belong to. No route can have this name.
pub const SHARED_ROUTE: &str = "@";

/// The position of a limit in the rule file, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitLocation {
    /// The path of the file, as given on the command line; or `xds:` and the resource of a control plane.
    #[serde(serialize_with = "json::text")]
    pub file: Arc<str>,
    /// The line where the entry starts, starting at 1. 0 for a resource.
    pub line: usize,
}

/// Displays `FILE:LINE`.
impl std::fmt::Display for LimitLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The responses for which a limit charges requests. Other requests only have to find enough permits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChargeOn {
    /// The statuses of these responses.
    #[serde(rename = "charge_on", serialize_with = "json::texts")]
    pub statuses: Vec<StatusRange>,
    /// Whether requests are charged before they are forwarded, and refunded after other responses.
    pub reserve: bool,
}

/// How long rejected requests may wait for permits, and how many may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// The longest time that a request may wait, from its arrival.
    pub max_wait: Duration,
    /// The maximum number of requests in this gateway that wait for one bucket.
    pub queue: usize,
}

words! {
    /// How a limit handles a request without a client key.
    pub enum OnMissingClient, default Deny {
        /// The request is rejected with 400.
        Deny = "deny",
        /// The limit does not apply.
        Skip = "skip",
        /// The client's address is the key.
        Ip = "ip",
    }
}

words! {
    /// How a limit decides while the store is unreachable.
    pub enum OnStoreFailure, default Local {
        /// Each gateway enforces its share of the limit.
        Local = "local",
        /// Requests are admitted.
        Allow = "allow",
        /// Requests are rejected with 503.
        Deny = "deny",
    }
}

impl ChargeOn {
    /// Returns `true` if a response with this status charges its request.
    pub fn includes(&self, status: StatusCode) -> bool {
        self.statuses.iter().any(|range| range.contains(status.as_u16()))
    }
}

impl WaitPolicy {
    /// The default maximum number of waiting requests.
    pub const DEFAULT_QUEUE: usize = 100;
}

impl Limit {
    /// Creates a limit with the defaults of the rule file.
    pub fn new(name: String, limiter: Arc<Limiter>) -> Self {
        Self {
            name,
            limiter,
            rates: None,
            when: None,
            reads_key_tier: false,
            body_conditions: Vec::new(),
            client: ClientSource::Ip,
            permits: Cost::Fixed(1),
            on_missing_client: OnMissingClient::default(),
            duplicates: Duplicates::default(),
            on_store_failure: OnStoreFailure::default(),
            wait_policy: None,
            charge_on: None,
            shadow: false,
            sets_partitions: false,
            is_shared: false,
            location: LimitLocation::default(),
        }
    }

    /// Returns the name of the route that the limit belongs to: `@` for a shared limit, otherwise the route with this name.
    #[doc(hidden)]
    pub fn owner<'n>(&self, route: &'n str) -> &'n str {
        if self.is_shared { SHARED_ROUTE } else { route }
    }

    /// Returns the limiter with the rate of a request.
    #[doc(hidden)]
    #[inline]
    pub fn limiter_for(&self, facts: &Facts<'_>) -> Arc<Limiter> {
        let chosen = self.rates.as_ref().and_then(|rates| rates.choose(facts).0);
        chosen.unwrap_or_else(|| Arc::clone(&self.limiter))
    }

    /// Records where the rate of a charge comes from.
    #[inline]
    pub(crate) fn record_rate(&self, charge: &Charge, facts: &Facts<'_>) {
        if let Some(rates) = &self.rates
            && Arc::ptr_eq(&charge.limiter, &self.limiter)
        {
            rates.record(rates.choose(facts).1);
        }
    }

    /// Replaces the limiter, or the limiters of all rates.
    #[doc(hidden)]
    #[must_use]
    pub fn with_limiters(self, map: impl Fn(&Limiter) -> Limiter) -> Self {
        let map = |limiter: &Limiter| Arc::new(map(limiter));
        let rates = self.rates.as_ref().map(|rates| Arc::new(rates.map_limiters(map)));
        let limiter = rates.as_ref().map_or_else(|| map(&self.limiter), |rates| Arc::clone(rates.default_limiter()));
        Self { limiter, rates, ..self }
    }

    /// Returns whether the limit has one bucket or one for each client.
    pub fn mode(&self) -> Mode {
        self.limiter.mode
    }

    /// Returns `true` if the limit identifies some or all clients by their addresses.
    #[doc(hidden)]
    pub fn reads_address(&self) -> bool {
        self.mode() == Mode::PerClient && (self.on_missing_client == OnMissingClient::Ip || self.client.reads_address())
    }

    /// Returns `true` if the limit counts a request by its address even if its credentials are not valid.
    #[doc(hidden)]
    pub fn is_by_address(&self) -> bool {
        let needs_no_identity =
            self.on_missing_client == OnMissingClient::Ip || self.client.identity_kinds().is_empty();
        self.reads_address() && needs_no_identity && !self.reads_body()
    }

    /// Returns `true` if the limit depends on the bodies of requests.
    #[doc(hidden)]
    #[inline]
    pub fn reads_body(&self) -> bool {
        let cost_reads_body = match &self.permits {
            Cost::Fixed(_) | Cost::Header(_) => false,
            Cost::Json(_) => true,
            Cost::Usage(cost) => cost.source.api().is_some(),
        };
        cost_reads_body || !self.body_conditions.is_empty() || self.client.reads_body()
    }

    /// Returns the kinds of credentials that the limit reads.
    #[doc(hidden)]
    pub fn identity_kinds(&self) -> IdentityKinds {
        let rates = self.rates.as_ref().map(|rates| rates.by.kinds()).unwrap_or_default();
        let tiers = IdentityKinds { key: self.reads_key_tier, ..IdentityKinds::default() };
        self.client.identity_kinds().union(rates).union(tiers)
    }

    /// Returns the places in bodies that the limit reads.
    pub fn body_pointers(&self) -> impl Iterator<Item = &Pointer> {
        let clients = self.client.sources().into_iter().filter_map(|source| match source {
            ClientSource::Json(pointer) => Some(pointer),
            _ => None,
        });
        let cost = match &self.permits {
            Cost::Json(cost) => Some(&cost.pointer),
            _ => None,
        };
        clients.chain(cost).chain(&self.body_conditions)
    }

    /// Returns `true` if responses may report the limit: a live limit with one bucket for each client, whose rate is
    /// in the rule file.
    pub fn is_visible_to_clients(&self) -> bool {
        self.mode() == Mode::PerClient && !self.shadow && !self.limiter.quota.is_adopted()
    }

    /// Returns `true` if a quota reports the limit: a visible limit whose client does not depend on the path or the body.
    /// The path of a request for a quota is always the path of the quota.
    #[doc(hidden)]
    pub fn is_visible_in_quota(&self) -> bool {
        self.is_visible_to_clients() && !self.client.reads_path() && !self.client.reads_body()
    }
}
