//! The interface to authorization services (`service` of `require`). The gateway implements it, since a layer has no HTTP
//! client.

use std::fmt::Debug;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Uri};
use ipnet::IpNet;
use tokio::time::Instant;

use crate::local_response::ConfiguredResponse;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::{ServiceCheck, ServiceVerdict};

/// Asks authorization services whether they allow requests.
pub trait AskService: Debug + Send + Sync {
    /// Returns the answer of the service. Ends at the deadline of the question.
    fn ask<'q>(&'q self, question: Question<'q>) -> Pin<Box<dyn Future<Output = ServiceAnswer> + Send + 'q>>;
}

/// Asks services, with the connections of each worker.
pub type WorkerServices = Box<[Arc<dyn AskService>]>;

/// The request that a service must allow.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// The service.
    pub check: &'q ServiceCheck,
    /// The properties of the request.
    pub facts: &'q Facts<'q>,
    /// The target as it was sent, which can have the authority.
    pub target: Option<&'q Uri>,
    /// The address of the client, behind trusted proxies.
    pub address: Option<IpAddr>,
    /// The client whose share of the connections to the service the question uses.
    pub client: Option<IpNet>,
    /// The latest time of the answer.
    pub deadline: Instant,
    /// Whether the deadline is the end of the request's own time, before the timeout of the service.
    pub ends_with_request: bool,
}

/// Header fields that the upstream receives instead of the client's.
pub type PassedFields = Arc<[(HeaderName, HeaderValue)]>;

/// The answer of a service.
#[derive(Clone, Debug)]
pub enum ServiceAnswer {
    /// The service allows the request.
    Allowed {
        /// The fields for the upstream.
        fields: PassedFields,
        /// Whether the service has allowed an equal request before, and was not asked.
        is_cached: bool,
    },
    /// The service denies the request with this response. Boxed, because it is large.
    Denied(Box<ConfiguredResponse>),
    /// The service does not decide.
    Failed(ServiceFailure),
}

/// Why a service does not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceFailure {
    /// No connection could be opened.
    Unreachable,
    /// The client has as many questions in flight as it may have.
    BusyClient,
    /// Too many questions are in flight.
    Busy,
    /// The response did not arrive in time.
    TimedOut,
    /// The time of the request ended first, which a gRPC client chooses.
    RequestTimedOut,
    /// The response is a server error (5xx), or broken.
    Broken,
    /// The response is neither a permission nor a denial.
    Unexpected,
}

impl Question<'_> {
    /// Returns the failure of a question that has no answer at its deadline.
    pub fn timed_out(&self) -> ServiceFailure {
        if self.ends_with_request { ServiceFailure::RequestTimedOut } else { ServiceFailure::TimedOut }
    }
}

impl ServiceFailure {
    /// Returns the reason in the access log and in the response.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unreachable => "service_unreachable",
            Self::BusyClient | Self::Busy => "service_busy",
            Self::TimedOut | Self::RequestTimedOut => "service_timeout",
            Self::Broken => "service_error",
            Self::Unexpected => "service_response",
        }
    }

    /// Returns the verdict. A request never passes because many requests wait, or because its own time is short: a client
    /// could cause that.
    pub fn verdict(self) -> ServiceVerdict {
        match self {
            Self::Unreachable | Self::TimedOut | Self::Broken => ServiceVerdict::Unavailable,
            Self::BusyClient | Self::Busy | Self::RequestTimedOut | Self::Unexpected => ServiceVerdict::Undecided,
        }
    }

    /// Returns `true` if the service has not received the question, for a reason that is not the client's. The permits of the
    /// request are given back then.
    pub fn refunds(self) -> bool {
        matches!(self, Self::Unreachable | Self::Busy)
    }
}
