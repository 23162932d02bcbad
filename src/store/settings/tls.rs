//! The files that TLS to Redis stands on, and whether they hold what they should. No message repeats what is in them.

use std::fs;
use std::path::{Path, PathBuf};

use deadpool_redis::redis::{ClientTlsConfig, TlsCertificates};
use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::{RedisTls, TlsIdentity};

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {fault}", path.display())]
pub(crate) struct BadTlsFile {
    /// The key of the rule file that names it.
    pub(crate) key: &'static str,
    path: PathBuf,
    fault: String,
}

/// The certificates and keys, as they are now.
///
/// # Errors
/// The first file that cannot be used.
pub(crate) fn read(tls: &RedisTls) -> Result<TlsCertificates, BadTlsFile> {
    // What the client library takes where the program has not chosen another.
    if CryptoProvider::get_default().is_none() {
        _ = ring::default_provider().install_default();
    }
    let root_cert = tls.ca.as_deref().map(authorities).transpose()?;
    let client_tls = tls.identity.as_ref().map(identity).transpose()?;
    Ok(TlsCertificates { client_tls, root_cert })
}

fn authorities(path: &Path) -> Result<Vec<u8>, BadTlsFile> {
    let (pem, certificates) = certificates("ca", path)?;
    let mut store = RootCertStore::empty();
    let added = certificates.into_iter().try_for_each(|certificate| store.add(certificate));
    added.map_err(|error| bad("ca", path, format!("holds a certificate that is none of an authority: {error}")))?;
    Ok(pem)
}

fn identity(files: &TlsIdentity) -> Result<ClientTlsConfig, BadTlsFile> {
    let (client_cert, chain) = certificates("cert", &files.cert)?;
    let client_key = bytes("key", &files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&client_key)
        .map_err(|_| bad("key", &files.key, "holds no private key in PEM that is not encrypted".to_owned()))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map_err(|error| bad("key", &files.key, format!("is not the key of the certificate: {error}")))?;
    Ok(ClientTlsConfig { client_cert, client_key })
}

type Pem = (Vec<u8>, Vec<CertificateDer<'static>>);

fn certificates(key: &'static str, path: &Path) -> Result<Pem, BadTlsFile> {
    let pem = bytes(key, path)?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(certificates) if !certificates.is_empty() => Ok((pem, certificates)),
        _ => Err(bad(key, path, "holds no certificate in PEM".to_owned())),
    }
}

fn bytes(key: &'static str, path: &Path) -> Result<Vec<u8>, BadTlsFile> {
    fs::read(path).map_err(|error| bad(key, path, format!("cannot be read: {error}")))
}

fn bad(key: &'static str, path: &Path, fault: String) -> BadTlsFile {
    BadTlsFile { key, path: path.to_owned(), fault }
}
