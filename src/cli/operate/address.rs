//! The address of an admin listener.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::gateway::GATEWAY_FILES;
use tidegate_config::{ConfigLoadError, ListenAddress, RuleFile};

#[derive(Clone, Debug)]
pub(super) enum AdminAddress {
    Tcp(String),
    Unix(PathBuf),
}

impl AdminAddress {
    /// Returns the address in a rule file.
    ///
    /// # Errors
    /// The file is not valid, or turns the listener off.
    pub(super) fn of_rule_file(file: &RuleFile) -> Result<Self, String> {
        let config =
            file.load_without_referenced_files(GATEWAY_FILES).map_err(|error: ConfigLoadError| error.to_string())?;
        match config.admin {
            Some(ListenAddress::Tcp(address)) => Ok(Self::Tcp(reachable(address).to_string())),
            Some(ListenAddress::Unix(path)) => Ok(Self::Unix(path)),
            None => Err(format!("{file}: `admin` is `off`")),
        }
    }
}

/// Returns the address of this machine if the listener accepts connections on all addresses.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

impl FromStr for AdminAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The demo and the log print the address as a URL.
        let text = text.strip_prefix("http://").map_or(text, |url| url.trim_end_matches('/'));
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            None if text.contains(':') && !text.contains('/') => Ok(Self::Tcp(text.to_owned())),
            _ => Err("write IP:PORT or unix:/path"),
        }
    }
}

impl std::fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_tcp_or_unix() {
        for (text, is_valid) in [
            ("127.0.0.1:9901", true),
            ("[::1]:9901", true),
            ("localhost:9901", true),
            ("unix:/run/tidegate.sock", true),
            ("unix:tidegate.sock", false),
            ("127.0.0.1", false),
            ("https://127.0.0.1:9901", false),
            ("http://127.0.0.1:9901/api", false),
        ] {
            assert_eq!(
                text.parse::<AdminAddress>().map(|address| address.to_string()).ok().as_deref() == Some(text),
                is_valid
            );
        }
        let url = "http://127.0.0.1:9901/".parse::<AdminAddress>().expect("the address of the dashboard");
        assert_eq!(url.to_string(), "127.0.0.1:9901");
    }

    #[test]
    fn wildcard_is_reached_on_this_machine() {
        for (text, expected) in [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("10.0.0.1:3", "10.0.0.1:3")] {
            assert_eq!(reachable(text.parse().expect("an address")).to_string(), expected);
        }
    }
}
