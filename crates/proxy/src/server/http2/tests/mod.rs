//! Silent clients, in virtual time.

mod unread;

use bytes::Bytes;
use http_body_util::Empty;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, advance};

use super::send_queue::SendQueue;
use super::*;
use crate::server::Server;
use crate::server::drain::Drain;
use crate::server::driver::ConnectionDriver;
use crate::server::socket::Socket;
use crate::server::testing::HandlerService;
use crate::transport::Transport;
use tidegate_config::{Listen, ListenAddress};
use tidegate_metrics::Metrics;

const PREFACE_AND_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// GET http://a/ on stream 1.
const GET: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a";
const PING: u8 = 6;
const ACK: u8 = 1;

/// Returns the payload of the next PING request. Returns `None` if the connection is closed.
async fn next_ping(client: &mut UnixStream) -> Option<Vec<u8>> {
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head).await.ok()?;
        let mut payload = vec![0; usize::from(head[2])];
        client.read_exact(&mut payload).await.ok()?;
        if (head[3], head[4] & ACK) == (PING, 0) {
            return Some(payload);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ping_ack_that_is_read_late_keeps_the_connection() {
    let listen = Listen::new(ListenAddress::parse("127.0.0.1:0").unwrap());
    let metrics = Arc::new(Metrics::of_gateway(&[]));
    let context = Server::new(&listen, Arc::clone(&metrics), Drain::new().1).context;
    let (mut client, stream) = UnixStream::pair().unwrap();
    let activity = Arc::new(Activity::new(Instant::now()));
    let socket = MeteredSocket::new(Socket::new(Transport::Unix(stream), activity));
    let peer: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
    let never = |_, _| future::pending::<Response<Empty<Bytes>>>();
    tokio::spawn(Http2::new(socket, HandlerService(never), peer.into(), context));
    client.write_all(PREFACE_AND_SETTINGS).await.unwrap();
    client.write_all(GET).await.unwrap();
    for _ in 0..3 {
        let payload = next_ping(&mut client).await.expect("a PING");
        client.write_all(&[&[0, 0, 8, PING, ACK, 0, 0, 0, 0], &payload[..]].concat()).await.unwrap();
        // The connection's task does not run until the acknowledgement is overdue.
        advance(2 * listen.body_timeout).await;
    }
    assert!(next_ping(&mut client).await.is_some());
    assert_eq!(next_ping(&mut client).await, None, "the last PING was not acknowledged");
    assert!(metrics.render().contains("tidegate_rejected_total{cause=\"gone\"} 1\n"), "{}", metrics.render());
}
