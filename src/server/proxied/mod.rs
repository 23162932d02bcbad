//! Connections that come through a proxy which tells, by the PROXY protocol, who has connected to it.

pub(crate) mod header;

use std::io;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use self::header::{Malformed, Origin, Parsed};
use super::slots::{Full, Slot};
use super::watch::last_word;
use super::{Refused, Terms};
use crate::transport::Transport;

/// The causes by which connections are counted that do not get further.
pub(super) const UNTRUSTED: &str = "proxy_untrusted";
const SLOW: &str = "slow_proxy_header";
const MALFORMED: &str = "proxy_header";

/// Reads the header, where the listener asks for one, and counts the connection as its client's; nothing if that comes to
/// nothing.
pub(super) async fn identified(mut stream: Transport, terms: &Terms, slot: &Slot) -> Option<Transport> {
    if !terms.proxy_protocol {
        return Some(stream);
    }
    let read = tokio::select! {
        biased;
        read = timeout(terms.limits.header_timeout, read(&mut stream)) => read,
        () = last_word(&terms.drain) => return None,
    };
    let cause = match read {
        Ok(Ok(Ok(origin))) => match identify(slot, origin, terms.trust_unknown) {
            Ok(()) => return Some(stream),
            Err(full) => {
                (terms.on_refused)(&Refused::connection(full.cause(), slot.peer()));
                match terms.tls {
                    None => slot.refuse(stream, full),
                    Some(_) => slot.refuse_silently(stream, full),
                }
                return None;
            }
        },
        Ok(Ok(Err(Malformed))) => MALFORMED,
        Ok(Err(_)) => return None, // it has left
        Err(_) => SLOW,
    };
    terms.metrics.rejected(cause);
    tracing::debug!(peer = %slot.peer(), cause, "a proxy did not tell whom it is connected to");
    None
}

/// Records the client that a header names. Behind a header without a client (`UNKNOWN`, `LOCAL`), the forwarded fields may be
/// the invention of any client, so that the proxy counts as the client unless the rule file trusts these fields.
fn identify(slot: &Slot, origin: Origin, trust_unknown: bool) -> Result<(), Full> {
    match origin {
        Origin::Client(client) => return slot.belongs_to(client),
        Origin::Proxy if trust_unknown => {}
        Origin::Proxy => slot.mark_without_client(),
    }
    Ok(())
}

/// Reads the header, and nothing of what follows.
async fn read(stream: &mut Transport) -> io::Result<Result<Origin, Malformed>> {
    let (mut bytes, mut count) = (Vec::new(), 0);
    loop {
        match header::parse(&bytes[..count]) {
            Ok(Parsed::More(more)) => bytes.resize(count + more, 0),
            Ok(Parsed::Whole(origin)) => return Ok(Ok(origin)),
            Err(malformed) => return Ok(Err(malformed)),
        }
        match stream.read(&mut bytes[count..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => count += read,
        }
    }
}
