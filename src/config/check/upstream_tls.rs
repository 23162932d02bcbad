//! TLS to upstreams. Reads the files once, so that errors are reported before the first request.

use super::{Checked, part, tls as store_tls};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote};
use crate::config::referenced_files::ReferencedFiles;
use crate::route::HostPattern;
use crate::upstream::settings::{Target, TlsIdentity, UpstreamTls};

/// Converts `tls` of an upstream. Returns `None` if no target uses TLS.
pub(super) fn tls(
    written: &Option<file::UpstreamTls>,
    targets: &[Target],
    of: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<UpstreamTls>> {
    let node = of.at("tls");
    let uses_tls = targets.iter().any(|target| matches!(target, Target::Https(_)));
    let tls = match part(written, of, "tls", problems)? {
        Some(_) if !uses_tls => {
            let help = "use `https://...` for targets with TLS";
            return Err(problems.add(node.location, "`tls` has no effect without an `https://` target", help));
        }
        Some(written) => settings(written, node, files, problems)?,
        None if uses_tls => UpstreamTls::default(),
        None => return Ok(None),
    };
    if files.are_checked() {
        check_files(&tls, node, problems)?;
    }
    Ok(Some(tls))
}

fn settings(
    written: &file::UpstreamTls,
    node: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<UpstreamTls> {
    let mut path_of = |value: &Option<String>, key| Ok(part(value, node, key, problems)?.map(|path| files.path(path)));
    let (ca, cert, key) = (path_of(&written.ca, "ca")?, path_of(&written.cert, "cert")?, path_of(&written.key, "key")?);
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some(TlsIdentity { cert, key }),
        (None, None) => None,
        (Some(_), None) => return Err(store_tls::missing_pair("cert", "key", node, problems)),
        (None, Some(_)) => return Err(store_tls::missing_pair("key", "cert", node, problems)),
    };
    let server_name = part(&written.server_name, node, "server_name", problems)?.cloned();
    if let Some(name) = server_name.as_deref().filter(|name| !is_name(name)) {
        let message = format!("{} is not a server name", quote(name));
        return Err(problems.add(
            node.at("server_name").location,
            message,
            "use a host name or an IP address, without a port",
        ));
    }
    let verify = part(&written.verify, node, "verify", problems)?.copied().unwrap_or(true);
    if !verify && ca.is_some() {
        let help = "leave `verify` out to verify certificates with `ca`";
        return Err(problems.add(node.at("verify").location, "`ca` has no effect with `verify: false`", help));
    }
    Ok(UpstreamTls { ca, server_name, identity, verify, ..UpstreamTls::default() })
}

fn is_name(name: &str) -> bool {
    name.parse::<std::net::IpAddr>().is_ok() || matches!(HostPattern::parse(name), Ok(HostPattern::Exact(_)))
}

#[cfg(feature = "gateway")]
fn check_files(tls: &UpstreamTls, node: &Node, problems: &mut Problems) -> Checked<()> {
    use crate::upstream::tls::{TlsSetupError, check};

    match check(tls) {
        Ok(()) => Ok(()),
        Err(TlsSetupError::File(bad)) => Err(problems.add(node.at(bad.key).location, bad.to_string(), bad.help)),
        Err(error) => Err(problems.add(node.location, error.to_string(), "set `tls: { ca: FILE }`")),
    }
}

#[cfg(not(feature = "gateway"))]
fn check_files(_: &UpstreamTls, _: &Node, _: &mut Problems) -> Checked<()> {
    Ok(())
}
