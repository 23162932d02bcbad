//! Connects to `host:port`, or to the path of a Unix socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::uri::Authority;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Instant, timeout};

use super::settings::UpstreamSettings;
use super::target_error::{TargetError, timed_out, within};
use crate::transport::Transport;

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

/// An address to connect to. A name is resolved for each new connection, so that a change in DNS needs no restart.
#[derive(Debug)]
pub(crate) enum Address {
    Ip(SocketAddr),
    Name(String, u16),
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
    /// Creates the address of an authority. `default_port` applies if the authority has no port.
    pub(crate) fn new(authority: &Authority, default_port: u16) -> Self {
        let port = authority.port_u16().unwrap_or(default_port);
        let host = authority.host();
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(ip) => Self::Ip(SocketAddr::new(ip, port)),
            Err(_) => Self::Name(host.to_owned(), port),
        }
    }

    /// Opens a connection. The timeout includes the name lookup and the attempts at all addresses.
    pub(crate) async fn connect(&self, timeouts: Timeouts) -> Result<Transport, TargetError> {
        let Timeouts { connect: limit, user_timeout } = timeouts;
        let deadline = timeouts.deadline();
        let stream = match self {
            Self::Ip(address) => within(deadline, limit, TcpStream::connect(address)).await,
            Self::Name(host, port) => {
                let resolved = within(deadline, limit, lookup_host((host.as_str(), *port))).await;
                let addresses: Vec<_> = resolved.map_err(|error| TargetError::resolve(host, &error))?.collect();
                connect_to_any(&addresses, deadline).await
            }
            // A Unix socket needs no keepalive.
            Self::Unix(path) => {
                let stream = within(deadline, limit, UnixStream::connect(path)).await;
                return stream.map(Transport::from).map_err(|error| TargetError::connect(&error));
            }
        };
        let configured = stream.and_then(|stream| configure(&stream, user_timeout).map(|()| stream));
        configured.map(Transport::from).map_err(|error| TargetError::connect(&error))
    }
}

/// Sets the socket options of a connection.
fn configure(stream: &TcpStream, user_timeout: Duration) -> io::Result<()> {
    // The head of a request is a single write. The kernel must not delay it to fill a segment.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(user_timeout))?;
    #[cfg(not(target_os = "linux"))]
    let _ = user_timeout; // the default of the system applies
    Ok(())
}

/// Tries the addresses one after the other. Each attempt gets its share of the remaining time, so that an address that
/// drops packets leaves time for the next.
async fn connect_to_any(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last_error = io::Error::from(io::ErrorKind::NotFound);
    for (index, address) in addresses.iter().enumerate() {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let share = remaining / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        last_error = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => timed_out(share),
        };
    }
    Err(last_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_an_ip_or_a_name_with_default_port() {
        let address = |text: &str| format!("{:?}", Address::new(&Authority::try_from(text).unwrap(), 80));
        assert_eq!(address("127.0.0.1:9000"), "Ip(127.0.0.1:9000)");
        assert_eq!(address("127.0.0.1"), "Ip(127.0.0.1:80)");
        assert_eq!(address("[::1]:9000"), "Ip([::1]:9000)");
        assert_eq!(address("api.internal:9000"), r#"Name("api.internal", 9000)"#);
        assert_eq!(address("api.internal"), r#"Name("api.internal", 80)"#);
    }

    #[tokio::test]
    async fn next_address_is_tried_if_one_refuses() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let closed = {
            let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            closed.local_addr().unwrap()
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        let stream = connect_to_any(&[closed, open], deadline).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
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
