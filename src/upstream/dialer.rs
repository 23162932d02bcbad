//! How a target is reached: its address, and TLS if it speaks that.

use std::io;
use std::path::Path;
use std::sync::Arc;

use http::uri::{Authority, Scheme};

use super::address::{Address, Timeouts};
use super::settings::{Protocol, UpstreamSettings};
use super::target_error::{TargetError, within};
use super::tls::{Connector, UpstreamTlsConfig};
use crate::transport::Transport;

/// The way to one target.
#[derive(Debug)]
pub(crate) struct Dialer {
    address: Address,
    timeouts: Timeouts,
    security: Security,
}

#[derive(Debug)]
enum Security {
    Clear,
    Tls(Box<Connector>),
    /// It cannot be spoken, since this.
    Broken(String),
}

impl Dialer {
    /// To a target in clear.
    pub(crate) fn clear(authority: &Authority, settings: &UpstreamSettings) -> Self {
        Self { address: Address::new(authority, 80), timeouts: Timeouts::of(settings), security: Security::Clear }
    }

    /// To one on this machine.
    pub(crate) fn unix(path: &Path, settings: &UpstreamSettings) -> Self {
        let address = Address::Unix(path.to_owned());
        Self { address, timeouts: Timeouts::of(settings), security: Security::Clear }
    }

    /// To one of TLS.
    pub(super) fn tls(authority: &Authority, settings: &UpstreamSettings, identity: Arc<UpstreamTlsConfig>) -> Self {
        let security = match Connector::new(identity, authority) {
            Some(connector) => Security::Tls(Box::new(connector)),
            None => Security::Broken(format!("`{authority}` has no name that a certificate can have")),
        };
        Self { address: Address::new(authority, 443), timeouts: Timeouts::of(settings), security }
    }

    pub(super) fn is_tls(&self) -> bool {
        !matches!(self.security, Security::Clear)
    }

    pub(super) fn scheme(&self) -> Scheme {
        if self.is_tls() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// How long all of it may take.
    pub(super) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Opens a connection on which this is spoken, or what the target prefers; without TLS nobody asks it.
    pub(super) async fn open(&self, protocol: Protocol) -> Result<(Transport, Protocol), TargetError> {
        let deadline = self.timeouts.deadline();
        let socket = self.address.connect(self.timeouts).await?;
        match (&self.security, socket) {
            (Security::Tls(connector), Transport::Tcp(socket)) => {
                let greeted = within(deadline, self.timeouts.limit(), connector.handshake(socket, protocol)).await;
                greeted.map_err(|error| TargetError::tls(&error))
            }
            (Security::Broken(why), _) => Err(TargetError::tls(&io::Error::other(why.clone()))),
            (_, socket) => Ok((socket, protocol)),
        }
    }
}
