//! Fetches a key set over HTTP or HTTPS.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use rustls::ClientConfig;
use rustls::crypto::ring;
use tokio::time::timeout;

use tidegate_proxy::transport::tls::system_roots;
use tidegate_proxy::upstream::HostLookup;
use tidegate_proxy::upstream::http_client;
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError};
use tidegate_rules::settings::identities::KeySetUrl;
use tidegate_store::tls::pem::PemFile;

/// The longest time for a fetch, from the name resolution to the end of the body.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest response, in bytes.
const MAX_BODY: usize = 1 << 20;

/// Why a key set cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("the server did not respond within 5 s")]
    TimedOut,
    #[error("{0}")]
    Authorities(#[from] TlsFileError),
    #[error("the exchange failed: {0}")]
    Exchange(#[from] io::Error),
    #[error("the response has status {0}")]
    Status(StatusCode),
    #[error("the response is longer than 1 MiB")]
    TooLong,
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
    let tls = if url.is_https() { Some(client_config(ca)?) } else { None };
    let request = Request::get(url.uri()).header(ACCEPT, "application/json");
    let request = request.body(Full::default()).map_err(io::Error::other)?;
    let response = http_client::send(request, tls, hosts).await?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    match Limited::new(response.into_body(), MAX_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(FetchError::TooLong),
        Err(error) => Err(io::Error::other(error).into()),
    }
}

fn client_config(ca: Option<&Path>) -> Result<ClientConfig, FetchError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let roots = match ca.map(|path| ConfiguredFile { key: "ca", path }) {
        Some(file) => file.authorities(&file.read()?)?,
        None => system_roots(),
    };
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
