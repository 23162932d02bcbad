//! Opens connections to a target: its address, and TLS if it uses TLS.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;
use http::uri::{Authority, Scheme};

use super::address::{Address, Timeouts};
use super::settings::{Protocol, UpstreamSettings};
use super::target_error::{TargetError, within};
use super::tls::{Connector, UpstreamTlsConfig};
use crate::transport::Transport;

/// Opens connections to one target.
#[derive(Debug)]
pub(crate) struct Dialer {
    address: Address,
    timeouts: Timeouts,
    security: TransportSecurity,
    /// The `Host` of requests of the gateway itself.
    host: HeaderValue,
}

#[derive(Debug)]
enum TransportSecurity {
    Plaintext,
    Tls(Box<Connector>),
    /// TLS cannot be set up, for this reason.
    Unusable(String),
}

impl Dialer {
    /// Creates the dialer of an `http://` target.
    pub(crate) fn plaintext(authority: &Authority, settings: &UpstreamSettings) -> Self {
        Self {
            address: Address::new(authority, 80),
            timeouts: Timeouts::new(settings),
            security: TransportSecurity::Plaintext,
            host: host(authority),
        }
    }

    /// Creates the dialer of a Unix socket.
    pub(crate) fn unix(path: &Path, settings: &UpstreamSettings) -> Self {
        let address = Address::Unix(path.to_owned());
        let host = HeaderValue::from_static("localhost");
        Self { address, timeouts: Timeouts::new(settings), security: TransportSecurity::Plaintext, host }
    }

    /// Creates the dialer of an `https://` target.
    pub(super) fn tls(authority: &Authority, settings: &UpstreamSettings, config: Arc<UpstreamTlsConfig>) -> Self {
        let security = match Connector::new(config, authority) {
            Some(connector) => TransportSecurity::Tls(Box::new(connector)),
            None => TransportSecurity::Unusable(format!("`{authority}` is not a valid name for a certificate")),
        };
        let (address, timeouts) = (Address::new(authority, 443), Timeouts::new(settings));
        Self { address, timeouts, security, host: host(authority) }
    }

    /// Connects to this address, if it is given. The name of the target stays the name for TLS.
    pub(super) fn with_address(self, address: Option<SocketAddr>) -> Self {
        let address = address.map_or(self.address, Address::Ip);
        Self { address, ..self }
    }

    pub(super) fn is_tls(&self) -> bool {
        !matches!(self.security, TransportSecurity::Plaintext)
    }

    /// Returns the `Host` of requests of the gateway itself.
    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }

    pub(super) fn scheme(&self) -> Scheme {
        if self.is_tls() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// Returns the timeouts of a connection attempt.
    pub(super) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Opens a connection for this protocol. With [`Protocol::Auto`], the target chooses the protocol if it uses TLS.
    /// Returns the protocol of the connection.
    pub(super) async fn open(&self, protocol: Protocol) -> Result<(Transport, Protocol), TargetError> {
        let deadline = self.timeouts.deadline();
        let socket = self.address.connect(self.timeouts).await?;
        match (&self.security, socket) {
            (TransportSecurity::Tls(connector), Transport::Tcp(socket)) => {
                let result = within(deadline, self.timeouts.limit(), connector.handshake(socket, protocol)).await;
                result.map_err(|error| TargetError::tls(&error))
            }
            (TransportSecurity::Unusable(why), _) => Err(TargetError::tls(&io::Error::other(why.clone()))),
            (_, socket) => Ok((socket, protocol)),
        }
    }
}

fn host(authority: &Authority) -> HeaderValue {
    HeaderValue::from_str(authority.as_str()).unwrap_or(HeaderValue::from_static(""))
}
