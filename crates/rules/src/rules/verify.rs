//! Verifies the credentials of requests, with keys that only a gateway reads.

use std::any::Any;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ipnet::IpNet;

use super::Credentials;
use crate::request::facts::Facts;
use crate::request::identity::{Identity, IdentityFault, IdentityKinds};

/// Verifies credentials.
pub trait Verify: Any + Debug + Send + Sync {
    /// Verifies the credentials of these kinds without waiting.
    fn identify(&self, kinds: IdentityKinds, request: Identified<'_>) -> Identity;

    /// Completes an identity that [`is_incomplete`]. Fetches the key set of a token whose key is not known, and checks a
    /// password in another thread.
    fn complete<'v>(&'v self, identity: Identity, request: Identified<'v>) -> Completion<'v>;

    /// As [`complete`](Self::complete), for a single request of an operator: blocks while it checks a password, and
    /// fetches nothing.
    fn complete_blocking(&self, identity: Identity, request: Identified<'_>) -> Identity;
}

/// The future of [`Verify::complete`].
pub type Completion<'v> = Pin<Box<dyn Future<Output = Identity> + Send + 'v>>;

/// A request whose credentials are verified.
#[derive(Clone, Copy, Debug)]
pub struct Identified<'v> {
    /// Where requests contain credentials.
    pub sources: &'v Credentials,
    /// The properties of the request.
    pub facts: &'v Facts<'v>,
    /// The network of the client, to which the cost of passwords is attributed.
    pub client: Option<IpNet>,
    /// Seconds since the Unix epoch.
    pub now: u64,
}

/// Returns `true` if the verification of these credentials has to wait.
pub fn is_incomplete(identity: &Identity) -> bool {
    identity.faults.token == Some(IdentityFault::UnknownKey)
        || identity.faults.user == Some(IdentityFault::UncheckedPassword)
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
    pub fn identify(&self, kinds: IdentityKinds, request: Identified<'_>) -> Identity {
        match &self.0 {
            Some(verify) => Identity { verified: kinds, ..verify.identify(kinds, request) },
            None => Identity { verified: kinds, ..Identity::default() },
        }
    }

    /// See [`Verify::complete`].
    pub async fn complete(&self, identity: Identity, request: Identified<'_>) -> Identity {
        match &self.0 {
            Some(verify) if is_incomplete(&identity) => verify.complete(identity, request).await,
            _ => identity,
        }
    }

    /// See [`Verify::complete_blocking`].
    pub fn complete_blocking(&self, identity: Identity, request: Identified<'_>) -> Identity {
        match &self.0 {
            Some(verify) if is_incomplete(&identity) => verify.complete_blocking(identity, request),
            _ => identity,
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
