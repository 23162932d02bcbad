//! Why the credentials of a request are not accepted.

/// The words of [`IdentityFault`], in the order of its variants.
const WORDS: [&str; 14] = [
    "missing",
    "malformed_key",
    "unknown_key",
    "malformed_token",
    "too_long",
    "algorithm",
    "unknown_kid",
    "signature",
    "claims",
    "expired",
    "not_yet_valid",
    "issuer",
    "audience",
    "unavailable",
];

/// Why the credentials of a request are not accepted. The text is the detail of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityFault {
    /// The route requires credentials, and the request has none.
    #[error("credentials are missing")]
    Missing,
    /// The API key was sent twice, or servers read it differently.
    #[error("the API key is malformed")]
    MalformedKey,
    /// The file of keys does not contain the API key.
    #[error("the API key is not known")]
    UnknownApiKey,
    /// The token was sent twice, or is not a signed token.
    #[error("the token is malformed")]
    MalformedToken,
    /// The token is longer than the maximum.
    #[error("the token is too long")]
    TooLong,
    /// The key of the token does not allow its algorithm.
    #[error("the algorithm of the token is not allowed")]
    Algorithm,
    /// The key set does not contain the key of the token.
    #[error("the key of the token is not known")]
    UnknownKey,
    /// The signature is wrong.
    #[error("the signature of the token is not valid")]
    Signature,
    /// The token has no `exp`, or a time has the wrong type.
    #[error("the claim `exp` of the token is missing, or `exp` or `nbf` is not a number")]
    Claims,
    /// `exp` has passed.
    #[error("the token has expired")]
    Expired,
    /// `nbf` has not been reached.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// `iss` is another issuer.
    #[error("the token is from another issuer")]
    Issuer,
    /// `aud` is missing, or contains only other audiences.
    #[error("the token is for another audience")]
    Audience,
    /// No key set has been loaded.
    #[error("tokens cannot be verified at present")]
    Unavailable,
}

impl IdentityFault {
    /// Returns the word in metrics and in the access log.
    pub fn as_str(self) -> &'static str {
        WORDS[self as usize]
    }

    /// Returns `true` if the fault is in the token.
    pub fn is_of_token(self) -> bool {
        !matches!(self, Self::Missing | Self::MalformedKey | Self::UnknownApiKey)
    }
}
