//! Reads the PROXY protocol header of a connection, which names the client that connected to the proxy.

pub(crate) mod header;

use std::io;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use self::header::{Malformed, Parsed, ProxySource};
use super::connection_cap::ConnectionCap;
use super::connection_slots::ConnectionSlot;
use super::driver::wait_for_drain_grace;
use super::{Rejection, ServerContext};
use crate::transport::Transport;

/// The labels by which rejected connections are counted.
pub(super) const UNTRUSTED: &str = "proxy_untrusted";
const SLOW: &str = "slow_proxy_header";
const MALFORMED: &str = "proxy_header";

/// Reads the header, if the listener expects one, and counts the connection for its client. Returns `None` if the
/// connection was rejected or closed.
pub(super) async fn read_header(
    mut stream: Transport,
    context: &ServerContext,
    slot: &ConnectionSlot,
) -> Option<Transport> {
    if !context.proxy_protocol {
        return Some(stream);
    }
    let read = tokio::select! {
        biased;
        read = timeout(context.limits.header_timeout, read_source(&mut stream)) => read,
        () = wait_for_drain_grace(&context.drain) => return None,
    };
    let cause = match read {
        Ok(Ok(Ok(source))) => match assign_source(slot, source, context.trust_unknown) {
            Ok(()) => return Some(stream),
            Err(cap) => {
                (context.on_rejection)(&Rejection::connection(cap.cause(), slot.peer()));
                match context.tls {
                    None => slot.reject(stream, cap),
                    Some(_) => slot.reject_silently(stream, cap),
                }
                return None;
            }
        },
        Ok(Ok(Err(Malformed))) => MALFORMED,
        Ok(Err(_)) => return None, // the proxy closed the connection
        Err(_) => SLOW,
    };
    context.metrics.rejected(cause);
    tracing::debug!(peer = %slot.peer(), cause, "missing or invalid PROXY protocol header, closing");
    None
}

/// Records the client that a header names. If a header names no client (`UNKNOWN`, `LOCAL`), any client may have made
/// up the forwarded fields. The proxy then counts as the client, unless the rule file trusts these fields.
fn assign_source(slot: &ConnectionSlot, source: ProxySource, trust_unknown: bool) -> Result<(), ConnectionCap> {
    match source {
        ProxySource::Client(client) => return slot.assign_client(client.address, client.over_tls),
        ProxySource::Proxy if trust_unknown => {}
        ProxySource::Proxy => slot.set_no_client(),
    }
    Ok(())
}

/// Reads the header, and no byte after it.
async fn read_source(stream: &mut Transport) -> io::Result<Result<ProxySource, Malformed>> {
    let (mut bytes, mut count) = (Vec::new(), 0);
    loop {
        match header::parse(&bytes[..count]) {
            Ok(Parsed::More(more)) => bytes.resize(count + more, 0),
            Ok(Parsed::Complete(source)) => return Ok(Ok(source)),
            Err(malformed) => return Ok(Err(malformed)),
        }
        match stream.read(&mut bytes[count..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => count += read,
        }
    }
}
