//! One request from the listener to its answer: who sent it, what the layer and the service below make of it, and the
//! line in the access log.
//!
//! A request that panics is answered with 500, and costs nobody else anything.

mod answer;
mod caught;
mod line;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};

pub(crate) use self::answer::Answer;
use self::caught::{Panicked, caught};
use self::line::Line;
pub(crate) use self::line::refused;
use crate::forward::Forward;
use crate::layer::{Handover, RateLimited};
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::upstream::{RequestBody, ResponseBody};

/// The target of access lines, which the logs are told apart by.
pub(crate) const TARGET: &str = "tidegate::access";

/// What answers a request that may go on.
pub(crate) trait Origin {
    /// Its answer, which is never an error.
    fn forward<'a>(
        &'a self,
        request: &'a mut Request<RequestBody>,
        handover: Handover,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + Send;
}

/// Answers a request with the gateway's service: the layer over [`Forward`].
#[expect(clippy::manual_async_fn, reason = "an async function has room for its arguments twice")]
pub(crate) fn answer<O: Origin + Send + Sync>(
    service: Arc<RateLimited<O>>,
    mut request: Request<RequestBody>,
    peer: SocketAddr,
) -> impl Future<Output = Response<Answer>> + Send {
    async move {
        let mut line = Line::begin(&request, peer.ip());
        let forward = |request, handover| service.inner().forward(request, handover);
        let report = line.as_deref_mut().map(Line::report);
        let response = match caught(service.answer(peer.ip(), &mut request, forward, report)).await {
            Ok(Ok(response)) => response,
            Err(Panicked) => {
                Metrics::panicked();
                if let Some(line) = &mut line {
                    line.ends_early("panicked");
                }
                Refusal::Panicked.into_response().map(ResponseBody::from)
            }
        };
        if let Some(line) = &mut line {
            line.head(&response);
        }
        response.map(|body| Answer::new(body, line))
    }
}

impl Origin for Forward {
    fn forward<'a>(
        &'a self,
        request: &'a mut Request<RequestBody>,
        handover: Handover,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + Send {
        self.forward(request, handover)
    }
}
