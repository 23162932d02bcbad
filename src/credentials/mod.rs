//! Verifies the credentials of requests: API keys from a file, and tokens that an issuer has signed.

mod fetch;
pub(crate) mod key_file;
mod key_set;
mod keys;
mod provider;
mod refresh;
mod tokens;
mod updates;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub(crate) use self::keys::{ApiKeys, KeyTable};
pub(crate) use self::tokens::TokenVerifier;
use tidegate_rules::client::{ClientError, ClientSource, Duplicates};
use tidegate_rules::request::facts::Facts;
use tidegate_rules::request::identity::{ApiKey, Claims, Identity, IdentityFault, IdentityNeeds};
use tidegate_rules::rules::{Credentials, Verifier, Verify};

/// Verifies credentials as `identities` in the rule file configures it. Clones share the keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verifiers {
    pub(crate) keys: Option<Arc<ApiKeys>>,
    pub(crate) tokens: Option<Arc<TokenVerifier>>,
}

impl Verify for Verifiers {
    fn identify(&self, needs: IdentityNeeds, sources: &Credentials, facts: &Facts<'_>, now: u64) -> Identity {
        let key = if needs.reads.key { self.api_key(sources.key.as_ref(), facts) } else { Ok(None) };
        let token = if needs.reads.token { self.claims(sources.token.as_ref(), facts, now) } else { Ok(None) };
        let (key, token) = match (key, token) {
            (Ok(key), Ok(token)) => (key, token),
            (Err(fault), _) | (_, Err(fault)) => return rejected(fault),
        };
        let has_required = key.is_some() && needs.requires.key || token.is_some() && needs.requires.token;
        if !needs.requires.is_empty() && !has_required {
            return rejected(IdentityFault::Missing);
        }
        Identity { key, token, fault: None }
    }

    fn refresh_key_set(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            if let Some(tokens) = &self.tokens {
                tokens.refresh().await;
            }
        })
    }
}

impl Verifiers {
    /// Returns the verifiers of a configuration.
    pub(crate) fn of(verifier: &Verifier) -> Self {
        verifier.downcast_ref::<Self>().cloned().unwrap_or_default()
    }

    fn api_key(&self, source: Option<&ClientSource>, facts: &Facts<'_>) -> Result<Option<Arc<ApiKey>>, IdentityFault> {
        let (Some(keys), Some(source)) = (&self.keys, source) else { return Ok(None) };
        match source.sent_key(facts) {
            Ok(key) => keys.find(&key).map(Some).ok_or(IdentityFault::UnknownApiKey),
            Err(ClientError::Missing) => Ok(None),
            Err(_) => Err(IdentityFault::MalformedKey),
        }
    }

    fn claims(
        &self,
        source: Option<&ClientSource>,
        facts: &Facts<'_>,
        now: u64,
    ) -> Result<Option<Arc<Claims>>, IdentityFault> {
        let (Some(tokens), Some(source)) = (&self.tokens, source) else { return Ok(None) };
        let sent = match source.sent_value(facts, Duplicates::Reject) {
            Ok(sent) => sent,
            Err(ClientError::Missing) => return Ok(None),
            Err(_) => return Err(IdentityFault::MalformedToken),
        };
        let Some(token) = without_scheme(source, &sent) else { return Ok(None) };
        tokens.verify(token, now).map(Some)
    }

    /// Returns these verifiers. Verifiers of `before` with equal settings replace them, because they have loaded their keys.
    /// With other settings and the same key set, the new verifier takes over the keys: the issuer may be unreachable.
    pub(crate) fn or_kept(self, before: &Self) -> Self {
        let tokens = match (&before.tokens, self.tokens) {
            (Some(kept), Some(new)) if *kept == new => Some(Arc::clone(kept)),
            (Some(before), Some(new)) => {
                new.adopt_keys(before);
                Some(new)
            }
            (None, new) => new,
            (Some(_), None) => None,
        };
        Self { keys: self.keys, tokens }
    }
}

fn rejected(fault: IdentityFault) -> Identity {
    Identity { fault: Some(fault), ..Identity::default() }
}

/// Returns the credentials without the scheme `Bearer`, which `Authorization` requires. Returns `None` if
/// `Authorization` has another scheme.
fn without_scheme<'v>(source: &ClientSource, value: &'v [u8]) -> Option<&'v [u8]> {
    match source {
        ClientSource::Header(name) if *name == http::header::AUTHORIZATION => value.strip_prefix(b"Bearer "),
        _ => Some(value),
    }
}
