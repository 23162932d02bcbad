//! TLS and password files of the store. Reads the files once, so that errors are reported before the first request.

use std::path::PathBuf;

use super::{Checked, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Location, Problems, quote};
use crate::config::referenced_files::ReferencedFiles;
use crate::store::settings::{RedisTls, TlsIdentity};
use crate::tls::read_bounded;

/// Converts `tls` of the store or of its sentinels. `may_use_tls` is `false` if no URL uses TLS.
pub(super) fn tls(
    written: &Option<file::Tls>,
    may_use_tls: bool,
    of: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<RedisTls>> {
    let Some(written) = part(written, of, "tls", problems)? else { return Ok(None) };
    let node = of.at("tls");
    if !may_use_tls {
        return Err(problems.add(node.location, "`tls` has no effect without TLS", "use `rediss://...`"));
    }
    let mut path_of = |value: &Option<String>, key| Ok(part(value, node, key, problems)?.map(|path| files.path(path)));
    let (ca, cert, key) = (path_of(&written.ca, "ca"), path_of(&written.cert, "cert"), path_of(&written.key, "key"));
    let identity = match (cert?, key?) {
        (Some(cert), Some(key)) => Some(TlsIdentity { cert, key }),
        (None, None) => None,
        (Some(_), None) => return Err(missing_pair("cert", "key", node, problems)),
        (None, Some(_)) => return Err(missing_pair("key", "cert", node, problems)),
    };
    let tls = RedisTls { ca: ca?, identity };
    if files.are_checked() {
        check_files(&tls, node, problems)?;
    }
    Ok(Some(tls))
}

pub(super) fn missing_pair(key: &str, missing: &str, node: &Node, problems: &mut Problems) -> super::Reported {
    let message = format!("{} needs {}", quote(key), quote(missing));
    problems.add(node.at(key).location, message, "set both the certificate and its private key")
}

#[cfg(feature = "tls")]
fn check_files(tls: &RedisTls, node: &Node, problems: &mut Problems) -> Checked<()> {
    let bad = crate::store::settings::tls::read(tls).err();
    bad.map_or(Ok(()), |bad| Err(problems.add(node.at(bad.key).location, bad.to_string(), bad.help)))
}

#[cfg(not(feature = "tls"))]
fn check_files(_: &RedisTls, _: &Node, _: &mut Problems) -> Checked<()> {
    Ok(())
}

/// Reports an error if there are no trust anchors: neither `ca` nor the authorities of the system.
#[cfg(feature = "gateway")]
pub(super) fn check_trust_anchors(tls: &RedisTls, at: Location, problems: &mut Problems) -> Checked<()> {
    if tls.ca.is_some() || !crate::tls::files::system_roots().is_empty() {
        return Ok(());
    }
    let help = "set `tls: { ca: FILE }`, or install the authorities of the system (Debian: `ca-certificates`)";
    Err(problems.add(at, "cannot verify the store's certificate: the system trusts no authority", help))
}

#[cfg(not(feature = "gateway"))]
pub(super) fn check_trust_anchors(_: &RedisTls, _: Location, _: &mut Problems) -> Checked<()> {
    Ok(())
}

pub(super) fn password_file(
    written: &Option<String>,
    of: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<PathBuf>> {
    let Some(text) = part(written, of, "password_file", problems)? else { return Ok(None) };
    let path = files.path(text);
    let error = if files.are_checked() { read_bounded(&path).err() } else { None };
    match error {
        None => Ok(Some(path)),
        Some(error) => {
            let message = format!("{} {error}", quote(&path.to_string_lossy()));
            let help = error.help(&path).unwrap_or_else(|| "the file contains only the password".into());
            Err(problems.add(of.at("password_file").location, message, help))
        }
    }
}
