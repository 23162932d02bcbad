//! The verified identities of a request: an API key, the claims of a token, a user with a password. Rules read values of
//! them.

mod api_key;
mod claims;
mod client_keys;
mod condition;
mod fault;
mod requirement;
mod service;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::{Extensions, HeaderMap, HeaderName};

pub use self::api_key::ApiKey;
pub use self::api_key::AttributeNames;
pub use self::claims::{Claims, is_claim};
pub use self::client_keys::{ClientKey, ClientKeys};
pub use self::condition::{IdentityCondition, IdentityTest, is_list};
pub use self::fault::IdentityFault;
pub use self::requirement::{Alternative, Requirement, UnmetRequirement};
pub use self::service::{OnServiceFailure, ServiceCheck, ServiceUrl, ServiceVerdict};
use tidegate_limit::text::words::words;

/// The verified identities of one request.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The entry of the API key that the request contains.
    pub key: Option<Arc<ApiKey>>,
    /// The claims of the token that the request contains.
    pub token: Option<Arc<Claims>>,
    /// The user whose password the request contains.
    pub user: Option<Arc<str>>,
    /// The kinds of credentials that were verified.
    pub verified: IdentityKinds,
    /// Why credentials of a kind are not valid. They have no effect on a route that does not read this kind.
    pub faults: IdentityFaults,
    /// Why the request must be rejected, as soon as its route is known. Only limits by address count it.
    pub fault: Option<IdentityFault>,
}

/// Why the credentials of a request are not valid, for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentityFaults {
    /// The fault of the API key.
    pub key: Option<IdentityFault>,
    /// The fault of the token.
    pub token: Option<IdentityFault>,
    /// The fault of the user or the password.
    pub user: Option<IdentityFault>,
}

words! {
    /// A kind of credentials.
    pub enum IdentityKind {
        /// A token with a valid signature: `identities.jwt`.
        Token = "jwt",
        /// A known API key: `identities.keys`.
        Key = "keys",
        /// A user and the password (Basic authentication): `identities.basic`.
        User = "basic",
    }
}

/// A set of kinds of credentials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdentityKinds {
    /// Whether the set contains tokens.
    pub token: bool,
    /// Whether the set contains API keys.
    pub key: bool,
    /// Whether the set contains users with passwords.
    pub user: bool,
}

/// Where a rule reads a value of the request's identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IdentityValue {
    /// A claim of the token, or a JSON pointer to a nested value: `jwt:CLAIM`.
    Claim(Box<str>),
    /// The id of the API key's owner: `key:id`.
    KeyId,
    /// The tier of the API key's owner: `key:tier`.
    KeyTier,
    /// Another value of the API key: `key:ATTRIBUTE`.
    KeyAttribute(Box<str>),
    /// The user whose password was verified: `basic:user`.
    User,
    /// A header field of a trusted proxy: `header:NAME`.
    Header(HeaderName),
    /// A key that the program has inserted into the request's extensions: `extension:NAME`. Only in a layer.
    Extension(Box<str>),
}

// === impl Identity ===

impl Identity {
    /// Returns `true` if the request has valid credentials of all these kinds.
    pub fn has(&self, kinds: IdentityKinds) -> bool {
        (!kinds.token || self.token.is_some())
            && (!kinds.key || self.key.is_some())
            && (!kinds.user || self.user.is_some())
    }

    /// Returns the id of the customer: of the API key, the subject of the token, or the user. `None` without valid
    /// credentials that have one.
    pub fn customer(&self) -> Option<Cow<'_, str>> {
        let of_key = self.key.as_deref().map(|key| Cow::Borrowed(key.id()));
        let of_token = || self.token.as_deref().and_then(|claims| claims.text("sub"));
        of_key.or_else(of_token).or_else(|| self.user.as_deref().map(Cow::Borrowed))
    }

    /// Adds the result of the verification of other kinds.
    pub fn add(&mut self, other: Self) {
        let Self { key, token, user, verified, faults, fault: _ } = other;
        self.verified = self.verified.union(verified);
        self.key = self.key.take().or(key);
        self.token = self.token.take().or(token);
        self.user = self.user.take().or(user);
        let own = &mut self.faults;
        *own = IdentityFaults {
            key: own.key.or(faults.key),
            token: own.token.or(faults.token),
            user: own.user.or(faults.user),
        };
    }

    /// Sets [`fault`](Self::fault) for a route that reads these kinds and has this requirement. Credentials that are not
    /// valid reject the request, also if others suffice. No value of it identifies a client then.
    pub fn decide(&mut self, reads: IdentityKinds, requirement: &Requirement) {
        let IdentityFaults { key, token, user } = self.faults;
        let of_kinds = [(reads.key, key), (reads.token, token), (reads.user, user)];
        let invalid = of_kinds.into_iter().find_map(|(is_read, fault)| fault.filter(|_| is_read));
        self.fault = invalid.or_else(|| requirement.unmet(self).map(UnmetRequirement::fault));
        if self.fault.is_some_and(|fault| fault != IdentityFault::NotAllowed) {
            (self.key, self.token, self.user) = (None, None, None);
        }
    }
}

// === impl IdentityValue ===

impl IdentityValue {
    /// Parses the form of the rule file. Returns `None` for another form.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        match (kind, name) {
            (_, "") => None,
            ("jwt", claim) => is_claim(claim).then(|| Self::Claim(claim.into())),
            ("key", "id") => Some(Self::KeyId),
            ("key", "tier") => Some(Self::KeyTier),
            ("key", attribute) => Some(Self::KeyAttribute(attribute.into())),
            ("basic", "user") => Some(Self::User),
            ("header", name) => Some(Self::Header(name.parse().ok()?)),
            ("extension", name) => Some(Self::Extension(name.into())),
            _ => None,
        }
    }

    /// Returns the value for a request with this identity, these header fields, which are `None` if the peer is not
    /// trusted, and these extensions. Returns `None` if the request has no such value.
    pub fn read<'f>(
        &self,
        identity: Option<&'f Identity>,
        fields: Option<&'f HeaderMap>,
        extensions: Option<&'f Extensions>,
    ) -> Option<Cow<'f, str>> {
        let key = || identity?.key.as_deref();
        match self {
            Self::Claim(name) => identity?.token.as_deref()?.text(name),
            Self::KeyId => Some(Cow::Borrowed(key()?.id())),
            Self::KeyTier => Some(Cow::Borrowed(key()?.tier()?)),
            Self::KeyAttribute(name) => Some(Cow::Borrowed(key()?.attribute(name)?)),
            Self::User => Some(Cow::Borrowed(identity?.user.as_deref()?)),
            Self::Extension(name) => {
                let key = extensions?.get::<ClientKeys>()?.get(name)?;
                (!key.is_empty()).then_some(Cow::Borrowed(key))
            }
            Self::Header(name) => {
                let mut values = fields?.get_all(name).iter();
                let value = values.next().filter(|_| values.next().is_none())?;
                Some(Cow::Borrowed(value.to_str().ok()?.trim()))
            }
        }
    }

    /// Returns the kinds of credentials that the value comes from.
    pub fn kinds(&self) -> IdentityKinds {
        IdentityKinds { token: self.reads_token(), key: self.reads_key(), user: *self == Self::User }
    }

    /// Returns `true` if the value comes from a token.
    pub fn reads_token(&self) -> bool {
        matches!(self, Self::Claim(_))
    }

    /// Returns `true` if the value comes from an API key.
    pub fn reads_key(&self) -> bool {
        matches!(self, Self::KeyId | Self::KeyTier | Self::KeyAttribute(_))
    }

    /// Returns the source and the name of the value, as in the rule file.
    pub fn source_and_name(&self) -> (&'static str, &str) {
        match self {
            Self::Claim(name) => ("jwt", name),
            Self::KeyId => ("key", "id"),
            Self::KeyTier => ("key", "tier"),
            Self::KeyAttribute(name) => ("key", name),
            Self::User => ("basic", "user"),
            Self::Header(name) => ("header", name.as_str()),
            Self::Extension(name) => ("extension", name),
        }
    }
}

impl fmt::Display for IdentityValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, name) = self.source_and_name();
        write!(f, "{source}:{name}")
    }
}

// === impl IdentityKinds ===

impl IdentityKinds {
    /// Returns `true` if the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns the kinds of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { token: self.token || other.token, key: self.key || other.key, user: self.user || other.user }
    }

    /// Returns the kinds that the other set lacks.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self { token: self.token && !other.token, key: self.key && !other.key, user: self.user && !other.user }
    }
}

impl FromIterator<IdentityKind> for IdentityKinds {
    fn from_iter<I: IntoIterator<Item = IdentityKind>>(kinds: I) -> Self {
        kinds.into_iter().fold(Self::default(), |set, kind| match kind {
            IdentityKind::Token => Self { token: true, ..set },
            IdentityKind::Key => Self { key: true, ..set },
            IdentityKind::User => Self { user: true, ..set },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_faults(faults: IdentityFaults) -> Identity {
        Identity { token: Some(Arc::default()), faults, ..Identity::default() }
    }

    const TOKEN: IdentityKinds = IdentityKinds { token: true, key: false, user: false };
    const BOTH: IdentityKinds = IdentityKinds { key: true, ..TOKEN };

    /// A wrong key must not pass because the token suffices, and must not reject requests to routes that read no keys.
    #[test]
    fn fault_counts_only_for_kinds_that_are_read() {
        let faults = IdentityFaults { key: Some(IdentityFault::UnknownApiKey), ..IdentityFaults::default() };
        let require = Requirement::from_iter([IdentityKind::Token]);
        let mut identity = with_faults(faults);
        identity.decide(TOKEN, &require);
        assert!(identity.fault.is_none() && identity.token.is_some());
        identity.decide(BOTH, &require);
        assert!(identity.fault == Some(IdentityFault::UnknownApiKey) && identity.token.is_none());
    }

    #[test]
    fn added_kinds_keep_earlier_results() {
        let mut identity = with_faults(IdentityFaults::default());
        identity.verified = TOKEN;
        let faults = IdentityFaults { user: Some(IdentityFault::WrongPassword), ..IdentityFaults::default() };
        identity.add(Identity { faults, verified: BOTH, ..Identity::default() });
        assert!(identity.token.is_some() && identity.faults == faults && identity.verified == BOTH);
        assert!(BOTH.without(TOKEN) == IdentityKinds { token: false, ..BOTH } && TOKEN.without(BOTH).is_empty());
    }
}
