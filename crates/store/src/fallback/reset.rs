//! Resets of operators: the local buckets and local grants are forgotten as well, since they would be charged to the
//! store later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Fallback, LateCharger};
use tidegate_limit::clock::Timestamp;
use tidegate_rules::charge::{Charge, ClientId, Limiter};
use tidegate_rules::settings::store::KeySecret;

/// How long a reset waits for late charges in flight.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The buckets that another gateway has reset.
#[derive(Debug)]
pub struct ResetGrants<'r> {
    /// The names of a limiter and of its shards.
    pub limiters: &'r [String],
    /// The client; `None` for all clients, and `Some(None)` for an OVERALL limit.
    pub client: Option<Option<ClientId>>,
    /// How long ago the reset was, in milliseconds.
    pub age: u64,
    /// The time of the reset by the clock of this gateway's grants. Never later than the reset, but up to the duration
    /// of a call to Redis earlier.
    pub until: Timestamp,
}

impl Fallback {
    /// Hashes the clients of local buckets as the store does, so that they can be found by their hashes. Without effect
    /// after the first local decision.
    pub fn share_secret(&self, secret: KeySecret) -> bool {
        self.buckets.share_secret(secret)
    }

    /// Waits until no late charge is in flight, and sends none until the result is dropped. Returns `None` if that
    /// takes long: a late charge that is made after a reset costs few permits.
    pub async fn pause_late_charges(&self) -> Option<LateCharger<'_>> {
        timeout(PAUSE_TIMEOUT, self.late_charger()).await.ok()
    }

    /// Forgets the local bucket and the local grants of a client, or of an OVERALL limit.
    pub fn reset(&self, charge: &Charge, secret: KeySecret) {
        let by_hash = matches!(charge.client, Some(ClientId::Hash(_)));
        // Before it knew the secret, this gateway hashed its clients with another one.
        if by_hash && !self.share_secret(secret) {
            self.buckets.reset_all(&charge.limiter);
        } else {
            self.buckets.reset(charge);
        }
        self.forget_grants(&charge.limiter, is_client(charge.client.as_ref(), secret));
    }

    /// Forgets local grants before a reset. Later grants are still charged. Returns `true` if no later grants are left.
    pub fn forget_reset(&self, reset: &ResetGrants<'_>, secret: KeySecret) -> bool {
        let ResetGrants { limiters, client, until, .. } = reset;
        let is_client = is_client(client.as_ref().and_then(Option::as_ref), secret);
        let is_reset = |limiter: &Limiter, other: Option<&ClientId>| {
            limiters.contains(&limiter.name) && (client.is_none() || is_client(other))
        };
        self.local_grants.lock().remove_reset_until(*until, is_reset)
    }

    /// Forgets the local buckets of a limit that another gateway has reset.
    pub fn follow_reset(&self, limiter: &Arc<Limiter>, reset: &ResetGrants<'_>, secret: KeySecret) {
        // Permits that were granted before have returned.
        if reset.age >= limiter.quota.retention_millis() {
            return;
        }
        // Local grants after the reset stay in use.
        if !self.forget_reset(reset, secret) {
            return;
        }
        match &reset.client {
            None => _ = self.buckets.reset_all(limiter),
            Some(client) => {
                let charge = Charge::new(Arc::clone(limiter), client.clone(), 0);
                self.reset(&charge, secret);
            }
        }
    }

    /// Forgets all local buckets and local grants of a limit.
    pub fn reset_all(&self, limiter: &Arc<Limiter>) {
        self.buckets.reset_all(limiter);
        self.forget_grants(limiter, |_| true);
    }

    fn forget_grants(&self, limiter: &Limiter, is_client: impl Fn(Option<&ClientId>) -> bool) {
        let is_of = |name: &str| limiter.name == name || limiter.shards().iter().any(|shard| shard.name == name);
        self.local_grants.lock().remove_reset(|other, client| is_of(&other.name) && is_client(client));
    }
}

/// Returns a predicate for a client, also by its hash.
fn is_client<'c>(client: Option<&'c ClientId>, secret: KeySecret) -> impl Fn(Option<&ClientId>) -> bool + 'c {
    let hash_of = move |client: Option<&ClientId>| match client {
        Some(ClientId::Value(value)) => Some(secret.hash(value)),
        Some(ClientId::Hash(hash)) => Some(*hash),
        _ => None,
    };
    let hash = hash_of(client);
    move |other| other == client || (hash.is_some() && hash_of(other) == hash)
}
