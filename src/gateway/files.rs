//! The checks of the certificates, keys and credentials that a rule file names.

use std::path::Path;
use std::sync::Arc;

use crate::credentials::{ApiKeys, KeyTable, TokenVerifier, UserTable, Users, Verifiers, key_file, user_file};
use tidegate_config::{CheckedCertificate, FileChecks, LoadedVerifier, UpstreamTlsFault, quote};
use tidegate_proxy::transport::tls::{ServerCertificate, check_client_auth, system_roots};
use tidegate_proxy::upstream::tls::{TlsSetupError, check};
use tidegate_rules::rules::Verifier;
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError, read_bounded};
use tidegate_rules::settings::identities::IdentitySettings;
use tidegate_rules::settings::store::RedisTls;
use tidegate_rules::settings::tls::{CertificateFiles, ClientAuth};
use tidegate_rules::settings::upstream::UpstreamTls;
use tidegate_store::tls::pem::PemFile;

/// The checks of the gateway.
pub(crate) static GATEWAY_FILES: &dyn FileChecks = &GatewayFiles;

#[derive(Debug)]
struct GatewayFiles;

impl FileChecks for GatewayFiles {
    fn redis_tls(&self, tls: &RedisTls) -> Result<(), TlsFileError> {
        tidegate_store::tls::read(tls).map(drop)
    }

    fn has_trust_anchors(&self) -> bool {
        !system_roots().is_empty()
    }

    fn certificate(&self, files: &CertificateFiles) -> Result<CheckedCertificate, TlsFileError> {
        let certificate = ServerCertificate::read(files)?;
        let not_valid_now = certificate.not_valid_now();
        Ok(CheckedCertificate { has_hosts: certificate.has_hosts, not_valid_now })
    }

    fn authorities(&self, file: ConfiguredFile<'_>) -> Result<(), TlsFileError> {
        file.read().and_then(|text| file.authorities(&text)).map(drop)
    }

    fn client_auth(&self, auth: &ClientAuth) -> Result<(), TlsFileError> {
        check_client_auth(auth)
    }

    fn upstream_tls(&self, tls: &UpstreamTls) -> Result<(), UpstreamTlsFault> {
        check(tls).map_err(|error| match error {
            TlsSetupError::File(bad) => UpstreamTlsFault::File(bad),
            error => UpstreamTlsFault::Other(error.to_string()),
        })
    }

    fn verifier(&self, settings: &IdentitySettings, reads_files: bool) -> Option<LoadedVerifier> {
        let mut loaded = LoadedVerifier::default();
        let keys = settings.keys.as_ref().map(|path| {
            let read = if reads_files { key_file::read(path) } else { Ok(KeyTable::default()) };
            let table = read.unwrap_or_else(|error| {
                loaded.bad_keys = Some((message(path, &error.to_string()), error.help(path, key_file::HELP)));
                KeyTable::default()
            });
            Arc::new(ApiKeys::new(path.clone(), table))
        });
        let users = settings.users.as_ref().map(|path| {
            let read = if reads_files { user_file::read(path) } else { Ok(UserTable::default()) };
            let table = read.unwrap_or_else(|error| {
                loaded.bad_users = Some((message(path, &error.to_string()), error.help(path, user_file::HELP)));
                UserTable::default()
            });
            Arc::new(Users::new(path.clone(), table))
        });
        loaded.tiers = keys.as_ref().map(|keys| keys.tiers()).unwrap_or_default();
        let tokens = settings.tokens.iter().cloned().map(|tokens| Arc::new(TokenVerifier::new(tokens)));
        let tokens: Vec<_> = tokens.collect();
        if reads_files {
            let faults = tokens.iter().enumerate().filter_map(|(at, tokens)| Some((at, load_key_set(tokens).err()?)));
            loaded.bad_key_sets = faults.collect();
        }
        loaded.verifier = Verifier::new(Verifiers { keys, tokens, users });
        Some(loaded)
    }

    fn verifies_credentials(&self) -> bool {
        true
    }
}

/// Reads the key set of the verifier, if it is a file.
///
/// # Errors
/// The message and the help for an unusable file.
fn load_key_set(verifier: &TokenVerifier) -> Result<(), (String, String)> {
    let Some(path) = verifier.path() else { return Ok(()) };
    let help = "write a JSON Web Key Set: `{\"keys\": [...]}`";
    let loaded = match read_bounded(path) {
        Ok(text) => verifier.replace_keys(&text).map(drop).map_err(|error| (error.to_string(), help.to_owned())),
        Err(error) => Err((error.to_string(), error.help(path).unwrap_or_else(|| help.to_owned()))),
    };
    loaded.map_err(|(fault, help)| (message(path, &fault), help))
}

fn message(path: &Path, fault: &str) -> String {
    format!("{} {fault}", quote(&path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_config::Config;

    /// The help is for the program that reads the file: a layer fetches no key set.
    #[test]
    fn help_for_missing_identities_is_valid_in_a_layer() {
        let rules = "routes: [{ name: a, match: {}, limits: [{ name: b, mode: PER_CLIENT, client: 'jwt:sub', rate: 1, interval: 1s }] }]";
        let parse = |text: &str| Config::parse_with(text, GATEWAY_FILES);
        let problems = parse(rules).expect_err("no identities");
        let help = problems.iter().next().expect("an error").help().to_owned();
        let added = help.split('`').find(|part| part.starts_with("identities:")).expect("a section");
        let problems = parse(&format!("{added}\n{rules}")).expect_err("the file of the example is missing");
        assert_eq!(problems.len(), 1, "{problems}");
        assert!(problems.to_string().contains("`jwks.json` cannot be read"), "{problems}");
    }
}
