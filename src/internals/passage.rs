//! A message's way through the gateway, from bytes to bytes and without a socket; for the fuzzer.

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

use crate::config::Config;
use crate::facts::{Facts, Requests};
use crate::forward::{Forward, rewrite_answer};
use crate::http1::{self, Framing, Malformed, Piece, RemainingBody, ResponseContext, WriteBuffer};
use crate::layer::{LayerError, Peer, RateLimitLayer, RateLimited};
use crate::metrics::Metrics;
use crate::sanitize::NextHop;
use crate::upstream::{RequestBody, ResponseBody, Upstreams};

/// A gateway without its sockets.
#[derive(Debug)]
pub struct Passage {
    limited: RateLimited<Written>,
}

/// A service that answers with what it would have sent an origin.
#[derive(Clone, Debug)]
struct Written(Forward);

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It is not all here.
    Part,
    /// It is none, and the connection ends: what is answered, if anything is.
    Malformed,
    /// It is answered here, with this status.
    Answered(u16),
    /// It goes on.
    On {
        /// What the other side is sent.
        bytes: Vec<u8>,
        /// How many bytes it had.
        length: usize,
        /// The path on which it was judged; of a request.
        path: String,
    },
}

/// A body that is here as far as it is here.
struct Here {
    left: RemainingBody,
    unread: Bytes,
}

impl Passage {
    /// By these rules.
    ///
    /// # Errors
    /// See [`LayerError`].
    pub fn new(rules: &str) -> Result<Self, LayerError> {
        let config = Config::parse(rules)?;
        let metrics = Arc::new(Metrics::new());
        let forward = Forward::new(Arc::new(Upstreams::new(config.upstreams.values(), 1, &metrics)));
        let layer = RateLimitLayer::builder().next(NextHop::Origin).metrics(metrics).from_config(&config)?;
        Ok(Self { limited: layer.layer(Written(forward)) })
    }

    /// Reads a request, judges it, and writes it to an origin.
    pub fn request(&self, bytes: &[u8], peer: IpAddr) -> Passed {
        let mut unread = Bytes::copy_from_slice(bytes);
        let asked = match http1::read_request(&unread, &mut HeaderMap::new(), 100) {
            Ok(Some(asked)) => asked,
            Ok(None) => return Passed::Part,
            Err(_) => return Passed::Malformed,
        };
        _ = unread.split_to(asked.length);
        let path = Facts::read(
            asked.request.method(),
            asked.request.uri(),
            asked.request.version(),
            asked.request.headers(),
            peer,
            &Requests::default(),
        )
        .map(|facts| facts.path.normalized().to_owned())
        .unwrap_or_default();
        // The whole body must be here, so that what is written is either whole or nothing.
        let framing = Framing::of_request(asked.framing_fields);
        let rest = match end_of(framing, &unread) {
            Ok(Some(rest)) => rest,
            Ok(None) => return Passed::Part,
            Err(Malformed) => return Passed::Malformed,
        };
        let left = RemainingBody::new(framing);
        let body = if left.is_end() { RequestBody::none() } else { RequestBody::new(Here { left, unread }) };
        let mut request = asked.request.map(|()| body);
        request.extensions_mut().insert(Peer(peer));
        match now(self.limited.clone().call(request)) {
            Some(Ok(response)) if response.status().is_success() => {
                let sent = now(http_body_util::BodyExt::collect(response.into_body()));
                let sent = sent.and_then(Result::ok).map(|body| body.to_bytes().to_vec()).unwrap_or_default();
                match sent.is_empty() {
                    true => Passed::Answered(200),
                    false => Passed::On { bytes: sent, length: bytes.len() - rest, path },
                }
            }
            Some(Ok(response)) => Passed::Answered(response.status().as_u16()),
            _ => Passed::Part,
        }
    }

    /// Reads an answer to a request of this method, the last of its connection, and writes it to a client.
    pub fn answer(&self, bytes: &[u8], method: &Method) -> Passed {
        let mut unread = Bytes::copy_from_slice(bytes);
        let mut fields = HeaderMap::new();
        let answer = match http1::read_response(&unread, &mut fields) {
            Ok(Some(answer)) => answer,
            Ok(None) => return Passed::Part,
            Err(Malformed) => return Passed::Malformed,
        };
        _ = unread.split_to(answer.length);
        let status = answer.line.status;
        if status.is_informational() {
            return Passed::Answered(status.as_u16());
        }
        let framing = Framing::of_response(method, status, answer.framing_fields);
        let rest = match end_of(framing, &unread) {
            Ok(Some(rest)) => rest,
            Ok(None) => return Passed::Part,
            Err(Malformed) => return Passed::Malformed,
        };
        let none = ResponseBody::from(Full::new(Bytes::new()));
        let mut response = answer.line.into_response(fields, Extensions::new(), none);
        if rewrite_answer(&mut response, true).is_none() {
            return Passed::Malformed;
        }
        let length = if let Framing::Length(length) = framing { Some(length) } else { None };
        let head_only = *method == Method::HEAD;
        let context = ResponseContext { version: Version::HTTP_11, head_only, length, keeps_open: true };
        let mut sent = Vec::new();
        let framing_out = http1::write_response(&mut sent, &response, context);
        // As of every body, trailers that must not be forwarded are removed.
        let body = RequestBody::new(Here { left: RemainingBody::new(framing), unread });
        match framing_out {
            Framing::Length(0) => {}
            framing => match write_body(framing, body) {
                Some(body) => sent.extend(body),
                None => return Passed::Malformed,
            },
        }
        Passed::On { bytes: sent, length: bytes.len() - rest, path: String::new() }
    }
}

/// How many bytes are left behind a body; nothing if it does not end here.
fn end_of(framing: Framing, bytes: &Bytes) -> Result<Option<usize>, Malformed> {
    let (mut left, mut unread) = (RemainingBody::new(framing), bytes.clone());
    loop {
        match left.take(&mut unread)? {
            Piece::Data(_) => {}
            Piece::End(_) => return Ok(Some(unread.len())),
            Piece::NeedInput => return Ok(matches!(framing, Framing::UntilClose).then_some(0)),
        }
    }
}

/// What an origin is sent of a request; nothing if its body is none.
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

/// What is sent of a body in this framing; nothing if it does not fit.
fn write_body(framing: Framing, mut body: impl Body<Data = Bytes> + Unpin) -> Option<Vec<u8>> {
    let (mut outgoing, mut sent, mut length) = (WriteBuffer::default(), Vec::new(), 0);
    loop {
        let frame = now(std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)))?;
        let end = match frame.transpose().ok()?.map(Frame::into_data) {
            Some(Ok(data)) => {
                length += data.len() as u64;
                match framing {
                    Framing::Chunked => outgoing.push_chunk(data),
                    _ => outgoing.push(data),
                }
                false
            }
            end => {
                let trailers = end.and_then(Result::err).and_then(|frame| frame.into_trailers().ok());
                if matches!(framing, Framing::Chunked) {
                    outgoing.push_end(&trailers.unwrap_or_default());
                }
                true
            }
        };
        now(std::future::poll_fn(|cx| outgoing.poll_write(&mut sent, cx)))?.ok()?;
        let is_wrong = matches!(framing, Framing::Length(told) if told != length);
        if end {
            return (!is_wrong).then_some(sent);
        }
    }
}

impl Service<Request<RequestBody>> for Written {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let Self(forward) = self;
        let is_ready = forward.prepare(&mut request).is_ok();
        let sent = is_ready.then(|| write_request(&mut request)).flatten();
        ready(Ok(Response::new(Full::new(sent.map(Bytes::from).unwrap_or_default()))))
    }
}

impl Body for Here {
    type Data = Bytes;
    type Error = Malformed;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Malformed>>> {
        let this = &mut *self;
        Poll::Ready(match this.left.take(&mut this.unread) {
            Ok(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Piece::End(trailers)) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Ok(Piece::NeedInput) if matches!(this.left, RemainingBody::UntilClose) => None,
            Ok(Piece::NeedInput) | Err(Malformed) => Some(Err(Malformed)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.size_hint()
    }
}

/// What comes of something that waits for nothing.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
