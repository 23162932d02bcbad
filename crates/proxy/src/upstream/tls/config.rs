//! The TLS configuration of one upstream, read from its files.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::{ClientConfig, Error, RootCertStore};

use super::any_certificate::AcceptAnyCertificate;
use crate::transport::tls::{PresentedCertificate, Reloadable, system_roots};
use crate::upstream::settings::{Protocol, UpstreamTls};
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError};
use tidegate_store::tls::pem::PemFile;

const HTTP1: &[u8] = b"http/1.1";
pub(super) const HTTP2: &[u8] = b"h2";

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
pub enum TlsSetupError {
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] TlsFileError),
    /// The system has no trust anchors, and the rule file names none.
    #[error("the system trusts no authority")]
    NoTrustAnchors,
    /// rustls rejects the TLS versions.
    #[error("TLS: {0}")]
    Versions(Error),
}

/// Checks that the files can be used.
///
/// # Errors
/// The first file that cannot be used, or the system trusts no authority.
pub fn check(tls: &UpstreamTls) -> Result<(), TlsSetupError> {
    ActiveConfig::read(tls).map(drop)
}

// === impl UpstreamTlsConfig ===

impl UpstreamTlsConfig {
    pub(in crate::upstream) fn new(tls: UpstreamTls) -> Self {
        let active = ActiveConfig::read(&tls).map_err(|error| error.to_string());
        Self { tls, active: ArcSwap::from_pointee(active) }
    }

    /// Returns `true` if the configuration was read with these settings.
    pub(super) fn has_settings(&self, tls: &UpstreamTls) -> bool {
        self.tls == *tls
    }

    /// Returns the time between two checks of the files.
    pub(super) fn check_interval(&self) -> Duration {
        self.tls.check_interval
    }

    /// Returns the name that certificates must contain instead of the host, if it is configured.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.tls.server_name.as_deref()
    }

    /// Returns the rustls configuration for a new connection that offers `protocol`.
    pub(super) fn client_config(&self, protocol: Protocol) -> io::Result<Arc<ClientConfig>> {
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
