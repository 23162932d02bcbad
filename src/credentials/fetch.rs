//! Fetches a key set over HTTP or HTTPS.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1::handshake;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::url::KeySetUrl;
use crate::tls::TlsFileError;
use crate::tls::files::{ConfiguredFile, system_roots};
use crate::upstream::HostLookup;

/// The longest time for a fetch, from the name resolution to the end of the body.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time for a connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest response, in bytes.
const MAX_BODY: usize = 1 << 20;

/// Why a key set cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("the server did not respond within 5 s")]
    TimedOut,
    #[error("{0}")]
    Authorities(#[from] TlsFileError),
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    #[error("the exchange failed: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("the response has status {0}")]
    Status(StatusCode),
    #[error("the response is longer than 1 MiB")]
    TooLong,
    #[error("the request is not valid: {0}")]
    Request(#[from] http::Error),
}

/// Returns the response body of the URL. The certificate of the server must be signed by an authority in the file `ca`,
/// by default by an authority of the system. Does not follow redirects: the operator trusts only this URL. Looks the host
/// up with `hosts`.
///
/// # Errors
/// See [`FetchError`].
pub(super) async fn fetch(url: &KeySetUrl, ca: Option<&Path>, hosts: &HostLookup) -> Result<Bytes, FetchError> {
    timeout(FETCH_TIMEOUT, fetch_within_timeout(url, ca, hosts)).await.unwrap_or(Err(FetchError::TimedOut))
}

async fn fetch_within_timeout(url: &KeySetUrl, ca: Option<&Path>, hosts: &HostLookup) -> Result<Bytes, FetchError> {
    let stream = connect(url, hosts).await?;
    if !url.is_https() {
        return exchange(TokioIo::new(stream), url).await;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let roots = match ca.map(|path| ConfiguredFile { key: "ca", path }) {
        Some(file) => file.authorities(&file.read()?)?,
        None => system_roots(),
    };
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(url.host().to_owned()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    exchange(TokioIo::new(stream), url).await
}

/// Connects to the first address that responds.
async fn connect(url: &KeySetUrl, hosts: &HostLookup) -> io::Result<TcpStream> {
    let mut failure = io::ErrorKind::AddrNotAvailable.into();
    for address in hosts.addresses(url.host(), url.port()).await? {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

async fn exchange<T: Read + Write + Unpin + Send + 'static>(io: T, url: &KeySetUrl) -> Result<Bytes, FetchError> {
    let request = Request::get(url.target()).header(HOST, url.authority()).header(ACCEPT, "application/json");
    let request = request.body(Empty::<Bytes>::new())?;
    let (mut sender, connection) = handshake(io).await?;
    // Ends with the sender, which this function drops.
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    match Limited::new(response.into_body(), MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLong),
        Err(error) => Err(FetchError::Connection(io::Error::other(error))),
    }
}
