//! TLS of a listener. Reads the files once, so that errors are reported before a client connects.

use crate::check::tls::report_file;
use crate::check::{Checked, all};
use crate::file;
use crate::file::located::Located;
use crate::problem::Problems;
use crate::sources::file_checks::CheckedCertificate;
use crate::sources::referenced_files::ReferencedFiles;
use tidegate_rules::settings::tls::{
    CertificateFiles, ClientAuth, DEFAULT_MAX_HANDSHAKE_RATE, FILE_CHECK_INTERVAL, ListenTls,
};

/// Converts `tls` of a listener.
pub(crate) fn tls(
    entry: &Located<file::ListenTls>,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<ListenTls>> {
    let Some(raw) = entry.optional(problems)? else { return Ok(None) };
    let certificates = certificates(raw, files, problems);
    let client_auth = client_auth(raw, files, problems);
    Ok(Some(ListenTls {
        certificates: certificates?,
        min_version: raw.min_version.or_default(problems)?,
        client_auth: client_auth?,
        max_handshake_rate: raw.max_handshake_rate.number(DEFAULT_MAX_HANDSHAKE_RATE, problems)?,
        check_interval: FILE_CHECK_INTERVAL,
    }))
}

fn certificates(
    raw: &file::ListenTls,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Vec<CertificateFiles>> {
    let entries = raw.certificates.required(problems)?.iter().enumerate();
    all(entries.map(|(index, entry)| {
        let entry = entry.required(problems)?;
        let certificate = certificate_files(entry, files, problems)?;
        if files.are_checked() {
            check_certificate(&certificate, index == 0, files, entry, problems)?;
        }
        Ok(certificate)
    }))
}

fn certificate_files(
    entry: &file::Certificate,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<CertificateFiles> {
    let cert = entry.cert.required(problems).map(|path| files.path(path));
    let key = entry.key.required(problems).map(|path| files.path(path));
    let ocsp = entry.ocsp.optional(problems)?.map(|path| files.path(path));
    Ok(CertificateFiles { cert: cert?, key: key?, ocsp })
}

fn client_auth(
    raw: &file::ListenTls,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<ClientAuth>> {
    let Some(raw) = raw.client_auth.optional(problems)? else { return Ok(None) };
    let ca = files.path(raw.ca.required(problems)?);
    let crl = raw.crl.optional(problems)?.map(|path| files.path(path));
    let auth = ClientAuth { ca, crl, required: raw.required.get().copied().unwrap_or(true) };
    if files.are_checked()
        && let Err(bad) = files.checks().client_auth(&auth)
    {
        let at = if bad.key == "crl" { &raw.crl } else { &raw.ca };
        return Err(at.report(bad.to_string(), bad.help, problems));
    }
    Ok(Some(auth))
}

fn check_certificate(
    certificate: &CertificateFiles,
    is_first: bool,
    files: ReferencedFiles<'_>,
    raw: &file::Certificate,
    problems: &mut Problems,
) -> Checked<()> {
    match files.checks().certificate(certificate) {
        Ok(CheckedCertificate { has_hosts, not_valid_now }) if is_first || has_hosts => {
            if let Some(fault) = not_valid_now {
                let message =
                    format!("the certificate in `{}` {fault}, so clients reject it", certificate.cert.display());
                problems.warn(raw.cert.location, &message, "renew it; the gateway notices the new file by itself");
            }
            Ok(())
        }
        Ok(_) => {
            let message = format!(
                "the certificate in `{}` contains no host name that a client could request",
                certificate.cert.display()
            );
            Err(raw.cert.report(message, "only the first certificate may have no host name", problems))
        }
        Err(bad) => Err(report_file(bad, [("cert", &raw.cert), ("key", &raw.key), ("ocsp", &raw.ocsp)], problems)),
    }
}
