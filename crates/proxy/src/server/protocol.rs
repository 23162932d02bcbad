//! Detects HTTP/1 or HTTP/2, from the first three bytes or from ALPN.

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// HTTP/2, with prior knowledge (RFC 9113 section 3.3) or by ALPN.
    Http2,
}

/// The start of the HTTP/2 preface: a method that no HTTP/1 client uses (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI";

/// How the protocol of a connection is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolChoice {
    /// The first bytes decide.
    Detect,
    /// ALPN or the configuration has decided.
    Agreed(Protocol),
}

impl ProtocolChoice {
    /// Returns the protocol of a connection that starts with these bytes, which must not be empty. Returns `None` if
    /// more bytes are needed.
    pub(crate) fn detect(self, start: &[u8]) -> Option<Protocol> {
        match self {
            Self::Detect => from_first_bytes(start),
            Self::Agreed(protocol) => Some(protocol),
        }
    }
}

/// Returns the protocol that the first bytes belong to. Returns `None` if more bytes are needed.
fn from_first_bytes(start: &[u8]) -> Option<Protocol> {
    match start.get(..PREFACE.len()).unwrap_or(start) {
        PREFACE => Some(Protocol::Http2),
        part if PREFACE.starts_with(part) => None,
        _ => Some(Protocol::Http1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_bytes_decide_the_protocol() {
        assert!(["", "P", "PR"].iter().all(|start| from_first_bytes(start.as_bytes()).is_none()));
        assert!(
            ["PRI", "PRI * HTTP/2.0"].iter().all(|start| from_first_bytes(start.as_bytes()) == Some(Protocol::Http2))
        );
        assert!(
            ["G", "PO", "PRX", "\r"].iter().all(|start| from_first_bytes(start.as_bytes()) == Some(Protocol::Http1))
        );
    }
}
