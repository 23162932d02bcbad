//! TLS to the targets of an upstream: whom it trusts, what it shows of itself, what it asks to be spoken.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::settings::{Protocol, UpstreamTls};
use crate::tls::files::{BadFile, Named};
use crate::transport::{Tls, Transport};

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// How often it is told why a target cannot be reached, however many requests ask for it.
const REPEATED: Duration = Duration::from_secs(10);

/// TLS to one target.
#[derive(Debug)]
pub(super) struct Connector {
    /// Its certificate has to be for this name.
    name: ServerName<'static>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    both: Arc<ClientConfig>,
    told: Mutex<Option<Instant>>,
}

/// What is used of the files of an upstream; all its targets and their connections share the memory of sessions.
#[derive(Clone, Debug)]
pub(super) struct Identity(ClientConfig);

/// Why no TLS can be spoken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotSpeak {
    #[error(transparent)]
    File(#[from] BadFile),
    #[error("the system trusts no authority")]
    NobodyIsTrusted,
    #[error("TLS: {0}")]
    Versions(Error),
}

/// Takes any certificate, if whoever shows it has its key.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

/// Whether the files hold what they should.
///
/// # Errors
/// The first that cannot be used, or the system trusts nobody.
pub(crate) fn check(tls: &UpstreamTls) -> Result<(), CannotSpeak> {
    Identity::read(tls).map(drop)
}

// === impl Identity ===

impl Identity {
    /// Reads the files, as they are now.
    pub(super) fn read(tls: &UpstreamTls) -> Result<Self, CannotSpeak> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(CannotSpeak::Versions)?;
        let builder = match tls.verify {
            true => builder.with_root_certificates(trusted(tls)?),
            false => builder.dangerous().with_custom_certificate_verifier(Anybody::of(&provider)),
        };
        let Some(files) = &tls.identity else { return Ok(Self(builder.with_no_client_auth())) };
        let (cert, key) = (Named { key: "cert", path: &files.cert }, Named { key: "key", path: &files.key });
        let certified = key.key_of(cert.certificates(&cert.read()?)?, &key.read()?)?;
        let resolver = rustls::sign::SingleCertAndKey::from(certified);
        Ok(Self(builder.with_client_cert_resolver(Arc::new(resolver))))
    }

    fn asking_for(&self, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut config = self.0.clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

/// The authorities that are named, else those of the system.
fn trusted(tls: &UpstreamTls) -> Result<Arc<RootCertStore>, CannotSpeak> {
    if let Some(path) = &tls.ca {
        let file = Named { key: "ca", path };
        return Ok(Arc::new(file.authorities(&file.read()?)?));
    }
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() { Err(CannotSpeak::NobodyIsTrusted) } else { Ok(Arc::new(store)) }
}

// === impl Connector ===

impl Connector {
    /// For a target of this name, unless the rule file has another.
    pub(super) fn new(identity: &Identity, tls: &UpstreamTls, authority: &Authority) -> Option<Self> {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(tls.server_name.as_deref().unwrap_or(host).to_owned()).ok()?;
        Some(Self {
            name,
            http1: identity.asking_for(&[HTTP1]),
            http2: identity.asking_for(&[HTTP2]),
            both: identity.asking_for(&[HTTP2, HTTP1]),
            told: Mutex::default(),
        })
    }

    /// Makes of a connection one of TLS. Returns what will be spoken: what was asked for, or what the target prefers.
    pub(super) async fn greet(&self, socket: TcpStream, protocol: Protocol) -> io::Result<(Transport, Protocol)> {
        let config = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
            Protocol::Auto => &self.both,
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream =
            connector.connect(self.name.clone(), socket).await.map_err(|error| io::Error::other(fault(&error)))?;
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        if protocol == Protocol::Http2 && !speaks_http2 {
            return Err(io::Error::other("it does not offer HTTP/2 (ALPN)"));
        }
        let spoken = if speaks_http2 { Protocol::Http2 } else { Protocol::Http1 };
        Ok((Transport::Tls(Tls::new(stream)), spoken))
    }

    /// Tells why, though not for every request.
    pub(super) fn tell(&self, target: &impl std::fmt::Debug, error: &io::Error) {
        let mut told = self.told.lock();
        if told.is_none_or(|told| told.elapsed() >= REPEATED) {
            *told = Some(Instant::now());
            tracing::warn!(?target, name = %self.name.to_str(), %error, "no connection of TLS to an upstream");
        }
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

// === impl Anybody ===

impl Anybody {
    fn of(provider: &CryptoProvider) -> Arc<Self> {
        Arc::new(Self(provider.signature_verification_algorithms))
    }
}

impl ServerCertVerifier for Anybody {
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
