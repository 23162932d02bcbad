//! TLS termination for a listener: its configuration, loaded from the rule file and the files that it names.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use blake3::Hash;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    NoClientAuth, NoServerSessionStorage, ProducesTickets, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::certificate::Certificate;
use super::reload::{FileKind, PresentedCertificate, Reloadable};
use super::resolver::CertificateResolver;
use super::revocation::RevocationLists;
use super::server_certificate::ServerCertificate;
use super::settings::{ClientAuth, ListenTls, TlsVersion};
use super::tickets::BoundTickets;
use crate::transport::Tls;
use tidegate_rules::request::facts::TlsPeer;
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError};
use tidegate_store::tls::pem::PemFile;

/// Protocols that clients can negotiate (ALPN, RFC 7301). nginx and curl support `http/1.0` here, too.
const HTTP2: &[u8] = b"h2";
const HTTP1: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];

const TLS_1_2: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
const TLS_1_3: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// A listener's TLS, shared by all workers.
#[derive(Debug)]
pub struct Termination {
    settings: ListenTls,
    http2: bool,
    active: ArcSwap<ActiveConfig>,
    /// The facts of every client without a certificate.
    no_certificate: Arc<TlsPeer>,
}

/// The configuration that was last loaded from the files.
#[derive(Debug)]
struct ActiveConfig {
    config: Arc<ServerConfig>,
    presented: Vec<PresentedCertificate>,
    /// Hash of the files that decide about client certificates.
    client_auth_hash: Option<Hash>,
}

/// Error while setting up TLS for a listener.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TlsSetupError(#[from] SetupErrorKind);

#[derive(Debug, thiserror::Error)]
enum SetupErrorKind {
    #[error(transparent)]
    File(#[from] TlsFileError),
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

impl Termination {
    /// Loads the files.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn new(settings: &ListenTls, http2: bool) -> Result<Self, TlsSetupError> {
        let active = ArcSwap::from_pointee(load(settings, http2, None)?);
        Ok(Self { settings: settings.clone(), http2, active, no_certificate: Arc::default() })
    }

    /// Performs the TLS handshake with a client.
    ///
    /// # Errors
    /// The handshake fails: no common version or cipher suite, no valid client certificate, or the client disconnects.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<Tls, (io::Error, TcpStream)> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.active.load().config));
        let stream = acceptor.accept(stream).into_fallible().await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let peer = match certificate.and_then(|der| Certificate::parse(der)) {
            Some(certificate) => Arc::new(certificate.owner()),
            None => Arc::clone(&self.no_certificate),
        };
        Ok(Tls::with_client(stream, peer))
    }
}

impl Reloadable for Termination {
    fn files(&self) -> Vec<&Path> {
        let ListenTls { certificates, client_auth, .. } = &self.settings;
        let certificate_files =
            certificates.iter().flat_map(|files| [Some(&files.cert), Some(&files.key), files.ocsp.as_ref()]);
        let auth_files = client_auth.iter().flat_map(|auth| [Some(&auth.ca), auth.crl.as_ref()]);
        let all = certificate_files.chain(auth_files).flatten();
        all.map(PathBuf::as_path).collect()
    }

    fn reload(&self) -> Result<(), Box<dyn Error>> {
        let active = load(&self.settings, self.http2, Some(&self.active.load()))?;
        self.active.store(Arc::new(active));
        Ok(())
    }

    fn presented(&self) -> Vec<PresentedCertificate> {
        self.active.load().presented.clone()
    }
}

#[cfg(test)]
impl Termination {
    pub(super) fn ticket(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.active.load().config.ticketer.encrypt(session)
    }

    pub(super) fn accepts_ticket(&self, ticket: &[u8]) -> bool {
        self.active.load().config.ticketer.decrypt(ticket).is_some()
    }
}

/// Creates the encryption of session tickets (RFC 8446 section 4.6.1). Its keys exist only in this process and change
/// every six hours.
fn session_tickets(client_auth: Option<&ClientAuth>) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    let tickets = ring::Ticketer::new()?;
    Ok(match client_auth {
        Some(auth) => Arc::new(BoundTickets::new(tickets, auth.required)),
        None => tickets,
    })
}

/// Loads the files. Clients can resume sessions from before a reload unless the file of client authorities, or of their
/// revocation lists, has changed.
fn load(settings: &ListenTls, http2: bool, previous: Option<&ActiveConfig>) -> Result<ActiveConfig, SetupErrorKind> {
    let provider = Arc::new(ring::default_provider());
    let client_auth = settings.client_auth.as_ref();
    let (mut certificates, mut presented) = (Vec::new(), Vec::new());
    let (verifier, client_auth_hash) = match client_auth {
        Some(auth) => {
            let ClientVerifier { verifier, hash, crl_not_after } = client_verifier(auth, &provider)?;
            if let Some((file, not_after)) = auth.crl.clone().zip(crl_not_after) {
                presented.push(PresentedCertificate { kind: FileKind::RevocationLists, file, not_after, notice: 0 });
            }
            (verifier, Some(hash))
        }
        None => (Arc::new(NoClientAuth) as _, None),
    };
    let tickets = match previous.filter(|previous| previous.client_auth_hash == client_auth_hash) {
        Some(previous) => Arc::clone(&previous.config.ticketer),
        None => session_tickets(client_auth)?,
    };
    for files in &settings.certificates {
        let certificate = ServerCertificate::read(files)?;
        let (start, end) = (certificate.not_before, certificate.not_after);
        presented.push(PresentedCertificate::certificate(&files.cert, start, end));
        if let Some((file, not_after)) = files.ocsp.clone().zip(certificate.ocsp_not_after()) {
            presented.push(PresentedCertificate { kind: FileKind::OcspResponse, file, not_after, notice: 0 });
        }
        certificates.push(Arc::new(certificate));
    }
    let versions = match settings.min_version {
        TlsVersion::Tls12 => TLS_1_2,
        TlsVersion::Tls13 => TLS_1_3,
    };
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let resolver = Arc::new(CertificateResolver::new(&certificates));
    let mut config = config.with_client_cert_verifier(verifier).with_cert_resolver(resolver);
    let protocols = http2.then_some(HTTP2).into_iter().chain(HTTP1);
    config.alpn_protocols = protocols.map(<[u8]>::to_vec).collect();
    // Session tickets are enough to resume, so the gateway stores no sessions.
    config.ticketer = tickets;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(ActiveConfig { config: Arc::new(config), presented, client_auth_hash })
}

/// Checks that the files that decide about client certificates can be used.
///
/// # Errors
/// The first file that cannot be used.
pub fn check_client_auth(auth: &ClientAuth) -> Result<(), TlsFileError> {
    client_verifier(auth, &Arc::new(ring::default_provider())).map(drop)
}

/// The verifier of client certificates.
struct ClientVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Hash of its files.
    hash: Hash,
    /// The earliest expiry of the revocation lists.
    crl_not_after: Option<i64>,
}

/// Creates the verifier of client certificates. Reads each file only once, so that the hash belongs to the authorities and
/// revocation lists that the verifier uses.
///
/// With revocation lists, each certificate of a chain must be covered by a list of its issuer. A list that has expired
/// stays in use: if the gateway rejected all clients then, a late list would be an outage.
fn client_verifier(
    ClientAuth { ca, crl, required }: &ClientAuth,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientVerifier, TlsFileError> {
    let file = ConfiguredFile { key: "ca", path: ca };
    let text = file.read()?;
    let (mut hash, authorities, mut crl_not_after) = (blake3::hash(&text), file.authorities(&text)?, None);
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(provider));
    let crl = crl.as_ref().map(|path| ConfiguredFile { key: "crl", path });
    if let Some(crl) = crl {
        let lists = RevocationLists::read(crl)?;
        hash = blake3::hash(&[*hash.as_bytes(), *lists.hash.as_bytes()].concat());
        crl_not_after = lists.not_after;
        builder = builder.with_crls(lists.lists);
    }
    let builder = if *required { builder } else { builder.allow_unauthenticated() };
    let verifier = builder.build().map_err(|error| match (error, crl) {
        (VerifierBuilderError::InvalidCrl(error), Some(crl)) => {
            crl.error(format!("contains an unusable revocation list: {error:?}"))
        }
        (error, _) => file.error(format!("cannot be used: {error}")),
    })?;
    Ok(ClientVerifier { verifier, hash, crl_not_after })
}
