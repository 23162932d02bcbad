//! HTTP/1 or HTTP/2, told by the first three bytes, or by TLS before them.

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    /// With prior knowledge (RFC 9113 section 3.3).
    Http2,
}

/// The method that no client of HTTP/1 will ever use (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI";

/// What a client may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// Its first bytes tell.
    Either,
    /// This was agreed upon before.
    Only(Protocol),
}

impl Spoken {
    /// What it is, by the first bytes, of which there is one at least; nothing if there are too few of them.
    pub(crate) fn told_by(self, start: &[u8]) -> Option<Protocol> {
        match self {
            Self::Either => of(start),
            Self::Only(protocol) => Some(protocol),
        }
    }
}

/// What the first bytes tell; nothing if there are too few of them.
fn of(start: &[u8]) -> Option<Protocol> {
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
    fn three_bytes_are_enough() {
        assert!(["", "P", "PR"].iter().all(|start| of(start.as_bytes()).is_none()));
        assert!(["PRI", "PRI * HTTP/2.0"].iter().all(|start| of(start.as_bytes()) == Some(Protocol::Http2)));
        assert!(["G", "PO", "PRX", "\r"].iter().all(|start| of(start.as_bytes()) == Some(Protocol::Http1)));
    }
}
