//! TLS to the targets of an upstream: trusted authorities, client certificate, and ALPN.

mod any_certificate;
mod config;
mod configs;

use std::io;
use std::sync::Arc;

use http::uri::Authority;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use self::config::HTTP2;
pub(super) use self::config::UpstreamTlsConfig;
pub use self::config::{TlsSetupError, check};
pub use self::configs::UpstreamTlsConfigs;
use super::settings::Protocol;
use crate::transport::{Tls, Transport};

/// Performs TLS handshakes with one target.
#[derive(Debug)]
pub(super) struct Connector {
    /// The name that the target's certificate must contain.
    name: ServerName<'static>,
    config: Arc<UpstreamTlsConfig>,
}

// === impl Connector ===

impl Connector {
    /// Creates the connector of a target. Returns `None` if the host is not a valid name for a certificate.
    /// `server_name` in the rule file takes precedence.
    pub(super) fn new(config: Arc<UpstreamTlsConfig>, authority: &Authority) -> Option<Self> {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(config.server_name().unwrap_or(host).to_owned()).ok()?;
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
