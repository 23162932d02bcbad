//! What the kernel is told of clients' sockets. It is told once, of the listening one: those that are accepted inherit it.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpListener;

/// A client of which nothing is heard for so long is asked whether it is still there. A request that runs for longer than
/// this is rare, and middle boxes keep a silent connection in mind for longer.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How long between questions. Not answering two of them in a row is enough: see [`bound`].
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Bytes that may wait to be sent to a client whose window is shut. Left to itself, the kernel takes up to 4 MB for each,
/// and tells of progress in steps of a third of that, in which a slow reader looks like one that has stopped.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 64 * 1024;

/// Sets it.
///
/// # Errors
/// What the system says.
pub(crate) fn prepare(listener: &TcpListener, body_timeout: Duration) -> io::Result<()> {
    let socket = SockRef::from(listener);
    // Without it, the end of an answer may wait for the client to acknowledge its beginning.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL))?;
    bound(&socket, body_timeout)
}

/// How much may be unsent, and how long what was sent, or a question, may go unacknowledged, or the window stay shut,
/// before the connection is over. That time outlives the gateway's own deadline, which counts what it ends; the kernel's is
/// for what the gateway has handed over already: the last bytes of an answer, also after the close.
#[cfg(target_os = "linux")]
fn bound(socket: &SockRef<'_>, body_timeout: Duration) -> io::Result<()> {
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_user_timeout(Some(body_timeout + KEEPALIVE_INTERVAL))
}

/// Elsewhere the system's own room and timeout count.
#[cfg(not(target_os = "linux"))]
fn bound(_: &SockRef<'_>, _: Duration) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn accepted_sockets_find_out_when_their_client_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        prepare(&listener, Duration::from_secs(30)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let socket = SockRef::from(&accepted);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
            assert_eq!(socket.tcp_notsent_lowat().unwrap(), UNSENT);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(45)));
        }
        drop(client);
    }
}
