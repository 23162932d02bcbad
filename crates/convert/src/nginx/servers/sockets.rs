//! The addresses that servers listen on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::nginx::syntax::Directive;
use crate::report::Place;

/// The port without a number in `listen`.
const DEFAULT_PORT: u16 = 80;

/// An address, with the servers that listen on it.
#[derive(Debug)]
pub(super) struct Socket<'c> {
    pub(super) address: String,
    pub(super) directive: Option<&'c Directive>,
    pub(super) is_tls: bool,
    pub(super) has_proxy_protocol: bool,
    /// The server for requests whose host no server has.
    pub(super) default: Option<usize>,
    /// Whether a `default_server` has set `default`.
    pub(super) is_default_set: bool,
    /// The name for `listener`.
    pub(super) name: Option<String>,
}

/// The addresses of all servers.
#[derive(Debug, Default)]
pub(super) struct Sockets<'c> {
    pub(super) all: Vec<Socket<'c>>,
    /// Whether routes name listeners.
    pub(super) need_names: bool,
}

/// Why an address cannot be used.
pub(super) type Fault = &'static str;

// === impl Sockets ===

impl<'c> Sockets<'c> {
    /// Returns the position of a socket, which is added if it is new.
    pub(super) fn of(&mut self, address: &str, directive: Option<&'c Directive>) -> Result<usize, Fault> {
        if let Some(known) = self.all.iter().position(|socket| socket.address == address) {
            return Ok(known);
        }
        let address_of = |text: &str| text.parse::<SocketAddr>().ok();
        let overlaps = |other: &Socket<'_>| match (address_of(&other.address), address_of(address)) {
            (Some(other), Some(own)) => {
                let has_any = other.ip().is_unspecified() || own.ip().is_unspecified();
                other.port() == own.port() && other.is_ipv4() == own.is_ipv4() && has_any
            }
            _ => false,
        };
        if self.all.iter().any(overlaps) {
            return Err("another listener has this port on all addresses");
        }
        self.all.push(Socket {
            address: address.to_owned(),
            directive,
            is_tls: false,
            has_proxy_protocol: false,
            default: None,
            is_default_set: false,
            name: None,
        });
        Ok(self.all.len() - 1)
    }
}

// === impl Socket ===

impl Socket<'_> {
    pub(super) fn place(&self) -> Option<Place> {
        self.directive.map(|directive| directive.place.clone())
    }

    /// Returns the name that the listener should have.
    pub(super) fn wish(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        match self.address.parse::<SocketAddr>() {
            Ok(address) => format!("{scheme}-{}", address.port()),
            Err(_) => format!("{scheme}-socket"),
        }
    }
}

/// Returns the addresses of a `listen` in the form of the rule file.
pub(super) fn addresses(directive: &Directive) -> Result<Vec<String>, Fault> {
    let text = directive.arg(0).unwrap_or_default();
    if text.starts_with("unix:") {
        let is_valid = text.len() <= 107 + "unix:".len() && text.starts_with("unix:/");
        return if is_valid { Ok(vec![text.to_owned()]) } else { Err("not the absolute path of a socket") };
    }
    let address = address(text)?;
    let has_both = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && directive.option("ipv6only") == Some("off");
    let v4 = has_both.then(|| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()));
    Ok([Some(address), v4].into_iter().flatten().map(|address| address.to_string()).collect())
}

fn address(text: &str) -> Result<SocketAddr, Fault> {
    const FAULT: Fault = "not an IP address and a port";
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port));
    }
    let (host, port) = match text.rfind(':').filter(|colon| !text[*colon..].contains(']')) {
        Some(colon) => (&text[..colon], text[colon + 1..].parse().map_err(|_| FAULT)?),
        None => (text, DEFAULT_PORT),
    };
    let ip = match host {
        "*" => Ipv4Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ => match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => host.parse::<Ipv6Addr>().map_err(|_| FAULT)?.into(),
            None => host.parse::<Ipv4Addr>().map_err(|_| FAULT)?.into(),
        },
    };
    Ok(SocketAddr::new(ip, port))
}
