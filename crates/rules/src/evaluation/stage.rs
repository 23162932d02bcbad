//! The order of the stages of an evaluation.

/// A stage of an evaluation. The stages are in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// `OPTIONS *` asks about the server itself.
    Server,
    /// A browser asks whether it may send a request.
    Preflight,
    PreflightAnswer,
    /// The credentials, if conditions of routes depend on them.
    MatchedIdentity,
    /// A client reads the state of its limits.
    Quota,
    QuotaMethod,
    QuotaIdentity,
    QuotaIdentified,
    QuotaState,
    /// All other requests need a route.
    Route,
    /// A proxy asks about another request.
    Authorize,
    /// The upgrade to another protocol.
    Tunnel,
    /// The length of the body.
    Size,
    /// Limits that do not depend on the credentials, if they are known to refuse the request.
    Check,
    /// The credentials, and whether the route accepts them.
    Identity,
    Identified,
    /// The body, if a limit depends on it.
    Body,
    /// The limits and the slot.
    Limits,
    Decision,
    /// The service that must allow the request.
    Ask,
    Asked,
    /// The response of the route, if it has one.
    Action,
    Forward,
}

impl Stage {
    /// Returns the next stage.
    pub(super) fn following(self) -> Self {
        match self {
            Self::Server => Self::Preflight,
            Self::Preflight => Self::PreflightAnswer,
            Self::PreflightAnswer => Self::MatchedIdentity,
            Self::MatchedIdentity => Self::Quota,
            Self::Quota => Self::QuotaMethod,
            Self::QuotaMethod => Self::QuotaIdentity,
            Self::QuotaIdentity => Self::QuotaIdentified,
            Self::QuotaIdentified => Self::QuotaState,
            Self::QuotaState => Self::Route,
            Self::Route => Self::Authorize,
            Self::Authorize => Self::Tunnel,
            Self::Tunnel => Self::Size,
            Self::Size => Self::Check,
            Self::Check => Self::Identity,
            Self::Identity => Self::Identified,
            Self::Identified => Self::Body,
            Self::Body => Self::Limits,
            Self::Limits => Self::Decision,
            Self::Decision => Self::Ask,
            Self::Ask => Self::Asked,
            Self::Asked => Self::Action,
            Self::Action | Self::Forward => Self::Forward,
        }
    }
}
