//! Checks `dns`.

use std::net::{IpAddr, SocketAddr};

use crate::check::{Checked, all};
use crate::file::File;
use crate::file::located::Located;
use crate::problem::{Problems, quote};

/// The port of DNS servers.
const PORT: u16 = 53;

/// Returns the DNS servers; empty for the servers of the system.
pub(crate) fn servers(file: &File, problems: &mut Problems) -> Checked<Vec<SocketAddr>> {
    let Some(dns) = file.dns.optional(problems)? else { return Ok(Vec::new()) };
    all(dns.servers.items().iter().map(|raw| server(raw, problems)))
}

fn server(raw: &Located<String>, problems: &mut Problems) -> Checked<SocketAddr> {
    let text = raw.required(problems)?.as_str();
    let without_port = || text.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, PORT));
    match text.parse().ok().or_else(without_port) {
        Some(address) if address.port() > 0 => Ok(address),
        _ => {
            let message = format!("{} is not the IP address of a DNS server", quote(text));
            Err(raw.report(message, "write `10.0.0.2`, `10.0.0.2:5353` or `[2001:db8::2]:53`", problems))
        }
    }
}
