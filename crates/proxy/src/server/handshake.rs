//! Terminates TLS on new connections.

use std::pin::pin;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::ServerContext;
use super::activity::Activity;
use super::connection_slots::{ConnectionSlot, wait_for_close};
use super::driver::wait_for_drain_grace;
use super::metered_socket::LINGER;
use crate::transport::Transport;

/// The labels by which failed handshakes are counted.
const SLOW: &str = "slow_handshake";
const FAILED: &str = "bad_handshake";
const PLAINTEXT: &str = "not_tls";
const TOO_MANY_HANDSHAKES: &str = "handshake_rate";

/// The content type of a TLS handshake record, which is the first byte of every TLS client (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;

/// The response to plaintext HTTP requests. nginx responds in the same way.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
    content-length: 103\r\n\r\n\
    {\"detail\":\"this port requires TLS: use https\",\"status\":400,\
    \"title\":\"Bad Request\",\"type\":\"about:blank\"}\n";

/// Performs the TLS handshake, if the listener uses TLS. Returns `None` if the handshake fails or times out.
pub(super) async fn handshake(
    stream: Transport,
    context: &ServerContext,
    activity: &Activity,
    slot: &ConnectionSlot,
) -> Option<Transport> {
    let (tls, stream) = match (&context.tls, stream) {
        (None, stream) => return Some(stream),
        (Some(tls), Transport::Tcp(stream)) => (tls, stream),
        // The configuration check rejects TLS on Unix sockets, and a TLS stream is never wrapped again.
        (Some(_), Transport::Tls(_) | Transport::Unix(_)) => return None,
    };
    let mut timed_out = pin!(sleep(context.limits.header_timeout));
    let first = tokio::select! {
        biased;
        first = first_byte(&stream) => first?,
        () = &mut timed_out => return None,
        () = wait_for_drain_grace(&context.drain) => return None,
    };
    if first != HANDSHAKE {
        reject_plaintext(stream, first, context).await;
        return None;
    }
    if exceeds_handshake_rate(context, slot) {
        return None;
    }
    // Boxed, because the future is large and finished before the first request. Not a part of the `select!`, which would
    // close the connection before its rejection is counted.
    let mut accepting = Box::pin(tls.accept(stream));
    let accepted = tokio::select! {
        biased;
        accepted = &mut accepting => accepted,
        () = timed_out => {
            context.metrics.rejected(SLOW);
            return None;
        }
    };
    match accepted {
        Ok(stream) => {
            activity.handshake_completed();
            Some(Transport::Tls(stream))
        }
        Err((error, stream)) => {
            tracing::debug!(peer = %slot.peer(), %error, "TLS handshake failed");
            context.metrics.rejected(FAILED);
            shut_down(stream).await;
            None
        }
    }
}

/// Closes a connection that begins with another byte than TLS, after a response if it can be HTTP.
async fn reject_plaintext(stream: TcpStream, first: u8, context: &ServerContext) {
    context.metrics.rejected(PLAINTEXT);
    if first.is_ascii_alphabetic() {
        _ = stream.try_write(NOT_TLS); // the send buffer of a new socket has room for it
        shut_down(stream).await;
    }
}

/// Returns `true` if the client has used up its rate of handshakes, and counts the rejection.
fn exceeds_handshake_rate(context: &ServerContext, slot: &ConnectionSlot) -> bool {
    let limit = context.handshake_limit.as_ref().zip(slot.client());
    let is_exceeded = limit.is_some_and(|(limit, client)| !limit.allows(&client));
    if is_exceeded {
        context.metrics.rejected(TOO_MANY_HANDSHAKES);
        tracing::debug!(peer = %slot.peer(), "client exceeded its TLS handshake rate, closing");
    }
    is_exceeded
}

/// Peeks at the first byte. Returns `None` if the client closes without sending one.
async fn first_byte(stream: &TcpStream) -> Option<u8> {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)).then_some(first[0])
}

/// Closes the connection in a way that lets a client that is still sending read the response or the alert.
async fn shut_down(stream: TcpStream) {
    _ = timeout(LINGER, wait_for_close(stream)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_response_matches_its_content_length() {
        let text = std::str::from_utf8(NOT_TLS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{} {head}", body.len());
    }
}
