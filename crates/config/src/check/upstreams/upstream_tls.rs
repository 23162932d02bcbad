//! TLS to upstreams. Reads the files once, so that errors are reported before the first request.

use crate::UpstreamTlsFault;
use crate::check::Checked;
use crate::check::tls::{identity, report_file};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use crate::sources::referenced_files::ReferencedFiles;
use tidegate_rules::route::HostPattern;
use tidegate_rules::settings::upstream::{Target, UpstreamTls};

/// Converts `tls` of an upstream. Returns `None` if no target uses TLS.
pub(crate) fn tls(
    raw: &Located<file::UpstreamTls>,
    targets: &[Target],
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<UpstreamTls>> {
    let uses_tls = targets.iter().any(Target::uses_tls);
    let tls = match raw.optional(problems)? {
        Some(_) if !uses_tls => {
            let help = "use `https://...` for targets with TLS";
            return Err(raw.report("`tls` has no effect without an `https://` target", help, problems));
        }
        Some(raw) => settings(raw, files, problems)?,
        None if uses_tls => UpstreamTls::default(),
        None => return Ok(None),
    };
    if files.are_checked() {
        check_files(&tls, raw, files, problems)?;
    }
    Ok(Some(tls))
}

fn settings(raw: &file::UpstreamTls, files: ReferencedFiles<'_>, problems: &mut Problems) -> Checked<UpstreamTls> {
    let ca = raw.ca.optional(problems)?.map(|path| files.path(path));
    let identity = identity(&raw.cert, &raw.key, files, problems)?;
    let server_name = raw.server_name.optional(problems)?.cloned();
    if let Some(name) = server_name.as_deref().filter(|name| !is_name(name)) {
        let (message, help) =
            (format!("{} is not a server name", quote(name)), "use a host name or an IP address, without a port");
        return Err(raw.server_name.report(message, help, problems));
    }
    let verify = raw.verify.optional(problems)?.copied().unwrap_or(true);
    if !verify && ca.is_some() {
        let help = "leave `verify` out to verify certificates with `ca`";
        return Err(raw.verify.report("`ca` has no effect with `verify: false`", help, problems));
    }
    Ok(UpstreamTls { ca, server_name, identity, verify, ..UpstreamTls::default() })
}

fn is_name(name: &str) -> bool {
    name.parse::<std::net::IpAddr>().is_ok() || matches!(HostPattern::parse(name), Ok(HostPattern::Exact(_)))
}

fn check_files(
    tls: &UpstreamTls,
    raw: &Located<file::UpstreamTls>,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<()> {
    let Err(fault) = files.checks().upstream_tls(tls) else { return Ok(()) };
    let message = match (fault, raw.get()) {
        (UpstreamTlsFault::File(bad), Some(keys)) => {
            return Err(report_file(bad, [("ca", &keys.ca), ("cert", &keys.cert), ("key", &keys.key)], problems));
        }
        (UpstreamTlsFault::File(bad), None) => bad.to_string(),
        (UpstreamTlsFault::Other(message), _) => message,
    };
    Err(raw.report(message, "set `tls: { ca: FILE }`", problems))
}
