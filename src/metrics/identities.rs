//! Metrics of credentials: the requests by the result of the verification, key sets, and API keys.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

#[cfg(feature = "gateway")]
use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use super::family::Family;

/// The kinds of credentials: tokens, then API keys.
const KINDS: [&str; 2] = ["jwt", "keys"];

/// Why credentials are not accepted, in the order of `IdentityFault`.
pub(crate) const IDENTITY_FAULTS: [&str; 14] = [
    "missing",
    "malformed_key",
    "unknown_key",
    "malformed_token",
    "too_long",
    "algorithm",
    "unknown_kid",
    "signature",
    "claims",
    "expired",
    "not_yet_valid",
    "issuer",
    "audience",
    "unavailable",
];

/// The result of credentials that are accepted.
const VALID: &str = "valid";

/// The names of [`LoadOutcome`], in the order of its variants.
const OUTCOMES: [&str; 2] = ["loaded", "failed"];

/// The metrics of all credentials.
#[derive(Debug)]
pub(super) struct Identities {
    requests: Family<ResultLabels, Counter>,
    /// The series of `requests`, so that requests need no lock: for each kind, by fault.
    faults: [[Counter; IDENTITY_FAULTS.len()]; KINDS.len()],
    valid: [Counter; KINDS.len()],
    loads: Family<OutcomeLabels, Counter>,
    keys: Gauge,
}

/// The outcome of an attempt to load keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadOutcome {
    /// The keys are in use.
    Loaded,
    /// The previous keys stay in use.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    kind: &'static str,
    outcome: &'static str,
}

impl Default for Identities {
    fn default() -> Self {
        let requests: Family<ResultLabels, Counter> = Family::default();
        let series = |kind, result| requests.get_or_create(&ResultLabels { kind, result });
        let faults = KINDS.map(|kind| IDENTITY_FAULTS.map(|fault| series(kind, fault)));
        let valid = KINDS.map(|kind| series(kind, VALID));
        Self { faults, valid, requests, loads: Family::default(), keys: Gauge::default() }
    }
}

impl Identities {
    pub(super) fn describe(&self, catalog: &mut Catalog<'_>) {
        let requests = Description {
            name: "identities",
            labels: &[Label::Fixed("kind", &KINDS), Label::Open("result")],
            unit: "requests",
            meaning: "Requests on routes that read credentials, by the result of their verification: `valid`, \
                      `missing`, or the fault ([identities.md](identities.md))",
            action: "`unavailable`: check `tidegate_identity_loads_total`; other faults in large numbers: a client \
                     guesses, or its credentials were revoked",
        };
        catalog.add(self.requests.clone(), requests);
        let loads = Description {
            name: "identity_loads",
            labels: &[Label::Fixed("kind", &KINDS), Label::Fixed("outcome", &OUTCOMES)],
            unit: "attempts",
            meaning: "Attempts to load the key set of tokens, or the changed file of API keys",
            action: "`failed`: check the URL or the file, the log has the error; the previous keys stay in use",
        };
        catalog.add(self.loads.clone(), loads);
        let keys = Description {
            name: "api_keys",
            labels: &[],
            unit: "keys",
            meaning: "API keys in use",
            action: "differs between gateways for long: one of them cannot read its file",
        };
        catalog.add(self.keys.clone(), keys);
    }
}

#[cfg(feature = "gateway")]
impl Metrics {
    /// Counts a request with an accepted token or API key.
    pub(crate) fn identity_accepted(&self, is_token: bool) {
        self.identities.valid[usize::from(!is_token)].inc();
    }

    /// Counts a request without an accepted token or API key. `fault` is a position in [`IDENTITY_FAULTS`].
    pub(crate) fn identity_rejected(&self, is_token: bool, fault: usize) {
        self.identities.faults[usize::from(!is_token)][fault].inc();
    }

    /// Counts an attempt to load the key set of tokens, or API keys.
    pub(crate) fn identities_loaded(&self, is_token: bool, outcome: LoadOutcome) {
        let (kind, outcome) = (KINDS[usize::from(!is_token)], OUTCOMES[outcome as usize]);
        self.identities.loads.get_or_create(&OutcomeLabels { kind, outcome }).inc();
    }

    pub(crate) fn set_api_keys(&self, count: usize) {
        self.identities.keys.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
