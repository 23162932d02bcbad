//! TLS of a listener. Reads the files once, so that errors are reported before a client connects.

use super::{Checked, needed, number, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::Problems;
use crate::config::referenced_files::ReferencedFiles;
use crate::tls::settings::{CertificateFiles, ClientAuth, DEFAULT_MAX_HANDSHAKE_RATE, FILE_CHECK_INTERVAL, ListenTls};

pub(super) fn tls(
    of: &file::Listen,
    node: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<ListenTls>> {
    let Some(written) = part(&of.tls, node, "tls", problems)? else { return Ok(None) };
    let node = node.at("tls");
    let certificates = certificates(written, node, files, problems);
    let min_version = part(&written.min_version, node, "min_version", problems);
    let client_auth = client_auth(written, node, files, problems);
    let min_version = min_version?.copied().unwrap_or_default();
    let (rate, default) = (written.max_handshake_rate, DEFAULT_MAX_HANDSHAKE_RATE);
    let max_handshake_rate = number(rate, default, node.at("max_handshake_rate"), problems)?;
    let (certificates, client_auth) = (certificates?, client_auth?);
    Ok(Some(ListenTls {
        certificates,
        min_version,
        client_auth,
        max_handshake_rate,
        check_interval: FILE_CHECK_INTERVAL,
    }))
}

fn certificates(
    written: &file::ListenTls,
    node: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Vec<CertificateFiles>> {
    let entries = needed(&written.certificates, node, problems)?.iter().zip(node.at("certificates").items());
    let read = |(index, (entry, node)): (usize, (&Option<file::Certificate>, &Node))| {
        let certificate = certificate_files(needed(entry, node, problems)?, node, files, problems)?;
        if files.are_checked() {
            check_certificate(&certificate, index == 0, node, problems)?;
        }
        Ok(certificate)
    };
    let all: Vec<Checked<_>> = entries.enumerate().map(read).collect();
    all.into_iter().collect()
}

fn certificate_files(
    entry: &file::Certificate,
    node: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<CertificateFiles> {
    let cert = needed(&entry.cert, node, problems).map(|path| files.path(path));
    let key = needed(&entry.key, node, problems).map(|path| files.path(path));
    let ocsp = part(&entry.ocsp, node, "ocsp", problems)?.map(|path| files.path(path));
    Ok(CertificateFiles { cert: cert?, key: key?, ocsp })
}

fn client_auth(
    written: &file::ListenTls,
    node: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<ClientAuth>> {
    let Some(written) = part(&written.client_auth, node, "client_auth", problems)? else { return Ok(None) };
    let node = node.at("client_auth");
    let ca = files.path(needed(&written.ca, node, problems)?);
    if files.are_checked() {
        check_authorities(&ca, node, problems)?;
    }
    Ok(Some(ClientAuth { ca, required: written.required.unwrap_or(true) }))
}

#[cfg(feature = "tls")]
fn check_certificate(
    certificate: &CertificateFiles,
    is_first: bool,
    node: &Node,
    problems: &mut Problems,
) -> Checked<()> {
    match crate::tls::ServerCertificate::read(certificate) {
        Ok(certified) if is_first || certified.has_hosts => Ok(()),
        Ok(_) => {
            let message = format!(
                "the certificate in `{}` contains no host name that a client could request",
                certificate.cert.display()
            );
            Err(problems.add(node.at("cert").location, message, "only the first certificate may have no host name"))
        }
        Err(bad) => Err(problems.add(node.at(bad.key).location, bad.to_string(), bad.help)),
    }
}

#[cfg(feature = "tls")]
fn check_authorities(ca: &std::path::Path, node: &Node, problems: &mut Problems) -> Checked<()> {
    let file = crate::tls::files::ConfiguredFile { key: "ca", path: ca };
    let found = file.read().and_then(|text| file.authorities(&text));
    found.map(drop).map_err(|bad| problems.add(node.at(bad.key).location, bad.to_string(), bad.help))
}

#[cfg(not(feature = "tls"))]
fn check_certificate(_: &CertificateFiles, _: bool, _: &Node, _: &mut Problems) -> Checked<()> {
    Ok(())
}

#[cfg(not(feature = "tls"))]
fn check_authorities(_: &std::path::Path, _: &Node, _: &mut Problems) -> Checked<()> {
    Ok(())
}
