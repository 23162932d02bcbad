//! Passes messages through the gateway without sockets: from received bytes to forwarded bytes. For the fuzzer.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use tower::{Layer, Service};

use crate::forward::{Forward, find_in, rewrite_response};
use crate::http::http1::{self, Framing, Malformed, Piece, RemainingBody, ResponseContext, WriteBuffer};
use crate::transport::BodyData;
use crate::upstream::{RequestBody, ResponseBody, Upstreams};
use tidegate_config::Config;
use tidegate_layer::layer::{LayerError, Peer, RateLimitLayer, RateLimited, Stores};
use tidegate_metrics::Metrics;
use tidegate_rules::request::facts::{Facts, Requests};
use tidegate_rules::request::sanitize::NextHop;

/// A gateway without sockets.
#[derive(Debug)]
pub struct Pipeline {
    limited: RateLimited<RequestWriter>,
}

/// A service that writes each request as for an upstream, and returns the bytes as the body of its response.
#[derive(Clone, Debug)]
struct RequestWriter;

/// The result of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PipelineOutcome {
    /// The message is incomplete.
    Incomplete,
    /// The message is malformed, and the connection ends.
    Malformed,
    /// The gateway responds itself, with this status.
    Responded(u16),
    /// The gateway forwards the message.
    Forwarded {
        /// The forwarded bytes.
        bytes: Vec<u8>,
        /// The length of the received message.
        length: usize,
        /// The path that the rules matched. Empty for a response.
        path: String,
    },
}

/// A body whose bytes are in memory.
struct BufferedBody {
    remaining: RemainingBody,
    unread: Bytes,
}

impl Pipeline {
    /// Creates a pipeline with these rules.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn new(rules: &str) -> Result<Self, LayerError> {
        let config = Config::parse(rules)?;
        let metrics = Arc::new(Metrics::of_gateway(&[]));
        let upstreams = Upstreams::new(config.upstreams.values(), 1, &metrics);
        let layer = RateLimitLayer::builder().next(NextHop::Origin).metrics(metrics).from_config(&config)?;
        layer.replace_all(&config, Stores::new(layer.store(), 0), &find_in(&[upstreams]), Box::default());
        Ok(Self { limited: layer.layer(RequestWriter) })
    }

    /// Parses a request, applies the rules, and writes the request for an upstream.
    pub fn request(&self, bytes: &[u8], peer: IpAddr) -> PipelineOutcome {
        let mut unread = Bytes::copy_from_slice(bytes);
        let parsed = match http1::read_request(&unread, &mut HeaderMap::new(), 100) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return PipelineOutcome::Incomplete,
            Err(_) => return PipelineOutcome::Malformed,
        };
        _ = unread.split_to(parsed.length);
        let path = Facts::read(
            parsed.request.method(),
            parsed.request.uri(),
            parsed.request.version(),
            parsed.request.headers(),
            peer,
            &Requests::default(),
        )
        .map(|facts| facts.path.normalized().to_owned())
        .unwrap_or_default();
        // Requires the whole body, so that the forwarded request is complete.
        let framing = Framing::of_request(parsed.framing_fields);
        let rest = match bytes_after_body(framing, &unread) {
            Ok(Some(rest)) => rest,
            Ok(None) => return PipelineOutcome::Incomplete,
            Err(Malformed) => return PipelineOutcome::Malformed,
        };
        let remaining = RemainingBody::new(framing);
        let body = match remaining.is_end() {
            true => RequestBody::none(),
            false => RequestBody::new(BufferedBody { remaining, unread }),
        };
        let mut request = parsed.request.map(|()| body);
        request.extensions_mut().insert(Peer(peer));
        match poll_once(self.limited.clone().call(request)) {
            Some(Ok(response)) if response.status().is_success() => {
                let sent = poll_once(http_body_util::BodyExt::collect(response.into_body()));
                let sent = sent.and_then(Result::ok).map(|body| body.to_bytes().to_vec()).unwrap_or_default();
                match sent.is_empty() {
                    true => PipelineOutcome::Responded(200),
                    false => PipelineOutcome::Forwarded { bytes: sent, length: bytes.len() - rest, path },
                }
            }
            Some(Ok(response)) => PipelineOutcome::Responded(response.status().as_u16()),
            _ => PipelineOutcome::Incomplete,
        }
    }

    /// Parses a response to a request with this method, on a connection that then ends, and writes the response for a
    /// client.
    pub fn response(&self, bytes: &[u8], method: &Method) -> PipelineOutcome {
        let mut unread = Bytes::copy_from_slice(bytes);
        let mut fields = HeaderMap::new();
        let parsed = match http1::read_response(&unread, &mut fields, http1::MAX_FIELDS) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => return PipelineOutcome::Incomplete,
            Err(_) => return PipelineOutcome::Malformed,
        };
        _ = unread.split_to(parsed.length);
        let status = parsed.line.status;
        if status.is_informational() {
            return PipelineOutcome::Responded(status.as_u16());
        }
        let framing = Framing::of_response(method, status, parsed.framing_fields);
        let rest = match bytes_after_body(framing, &unread) {
            Ok(Some(rest)) => rest,
            Ok(None) => return PipelineOutcome::Incomplete,
            Err(Malformed) => return PipelineOutcome::Malformed,
        };
        let none = ResponseBody::from(Full::new(Bytes::new()));
        let mut response = parsed.line.into_response(fields, Extensions::new(), none);
        if rewrite_response(&mut response, true).is_none() {
            return PipelineOutcome::Malformed;
        }
        let length = if let Framing::Length(length) = framing { Some(length) } else { None };
        let head_only = *method == Method::HEAD;
        let context = ResponseContext { version: Version::HTTP_11, head_only, length, keeps_open: true };
        let mut sent = Vec::new();
        let framing_out = http1::write_response(&mut sent, &response, context);
        // `RequestBody` removes forbidden trailers.
        let body = RequestBody::new(BufferedBody { remaining: RemainingBody::new(framing), unread });
        match framing_out {
            Framing::Length(0) => {}
            framing => match write_body(framing, body) {
                Some(body) => sent.extend(body),
                None => return PipelineOutcome::Malformed,
            },
        }
        PipelineOutcome::Forwarded { bytes: sent, length: bytes.len() - rest, path: String::new() }
    }
}

/// Returns the number of bytes after the body, or `None` if the body is incomplete.
fn bytes_after_body(framing: Framing, bytes: &Bytes) -> Result<Option<usize>, Malformed> {
    let (mut remaining, mut unread) = (RemainingBody::new(framing), bytes.clone());
    loop {
        match remaining.take(&mut unread)? {
            Piece::Data(_) => {}
            Piece::End(_) => return Ok(Some(unread.len())),
            Piece::NeedInput => return Ok(matches!(framing, Framing::UntilClose).then_some(0)),
        }
    }
}

/// Writes a request for an upstream. Returns `None` if the body is invalid.
fn write_request(request: &mut Request<RequestBody>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    http1::write_request(&mut bytes, request);
    let has_body = !request.body().is_end_stream();
    let framing = match http1::length(request.headers()).ok()? {
        _ if request.headers().contains_key(http::header::TRANSFER_ENCODING) => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::Length(0),
    };
    if has_body {
        bytes.extend(write_body(framing, request.body_mut())?);
    }
    Some(bytes)
}

/// Writes a body in this framing. Returns `None` if the body is invalid or does not match the framing.
fn write_body(framing: Framing, mut body: impl Body<Data = BodyData> + Unpin) -> Option<Vec<u8>> {
    let (mut buffer, mut sent, mut length) = (WriteBuffer::default(), Vec::new(), 0);
    loop {
        let frame = poll_once(std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)))?;
        let end = match frame.transpose().ok()?.map(Frame::into_data) {
            Some(Ok(data)) => {
                length += data.len() as u64;
                match framing {
                    Framing::Chunked => buffer.push_chunk(data.into_bytes().ok()?),
                    _ => buffer.push(data),
                }
                false
            }
            end => {
                let trailers = end.and_then(Result::err).and_then(|frame| frame.into_trailers().ok());
                if matches!(framing, Framing::Chunked) {
                    buffer.push_end(&trailers.unwrap_or_default());
                }
                true
            }
        };
        poll_once(std::future::poll_fn(|cx| buffer.poll_write(&mut sent, cx)))?.ok()?;
        let is_wrong = matches!(framing, Framing::Length(announced) if announced != length);
        if end {
            return (!is_wrong).then_some(sent);
        }
    }
}

impl Service<Request<RequestBody>> for RequestWriter {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let is_ready = Forward::prepare(&mut request).is_ok();
        let sent = is_ready.then(|| write_request(&mut request)).flatten();
        ready(Ok(Response::new(Full::new(sent.map(Bytes::from).unwrap_or_default()))))
    }
}

impl Body for BufferedBody {
    type Data = BodyData;
    type Error = Malformed;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyData>, Malformed>>> {
        let this = &mut *self;
        Poll::Ready(match this.remaining.take(&mut this.unread) {
            Ok(Piece::Data(data)) => Some(Ok(Frame::data(data.into()))),
            Ok(Piece::End(trailers)) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Ok(Piece::NeedInput) if matches!(this.remaining, RemainingBody::UntilClose) => None,
            Ok(Piece::NeedInput) | Err(Malformed) => Some(Err(Malformed)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.remaining.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.size_hint()
    }
}

/// Returns the output of a future that is ready at the first poll.
fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
