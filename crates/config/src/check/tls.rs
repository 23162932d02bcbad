//! TLS and password files of the store. Reads the files once, so that errors are reported before the first request.

use std::path::PathBuf;

use crate::check::Checked;
use crate::file;
use crate::file::located::Located;
use crate::problem::{Location, Problems, Reported, quote};
use crate::sources::referenced_files::ReferencedFiles;
use tidegate_rules::settings::files::{TlsFileError, read_bounded};
use tidegate_rules::settings::store::RedisTls;
use tidegate_rules::settings::tls::TlsIdentity;

/// Converts `tls` of the store or of its sentinels. `may_use_tls` is `false` if no URL uses TLS.
pub(crate) fn tls(
    raw: &Located<file::Tls>,
    may_use_tls: bool,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<RedisTls>> {
    let Some(keys) = raw.optional(problems)? else { return Ok(None) };
    if !may_use_tls {
        return Err(raw.report("`tls` has no effect without a URL that uses TLS", "use `rediss://...`", problems));
    }
    let ca = keys.ca.optional(problems).map(|path| path.map(|path| files.path(path)));
    let identity = identity(&keys.cert, &keys.key, files, problems)?;
    let tls = RedisTls { ca: ca?, identity };
    if files.are_checked()
        && let Err(bad) = files.checks().redis_tls(&tls)
    {
        return Err(report_file(bad, [("ca", &keys.ca), ("cert", &keys.cert), ("key", &keys.key)], problems));
    }
    Ok(Some(tls))
}

/// Converts a certificate and its private key, which need each other.
pub(crate) fn identity(
    cert: &Located<String>,
    key: &Located<String>,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<TlsIdentity>> {
    match (cert.optional(problems)?, key.optional(problems)?) {
        (Some(cert), Some(key)) => Ok(Some(TlsIdentity { cert: files.path(cert), key: files.path(key) })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(missing_pair(cert, "`cert` needs `key`", problems)),
        (None, Some(_)) => Err(missing_pair(key, "`key` needs `cert`", problems)),
    }
}

fn missing_pair(raw: &Located<String>, message: &'static str, problems: &mut Problems) -> Reported {
    raw.report(message, "set both the certificate and its private key", problems)
}

/// Reports an unusable file at the key that names it.
pub(super) fn report_file(bad: TlsFileError, keys: [(&str, &Located<String>); 3], problems: &mut Problems) -> Reported {
    let [(_, first), ..] = keys;
    let raw = keys.into_iter().find(|(key, _)| *key == bad.key).map_or(first, |(_, raw)| raw);
    raw.report(bad.to_string(), bad.help, problems)
}

/// Reports an error if there are no trust anchors: neither `ca` nor the authorities of the system.
pub(super) fn check_trust_anchors(
    tls: &RedisTls,
    files: ReferencedFiles<'_>,
    at: Location,
    problems: &mut Problems,
) -> Checked<()> {
    if tls.ca.is_some() || files.checks().has_trust_anchors() {
        return Ok(());
    }
    let help = "set `tls: { ca: FILE }`, or install the authorities of the system (Debian: `ca-certificates`)";
    Err(problems.add(at, "cannot verify the store's certificate: the system trusts no authority", help))
}

pub(crate) fn password_file(
    raw: &Located<String>,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<PathBuf>> {
    let Some(text) = raw.optional(problems)? else { return Ok(None) };
    let path = files.path(text);
    let error = if files.are_checked() { read_bounded(&path).err() } else { None };
    match error {
        None => Ok(Some(path)),
        Some(error) => {
            let message = format!("{} {error}", quote(&path.to_string_lossy()));
            let help = error.help(&path).unwrap_or_else(|| "put only the password into the file".into());
            Err(raw.report(message, help, problems))
        }
    }
}
