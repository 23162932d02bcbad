//! Metrics of credentials: the requests by the result of the verification, key sets, and API keys.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;
use super::catalog::{Catalog, Description, Label};
use crate::instruments::family::Family;

/// The names of [`Credential`], in the order of its variants.
const KINDS: [&str; 3] = ["jwt", "keys", "basic"];

/// The result of credentials that are accepted.
const VALID: &str = "valid";

/// The names of [`LoadOutcome`], in the order of its variants.
const OUTCOMES: [&str; 2] = ["loaded", "failed"];

/// The metrics of all credentials.
#[derive(Debug)]
pub(super) struct Identities {
    requests: Family<ResultLabels, Counter>,
    /// The series of valid requests for each kind, so that these requests need no lock.
    valid: [Counter; KINDS.len()],
    loads: Family<OutcomeLabels, Counter>,
    keys: Gauge,
}

/// A kind of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A token.
    Token,
    /// An API key.
    Key,
    /// A user with a password.
    User,
}

/// The outcome of an attempt to load keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadOutcome {
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
        let valid = KINDS.map(|kind| requests.get_or_create(&ResultLabels { kind, result: VALID }));
        Self { valid, requests, loads: Family::default(), keys: Gauge::default() }
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
            action: "`unavailable`: check `tidegate_identity_loads_total`; `busy`: clients guess passwords; other faults in \
                     large numbers: a client guesses, or its credentials were revoked",
        };
        catalog.add(self.requests.clone(), requests);
        let loads = Description {
            name: "identity_loads",
            labels: &[Label::Fixed("kind", &KINDS), Label::Fixed("outcome", &OUTCOMES)],
            unit: "attempts",
            meaning: "Attempts to load a key set of tokens, or the changed file of API keys or users",
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

#[doc(hidden)]
impl Metrics {
    /// Counts a request with accepted credentials.
    pub fn identity_accepted(&self, credential: Credential) {
        self.identities.valid[credential as usize].inc();
    }

    /// Counts a request without accepted credentials. `fault` is a fixed word.
    pub fn identity_rejected(&self, credential: Credential, fault: &'static str) {
        let kind = KINDS[credential as usize];
        self.identities.requests.get_or_create(&ResultLabels { kind, result: fault }).inc();
    }

    /// Counts an attempt to load a key set of tokens, API keys or users.
    pub fn identities_loaded(&self, credential: Credential, outcome: LoadOutcome) {
        let (kind, outcome) = (KINDS[credential as usize], OUTCOMES[outcome as usize]);
        self.identities.loads.get_or_create(&OutcomeLabels { kind, outcome }).inc();
    }

    pub fn set_api_keys(&self, count: usize) {
        self.identities.keys.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
