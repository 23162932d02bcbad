//! TLS to upstreams. The files are read here once, so that an error is found before the first request.

use super::{Checked, part, tls as tls_of_store};
use crate::config::file;
use crate::config::named_files::NamedFiles;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote};
use crate::route::HostPattern;
use crate::upstream::settings::{Target, TlsIdentity, UpstreamTls};

/// Nothing if no target speaks TLS.
pub(super) fn tls(
    written: &Option<file::UpstreamTls>,
    targets: &[Target],
    of: &Node,
    named: NamedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<UpstreamTls>> {
    let node = of.at("tls");
    let is_spoken = targets.iter().any(|target| matches!(target, Target::Https(_)));
    let tls = match part(written, of, "tls", problems)? {
        Some(_) if !is_spoken => {
            let help = "write `https://...` for targets that speak TLS";
            return Err(problems.add(node.location, "`tls` has no effect without a target that speaks it", help));
        }
        Some(written) => described(written, node, named, problems)?,
        None if is_spoken => UpstreamTls::default(),
        None => return Ok(None),
    };
    if named.are_checked() {
        found(&tls, node, problems)?;
    }
    Ok(Some(tls))
}

fn described(
    written: &file::UpstreamTls,
    node: &Node,
    named: NamedFiles<'_>,
    problems: &mut Problems,
) -> Checked<UpstreamTls> {
    let mut file = |value: &Option<String>, key| Ok(part(value, node, key, problems)?.map(|path| named.path(path)));
    let (ca, cert, key) = (file(&written.ca, "ca")?, file(&written.cert, "cert")?, file(&written.key, "key")?);
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some(TlsIdentity { cert, key }),
        (None, None) => None,
        (Some(_), None) => return Err(tls_of_store::alone("cert", "key", node, problems)),
        (None, Some(_)) => return Err(tls_of_store::alone("key", "cert", node, problems)),
    };
    let server_name = part(&written.server_name, node, "server_name", problems)?.cloned();
    if let Some(name) = server_name.as_deref().filter(|name| !is_name(name)) {
        let message = format!("{} is no name that a certificate can have", quote(name));
        return Err(problems.add(
            node.at("server_name").location,
            message,
            "a host name or an address, without a port",
        ));
    }
    let verify = part(&written.verify, node, "verify", problems)?.copied().unwrap_or(true);
    if !verify && ca.is_some() {
        let help = "certificates are verified by it: leave `verify` out";
        return Err(problems.add(node.at("verify").location, "`ca` has no effect with `verify: false`", help));
    }
    Ok(UpstreamTls { ca, server_name, identity, verify, ..UpstreamTls::default() })
}

fn is_name(name: &str) -> bool {
    name.parse::<std::net::IpAddr>().is_ok() || matches!(HostPattern::parse(name), Ok(HostPattern::Exact(_)))
}

#[cfg(feature = "gateway")]
fn found(tls: &UpstreamTls, node: &Node, problems: &mut Problems) -> Checked<()> {
    use crate::upstream::tls::{TlsSetupError, check};

    match check(tls) {
        Ok(()) => Ok(()),
        Err(TlsSetupError::File(bad)) => Err(problems.add(node.at(bad.key).location, bad.to_string(), bad.help)),
        Err(error) => Err(problems.add(node.location, error.to_string(), "name an authority by `tls: { ca: FILE }`")),
    }
}

#[cfg(not(feature = "gateway"))]
fn found(_: &UpstreamTls, _: &Node, _: &mut Problems) -> Checked<()> {
    Ok(())
}
