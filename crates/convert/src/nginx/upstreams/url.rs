//! The URLs of `proxy_pass` and `grpc_pass`.

use tidegate_rules::route::HostPattern;

/// A URL without variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(super) is_tls: bool,
    /// Whether the servers speak HTTP/2.
    pub(super) is_grpc: bool,
    /// A host with an optional port, the name of a group, or `unix:/path`.
    pub(super) authority: String,
    /// The path that replaces the prefix of the location. `None` without one.
    pub(super) path: Option<String>,
}

// === impl Url ===

impl Url {
    /// Parses a URL, such as `http://127.0.0.1:9000/api/`, `https://backend` or `http://unix:/run/app.sock:/api/`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("grpc", text));
        let (is_tls, is_grpc) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, false),
            "https" => (true, false),
            "grpc" => (false, true),
            "grpcs" => (true, true),
            _ => return Err(format!("`{scheme}` is not a supported scheme")),
        };
        let (authority, path) = match rest.strip_prefix("unix:") {
            Some(socket) => match socket.split_once(':') {
                Some((socket, path)) => (format!("unix:{socket}"), Some(path).filter(|path| !path.is_empty())),
                None => (rest.to_owned(), None),
            },
            None => {
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                (rest[..end].to_owned(), Some(&rest[end..]).filter(|path| !path.is_empty()))
            }
        };
        Ok(Self { is_tls, is_grpc, authority, path: path.map(str::to_owned) })
    }

    /// Returns the URL of the target of a rule file.
    pub(super) fn target(&self) -> Result<String, String> {
        target(&self.authority, self.is_tls, if self.is_tls { 443 } else { 80 })
    }
}

/// Returns the URL of a target. Without a port, the target has the default port.
pub(super) fn target(authority: &str, is_tls: bool, default_port: u16) -> Result<String, String> {
    let invalid = || format!("`{authority}` is not a host with a port");
    if let Some(path) = authority.strip_prefix("unix:") {
        let is_valid = path.starts_with('/') && path.len() <= 107 && !is_tls;
        return if is_valid { Ok(authority.to_owned()) } else { Err(invalid()) };
    }
    let (host, port) = match authority.rfind(':').filter(|colon| !authority[*colon..].contains(']')) {
        Some(colon) => (&authority[..colon], Some(authority[colon + 1..].parse::<u16>().map_err(|_| invalid())?)),
        None => (authority, None),
    };
    if !matches!(HostPattern::parse(host), Ok(HostPattern::Exact(_))) || port == Some(0) {
        return Err(invalid());
    }
    let scheme = if is_tls { "https" } else { "http" };
    let is_usual = port.unwrap_or(default_port) == if is_tls { 443 } else { 80 };
    Ok(match port {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None if is_usual => format!("{scheme}://{host}"),
        None => format!("{scheme}://{host}:{default_port}"),
    })
}
