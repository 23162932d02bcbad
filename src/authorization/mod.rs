//! Asks authorization services whether they allow requests: `require: { service: ... }`.
//!
//! A question is a GET request on a connection of an upstream that the rule file does not name. So DNS names, TLS, pools and
//! ejection work as for all upstreams.

mod answer;
mod cache;
mod question;

use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use tokio::time::{Instant, timeout_at};

use self::answer::Read;
pub(crate) use self::cache::AnswerCache;
use tidegate_layer::authorization::{AskService, Question, ServiceAnswer, ServiceFailure, WorkerServices};
use tidegate_proxy::upstream::{RequestBody, ResponseBody, Upstream, UpstreamError, Upstreams};

/// Asks services with the connections of one worker.
#[derive(Debug)]
struct Services {
    upstreams: Upstreams,
    cache: Arc<AnswerCache>,
}

/// Creates the access to services for each worker. All workers share the cache.
pub(crate) fn services(workers: &[Upstreams], cache: &Arc<AnswerCache>) -> WorkerServices {
    let of_worker = |upstreams: &Upstreams| {
        let services = Services { upstreams: upstreams.share(), cache: Arc::clone(cache) };
        Arc::new(services) as Arc<dyn AskService>
    };
    workers.iter().map(of_worker).collect()
}

impl AskService for Services {
    fn ask<'q>(&'q self, question: Question<'q>) -> Pin<Box<dyn Future<Output = ServiceAnswer> + Send + 'q>> {
        Box::pin(async move { self.answer(&question).await.unwrap_or_else(ServiceAnswer::Failed) })
    }
}

impl Services {
    /// Returns the answer to a question, from the cache if an equal question was allowed before.
    async fn answer(&self, question: &Question<'_>) -> Result<ServiceAnswer, ServiceFailure> {
        let check = question.check;
        let upstream = self.upstreams.get(&check.upstream).ok_or(ServiceFailure::Unreachable)?;
        let mut request = question::request(question, upstream.default_host()).ok_or(ServiceFailure::Unexpected)?;
        let key = check.cache.map(|life| (self.cache.key(check, &request), life));
        if let Some((key, _)) = &key
            && let Some(fields) = self.cache.get(key, Instant::now())
        {
            return Ok(ServiceAnswer::Allowed { fields, is_cached: true });
        }
        let asked = Instant::now(); // a permission can be withdrawn while its response is on the way
        let response = send(upstream, &mut request, question).await?;
        let Read { answer, may_be_kept } = answer::read(response, question).await?;
        if let (ServiceAnswer::Allowed { fields, .. }, Some((key, life)), true) = (&answer, key, may_be_kept) {
            self.cache.insert(key, fields, asked + life);
        }
        Ok(answer)
    }
}

/// Sends a question. Returns the response with its body unread.
async fn send(
    upstream: &Upstream,
    request: &mut Request<RequestBody>,
    question: &Question<'_>,
) -> Result<Response<ResponseBody>, ServiceFailure> {
    let sent = timeout_at(question.deadline, upstream.send(request, &question.client, None)).await;
    match sent {
        Ok(Ok(response)) => Ok(response.into_response(request)),
        Ok(Err(error)) => Err(failure(error.error)),
        Err(_) => {
            if !question.ends_with_request {
                upstream.record_timeout();
            }
            Err(question.timed_out())
        }
    }
}

fn failure(error: UpstreamError) -> ServiceFailure {
    match error {
        UpstreamError::Unreachable | UpstreamError::NoUsableTarget | UpstreamError::UpgradeUnsupported => {
            ServiceFailure::Unreachable
        }
        UpstreamError::QueueFull { by_client: true } | UpstreamError::QueueTimedOut { by_client: true } => {
            ServiceFailure::BusyClient
        }
        UpstreamError::QueueFull { .. } | UpstreamError::QueueTimedOut { .. } => ServiceFailure::Busy,
        UpstreamError::TimedOut => ServiceFailure::TimedOut,
        // A question has no body that a client could break off.
        UpstreamError::Broken
        | UpstreamError::ClientStalled
        | UpstreamError::ClientBroken
        | UpstreamError::ClientTooLong => ServiceFailure::Broken,
    }
}
