//! Verifies the credentials of requests: API keys from a file, tokens that issuers have signed, and passwords.

mod fetch;
pub(crate) mod key_file;
mod key_set;
mod keys;
mod password;
mod password_checks;
mod provider;
mod recent_checks;
mod refresh;
mod sent_password;
mod tokens;
mod updates;
pub(crate) mod user_file;
mod users;

use std::sync::Arc;

pub(crate) use self::keys::{ApiKeys, KeyTable};
use self::sent_password::SentPassword;
pub(crate) use self::tokens::TokenVerifier;
use self::tokens::unverified_issuer;
pub(crate) use self::users::{UserTable, Users};
use tidegate_rules::client::{ClientError, ClientSource, Duplicates};
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::{ApiKey, Claims, Identity, IdentityFault, IdentityKinds};
use tidegate_rules::rules::{Completion, Credentials, Identified, Verifier, Verify};

/// Verifies credentials as `identities` in the rule file configures it. Clones share the keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verifiers {
    pub(crate) keys: Option<Arc<ApiKeys>>,
    /// One for each issuer. The `iss` of a token selects it.
    pub(crate) tokens: Vec<Arc<TokenVerifier>>,
    pub(crate) users: Option<Arc<Users>>,
}

/// The result of a verification. `None` if the request has no such credentials.
type Verified<T> = Result<Option<T>, IdentityFault>;

impl Verify for Verifiers {
    fn identify(&self, kinds: IdentityKinds, request: Identified<'_>) -> Identity {
        let key = if kinds.key { self.api_key(request) } else { Ok(None) };
        let token = if kinds.token { self.claims(request) } else { Ok(None) };
        let user = if kinds.user { self.user(request) } else { Ok(None) };
        let mut identity = Identity::default();
        set(key, (&mut identity.key, &mut identity.faults.key));
        set(token, (&mut identity.token, &mut identity.faults.token));
        set(user, (&mut identity.user, &mut identity.faults.user));
        identity
    }

    fn complete<'v>(&'v self, mut identity: Identity, request: Identified<'v>) -> Completion<'v> {
        Box::pin(async move {
            if identity.faults.token == Some(IdentityFault::UnknownKey) {
                if let Some(verifier) = self.verifier_for(request) {
                    verifier.refresh().await;
                }
                // Verified again also without a fetch: the fetch of another request may have ended in the meantime.
                set(self.claims(request), (&mut identity.token, &mut identity.faults.token));
            }
            if identity.faults.user == Some(IdentityFault::UncheckedPassword)
                && let (Some(users), Ok(Some(sent))) = (&self.users, SentPassword::read(request.facts))
            {
                let checked = users.check(&sent, request.client).await;
                set(checked.map(Some), (&mut identity.user, &mut identity.faults.user));
            }
            identity
        })
    }

    fn complete_blocking(&self, mut identity: Identity, request: Identified<'_>) -> Identity {
        if identity.faults.user == Some(IdentityFault::UncheckedPassword)
            && let (Some(users), Ok(Some(sent))) = (&self.users, SentPassword::read(request.facts))
        {
            set(users.check_blocking(&sent).map(Some), (&mut identity.user, &mut identity.faults.user));
        }
        identity
    }
}

impl Verifiers {
    /// Returns the verifiers of a configuration.
    pub(crate) fn of(verifier: &Verifier) -> Self {
        verifier.downcast_ref::<Self>().cloned().unwrap_or_default()
    }

    fn api_key(&self, Identified { sources, facts, .. }: Identified<'_>) -> Verified<Arc<ApiKey>> {
        let (Some(keys), Some(source)) = (&self.keys, &sources.key) else { return Ok(None) };
        match source.sent_key(facts) {
            Ok(key) => keys.find(&key).map(Some).ok_or(IdentityFault::UnknownApiKey),
            Err(ClientError::Missing) => Ok(None),
            Err(_) => Err(IdentityFault::MalformedKey),
        }
    }

    fn claims(&self, Identified { sources, facts, now, .. }: Identified<'_>) -> Verified<Arc<Claims>> {
        self.with_token(sources, facts, |verifier, token| verifier.verify(token, now))
    }

    /// Returns the verifier of the token of a request.
    fn verifier_for(&self, Identified { sources, facts, .. }: Identified<'_>) -> Option<&TokenVerifier> {
        let mut found = None;
        _ = self.with_token(sources, facts, |verifier, _| {
            found = Some(verifier);
            Ok(Arc::default())
        });
        found
    }

    /// Passes the token of a request and the verifier of its issuer to `verify`.
    fn with_token<'v>(
        &'v self,
        sources: &Credentials,
        facts: &Facts<'_>,
        verify: impl FnOnce(&'v TokenVerifier, &[u8]) -> Result<Arc<Claims>, IdentityFault>,
    ) -> Verified<Arc<Claims>> {
        let (false, Some(source)) = (self.tokens.is_empty(), &sources.token) else { return Ok(None) };
        let sent = match source.sent_value(facts, Duplicates::Reject) {
            Ok(sent) => sent,
            Err(ClientError::Missing) => return Ok(None),
            Err(_) => return Err(IdentityFault::MalformedToken),
        };
        let Some(token) = without_scheme(source, &sent) else { return Ok(None) };
        verify(self.select(token)?, token).map(Some)
    }

    /// Returns the verifier of the issuer that a token names. Only the keys of this issuer can verify the token: the key of
    /// another issuer with the same `kid` must not.
    fn select(&self, token: &[u8]) -> Result<&TokenVerifier, IdentityFault> {
        if let [only] = &*self.tokens {
            return Ok(only);
        }
        if token.len() > self.tokens.iter().map(|tokens| tokens.settings.max_token).max().unwrap_or(0) {
            return Err(IdentityFault::TooLong);
        }
        let issuer = unverified_issuer(token)?;
        let found = self.tokens.iter().find(|tokens| tokens.settings.issuer == issuer);
        found.map(|tokens| &**tokens).ok_or(IdentityFault::Issuer)
    }

    fn user(&self, Identified { facts, .. }: Identified<'_>) -> Verified<Arc<str>> {
        let Some(users) = &self.users else { return Ok(None) };
        match SentPassword::read(facts)? {
            Some(sent) => users.known(&sent).map(Some),
            None => Ok(None),
        }
    }

    /// Returns these verifiers. Verifiers of `before` with equal settings replace them, because they have loaded their keys.
    /// With other settings and the same key set, a new verifier takes over the keys: the issuer may be unreachable.
    /// Users of an unchanged file stay, with the results of recent checks.
    pub(crate) fn or_kept(self, before: &Self) -> Self {
        let tokens = self.tokens.into_iter().map(|new| match before.tokens.iter().find(|kept| **kept == new) {
            Some(kept) => Arc::clone(kept),
            None => {
                before.tokens.iter().for_each(|before| new.adopt_keys(before));
                new
            }
        });
        let is_same = |kept: &Arc<Users>, new: &Users| kept.path() == new.path() && kept.hash() == new.hash();
        let users = self.users.map(|new| match &before.users {
            Some(kept) if is_same(kept, &new) => Arc::clone(kept),
            _ => new,
        });
        Self { tokens: tokens.collect(), users, ..self }
    }
}

/// Replaces a result of the verification.
fn set<T>(verified: Verified<T>, (value, fault): (&mut Option<T>, &mut Option<IdentityFault>)) {
    *fault = verified.as_ref().err().copied();
    *value = verified.unwrap_or_default();
}

/// Returns the credentials without the scheme `Bearer`, which `Authorization` requires. Returns `None` if
/// `Authorization` has another scheme.
fn without_scheme<'v>(source: &ClientSource, value: &'v [u8]) -> Option<&'v [u8]> {
    match source {
        ClientSource::Header(name) if *name == http::header::AUTHORIZATION => value.strip_prefix(b"Bearer "),
        _ => Some(value),
    }
}
