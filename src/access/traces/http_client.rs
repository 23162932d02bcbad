//! The HTTP client of the exporter: one connection for each call, plaintext.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use tokio::net::TcpStream;

/// Maximum size of a response of the collector, in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// A client without settings: the exporter sets the URL and the fields.
#[derive(Debug)]
pub(super) struct CollectorClient;

/// The URL has no host.
#[derive(Debug)]
struct NoHost;

type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for CollectorClient {
    fn send_bytes<'this, 'call>(&'this self, request: Request<Bytes>) -> SendFuture<'call>
    where
        'this: 'call,
        Self: 'call,
    {
        Box::pin(send(request))
    }
}

async fn send(mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let authority = request.uri().authority().ok_or(NoHost)?.clone();
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let socket = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    request.headers_mut().insert(header::HOST, host.try_into()?);
    let target = request.uri().path_and_query().cloned();
    *request.uri_mut() = target.map_or_else(Uri::default, Uri::from);
    let (mut sender, connection) = handshake(TokioIo::new(socket)).await?;
    tokio::spawn(connection); // ends with `sender`
    let (head, body) = sender.send_request(request.map(Full::new)).await?.into_parts();
    let body = Limited::new(body, MAX_RESPONSE).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}

impl fmt::Display for NoHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the URL has no host")
    }
}

impl std::error::Error for NoHost {}
