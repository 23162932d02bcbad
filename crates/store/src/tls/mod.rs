//! Reads the files for TLS to Redis into the types of the client library.

pub mod pem;

use deadpool_redis::redis::{ClientTlsConfig, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

use crate::tls::pem::PemFile;
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError};
use tidegate_rules::settings::store::RedisTls;
use tidegate_rules::settings::tls::TlsIdentity;

/// Reads the certificates and keys.
///
/// # Errors
/// A file cannot be used.
pub fn read(tls: &RedisTls) -> Result<TlsCertificates, TlsFileError> {
    // The default of the client library, unless the program has installed another provider.
    if CryptoProvider::get_default().is_none() {
        _ = ring::default_provider().install_default();
    }
    let root_cert = tls.ca.as_deref().map(|path| authorities(ConfiguredFile { key: "ca", path })).transpose()?;
    let client_tls = tls.identity.as_ref().map(identity).transpose()?;
    Ok(TlsCertificates { client_tls, root_cert })
}

fn authorities(file: ConfiguredFile<'_>) -> Result<Vec<u8>, TlsFileError> {
    let text = file.read()?;
    file.authorities(&text)?;
    Ok(text)
}

fn identity(TlsIdentity { cert, key }: &TlsIdentity) -> Result<ClientTlsConfig, TlsFileError> {
    let (cert, key) = (ConfiguredFile { key: "cert", path: cert }, ConfiguredFile { key: "key", path: key });
    let (client_cert, client_key) = (cert.read()?, key.read()?);
    key.certified_key(cert.certificates(&client_cert)?, &client_key)?;
    Ok(ClientTlsConfig { client_cert, client_key })
}
