//! One problem of a gateway.

use serde::Serialize;
use utoipa::ToSchema;

use tidegate_limit::clock::Timestamp;

/// Something that an operator should repair.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
pub(crate) struct GatewayProblem {
    kind: ProblemKind,
    /// The file, `UPSTREAM/TARGET`, issuer or team, or the address of the store or the control plane.
    subject: String,
    /// The fault, for operators.
    message: String,
    /// When this gateway noticed the problem (RFC 3339). Absent if it was noticed by this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
}

/// The kind of a problem, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProblemKind {
    /// The store is unreachable, refuses calls, or is too slow.
    Store,
    /// The clocks of the store and of the gateway differ.
    Clock,
    /// The rule file was rejected, and previous rules are in use.
    RuleFile,
    /// The file of a team is invalid.
    TeamFile,
    /// Requests use all targets of an upstream, because most targets fail their checks.
    Upstream,
    /// Requests do not use a target, or it does not respond.
    Target,
    /// A certificate expires soon or has expired, or changed certificate files cannot be loaded.
    Certificate,
    /// Revocation lists have expired.
    Crl,
    /// An OCSP response has expired.
    Ocsp,
    /// A changed file of API keys cannot be loaded.
    ApiKeys,
    /// A key set of tokens cannot be loaded.
    KeySet,
    /// A changed file of users cannot be loaded.
    Users,
    /// Changes of files are not noticed.
    FileWatch,
    /// The control plane of the rate limit service cannot be reached, or its configuration was rejected.
    ControlPlane,
}

impl GatewayProblem {
    /// Creates a problem. The message must not change while the problem persists, because pages announce changes.
    pub(crate) fn new(kind: ProblemKind, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, subject: subject.into(), message: message.into(), since: None }
    }

    /// Returns what identifies the problem.
    pub(super) fn key(&self) -> (ProblemKind, &str) {
        (self.kind, &self.subject)
    }

    /// Sets when the gateway noticed the problem.
    pub(super) fn set_since(&mut self, since: Timestamp) {
        self.since = Some(since.to_rfc3339());
    }

    /// Replaces the message, to mask the secrets of the rule file.
    pub(super) fn mask(&mut self, mask: impl FnOnce(&str) -> String) {
        self.message = mask(&self.message);
    }
}
