//! The parts of a request that variables contain.

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    /// The address of the client.
    Address,
    /// A header field, in lower case with hyphens.
    Header(String),
    Cookie(String),
    Query(String),
    Host,
    /// The normalized path.
    Path,
    /// The path and the query, as the client sent them.
    Target,
    Method,
    Scheme,
    /// The first name of the server.
    ServerName,
    /// The subject of the client certificate.
    TlsSubject,
    /// Another variable, which has no equivalent.
    Other(String),
}

// === impl Source ===

impl Source {
    /// Returns the part of a request that a variable contains.
    pub(crate) fn of(variable: &str) -> Self {
        match variable {
            "remote_addr" | "binary_remote_addr" => Self::Address,
            "host" | "http_host" => Self::Host,
            "uri" | "document_uri" => Self::Path,
            "request_uri" => Self::Target,
            "request_method" => Self::Method,
            "scheme" => Self::Scheme,
            "server_name" => Self::ServerName,
            "ssl_client_s_dn" => Self::TlsSubject,
            other => Self::of_prefix(other),
        }
    }

    fn of_prefix(variable: &str) -> Self {
        if let Some(name) = variable.strip_prefix("http_") {
            Self::Header(name.to_ascii_lowercase().replace('_', "-"))
        } else if let Some(name) = variable.strip_prefix("cookie_") {
            Self::Cookie(name.to_owned())
        } else if let Some(name) = variable.strip_prefix("arg_") {
            Self::Query(name.to_owned())
        } else {
            Self::Other(variable.to_owned())
        }
    }

    /// Returns the source in `client` of a limit. Returns `None` if a limit cannot use it.
    pub(crate) fn client(&self) -> Option<String> {
        Some(match self {
            Self::Address => "ip".to_owned(),
            Self::Header(name) => format!("header:{name}"),
            Self::Cookie(name) => format!("cookie:{name}"),
            Self::Query(name) => format!("query:{name}"),
            Self::Host => "host".to_owned(),
            Self::Path | Self::Target => "path".to_owned(),
            Self::TlsSubject => "tls:subject".to_owned(),
            Self::Method | Self::Scheme | Self::ServerName | Self::Other(_) => return None,
        })
    }

    /// Returns `true` if each request has this part.
    pub(crate) fn is_always_present(&self) -> bool {
        matches!(self, Self::Address | Self::Host | Self::Path | Self::Target | Self::Method | Self::Scheme)
    }
}
