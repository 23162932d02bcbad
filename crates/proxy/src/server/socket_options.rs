//! Options of client sockets. They are set on the listening socket, and accepted sockets inherit them.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpListener;

use crate::transport::optional;

/// How long a client may be silent before the kernel sends a keepalive probe. Few requests take longer, and
/// middleboxes keep silent connections for longer.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// The time between keepalive probes. The connection ends after two probes without an acknowledgement (see
/// [`limit_unsent`]).
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// How many bytes may wait in the kernel for a client that does not read. By default the kernel buffers up to 4 MB and
/// reports progress in steps of a third of that, so a slow reader looks like one that has stopped.
#[cfg(target_os = "linux")]
const MAX_UNSENT: u32 = 64 * 1024;

/// Sets the options that the system supports.
pub(crate) fn configure(listener: &TcpListener, body_timeout: Duration) {
    let socket = SockRef::from(listener);
    // Without it, the end of a response may wait until the client has acknowledged the beginning.
    optional("TCP_NODELAY", socket.set_tcp_nodelay(true));
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
    optional("SO_KEEPALIVE", socket.set_tcp_keepalive(&keepalive));
    limit_unsent(&socket, body_timeout);
}

/// Limits the unsent bytes, and how long sent bytes or a probe may stay unacknowledged or the window closed. This
/// timeout exceeds the gateway's own, which also counts the connections that it ends. The kernel's timeout is for
/// bytes that the gateway has already handed over, for example the end of a response after the close.
#[cfg(target_os = "linux")]
fn limit_unsent(socket: &SockRef<'_>, body_timeout: Duration) {
    optional("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(MAX_UNSENT));
    optional("TCP_USER_TIMEOUT", socket.set_tcp_user_timeout(Some(body_timeout + KEEPALIVE_INTERVAL)));
}

/// Other systems use their own defaults.
#[cfg(not(target_os = "linux"))]
fn limit_unsent(_: &SockRef<'_>, _: Duration) {}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn accepted_sockets_inherit_the_options() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        configure(&listener, Duration::from_secs(30));
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
            assert_eq!(socket.tcp_notsent_lowat().unwrap(), MAX_UNSENT);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(45)));
        }
        drop(client);
    }
}
