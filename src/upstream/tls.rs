//! TLS to the targets of an upstream: trusted authorities, client certificate, and ALPN.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::uri::Authority;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::settings::{Protocol, UpstreamSettings, UpstreamTls};
use crate::transport::tls::{CertificateWatcher, PresentedCertificate, Reloadable, system_roots};
use crate::transport::{Tls, Transport};
use tidegate_metrics::Metrics;
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError};
use tidegate_store::tls::pem::PemFile;

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Performs TLS handshakes with one target.
#[derive(Debug)]
pub(super) struct Connector {
    /// The name that the target's certificate must contain.
    name: ServerName<'static>,
    config: Arc<UpstreamTlsConfig>,
}

/// The TLS configurations of all upstreams, by name. All workers share them, so that each file is read once.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamTlsConfigs(BTreeMap<Arc<str>, Arc<UpstreamTlsConfig>>);

/// The TLS configuration of an upstream, which is reloaded when its files change.
#[derive(Debug)]
pub(crate) struct UpstreamTlsConfig {
    tls: UpstreamTls,
    /// The configuration in use, or why the files cannot be used.
    active: ArcSwap<Result<ActiveConfig, String>>,
}

/// The configuration that was built from the files. All targets of the upstream share its session cache. A reload
/// starts with an empty cache, because the new files may no longer trust the earlier peers.
#[derive(Debug)]
struct ActiveConfig {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    both: Arc<ClientConfig>,
    presented: Option<PresentedCertificate>,
}

/// The reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsSetupError {
    #[error(transparent)]
    File(#[from] TlsFileError),
    #[error("the system trusts no authority")]
    NoTrustAnchors,
    #[error("TLS: {0}")]
    Versions(Error),
}

/// Accepts any certificate. Still verifies that the peer has its private key.
#[derive(Debug)]
struct AcceptAnyCertificate(WebPkiSupportedAlgorithms);

/// Checks that the files can be used.
///
/// # Errors
/// The first file that cannot be used, or the system trusts no authority.
pub(crate) fn check(tls: &UpstreamTls) -> Result<(), TlsSetupError> {
    ActiveConfig::read(tls).map(drop)
}

// === impl UpstreamTlsConfigs ===

impl UpstreamTlsConfigs {
    /// Reads the files of all upstreams that have TLS settings.
    pub(crate) fn read<'a>(upstreams: impl IntoIterator<Item = &'a UpstreamSettings>) -> Self {
        let read = |upstream: &UpstreamSettings| {
            let config = UpstreamTlsConfig::new(upstream.tls.clone()?);
            Some((Arc::clone(&upstream.name), Arc::new(config)))
        };
        Self(upstreams.into_iter().filter_map(read).collect())
    }

    /// Returns the configurations after a reload. Reads the files of an upstream only if its TLS settings changed.
    pub(crate) fn replaced<'a>(&self, upstreams: impl IntoIterator<Item = &'a UpstreamSettings>) -> Self {
        let replaced = |upstream: &UpstreamSettings| {
            let tls = upstream.tls.as_ref()?;
            let kept = self.0.get(&upstream.name).filter(|config| config.tls == *tls).cloned();
            let config = kept.unwrap_or_else(|| Arc::new(UpstreamTlsConfig::new(tls.clone())));
            Some((Arc::clone(&upstream.name), config))
        };
        Self(upstreams.into_iter().filter_map(replaced).collect())
    }

    /// Returns the configuration of an upstream. Reads its files if that has not been done.
    pub(super) fn get_or_read(&self, upstream: &UpstreamSettings) -> Arc<UpstreamTlsConfig> {
        let existing = self.0.get(&upstream.name).cloned();
        existing.unwrap_or_else(|| Arc::new(UpstreamTlsConfig::new(upstream.tls.clone().unwrap_or_default())))
    }

    /// Creates watchers that reload the configurations whose files change.
    pub(crate) fn watchers(&self, metrics: &Arc<Metrics>) -> Vec<CertificateWatcher> {
        self.watchers_since(&Self::default(), metrics)
    }

    /// Like [`watchers`](Self::watchers), without the configurations that `before` has.
    pub(crate) fn watchers_since(&self, before: &Self, metrics: &Arc<Metrics>) -> Vec<CertificateWatcher> {
        let is_new = |name: &Arc<str>, config: &Arc<UpstreamTlsConfig>| {
            !before.0.get(name).is_some_and(|before| Arc::ptr_eq(before, config))
        };
        let with_files = self.0.iter().filter(|(name, config)| is_new(name, config) && !config.files().is_empty());
        let watcher = |(name, config): (&Arc<str>, &Arc<UpstreamTlsConfig>)| {
            let user = format!("upstream {name}");
            CertificateWatcher::new(Arc::clone(config) as _, &user, config.tls.check_interval, Arc::clone(metrics))
        };
        with_files.map(watcher).collect()
    }
}

// === impl UpstreamTlsConfig ===

impl UpstreamTlsConfig {
    fn new(tls: UpstreamTls) -> Self {
        let active = ActiveConfig::read(&tls).map_err(|error| error.to_string());
        Self { tls, active: ArcSwap::from_pointee(active) }
    }

    /// Returns the rustls configuration for a new connection that offers `protocol`.
    fn client_config(&self, protocol: Protocol) -> io::Result<Arc<ClientConfig>> {
        let active = self.active.load();
        let ActiveConfig { http1, http2, both, .. } =
            active.as_ref().as_ref().map_err(|why| io::Error::other(why.clone()))?;
        let config = match protocol {
            Protocol::Http1 => http1,
            Protocol::Http2 => http2,
            Protocol::Auto => both,
        };
        Ok(Arc::clone(config))
    }
}

impl Reloadable for UpstreamTlsConfig {
    fn files(&self) -> Vec<&Path> {
        let UpstreamTls { ca, identity, .. } = &self.tls;
        let identity_files = identity.iter().flat_map(|files| [&files.cert, &files.key]);
        ca.iter().chain(identity_files).map(PathBuf::as_path).collect()
    }

    fn reload(&self) -> Result<(), Box<dyn StdError>> {
        let active = ActiveConfig::read(&self.tls)?;
        self.active.store(Arc::new(Ok(active)));
        Ok(())
    }

    fn presented(&self) -> Vec<PresentedCertificate> {
        let active = self.active.load();
        active.as_ref().as_ref().ok().and_then(|active| active.presented.clone()).into_iter().collect()
    }
}

// === impl ActiveConfig ===

impl ActiveConfig {
    fn read(tls: &UpstreamTls) -> Result<Self, TlsSetupError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(TlsSetupError::Versions)?;
        let builder = match tls.verify {
            true => builder.with_root_certificates(trust_anchors(tls)?),
            false => builder.dangerous().with_custom_certificate_verifier(AcceptAnyCertificate::new(&provider)),
        };
        let Some(files) = &tls.identity else { return Ok(Self::new(&builder.with_no_client_auth(), None)) };
        let (cert, key) =
            (ConfiguredFile { key: "cert", path: &files.cert }, ConfiguredFile { key: "key", path: &files.key });
        let chain = cert.certificates(&cert.read()?)?;
        let presented = PresentedCertificate::from_chain(&files.cert, &chain);
        let certified = key.certified_key(chain, &key.read()?)?;
        let resolver = rustls::sign::SingleCertAndKey::from(certified);
        Ok(Self::new(&builder.with_client_cert_resolver(Arc::new(resolver)), presented))
    }

    fn new(config: &ClientConfig, presented: Option<PresentedCertificate>) -> Self {
        let with_alpn = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Self { http1: with_alpn(&[HTTP1]), http2: with_alpn(&[HTTP2]), both: with_alpn(&[HTTP2, HTTP1]), presented }
    }
}

/// Returns the configured authorities, else the system's.
fn trust_anchors(tls: &UpstreamTls) -> Result<Arc<RootCertStore>, TlsSetupError> {
    if let Some(path) = &tls.ca {
        let file = ConfiguredFile { key: "ca", path };
        return Ok(Arc::new(file.authorities(&file.read()?)?));
    }
    let store = system_roots();
    if store.is_empty() { Err(TlsSetupError::NoTrustAnchors) } else { Ok(Arc::new(store)) }
}

// === impl Connector ===

impl Connector {
    /// Creates the connector of a target. Returns `None` if the host is not a valid name for a certificate.
    /// `server_name` in the rule file takes precedence.
    pub(super) fn new(config: Arc<UpstreamTlsConfig>, authority: &Authority) -> Option<Self> {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(config.tls.server_name.as_deref().unwrap_or(host).to_owned()).ok()?;
        Some(Self { name, config })
    }

    /// Performs the TLS handshake on a connection. Returns the protocol of the connection: the requested one, or for
    /// [`Protocol::Auto`] the target's choice.
    pub(super) async fn handshake(&self, socket: TcpStream, protocol: Protocol) -> io::Result<(Transport, Protocol)> {
        let connector = TlsConnector::from(self.config.client_config(protocol)?);
        let stream = connector
            .connect(self.name.clone(), socket)
            .await
            .map_err(|error| io::Error::new(kind(&error), message(&error)))?;
        let has_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        if protocol == Protocol::Http2 && !has_http2 {
            return Err(io::Error::other("the target does not offer HTTP/2 (ALPN)"));
        }
        let protocol = if has_http2 { Protocol::Http2 } else { Protocol::Http1 };
        Ok((Transport::Tls(Tls::new(stream)), protocol))
    }
}

/// Returns [`io::ErrorKind::Unsupported`] if the target does not serve the requested protocol.
fn kind(error: &io::Error) -> io::ErrorKind {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    }
}

/// Returns the message for a failed handshake, with a hint if one is known.
fn message(error: &io::Error) -> String {
    let why = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "the certificate is not signed by a trusted authority: set `tls: { ca: FILE }`"
        }
        Some(Error::InvalidMessage(_)) => "the target does not use TLS",
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            "the target does not offer the requested protocol (ALPN)"
        }
        Some(Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "the target requires a client certificate: set `tls: { cert: FILE, key: FILE }`"
        }
        _ => return error.to_string(),
    };
    why.to_owned()
}

// === impl AcceptAnyCertificate ===

impl AcceptAnyCertificate {
    fn new(provider: &CryptoProvider) -> Arc<Self> {
        Arc::new(Self(provider.signature_verification_algorithms))
    }
}

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
