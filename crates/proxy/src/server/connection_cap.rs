//! The caps on the number of connections, and the response to connections that exceed them.

/// The cap that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionCap {
    Gateway,
    Listener,
    Client,
}

impl ConnectionCap {
    /// Returns the label by which rejected connections are counted.
    pub(super) fn cause(self) -> &'static str {
        match self {
            Self::Gateway => "connections",
            Self::Listener => "listener_connections",
            Self::Client => "client_connections",
        }
    }

    /// A response names only the client's own cap. The other caps are not the client's concern.
    pub(super) fn response(self) -> String {
        let detail = if self == Self::Client { "too many connections from you" } else { "too many connections" };
        let body = format!(
            r#"{{"detail":"{detail}","status":503,"title":"Service Unavailable","type":"about:blank"}}{}"#,
            "\n"
        );
        format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}
