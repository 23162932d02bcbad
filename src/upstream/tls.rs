//! TLS to the targets of an upstream: whom it trusts, what it shows of itself, what it asks to be spoken.

use std::collections::BTreeMap;
use std::error::Error as Fault;
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
use crate::metrics::Metrics;
use crate::tls::files::{ConfiguredFile, TlsFileError, system_roots};
use crate::tls::{CertificateWatcher, PresentedCertificate, Reloadable};
use crate::transport::{Tls, Transport};

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// TLS to one target.
#[derive(Debug)]
pub(super) struct Connector {
    /// Its certificate has to be for this name.
    name: ServerName<'static>,
    identity: Arc<UpstreamTlsConfig>,
}

/// Those of all upstreams, by name. Workers share them, so that files are read once.
#[derive(Debug, Default)]
pub(crate) struct UpstreamTlsConfigs(BTreeMap<Arc<str>, Arc<UpstreamTlsConfig>>);

/// What is used of the files of an upstream, or why nothing is.
#[derive(Debug)]
pub(crate) struct UpstreamTlsConfig {
    tls: UpstreamTls,
    in_use: ArcSwap<Result<ActiveConfig, String>>,
}

/// What was made of the files. All targets and their connections share the memory of sessions; it is a new one when files
/// have changed, as who was trusted then may be trusted no more.
#[derive(Debug)]
struct ActiveConfig {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    both: Arc<ClientConfig>,
    shown: Option<PresentedCertificate>,
}

/// Why no TLS can be spoken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsSetupError {
    #[error(transparent)]
    File(#[from] TlsFileError),
    #[error("the system trusts no authority")]
    NoTrustAnchors,
    #[error("TLS: {0}")]
    Versions(Error),
}

/// Takes any certificate, if whoever shows it has its key.
#[derive(Debug)]
struct AcceptAnyCertificate(WebPkiSupportedAlgorithms);

/// Whether the files hold what they should.
///
/// # Errors
/// The first that cannot be used, or the system trusts nobody.
pub(crate) fn check(tls: &UpstreamTls) -> Result<(), TlsSetupError> {
    ActiveConfig::read(tls).map(drop)
}

// === impl UpstreamTlsConfigs ===

impl UpstreamTlsConfigs {
    /// Reads the files of those that speak TLS.
    pub(crate) fn read<'a>(upstreams: impl IntoIterator<Item = &'a UpstreamSettings>) -> Self {
        let read = |upstream: &UpstreamSettings| {
            let identity = UpstreamTlsConfig::new(upstream.tls.clone()?);
            Some((Arc::clone(&upstream.name), Arc::new(identity)))
        };
        Self(upstreams.into_iter().filter_map(read).collect())
    }

    /// That of an upstream; read now if it was not.
    pub(super) fn of(&self, upstream: &UpstreamSettings) -> Arc<UpstreamTlsConfig> {
        let known = self.0.get(&upstream.name).cloned();
        known.unwrap_or_else(|| Arc::new(UpstreamTlsConfig::new(upstream.tls.clone().unwrap_or_default())))
    }

    /// Looks after the files, of those that have any.
    pub(crate) fn watches(&self, metrics: &Arc<Metrics>) -> Vec<CertificateWatcher> {
        let with_files = self.0.iter().filter(|(_, identity)| !identity.files().is_empty());
        let watch = |(name, identity): (&Arc<str>, &Arc<UpstreamTlsConfig>)| {
            let user = format!("upstream {name}");
            CertificateWatcher::new(Arc::clone(identity) as _, &user, identity.tls.check_interval, Arc::clone(metrics))
        };
        with_files.map(watch).collect()
    }
}

// === impl UpstreamTlsConfig ===

impl UpstreamTlsConfig {
    fn new(tls: UpstreamTls) -> Self {
        let in_use = ActiveConfig::read(&tls).map_err(|bad| bad.to_string());
        Self { tls, in_use: ArcSwap::from_pointee(in_use) }
    }

    /// How TLS is spoken on a connection that is opened now.
    fn asking_for(&self, protocol: Protocol) -> io::Result<Arc<ClientConfig>> {
        let in_use = self.in_use.load();
        let ActiveConfig { http1, http2, both, .. } =
            in_use.as_ref().as_ref().map_err(|why| io::Error::other(why.clone()))?;
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
        let of_identity = identity.iter().flat_map(|files| [&files.cert, &files.key]);
        ca.iter().chain(of_identity).map(PathBuf::as_path).collect()
    }

    fn reload(&self) -> Result<(), Box<dyn Fault>> {
        let in_use = ActiveConfig::read(&self.tls)?;
        self.in_use.store(Arc::new(Ok(in_use)));
        Ok(())
    }

    fn presented(&self) -> Vec<PresentedCertificate> {
        let in_use = self.in_use.load();
        in_use.as_ref().as_ref().ok().and_then(|in_use| in_use.shown.clone()).into_iter().collect()
    }
}

// === impl ActiveConfig ===

impl ActiveConfig {
    fn read(tls: &UpstreamTls) -> Result<Self, TlsSetupError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(TlsSetupError::Versions)?;
        let builder = match tls.verify {
            true => builder.with_root_certificates(trusted(tls)?),
            false => builder.dangerous().with_custom_certificate_verifier(AcceptAnyCertificate::of(&provider)),
        };
        let Some(files) = &tls.identity else { return Ok(Self::of(&builder.with_no_client_auth(), None)) };
        let (cert, key) =
            (ConfiguredFile { key: "cert", path: &files.cert }, ConfiguredFile { key: "key", path: &files.key });
        let chain = cert.certificates(&cert.read()?)?;
        let shown = PresentedCertificate::from_chain(&files.cert, &chain);
        let certified = key.certified_key(chain, &key.read()?)?;
        let resolver = rustls::sign::SingleCertAndKey::from(certified);
        Ok(Self::of(&builder.with_client_cert_resolver(Arc::new(resolver)), shown))
    }

    fn of(config: &ClientConfig, shown: Option<PresentedCertificate>) -> Self {
        let asking_for = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Self { http1: asking_for(&[HTTP1]), http2: asking_for(&[HTTP2]), both: asking_for(&[HTTP2, HTTP1]), shown }
    }
}

/// The authorities that are named, else those of the system.
fn trusted(tls: &UpstreamTls) -> Result<Arc<RootCertStore>, TlsSetupError> {
    if let Some(path) = &tls.ca {
        let file = ConfiguredFile { key: "ca", path };
        return Ok(Arc::new(file.authorities(&file.read()?)?));
    }
    let store = system_roots();
    if store.is_empty() { Err(TlsSetupError::NoTrustAnchors) } else { Ok(Arc::new(store)) }
}

// === impl Connector ===

impl Connector {
    /// For a target of this name, unless the rule file has another.
    pub(super) fn new(identity: Arc<UpstreamTlsConfig>, authority: &Authority) -> Option<Self> {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(identity.tls.server_name.as_deref().unwrap_or(host).to_owned()).ok()?;
        Some(Self { name, identity })
    }

    /// Makes of a connection one of TLS. Returns what will be spoken: what was asked for, or what the target prefers.
    pub(super) async fn handshake(&self, socket: TcpStream, protocol: Protocol) -> io::Result<(Transport, Protocol)> {
        let connector = TlsConnector::from(self.identity.asking_for(protocol)?);
        let stream = connector
            .connect(self.name.clone(), socket)
            .await
            .map_err(|error| io::Error::new(kind(&error), fault(&error)))?;
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        if protocol == Protocol::Http2 && !speaks_http2 {
            return Err(io::Error::other("it does not offer HTTP/2 (ALPN)"));
        }
        let spoken = if speaks_http2 { Protocol::Http2 } else { Protocol::Http1 };
        Ok((Transport::Tls(Tls::new(stream)), spoken))
    }
}

/// [`io::ErrorKind::Unsupported`] if the target does not serve the protocol that was asked for.
fn kind(error: &io::Error) -> io::ErrorKind {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    }
}

/// What is wrong, and what helps where that is known.
fn fault(error: &io::Error) -> String {
    let why = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "its certificate is signed by no authority that is trusted: name one by `tls: { ca: FILE }`"
        }
        Some(Error::InvalidMessage(_)) => "what it speaks is not TLS",
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            "it does not offer the protocol that is asked for (ALPN)"
        }
        Some(Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "it wants to be shown a certificate: name one by `tls: { cert: FILE, key: FILE }`"
        }
        _ => return error.to_string(),
    };
    why.to_owned()
}

// === impl AcceptAnyCertificate ===

impl AcceptAnyCertificate {
    fn of(provider: &CryptoProvider) -> Arc<Self> {
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
