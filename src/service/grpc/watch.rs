//! Health checks as a stream (`Watch` of grpc.health.v1): the status, and then each change of it. Clients of gRPC use it to choose
//! among servers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http::header::CONTENT_TYPE;
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::status::Status;
use super::{CallContext, GRPC, health};
use crate::service::response_body::CallBody;
use tidegate_proxy::http::grpc::frame;
use tidegate_proxy::http::grpc_health::{HealthCheckResponse, SERVICE_UNKNOWN};
use tidegate_proxy::upstream::RequestBody;

/// The most streams of a worker. Each costs about a kilobyte, and a timer.
const MAX_WATCHES: usize = 1_000;

/// How often a stream looks whether a control plane has sent its domains. A drain ends the wait at once.
const INTERVAL: Duration = Duration::from_secs(1);

/// Counts the streams of a worker.
#[derive(Clone, Debug)]
pub(in crate::service) struct Watches(Arc<Semaphore>);

/// A stream of statuses.
struct Watch {
    context: CallContext,
    is_known: bool,
    sent: Option<i32>,
    has_ended: bool,
    _counted: OwnedSemaphorePermit,
}

impl Default for Watches {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_WATCHES)))
    }
}

/// Responds with a stream, which ends when the gateway drains or the client leaves. A service that is unknown has a status of its
/// own, as grpc.health.v1 defines.
pub(super) async fn respond(context: CallContext, body: RequestBody) -> Response<CallBody> {
    let watch = match Watch::start(context, body).await {
        Ok(watch) => watch,
        Err(status) => return status.into_response(),
    };
    let frames = stream::unfold(watch, |mut watch| async { Some((watch.next_frame().await?, watch)) });
    let mut response = Response::new(CallBody::from_frames(frames));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

impl Watch {
    async fn start(context: CallContext, body: RequestBody) -> Result<Self, Status> {
        let is_known = health::is_known(&health::read(&context, body).await?);
        let counted = Arc::clone(&context.watches.0).try_acquire_owned();
        let counted = counted.map_err(|_| Status::TOO_MANY_WATCHES)?;
        Ok(Self { context, is_known, sent: None, has_ended: false, _counted: counted })
    }

    /// Returns the next frame of the response: a status that differs from the last one, or the trailers at the end. Returns `None`
    /// after the trailers.
    async fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        while !self.has_ended {
            let status = if self.is_known { health::status(&self.context) } else { SERVICE_UNKNOWN };
            if self.sent.replace(status) != Some(status) {
                return Some(Frame::data(frame(&HealthCheckResponse { status }).into()));
            }
            if !self.context.readiness.is_ready() {
                self.has_ended = true;
                return Some(Frame::trailers(Status::DRAINING.into_trailers()));
            }
            _ = timeout(INTERVAL, self.context.readiness.failed()).await;
        }
        None
    }
}
