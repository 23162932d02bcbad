//! Why the credentials of a request are not accepted.

use http::StatusCode;

use super::IdentityKind;

/// The words of [`IdentityFault`], in the order of its variants.
const WORDS: [&str; 20] = [
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
    "required_claim",
    "unavailable",
    "malformed_password",
    "wrong_password",
    "unchecked_password",
    "busy",
    "not_allowed",
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
    /// A claim that `claims` requires is missing or has another value.
    #[error("a required claim of the token is missing or has another value")]
    RequiredClaim,
    /// No key set has been loaded.
    #[error("tokens cannot be verified at present")]
    Unavailable,
    /// The user and the password were sent twice, or are malformed.
    #[error("the user and the password are malformed")]
    MalformedPassword,
    /// The user is not known, or the password is wrong. Both take the same time.
    #[error("the user or the password is wrong")]
    WrongPassword,
    /// The password has to be compared with its hash, which takes long.
    #[error("the password has not been checked")]
    UncheckedPassword,
    /// Too many passwords are being checked.
    #[error("too many passwords are being checked")]
    Busy,
    /// The credentials are valid, but do not allow the request.
    #[error("the credentials are valid, but do not allow this request")]
    NotAllowed,
}

impl IdentityFault {
    /// Returns the word in metrics and in the access log.
    pub fn as_str(self) -> &'static str {
        WORDS[self as usize]
    }

    /// Returns the kind of the credentials that have the fault. `None` if the fault is in no kind.
    pub fn kind(self) -> Option<IdentityKind> {
        match self {
            Self::Missing | Self::NotAllowed => None,
            Self::MalformedKey | Self::UnknownApiKey => Some(IdentityKind::Key),
            Self::MalformedPassword | Self::WrongPassword | Self::UncheckedPassword | Self::Busy => {
                Some(IdentityKind::User)
            }
            _ => Some(IdentityKind::Token),
        }
    }

    /// Returns `true` if the gateway cannot verify the credentials at present.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Unavailable | Self::UncheckedPassword | Self::Busy)
    }

    /// Returns the status of the response: 401, 403 or 503.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NotAllowed => StatusCode::FORBIDDEN,
            fault if fault.is_temporary() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::UNAUTHORIZED,
        }
    }
}
