//! Checks of files for tests of rule files.

use super::{FileChecks, LoadedVerifier};
use crate::settings::identities::IdentitySettings;

/// Accepts `identities` without reading a file. All credentials are unknown.
#[derive(Debug)]
pub(crate) struct AnyIdentities;

impl FileChecks for AnyIdentities {
    fn verifier(&self, _: &IdentitySettings, _: bool) -> Option<LoadedVerifier> {
        Some(LoadedVerifier::default())
    }

    fn verifies_credentials(&self) -> bool {
        true
    }
}
