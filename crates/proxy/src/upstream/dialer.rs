//! Opens connections to a target: its address, and TLS if it uses TLS.

use std::io;
use std::sync::Arc;

use http::HeaderValue;
use http::uri::{Authority, Scheme};

use super::address::{Address, Timeouts};
use super::head_limits::HeadLimits;
use super::settings::{Protocol, UpstreamSettings};
use super::target_error::{TargetError, within};
use super::tls::{Connector, UpstreamTlsConfig};
use crate::transport::Transport;

/// Opens connections to one target.
#[derive(Debug)]
pub(crate) struct Dialer {
    address: Address,
    timeouts: Timeouts,
    head_limits: HeadLimits,
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
    /// Creates the dialer of a target without TLS. `authority` is the `Host` of health checks.
    pub(crate) fn plaintext(address: Address, authority: Option<&Authority>, settings: &UpstreamSettings) -> Self {
        let host = authority.map_or(HeaderValue::from_static("localhost"), host);
        let (timeouts, head_limits) = (Timeouts::new(settings), HeadLimits::new(settings));
        Self { address, timeouts, head_limits, security: TransportSecurity::Plaintext, host }
    }

    /// Creates the dialer of a target with TLS. `authority` contains the name for TLS.
    pub(super) fn tls(
        address: Address,
        authority: &Authority,
        settings: &UpstreamSettings,
        config: Arc<UpstreamTlsConfig>,
    ) -> Self {
        let security = match Connector::new(config, authority) {
            Some(connector) => TransportSecurity::Tls(Box::new(connector)),
            None => TransportSecurity::Unusable(format!("`{authority}` is not a valid name for a certificate")),
        };
        let (timeouts, head_limits) = (Timeouts::new(settings), HeadLimits::new(settings));
        Self { address, timeouts, head_limits, security, host: host(authority) }
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

    /// Returns the bounds of the target's response heads.
    pub(super) fn head_limits(&self) -> HeadLimits {
        self.head_limits
    }

    /// Opens a connection for this protocol. With [`Protocol::Auto`], the target chooses the protocol if it uses TLS.
    /// Returns the protocol of the connection.
    pub(super) async fn open(&self, protocol: Protocol) -> Result<(Transport, Protocol), TargetError> {
        let opened = self.connect(protocol).await;
        // A failed handshake counts too: another server may have taken over the address.
        opened.inspect_err(|error| match error.is_unsupported {
            true => {}
            false => self.address.report_unreachable(),
        })
    }

    async fn connect(&self, protocol: Protocol) -> Result<(Transport, Protocol), TargetError> {
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
