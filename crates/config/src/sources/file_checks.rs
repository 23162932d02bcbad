//! Checks of the files that a rule file names, by the program that reads the rule file.

use std::fmt::Debug;
use std::sync::Arc;

use tidegate_rules::rules::Verifier;
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError};
use tidegate_rules::settings::identities::IdentitySettings;
use tidegate_rules::settings::store::RedisTls;
use tidegate_rules::settings::tls::{CertificateFiles, ClientAuth};
use tidegate_rules::settings::upstream::UpstreamTls;

/// Reads the certificates, keys and credentials that a rule file names, so that errors are reported before the first
/// request. The defaults are for a library without TLS, which verifies no credentials.
pub trait FileChecks: Debug + Send + Sync {
    /// Checks the files for TLS to Redis.
    ///
    /// # Errors
    /// The first file that cannot be used.
    fn redis_tls(&self, _: &RedisTls) -> Result<(), TlsFileError> {
        Ok(())
    }

    /// Returns `true` if the system trusts any authority.
    fn has_trust_anchors(&self) -> bool {
        true
    }

    /// Checks the files of a certificate for clients.
    ///
    /// # Errors
    /// The first file that cannot be used.
    fn certificate(&self, _: &CertificateFiles) -> Result<CheckedCertificate, TlsFileError> {
        Ok(CheckedCertificate { has_hosts: true, not_valid_now: None })
    }

    /// Checks a file of authorities.
    ///
    /// # Errors
    /// The file cannot be used.
    fn authorities(&self, _: ConfiguredFile<'_>) -> Result<(), TlsFileError> {
        Ok(())
    }

    /// Checks the files that decide about client certificates.
    ///
    /// # Errors
    /// The first file that cannot be used.
    fn client_auth(&self, _: &ClientAuth) -> Result<(), TlsFileError> {
        Ok(())
    }

    /// Checks the files for TLS to an upstream.
    ///
    /// # Errors
    /// The first file that cannot be used, or TLS cannot be set up.
    fn upstream_tls(&self, _: &UpstreamTls) -> Result<(), UpstreamTlsFault> {
        Ok(())
    }

    /// Creates the verifier of these credentials, with the keys in the files, or without keys if `reads_files` is `false`.
    /// Returns `None` if the program verifies no credentials.
    fn verifier(&self, _: &IdentitySettings, _reads_files: bool) -> Option<LoadedVerifier> {
        None
    }

    /// Returns `true` if the program verifies credentials.
    fn verifies_credentials(&self) -> bool {
        false
    }
}

/// The checks of a library.
#[derive(Debug)]
pub struct LibraryFiles;

/// The checks of tests: accepts `identities` without reading a file. All credentials are unknown.
#[doc(hidden)]
#[derive(Debug)]
pub struct AnyIdentities;

/// A certificate whose files can be used.
#[derive(Debug)]
pub struct CheckedCertificate {
    /// Whether clients can request it by a host name.
    pub has_hosts: bool,
    /// Why clients reject it at present, such as "has expired on 2026-01-01T00:00:00Z".
    pub not_valid_now: Option<String>,
}

/// Why TLS to an upstream cannot be set up.
#[derive(Debug)]
pub enum UpstreamTlsFault {
    /// A file cannot be used.
    File(TlsFileError),
    /// Another reason.
    Other(String),
}

/// A verifier of credentials, and what its files contain.
#[derive(Debug, Default)]
pub struct LoadedVerifier {
    /// The verifier, with its keys.
    pub verifier: Verifier,
    /// The tiers of the API keys in the order of the file, each with the line of its first use.
    pub tiers: Vec<(usize, Arc<str>)>,
    /// The message and the help for an unusable file of API keys.
    pub bad_keys: Option<(String, String)>,
    /// The message and the help for an unusable file of users.
    pub bad_users: Option<(String, String)>,
    /// The position of each issuer whose key set is unusable, with the message and the help.
    pub bad_key_sets: Vec<(usize, (String, String))>,
}

impl FileChecks for LibraryFiles {}

impl FileChecks for AnyIdentities {
    fn verifier(&self, _: &IdentitySettings, _: bool) -> Option<LoadedVerifier> {
        Some(LoadedVerifier::default())
    }

    fn verifies_credentials(&self) -> bool {
        true
    }
}
