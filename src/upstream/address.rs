//! From `host:port`, or the path of a Unix socket, to an open connection.

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

/// A host of which nothing is heard for so long, while an answer is waited for, is asked whether it is still there: as long
/// as an upstream may take unless the rule file says otherwise. Where it says more, a host that is gone is found out.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long between questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// How long what was sent, or a question, may go unacknowledged, or the window stay shut, before the connection is over; the
/// system's own timeout is a quarter of an hour. It is longer where an upstream may take longer to answer: whether one that
/// does not read an upload for a while is given up is the gateway's decision, not the kernel's.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// For how long what is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    connect: Duration,
    unacknowledged: Duration,
}

/// Where to connect: an address, or a name that is looked up for each new connection, so that a change in DNS needs no
/// restart.
#[derive(Debug)]
pub(crate) enum Address {
    Ip(SocketAddr),
    Name(String, u16),
    Unix(PathBuf),
}

impl Timeouts {
    pub(crate) fn of(settings: &UpstreamSettings) -> Self {
        let unacknowledged = UNACKNOWLEDGED.max(settings.response_timeout.saturating_add(KEEPALIVE_INTERVAL));
        Self { connect: settings.connect_timeout, unacknowledged }
    }

    /// How long a connection may take to open.
    pub(crate) fn limit(self) -> Duration {
        self.connect
    }

    /// By when a connection that is opened now has to be ready.
    pub(crate) fn deadline(self) -> Instant {
        Instant::now() + self.connect
    }
}

impl Address {
    /// With this port where none is written.
    pub(crate) fn new(authority: &Authority, default_port: u16) -> Self {
        let port = authority.port_u16().unwrap_or(default_port);
        let host = authority.host();
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(ip) => Self::Ip(SocketAddr::new(ip, port)),
            Err(_) => Self::Name(host.to_owned(), port),
        }
    }

    /// Opens a connection; looking up the name and trying all its addresses happen within the time to connect.
    pub(crate) async fn connect(&self, timeouts: Timeouts) -> Result<Transport, TargetError> {
        let Timeouts { connect: limit, unacknowledged } = timeouts;
        let deadline = timeouts.deadline();
        let stream = match self {
            Self::Ip(address) => within(deadline, limit, TcpStream::connect(address)).await,
            Self::Name(host, port) => {
                let resolved = within(deadline, limit, lookup_host((host.as_str(), *port))).await;
                let addresses: Vec<_> = resolved.map_err(|error| TargetError::resolve(host, &error))?.collect();
                connect_to_one(&addresses, deadline).await
            }
            // Whether the other end is there needs no asking on one machine.
            Self::Unix(path) => {
                let stream = within(deadline, limit, UnixStream::connect(path)).await;
                return stream.map(Transport::from).map_err(|error| TargetError::connect(&error));
            }
        };
        let prepared = stream.and_then(|stream| prepare(&stream, unacknowledged).map(|()| stream));
        prepared.map(Transport::from).map_err(|error| TargetError::connect(&error))
    }
}

/// What the kernel is told of a connection.
fn prepare(stream: &TcpStream, unacknowledged: Duration) -> io::Result<()> {
    // A request's head is one write that nobody should hold back to fill a segment.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(unacknowledged))?;
    #[cfg(not(target_os = "linux"))]
    let _ = unacknowledged; // the system's own timeout counts
    Ok(())
}

/// Tries the addresses one after the other, each with its share of the time that is left, so that one that swallows
/// packets leaves time for the next.
async fn connect_to_one(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for (index, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        failure = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => timed_out(share),
        };
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_names_and_have_a_default_port() {
        let address = |text: &str| format!("{:?}", Address::new(&Authority::try_from(text).unwrap(), 80));
        assert_eq!(address("127.0.0.1:9000"), "Ip(127.0.0.1:9000)");
        assert_eq!(address("127.0.0.1"), "Ip(127.0.0.1:80)");
        assert_eq!(address("[::1]:9000"), "Ip([::1]:9000)");
        assert_eq!(address("api.internal:9000"), r#"Name("api.internal", 9000)"#);
        assert_eq!(address("api.internal"), r#"Name("api.internal", 80)"#);
    }

    #[tokio::test]
    async fn an_address_that_refuses_leaves_its_place_to_the_next() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let closed = {
            let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            closed.local_addr().unwrap()
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        let stream = connect_to_one(&[closed, open], deadline).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
    }

    #[tokio::test]
    async fn a_connection_finds_out_when_the_other_host_is_gone() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Ip(listener.local_addr().unwrap());
        let mut settings = UpstreamSettings::new("api".into(), Vec::new());
        for (response_timeout, unacknowledged) in [(30, 60), (600, 610)] {
            settings.response_timeout = Duration::from_secs(response_timeout);
            let stream = address.connect(Timeouts::of(&settings)).await.unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            #[cfg(target_os = "linux")]
            {
                assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
                assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(unacknowledged)));
            }
        }
    }
}
