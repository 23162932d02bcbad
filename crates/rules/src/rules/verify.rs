//! Verifies the credentials of requests, with keys that only a gateway reads.

use std::any::Any;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::Credentials;
use crate::request::facts::Facts;
use crate::request::identity::{Identity, IdentityFault, IdentityNeeds};

/// Verifies credentials.
pub trait Verify: Any + Debug + Send + Sync {
    /// Verifies the credentials of a request. `now` is in seconds since the Unix epoch.
    fn identify(&self, needs: IdentityNeeds, sources: &Credentials, facts: &Facts<'_>, now: u64) -> Identity;

    /// Fetches the key set again for a token whose key is not known.
    fn refresh_key_set(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Verifies the credentials that the rules accept. By default there are no keys, so no credentials are valid. Clones
/// share the keys.
#[derive(Clone, Debug, Default)]
pub struct Verifier(Option<Arc<dyn Verify>>);

impl Verifier {
    /// Creates a verifier that calls `verify` for each request whose route needs credentials.
    pub fn new(verify: impl Verify) -> Self {
        Self(Some(Arc::new(verify)))
    }

    /// Returns the value that [`new`](Self::new) got, if it has this type.
    pub fn downcast_ref<V: Verify>(&self) -> Option<&V> {
        let verify: &dyn Any = self.0.as_deref()?;
        verify.downcast_ref()
    }

    /// See [`Verify::identify`].
    pub fn identify(&self, needs: IdentityNeeds, sources: &Credentials, facts: &Facts<'_>, now: u64) -> Identity {
        match &self.0 {
            Some(verify) => verify.identify(needs, sources, facts, now),
            None if needs.requires.is_empty() => Identity::default(),
            None => Identity { fault: Some(IdentityFault::Missing), ..Identity::default() },
        }
    }

    /// See [`Verify::refresh_key_set`].
    pub async fn refresh_key_set(&self) {
        if let Some(verify) = &self.0 {
            verify.refresh_key_set().await;
        }
    }
}

/// Verifiers are equal if they share their keys.
impl PartialEq for Verifier {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }
}
