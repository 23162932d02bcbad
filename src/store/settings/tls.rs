//! The files that TLS to Redis stands on, as the client library takes them.

use deadpool_redis::redis::{ClientTlsConfig, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

use super::{RedisTls, TlsIdentity};
use crate::tls::BadFile;
use crate::tls::files::Named;

/// The certificates and keys, as they are now.
///
/// # Errors
/// The first file that cannot be used.
pub(crate) fn read(tls: &RedisTls) -> Result<TlsCertificates, BadFile> {
    // What the client library takes where the program has not chosen another.
    if CryptoProvider::get_default().is_none() {
        _ = ring::default_provider().install_default();
    }
    let root_cert = tls.ca.as_deref().map(|path| authorities(Named { key: "ca", path })).transpose()?;
    let client_tls = tls.identity.as_ref().map(identity).transpose()?;
    Ok(TlsCertificates { client_tls, root_cert })
}

fn authorities(file: Named<'_>) -> Result<Vec<u8>, BadFile> {
    let text = file.read()?;
    file.authorities(&text)?;
    Ok(text)
}

fn identity(TlsIdentity { cert, key }: &TlsIdentity) -> Result<ClientTlsConfig, BadFile> {
    let (cert, key) = (Named { key: "cert", path: cert }, Named { key: "key", path: key });
    let (client_cert, client_key) = (cert.read()?, key.read()?);
    key.key_of(cert.certificates(&client_cert)?, &client_key)?;
    Ok(ClientTlsConfig { client_cert, client_key })
}
