//! Verifies signed tokens (RFC 7519, RFC 8725): the signature, the issuer, the audience and the time.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use blake3::Hash;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, decode, decode_header};
use serde_json::{Map, Value};

use super::key_set::{KeySet, KeySetError};
use super::provider;
use super::refresh::Refresh;
use tidegate_rules::request::identity::{Claims, IdentityCondition, IdentityFault, IdentityValue};
use tidegate_rules::settings::identities::{KeySetSource, TokenSettings};

/// The tolerated difference between the clocks of the issuer and the gateway, in seconds.
const LEEWAY: f64 = 30.0;

/// Verifies tokens with the keys of their issuer.
pub(crate) struct TokenVerifier {
    pub(super) settings: TokenSettings,
    /// `None` until a key set has been loaded.
    keys: ArcSwapOption<KeySet>,
    pub(super) refresh: Refresh,
}

impl TokenVerifier {
    /// Creates a verifier without keys.
    pub(crate) fn new(settings: TokenSettings) -> Self {
        provider::install();
        Self { settings, keys: ArcSwapOption::empty(), refresh: Refresh::default() }
    }

    /// Returns the path of the key set, if it is a file.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        match &self.settings.jwks {
            KeySetSource::File(path) => Some(path),
            KeySetSource::Url(_) => None,
        }
    }

    /// Returns the issuer, as in the rule file.
    pub(crate) fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// Returns why the last fetch of the key set failed. Returns `None` for a file.
    pub(crate) fn fetch_fault(&self) -> Option<String> {
        self.refresh.fault()
    }

    /// Returns the hash of the key set in use.
    pub(crate) fn hash(&self) -> Option<Hash> {
        self.keys.load().as_ref().map(|keys| keys.hash)
    }

    /// Takes over the keys of a verifier with the same source, unless this verifier has loaded keys.
    pub(super) fn adopt_keys(&self, before: &Self) {
        if self.settings.jwks == before.settings.jwks && self.keys.load().is_none() {
            self.keys.store(before.keys.load_full());
        }
    }

    /// Replaces the keys by the keys of a JSON Web Key Set. Returns their number.
    ///
    /// # Errors
    /// The text is not a usable key set. The previous keys stay in use.
    pub(crate) fn replace_keys(&self, text: &[u8]) -> Result<usize, KeySetError> {
        let keys = KeySet::parse(text)?;
        let count = keys.len();
        self.keys.store(Some(Arc::new(keys)));
        Ok(count)
    }

    /// Verifies a token. `now` is in seconds since the Unix epoch.
    ///
    /// # Errors
    /// The token is not valid, or no keys have been loaded.
    pub(super) fn verify(&self, token: &[u8], now: u64) -> Result<Arc<Claims>, IdentityFault> {
        if token.len() > self.settings.max_token {
            return Err(IdentityFault::TooLong);
        }
        let header = decode_header(token).map_err(|_| IdentityFault::MalformedToken)?;
        // A recipient must reject extensions that it does not support (RFC 7515 section 4.1.11).
        if header.crit.is_some() {
            return Err(IdentityFault::MalformedToken);
        }
        if matches!(header.alg, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512) {
            return Err(IdentityFault::Algorithm);
        }
        let keys = self.keys.load();
        let keys = keys.as_ref().ok_or(IdentityFault::Unavailable)?;
        let mut fault = IdentityFault::Signature;
        for (key, validation) in keys.find(header.kid.as_deref(), header.alg)? {
            match decode::<Map<String, Value>>(token, &key.key, validation) {
                Ok(claims) => {
                    self.check(&claims.claims, now)?;
                    let claims = Claims(claims.claims);
                    self.check_claims(&claims)?;
                    return Ok(Arc::new(claims));
                }
                Err(error) if *error.kind() == ErrorKind::InvalidSignature => {}
                Err(_) => fault = IdentityFault::MalformedToken,
            }
        }
        Err(fault)
    }

    /// Checks the registered claims (RFC 7519 section 4.1).
    fn check(&self, claims: &Map<String, Value>, now: u64) -> Result<(), IdentityFault> {
        let now = now as f64;
        let time = |name: &str| match claims.get(name) {
            Some(value) => value.as_f64().map(Some).ok_or(IdentityFault::Claims),
            None => Ok(None),
        };
        if time("exp")?.ok_or(IdentityFault::Claims)? + LEEWAY <= now {
            return Err(IdentityFault::Expired);
        }
        if time("nbf")?.is_some_and(|start| start - LEEWAY > now) {
            return Err(IdentityFault::NotYetValid);
        }
        if claims.get("iss").and_then(Value::as_str) != Some(&self.settings.issuer) {
            return Err(IdentityFault::Issuer);
        }
        let is_ours =
            |value: &Value| value.as_str().is_some_and(|one| self.settings.audiences.iter().any(|ours| ours == one));
        match claims.get("aud") {
            _ if self.settings.audiences.is_empty() => Ok(()), // `claims` has another condition
            Some(Value::Array(all)) if all.iter().any(is_ours) => Ok(()),
            Some(one) if is_ours(one) => Ok(()),
            _ => Err(IdentityFault::Audience),
        }
    }

    /// Checks the conditions of the rule file on other claims.
    fn check_claims(&self, claims: &Claims) -> Result<(), IdentityFault> {
        let is_met = |condition: &IdentityCondition| match &condition.value {
            IdentityValue::Claim(claim) => condition.test.is_met_by_claim(claims, claim),
            _ => false, // `claims` has only claims
        };
        if self.settings.claims.iter().all(is_met) { Ok(()) } else { Err(IdentityFault::RequiredClaim) }
    }
}

/// Returns the issuer that a token names, without any verification. It only selects the keys, which then verify it.
///
/// # Errors
/// The token is malformed, or names several issuers.
pub(super) fn unverified_issuer(token: &[u8]) -> Result<String, IdentityFault> {
    #[derive(serde::Deserialize)]
    struct Issuer {
        iss: Option<String>,
    }
    let payload = token.split(|byte| *byte == b'.').nth(1).ok_or(IdentityFault::MalformedToken)?;
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).map_err(|_| IdentityFault::MalformedToken)?;
    let issuer: Issuer = serde_json::from_slice(&payload).map_err(|_| IdentityFault::MalformedToken)?;
    issuer.iss.ok_or(IdentityFault::Issuer)
}

/// Shows the settings, not the keys.
impl fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

/// Compares the settings, not the keys.
impl PartialEq for TokenVerifier {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}
