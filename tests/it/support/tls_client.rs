//! Clients of TLS, of which tests say what they can.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ALL_VERSIONS, ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::tls::Authority;
use super::wire::raw::Raw;
use super::wire::soon;

/// What a client can, and whom it trusts.
pub struct TlsClient<'a> {
    pub authority: &'a Authority,
    pub versions: Vec<&'static SupportedProtocolVersion>,
    pub protocols: &'static [&'static str],
    /// The name of a certificate of the authority's, which it shows.
    pub certificate: Option<&'static str>,
    /// The name that it asks for.
    pub asks_for: &'static str,
    pub resumption: Resumption,
}

impl<'a> TlsClient<'a> {
    /// It trusts this authority, and speaks HTTP/1.1.
    pub fn new(authority: &'a Authority) -> Self {
        let (versions, protocols): (_, &[&str]) = (ALL_VERSIONS.to_vec(), &["http/1.1"]);
        let resumption = Resumption::in_memory_sessions(8);
        Self { authority, versions, protocols, certificate: None, asks_for: "api.example", resumption }
    }

    /// Its configuration; sessions are resumed among those that are made of one.
    pub fn config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.authority.path("ca.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_protocol_versions(&self.versions).unwrap().with_root_certificates(roots);
        let mut config = match self.certificate {
            None => config.with_no_client_auth(),
            Some(name) => {
                let chain = CertificateDer::from_pem_file(self.authority.path(&format!("{name}.pem"))).unwrap();
                let key = PrivateKeyDer::from_pem_file(self.authority.path(&format!("{name}.key"))).unwrap();
                config.with_client_auth_cert(vec![chain], key).unwrap()
            }
        };
        config.alpn_protocols = self.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.resumption = self.resumption.clone();
        Arc::new(config)
    }

    /// Connects, and asks for its name.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<Raw<TlsStream<TcpStream>>> {
        connect(&self.config(), self.asks_for, address).await
    }
}

/// Connects, and asks for this name; none of an address.
pub async fn connect(
    config: &Arc<ClientConfig>,
    name: &str,
    address: SocketAddr,
) -> io::Result<Raw<TlsStream<TcpStream>>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    soon(TlsConnector::from(Arc::clone(config)).connect(name, stream)).await.map(Raw::new)
}
