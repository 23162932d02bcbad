//! TLS as a listener speaks it, made of what the rule file says and of what its files hold.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use blake3::Hash;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion, version};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::certificate::Certificate;
use super::certified::Certified;
use super::files::{BadFile, Named};
use super::names::Names;
use super::renewal::{Kind, Renewable, Shown};
use super::settings::{ClientAuth, ListenTls, TlsVersion};
use super::tickets::BoundTickets;
use crate::facts::TlsPeer;
use crate::transport::Tls;

/// The protocols that clients are offered (RFC 7301); nginx offers the last of them, too, for which curl has an option.
const HTTP2: &[u8] = b"h2";
const HTTP1: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];

const TLS_1_2: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];
const TLS_1_3: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// A listener's TLS, shared by all workers.
#[derive(Debug)]
pub(crate) struct Termination {
    settings: ListenTls,
    http2: bool,
    in_use: ArcSwap<InUse>,
    /// A client that showed no certificate.
    nobody: Arc<TlsPeer>,
}

/// What was made of the files.
#[derive(Debug)]
struct InUse {
    config: Arc<ServerConfig>,
    shown: Vec<Shown>,
    /// The file of those from whom clients' certificates are trusted.
    trusted: Option<Hash>,
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct CannotSpeak(#[from] Fault);

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    File(#[from] BadFile),
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

impl Termination {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub(crate) fn new(settings: &ListenTls, http2: bool) -> Result<Self, CannotSpeak> {
        let in_use = load(settings, http2, None)?;
        Ok(Self { settings: settings.clone(), http2, in_use: ArcSwap::from_pointee(in_use), nobody: Arc::default() })
    }

    /// Greets a client that has connected.
    ///
    /// # Errors
    /// The client speaks no TLS that we do, or is not who it should be, of which it was told; or it left.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<Tls, (io::Error, TcpStream)> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.in_use.load().config));
        let greeted = acceptor.accept(stream).into_fallible().await?;
        let shown = greeted.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let peer = match shown.and_then(|certificate| Certificate::read(certificate)) {
            Some(certificate) => Arc::new(certificate.owner()),
            None => Arc::clone(&self.nobody),
        };
        Ok(Tls::with_client(greeted, peer))
    }
}

impl Renewable for Termination {
    fn files(&self) -> Vec<&Path> {
        let ListenTls { certificates, client_auth, .. } = &self.settings;
        let of_certificates =
            certificates.iter().flat_map(|files| [Some(&files.cert), Some(&files.key), files.ocsp.as_ref()]);
        let all = of_certificates.flatten().chain(client_auth.iter().map(|auth| &auth.ca));
        all.map(PathBuf::as_path).collect()
    }

    fn renew(&self) -> Result<(), Box<dyn Error>> {
        let in_use = load(&self.settings, self.http2, Some(&self.in_use.load()))?;
        self.in_use.store(Arc::new(in_use));
        Ok(())
    }

    fn shown(&self) -> Vec<Shown> {
        self.in_use.load().shown.clone()
    }
}

#[cfg(test)]
impl Termination {
    pub(super) fn ticket(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.in_use.load().config.ticketer.encrypt(session)
    }

    pub(super) fn knows(&self, ticket: &[u8]) -> bool {
        self.in_use.load().config.ticketer.decrypt(ticket).is_some()
    }
}

/// Tickets under keys that change every six hours, and are known to nobody but this process (RFC 8446 section 4.6.1).
fn tickets(client_auth: Option<&ClientAuth>) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    let tickets = ring::Ticketer::new()?;
    Ok(match client_auth {
        Some(auth) => Arc::new(BoundTickets::new(tickets, auth.required)),
        None => tickets,
    })
}

/// Reads the files. Who was trusted before still is, and his sessions are known, unless the file of authorities has changed.
fn load(settings: &ListenTls, http2: bool, before: Option<&InUse>) -> Result<InUse, Fault> {
    let provider = Arc::new(ring::default_provider());
    let client_auth = settings.client_auth.as_ref();
    let (verifier, trusted) = match client_auth {
        Some(auth) => verifier(auth, &provider).map(|(verifier, trusted)| (verifier, Some(trusted)))?,
        None => (Arc::new(NoClientAuth) as _, None),
    };
    let tickets = match before.filter(|before| before.trusted == trusted) {
        Some(before) => Arc::clone(&before.config.ticketer),
        None => tickets(client_auth)?,
    };
    let (mut keys, mut shown) = (Vec::new(), Vec::new());
    for files in &settings.certificates {
        let certified = Certified::read(files)?;
        shown.push(Shown { kind: Kind::Certificate, file: files.cert.clone(), not_after: certified.not_after });
        if let Some((file, not_after)) = files.ocsp.clone().zip(certified.ocsp_not_after()) {
            shown.push(Shown { kind: Kind::OcspResponse, file, not_after });
        }
        keys.push(Arc::new(certified));
    }
    let versions = match settings.min_version {
        TlsVersion::Tls12 => TLS_1_2,
        TlsVersion::Tls13 => TLS_1_3,
    };
    let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let mut config = config.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(Names::new(&keys)));
    let offered = http2.then_some(HTTP2).into_iter().chain(HTTP1);
    config.alpn_protocols = offered.map(<[u8]>::to_vec).collect();
    // A client keeps what is needed to resume: nothing of it is kept here.
    config.ticketer = tickets;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(InUse { config: Arc::new(config), shown, trusted })
}

/// Reads the file of authorities, once: the hash is that of the authorities that the verifier trusts.
fn verifier(
    ClientAuth { ca, required }: &ClientAuth,
    provider: &Arc<CryptoProvider>,
) -> Result<(Arc<dyn ClientCertVerifier>, Hash), Fault> {
    let file = Named { key: "ca", path: ca };
    let text = file.read()?;
    let authorities = file.authorities(&text)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(provider));
    let verifier = if *required { verifier } else { verifier.allow_unauthenticated() };
    let verifier = verifier.build().map_err(|error| file.bad(format!("cannot be used: {error}")))?;
    Ok((verifier, blake3::hash(&text)))
}
