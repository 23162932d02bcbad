//! Configurable TLS clients.

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

/// The settings of a TLS client.
pub struct TlsClient<'a> {
    pub authority: &'a Authority,
    pub versions: Vec<&'static SupportedProtocolVersion>,
    pub protocols: &'static [&'static str],
    /// The name of the client certificate that the client presents.
    pub certificate: Option<&'static str>,
    /// The server name in the handshake.
    pub server_name: &'static str,
    pub resumption: Resumption,
}

impl<'a> TlsClient<'a> {
    /// Creates a client that trusts this authority and offers HTTP/1.1.
    pub fn new(authority: &'a Authority) -> Self {
        let (versions, protocols): (_, &[&str]) = (ALL_VERSIONS.to_vec(), &["http/1.1"]);
        let resumption = Resumption::in_memory_sessions(8);
        Self { authority, versions, protocols, certificate: None, server_name: "api.example", resumption }
    }

    /// Returns the configuration. Connections with the same configuration resume each other's sessions.
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

    /// Connects with the client's server name.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<Raw<TlsStream<TcpStream>>> {
        connect(&self.config(), self.server_name, address).await
    }
}

/// Connects with this server name. An IP address sends none.
pub async fn connect(
    config: &Arc<ClientConfig>,
    name: &str,
    address: SocketAddr,
) -> io::Result<Raw<TlsStream<TcpStream>>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    soon(TlsConnector::from(Arc::clone(config)).connect(name, stream)).await.map(Raw::new)
}
