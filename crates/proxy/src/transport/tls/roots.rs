//! The certificate authorities of the system.

use rustls::RootCertStore;

/// Returns the certificate authorities that the system trusts. Empty if the system has no file of them.
pub fn system_roots() -> RootCertStore {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    store
}
