//! Connects to an address of a target, or to the path of a Unix socket.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

use super::dns::{DnsName, ResolvedName, Resolver};
use super::settings::{Service, Target, UpstreamSettings};
use super::target_error::{TargetError, within};
use crate::transport::{Transport, optional};
use tidegate_metrics::Metrics;

/// The idle time before the first keepalive probe (TCP). Equals the default `timeouts.response`. So the gateway detects
/// a dead host also while a longer `timeouts.response` runs.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The longest time without an acknowledgement, or with a closed window, before the kernel closes the connection
/// (`TCP_USER_TIMEOUT`). The default of the kernel is 15 minutes. A longer `timeouts.response` raises it: the gateway
/// decides how long an upstream may stop reading an upload, not the kernel.
const MIN_USER_TIMEOUT: Duration = Duration::from_secs(60);

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    connect: Duration,
    /// For `TCP_USER_TIMEOUT`.
    user_timeout: Duration,
}

/// An address to connect to.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Ip(SocketAddr),
    /// A name without a known address.
    Name(Arc<ResolvedName>),
    /// One address of a name.
    OfName(Arc<ResolvedName>, SocketAddr),
    Unix(PathBuf),
}

impl Timeouts {
    pub(crate) fn new(settings: &UpstreamSettings) -> Self {
        let user_timeout = MIN_USER_TIMEOUT.max(settings.timeouts.response.saturating_add(KEEPALIVE_INTERVAL));
        Self { connect: settings.timeouts.connect, user_timeout }
    }

    /// Returns the longest time to open a connection.
    pub(crate) fn limit(self) -> Duration {
        self.connect
    }

    /// Returns the deadline of a connection attempt that starts now.
    pub(crate) fn deadline(self) -> Instant {
        Instant::now() + self.connect
    }
}

impl Address {
    /// Creates the address of a target. Returns `None` if the target needs no connection.
    pub(crate) fn from_target(target: &Target, resolver: &Resolver, metrics: &Metrics) -> Option<Self> {
        let of_authority = |authority: &Authority, default_port| {
            let port = authority.port_u16().unwrap_or(default_port);
            let host = authority.host();
            match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
                Ok(ip) => Self::Ip(SocketAddr::new(ip, port)),
                Err(_) => Self::Name(resolver.name(&DnsName::Host(host.to_ascii_lowercase().into(), port), metrics)),
            }
        };
        match target {
            Target::Http(authority) => Some(of_authority(authority, 80)),
            Target::Https(authority) => Some(of_authority(authority, 443)),
            Target::Service(Service { name, .. }) => {
                let name = DnsName::Service(name.host().to_ascii_lowercase().into());
                Some(Self::Name(resolver.name(&name, metrics)))
            }
            Target::Unix(path) => Some(Self::Unix(path.clone())),
            Target::Echo => None,
        }
    }

    /// Returns the name, if the address has one.
    pub(super) fn name(&self) -> Option<&Arc<ResolvedName>> {
        match self {
            Self::Name(name) | Self::OfName(name, _) => Some(name),
            Self::Ip(_) | Self::Unix(_) => None,
        }
    }

    /// Returns this address of the name.
    pub(super) fn with_resolved(&self, resolved: Option<SocketAddr>) -> Self {
        match (self, resolved) {
            (Self::Name(name), Some(resolved)) => Self::OfName(Arc::clone(name), resolved),
            (address, _) => address.clone(),
        }
    }

    /// Reports that no connection could be opened, so that a name is resolved again.
    pub(super) fn report_unreachable(&self) {
        if let Self::OfName(name, address) = self {
            name.report_unreachable(*address);
        }
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self, timeouts: Timeouts) -> Result<Transport, TargetError> {
        let Timeouts { connect: limit, user_timeout } = timeouts;
        let deadline = timeouts.deadline();
        let stream = match self {
            Self::Ip(address) | Self::OfName(_, address) => within(deadline, limit, TcpStream::connect(address)).await,
            Self::Name(name) => return Err(TargetError::resolve(name.name())),
            // A Unix socket needs no keepalive.
            Self::Unix(path) => {
                let stream = within(deadline, limit, UnixStream::connect(path)).await;
                return stream.map(Transport::from).map_err(|error| TargetError::connect(&error));
            }
        };
        let stream = stream.map_err(|error| TargetError::connect(&error))?;
        configure(&stream, user_timeout);
        Ok(Transport::from(stream))
    }
}

/// Sets the socket options of a connection that the system supports.
fn configure(stream: &TcpStream, user_timeout: Duration) {
    let socket = SockRef::from(stream);
    // The head of a request is a single write. The kernel must not delay it to fill a segment.
    optional("TCP_NODELAY", socket.set_tcp_nodelay(true));
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
    optional("SO_KEEPALIVE", socket.set_tcp_keepalive(&keepalive));
    #[cfg(target_os = "linux")]
    optional("TCP_USER_TIMEOUT", socket.set_tcp_user_timeout(Some(user_timeout)));
    #[cfg(not(target_os = "linux"))]
    let _ = user_timeout; // the default of the system applies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_an_ip_or_a_name_with_default_port() {
        let (resolver, _tasks) = Resolver::new(&[]);
        let address = |text: &str, target: fn(Authority) -> Target| {
            let target = target(Authority::try_from(text).unwrap());
            match Address::from_target(&target, &resolver, &Metrics::of_gateway(&[])).unwrap() {
                Address::Ip(address) => format!("ip {address}"),
                Address::Name(name) => format!("name {}", name.name()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(address("127.0.0.1:9000", Target::Http), "ip 127.0.0.1:9000");
        assert_eq!(address("127.0.0.1", Target::Http), "ip 127.0.0.1:80");
        assert_eq!(address("[::1]:9000", Target::Http), "ip [::1]:9000");
        assert_eq!(address("API.internal:9000", Target::Http), "name api.internal:9000");
        assert_eq!(address("api.internal", Target::Https), "name api.internal:443");
        let service = |name| Target::Service(Service { name, is_tls: true });
        assert_eq!(address("_http._tcp.api.internal", service), "name _http._tcp.api.internal");
    }

    #[tokio::test]
    async fn connection_has_keepalive_and_user_timeout() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let mut settings = UpstreamSettings::new("api".into(), Vec::new());
        for (response, user_timeout) in [(30, 60), (600, 610)] {
            settings.timeouts.response = Duration::from_secs(response);
            let stream = address.connect(Timeouts::new(&settings)).await.unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            #[cfg(target_os = "linux")]
            {
                assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
                assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(user_timeout)));
            }
        }
    }
}
