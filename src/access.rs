//! One request from the listener to its answer: who sent it, what the layer and the service below make of it, and the
//! line in the access log.
//!
//! A line tells the method, the path, the status, the route, what its limits said, the peer and the time until the
//! answer's head. `at` is when the store decided, in milliseconds of the store's clock: over the lines of all gateways,
//! anybody can count that no window held more than its rate. A line never tells the query or a header field: secrets
//! travel there.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};

use crate::clock::{Stopwatch, Timestamp};
use crate::forward::Forward;
use crate::layer::{RateLimited, Report};
use crate::upstream::{RequestBody, ResponseBody};

/// The target of access lines, which the logs are told apart by.
pub const TARGET: &str = "tidegate::access";

/// What is written about a request.
struct Line {
    method: Method,
    path: String,
    peer: SocketAddr,
    stopwatch: Stopwatch,
}

/// Answers a request with the gateway's service: the layer over [`Forward`].
pub fn answer(
    service: Arc<RateLimited<Forward>>,
    request: Request<RequestBody>,
    peer: SocketAddr,
) -> impl Future<Output = Response<ResponseBody>> + Send {
    let mut parcel = Some(request);
    async move {
        let line = Line::begin(parcel.as_ref(), peer);
        let forward = |parcel, permit| service.inner().forward(parcel, permit);
        let Ok((response, report)) = service.answer(peer.ip(), &mut parcel, forward).await;
        if let Some(line) = line {
            line.write(response.status(), &report);
        }
        response
    }
}

impl Line {
    fn begin(request: Option<&Request<RequestBody>>, peer: SocketAddr) -> Option<Self> {
        let request = request.filter(|_| tracing::enabled!(target: TARGET, tracing::Level::INFO))?;
        Some(Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            peer,
            stopwatch: Stopwatch::start(),
        })
    }

    fn write(self, status: StatusCode, report: &Report) {
        let route = report.route.as_deref().unwrap_or("-");
        let limits = report.outcome.as_str();
        let at = report.at.map(Timestamp::as_millis); // absent unless the store decided
        let status = status.as_u16();
        let ms = self.stopwatch.elapsed().as_secs_f64() * 1_000.0;
        let (method, path, peer) = (self.method.as_str(), self.path.as_str(), self.peer.ip());
        tracing::info!(target: TARGET, status, route, limits, at, %peer, ms, "{method} {path}");
    }
}
