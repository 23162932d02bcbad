//! Resets of operators: the local buckets and the debts are forgotten as well, since they would be charged to the store later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{DebtSettlement, Fallback};
use crate::limit::{Charge, ClientId, Limiter};
use crate::store::settings::KeySecret;

/// How long a reset waits for payments in flight.
const SETTLEMENT_TIMEOUT: Duration = Duration::from_secs(1);

impl Fallback {
    /// Hashes the clients of local buckets as the store does, so that they can be found by their hashes. Without effect after
    /// the first local decision.
    pub(crate) fn share_secret(&self, secret: KeySecret) -> bool {
        self.buckets.share_secret(secret)
    }

    /// Waits until no payment is in flight, and sends none until the result is dropped. Returns `None` if that takes long: a
    /// payment that is charged after a reset costs few permits.
    pub(crate) async fn pause_payments(&self) -> Option<DebtSettlement<'_>> {
        timeout(SETTLEMENT_TIMEOUT, self.settlement()).await.ok()
    }

    /// Forgets the local bucket and the debt of a client, or of an OVERALL limit.
    pub(crate) fn reset(&self, charge: &Charge, secret: KeySecret) {
        let by_hash = matches!(charge.client, Some(ClientId::Hash(_)));
        // Before it knew the secret, this gateway hashed its clients with another one.
        if by_hash && !self.share_secret(secret) {
            self.buckets.reset_all(&charge.limiter);
        } else {
            self.buckets.reset(charge);
        }
        let hash_of = |client: Option<&ClientId>| match client {
            Some(ClientId::Value(value)) => Some(secret.hash(value)),
            Some(ClientId::Hash(hash)) => Some(*hash),
            _ => None,
        };
        let (client, hash) = (charge.client.as_ref(), hash_of(charge.client.as_ref()));
        let is_client = |other: Option<&ClientId>| other == client || (hash.is_some() && hash_of(other) == hash);
        self.forget_debts(&charge.limiter, is_client);
    }

    /// Forgets all local buckets and debts of a limit.
    pub(crate) fn reset_all(&self, limiter: &Arc<Limiter>) {
        self.buckets.reset_all(limiter);
        self.forget_debts(limiter, |_| true);
    }

    fn forget_debts(&self, limiter: &Limiter, is_client: impl Fn(Option<&ClientId>) -> bool) {
        let is_of = |name: &str| limiter.name == name || limiter.shards().iter().any(|shard| shard.name == name);
        self.debts.lock().forgive(|other, client| is_of(&other.name) && is_client(client));
    }
}
