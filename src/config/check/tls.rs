//! The files that a store is reached with. They are opened here once, so that a mistake is told before a request meets it.

use std::path::{Path, PathBuf};

use super::{Checked, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Location, Problems, quote};
use crate::store::settings::{RedisTls, TlsIdentity};
use crate::tls::read_bounded;

/// Nothing is said of a part that `can_be` no part of this store for a reason that was told.
pub(super) fn tls(
    written: &Option<file::Tls>,
    can_be: bool,
    of: &Node,
    problems: &mut Problems,
) -> Checked<Option<RedisTls>> {
    let Some(written) = part(written, of, "tls", problems)? else { return Ok(None) };
    let node = of.at("tls");
    if !can_be {
        return Err(problems.add(node.location, "`tls` has no effect without TLS", "write `rediss://...`"));
    }
    let mut file = |value: &Option<String>, key| Ok(part(value, node, key, problems)?.map(PathBuf::from));
    let (ca, cert, key) = (file(&written.ca, "ca"), file(&written.cert, "cert"), file(&written.key, "key"));
    let identity = match (cert?, key?) {
        (Some(cert), Some(key)) => Some(TlsIdentity { cert, key }),
        (None, None) => None,
        (Some(_), None) => return Err(alone("cert", "key", node, problems)),
        (None, Some(_)) => return Err(alone("key", "cert", node, problems)),
    };
    let tls = RedisTls { ca: ca?, identity };
    found(&tls, node, problems)?;
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
    if tls.ca.is_some() || !crate::tls::files::of_system().is_empty() {
        return Ok(());
    }
    let help = "name an authority by `tls: { ca: FILE }`, or install those of the system (Debian: `ca-certificates`)";
    Err(problems.add(at, "TLS to the store: the system trusts no authority", help))
}

#[cfg(not(feature = "gateway"))]
pub(super) fn trusted(_: &RedisTls, _: Location, _: &mut Problems) -> Checked<()> {
    Ok(())
}

pub(super) fn password_file(written: &Option<String>, of: &Node, problems: &mut Problems) -> Checked<Option<PathBuf>> {
    let Some(path) = part(written, of, "password_file", problems)? else { return Ok(None) };
    match read_bounded(Path::new(path)) {
        Ok(_) => Ok(Some(path.into())),
        Err(error) => {
            let message = format!("{} {error}", quote(path));
            Err(problems.add(of.at("password_file").location, message, "it holds the password and nothing else"))
        }
    }
}
