//! The beginning of a connection of TLS, up to where HTTP is spoken.

use std::pin::pin;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Terms;
use super::activity::Activity;
use super::slots::{Slot, wait_for_end};
use super::stream::LINGER;
use super::watch::last_word;
use crate::transport::Transport;

/// The causes by which those are counted that do not get so far.
const SLOW: &str = "slow_handshake";
const BAD: &str = "bad_handshake";
const IN_CLEAR: &str = "not_tls";
const TOO_MANY: &str = "handshake_rate";

/// The first byte of every client that speaks TLS: that of a record of the handshake (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;

/// What a client is told that speaks HTTP in clear, as nginx does.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
    content-length: 104\r\n\r\n\
    {\"detail\":\"this port speaks TLS: ask by https\",\"status\":400,\"title\":\"Bad Request\",\"type\":\"about:blank\"}\n";

/// Speaks TLS with a client, where the listener does; nothing if that comes to nothing in time.
pub(super) async fn greet(stream: Transport, terms: &Terms, activity: &Activity, slot: &Slot) -> Option<Transport> {
    let peer = slot.peer();
    let (tls, stream) = match (&terms.tls, stream) {
        (None, stream) => return Some(stream),
        (Some(tls), Transport::Tcp(stream)) => (tls, stream),
        // There is no TLS in TLS, and none on a Unix socket: the rule file asks for neither.
        (Some(_), Transport::Tls(_) | Transport::Unix(_)) => return None,
    };
    let mut end = pin!(sleep(terms.limits.header_timeout));
    let first = tokio::select! {
        biased;
        first = first_byte(&stream) => first?,
        () = &mut end => return None,
        () = last_word(&terms.drain) => return None,
    };
    if first != HANDSHAKE {
        terms.metrics.rejected(IN_CLEAR);
        if first.is_ascii_alphabetic() {
            _ = stream.try_write(NOT_TLS); // a fresh socket has room for it
            linger(stream).await;
        }
        return None;
    }
    if let Some(limit) = &terms.handshakes
        && let Some(client) = slot.client()
        && !limit.allows(&client)
    {
        terms.metrics.rejected(TOO_MANY);
        tracing::debug!(%peer, "too many TLS handshakes of this client, closing");
        return None;
    }
    // Boxed: it is large, and over before the first request.
    let greeted = tokio::select! {
        biased;
        greeted = Box::pin(tls.accept(stream)) => greeted,
        () = end => {
            terms.metrics.rejected(SLOW);
            return None;
        }
    };
    match greeted {
        Ok(stream) => {
            activity.greeted();
            Some(Transport::Tls(stream))
        }
        Err((error, stream)) => {
            tracing::debug!(%peer, %error, "a client did not get through its TLS handshake");
            terms.metrics.rejected(BAD);
            linger(stream).await;
            None
        }
    }
}

/// The first byte, which stays where it is; nothing if the client leaves without one.
async fn first_byte(stream: &TcpStream) -> Option<u8> {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)).then_some(first[0])
}

/// Has the client hear why it is turned away, although it may be sending.
async fn linger(stream: TcpStream) {
    _ = timeout(LINGER, wait_for_end(stream)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_in_clear_is_as_long_as_it_says() {
        let text = std::str::from_utf8(NOT_TLS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{} {head}", body.len());
    }
}
