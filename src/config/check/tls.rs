//! TLS and password files of the store. They are read here once, so that an error is found before the first request.

use std::path::PathBuf;

use super::{Checked, part};
use crate::config::file;
use crate::config::named_files::NamedFiles;
use crate::config::node::Node;
use crate::config::problem::{Location, Problems, quote};
use crate::store::settings::{RedisTls, TlsIdentity};
use crate::tls::read_bounded;

/// Nothing is said of a part that `can_be` no part of this store for a reason that was told.
pub(super) fn tls(
    written: &Option<file::Tls>,
    can_be: bool,
    of: &Node,
    named: NamedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<RedisTls>> {
    let Some(written) = part(written, of, "tls", problems)? else { return Ok(None) };
    let node = of.at("tls");
    if !can_be {
        return Err(problems.add(node.location, "`tls` has no effect without TLS", "write `rediss://...`"));
    }
    let mut file = |value: &Option<String>, key| Ok(part(value, node, key, problems)?.map(|path| named.path(path)));
    let (ca, cert, key) = (file(&written.ca, "ca"), file(&written.cert, "cert"), file(&written.key, "key"));
    let identity = match (cert?, key?) {
        (Some(cert), Some(key)) => Some(TlsIdentity { cert, key }),
        (None, None) => None,
        (Some(_), None) => return Err(alone("cert", "key", node, problems)),
        (None, Some(_)) => return Err(alone("key", "cert", node, problems)),
    };
    let tls = RedisTls { ca: ca?, identity };
    if named.are_checked() {
        found(&tls, node, problems)?;
    }
    Ok(Some(tls))
}

pub(super) fn alone(key: &str, missing: &str, node: &Node, problems: &mut Problems) -> super::Broken {
    let message = format!("{} needs {}", quote(key), quote(missing));
    problems.add(node.at(key).location, message, "a certificate is shown with its private key")
}

#[cfg(feature = "tls")]
fn found(tls: &RedisTls, node: &Node, problems: &mut Problems) -> Checked<()> {
    let bad = crate::store::settings::tls::read(tls).err();
    bad.map_or(Ok(()), |bad| Err(problems.add(node.at(bad.key).location, bad.to_string(), bad.help)))
}

#[cfg(not(feature = "tls"))]
fn found(_: &RedisTls, _: &Node, _: &mut Problems) -> Checked<()> {
    Ok(())
}

/// Whether anybody vouches for the Redis that is reached so: the authorities that are named, or the system's.
#[cfg(feature = "gateway")]
pub(super) fn trusted(tls: &RedisTls, at: Location, problems: &mut Problems) -> Checked<()> {
    if tls.ca.is_some() || !crate::tls::files::system_roots().is_empty() {
        return Ok(());
    }
    let help = "name an authority by `tls: { ca: FILE }`, or install those of the system (Debian: `ca-certificates`)";
    Err(problems.add(at, "TLS to the store: the system trusts no authority", help))
}

#[cfg(not(feature = "gateway"))]
pub(super) fn trusted(_: &RedisTls, _: Location, _: &mut Problems) -> Checked<()> {
    Ok(())
}

pub(super) fn password_file(
    written: &Option<String>,
    of: &Node,
    named: NamedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<PathBuf>> {
    let Some(text) = part(written, of, "password_file", problems)? else { return Ok(None) };
    let path = named.path(text);
    let error = if named.are_checked() { read_bounded(&path).err() } else { None };
    match error {
        None => Ok(Some(path)),
        Some(error) => {
            let message = format!("{} {error}", quote(&path.to_string_lossy()));
            let help = error.help(&path).unwrap_or_else(|| "the file contains only the password".into());
            Err(problems.add(of.at("password_file").location, message, help))
        }
    }
}
