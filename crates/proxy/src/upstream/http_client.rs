//! Requests of the gateway itself and of its commands, for key sets, traces and the admin API. Each has its own HTTP/1.1
//! connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::upstream::HostLookup;

/// The longest time for a connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends a request to the host of its URL, which is looked up with `hosts`. Returns the response with its body unread.
/// Uses TLS if `tls` is set. Does not follow redirects.
///
/// # Errors
/// The URL has no host, no address of the host accepts the connection, or the exchange fails.
pub async fn send(
    mut request: Request<Full<Bytes>>,
    tls: Option<ClientConfig>,
    hosts: &HostLookup,
) -> io::Result<Response<Incoming>> {
    let url = std::mem::take(request.uri_mut());
    *request.uri_mut() = url.path_and_query().cloned().map_or_else(Uri::default, Uri::from);
    let authority = url.authority().ok_or_else(|| io::Error::other("the URL has no host"))?;
    let name = authority.as_str().rsplit('@').next().unwrap_or_default();
    request.headers_mut().insert(HOST, name.try_into().map_err(io::Error::other)?);
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
    let stream = connect(hosts.addresses(host, port).await?).await?;
    let Some(tls) = tls else { return exchange(stream, request).await };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    exchange(TlsConnector::from(Arc::new(tls)).connect(name, stream).await?, request).await
}

/// Sends a request on a connection, which ends with the body of the response.
///
/// # Errors
/// The exchange fails.
pub async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> io::Result<Response<Incoming>> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection); // ends with `sender` and the body
    sender.send_request(request).await.map_err(io::Error::other)
}

/// Connects to the first address that responds.
async fn connect(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut failure = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}
