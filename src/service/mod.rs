//! Envoy's rate limit service: a proxy describes a request in a call, over gRPC or HTTP, and gets the decision of the limits
//! of a domain. A program takes permits of the limits that it names.
//!
//! [`grpc`] and [`http`] read calls and write answers, on connections of [`server`](tidegate_proxy::server). [`decide`] asks the
//! limits, and [`answer`] makes the answer, which is the same for both. [`take`] is for programs.

mod answer;
mod bad_call;
mod body_memory;
mod decide;
mod dynamic_metadata;
mod fields;
mod grpc;
mod http;
mod lists;
mod problem;
mod response_body;
mod structs;
mod take;
mod unit;
mod xds;

use self::body_memory::BodyMemory;
use self::grpc::Watches;
use self::take::Access;
pub(crate) use self::take::TakeTokens;
pub(crate) use self::xds::{DomainSink, SentResources, StreamState, run as follow_control_plane};
use crate::admin::Readiness;
use tidegate_layer::layer::RateLimitLayer;
use tidegate_layer::layer::take::Take;
use tidegate_proxy::service::BoxedService;
use tidegate_service::{Call, CallError};

/// The longest body of a call, in bytes: of 17 descriptors with the longest value.
const MAX_BODY: usize = 1 << 20;

/// The data that all calls of a worker share.
#[derive(Clone, Debug)]
struct CallContext {
    /// The layer of the worker, which has the active domains.
    layer: RateLimitLayer,
    readiness: Readiness,
    memory: BodyMemory,
    watches: Watches,
    /// The access to the paths for programs.
    access: Access,
}

/// Reads the call from a gRPC message, and uses it. Returns the message of an error.
pub(crate) fn read_message_call<T>(
    message: &[u8],
    with: impl FnOnce(&Call<'_>) -> Result<T, CallError>,
) -> Result<T, String> {
    grpc::read(message, with).map_err(|error| error.to_string())
}

/// Reads the call from JSON, and uses it. Returns the message of an error.
pub(crate) fn read_json_call<T>(
    body: &[u8],
    with: impl FnOnce(&Call<'_>) -> Result<T, CallError>,
) -> Result<T, String> {
    http::read(body, with).map_err(|error| error.to_string())
}

/// Reads the body of `POST /v1/take`. Returns the message of an error.
pub(crate) fn read_take_body(body: &[u8]) -> Result<Take, String> {
    take::read_take(body).map_err(|problem| problem.detail().to_owned())
}

/// Reads the body of `POST /v1/return`. Returns the id, or the message of an error.
pub(crate) fn read_return_body(body: &[u8]) -> Result<String, String> {
    take::read_return(body).map_err(|problem| problem.detail().to_owned())
}

/// The services of a worker.
#[derive(Clone, Debug)]
pub(crate) struct CallServices {
    pub(crate) grpc: BoxedService,
    context: CallContext,
}

impl CallContext {
    /// Returns `true` if the gateway does not drain, and the control plane has sent its domains if they are required.
    fn is_serving(&self) -> bool {
        self.readiness.is_ready() && !self.layer.active_domains().are_partial()
    }
}

impl CallServices {
    /// Creates the services of a worker with this layer. `tokens` authorize programs.
    pub(crate) fn new(layer: RateLimitLayer, readiness: Readiness, tokens: TakeTokens) -> Self {
        let (memory, watches, access) = (BodyMemory::default(), Watches::default(), Access::Token(tokens));
        let context = CallContext { layer, readiness, memory, watches, access };
        let calls = context.clone();
        Self { grpc: BoxedService::new(move |request| grpc::respond(calls.clone(), request)), context }
    }

    /// Returns the service for a socket with HTTP. Only this machine can reach a `local` one, so that programs need no token.
    pub(crate) fn http(&self, local: bool) -> BoxedService {
        let mut context = self.context.clone();
        if local {
            context.access = Access::Open;
        }
        BoxedService::new(move |request| http::respond(context.clone(), request))
    }
}
