//! Key sets of issuers (RFC 7517): the public keys that verify tokens.

use blake3::Hash;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::Value;

use tidegate_rules::request::identity::IdentityFault;

/// The highest number of keys in a set.
const MAX_KEYS: usize = 100;

/// The highest number of keys that are tried for one token, because each costs a signature check.
const MAX_TRIED: usize = 4;

/// The usable keys of a set.
#[derive(Debug)]
pub(crate) struct KeySet {
    keys: Vec<VerificationKey>,
    /// The hash of the text.
    pub(super) hash: Hash,
}

/// A public key, with the algorithms that it allows. The algorithm in a token only selects one of them.
#[derive(Debug)]
pub(super) struct VerificationKey {
    id: Option<String>,
    pub(super) key: DecodingKey,
    algorithms: Vec<(Algorithm, Validation)>,
}

/// Why a text is not a usable key set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeySetError {
    /// The text is not a JSON object with `keys`.
    #[error("is not a JSON Web Key Set")]
    Malformed,
    /// The set has more than 100 keys.
    #[error("has more than 100 keys")]
    TooMany,
    /// The set has no key for a supported algorithm.
    #[error("has no key for an RS, PS, ES256, ES384 or EdDSA signature")]
    NoKey,
}

#[derive(Deserialize)]
struct RawSet {
    keys: Vec<Value>,
}

impl KeySet {
    /// Parses a key set. Keys for other purposes and of other types are ignored.
    ///
    /// # Errors
    /// See [`KeySetError`].
    pub(crate) fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        let RawSet { keys } = serde_json::from_slice(text).map_err(|_| KeySetError::Malformed)?;
        if keys.len() > MAX_KEYS {
            return Err(KeySetError::TooMany);
        }
        let keys: Vec<_> = keys.into_iter().filter_map(VerificationKey::read).collect();
        if keys.is_empty() { Err(KeySetError::NoKey) } else { Ok(Self { keys, hash: blake3::hash(text) }) }
    }

    /// Returns the number of usable keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the keys with this id that allow the algorithm. Without an id, returns all keys that allow the
    /// algorithm: while an issuer replaces its key, the set has two.
    pub(super) fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<(&VerificationKey, &Validation)>, IdentityFault> {
        let allowed = |key: &'_ VerificationKey| key.algorithms.iter().position(|(other, _)| *other == algorithm);
        let mut matching = self.keys.iter().filter(|key| id.is_none() || key.id.as_deref() == id).peekable();
        let fault = if matching.peek().is_some() { IdentityFault::Algorithm } else { IdentityFault::UnknownKey };
        let usable = matching.filter_map(|key| Some((key, &key.algorithms[allowed(key)?].1)));
        let usable: Vec<_> = usable.take(MAX_TRIED).collect();
        if usable.is_empty() { Err(fault) } else { Ok(usable) }
    }
}

impl VerificationKey {
    /// Reads a key of a set. Returns `None` if it verifies no signatures of a supported algorithm.
    fn read(raw: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(raw).ok()?;
        let (usage, operations) = (&jwk.common.public_key_use, &jwk.common.key_operations);
        let is_for_others = usage.as_ref().is_some_and(|usage| *usage != PublicKeyUse::Signature)
            || operations.as_ref().is_some_and(|operations| !operations.contains(&KeyOperations::Verify));
        if is_for_others {
            return None; // RFC 7517 sections 4.2 and 4.3
        }
        let of_type: &[(Algorithm, KeyAlgorithm)] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &[
                (Algorithm::RS256, KeyAlgorithm::RS256),
                (Algorithm::RS384, KeyAlgorithm::RS384),
                (Algorithm::RS512, KeyAlgorithm::RS512),
                (Algorithm::PS256, KeyAlgorithm::PS256),
                (Algorithm::PS384, KeyAlgorithm::PS384),
                (Algorithm::PS512, KeyAlgorithm::PS512),
            ],
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                &[(Algorithm::ES256, KeyAlgorithm::ES256)]
            }
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
                &[(Algorithm::ES384, KeyAlgorithm::ES384)]
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                &[(Algorithm::EdDSA, KeyAlgorithm::EdDSA)]
            }
            _ => &[],
        };
        let named = jwk.common.key_algorithm;
        let usable = of_type.iter().filter(|(_, name)| named.is_none_or(|named| named == *name));
        let algorithms: Vec<_> = usable.map(|(algorithm, _)| (*algorithm, signature_only(*algorithm))).collect();
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        (!algorithms.is_empty()).then_some(Self { id: jwk.common.key_id, key, algorithms })
    }
}

/// Checks only the signature: [`TokenVerifier`](super::TokenVerifier) checks the claims, with the gateway's clock.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}
