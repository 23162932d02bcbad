//! Applies overrides to calls of the rate limit service: rejects banned clients, and exempts or adjusts limits.
//!
//! Overrides of addresses concern no calls. The values of a descriptor are texts that the proxy chooses, and the address of
//! the proxy is not the client's.

use smallvec::SmallVec;

use super::overrides::{PreparedOverrides, hash};
use crate::overrides::{Action, Override, OverrideMatches};
use tidegate_service::{FoundLimits, LimitChange};
use tidegate_store::Store;

/// For each descriptor of a call, the override that bans its client, or changes its limit.
pub(super) type CallOverrides<'i> = SmallVec<[Option<&'i Override>; 4]>;

impl PreparedOverrides {
    /// Changes the limits of a call to the domain with this route.
    pub(super) fn change_call(&self, route: &str, found: &mut FoundLimits<'_>, store: &Store) {
        for (descriptor, effect) in self.of_call(route, found, store).into_iter().enumerate() {
            let Some(effect) = effect else { continue };
            let limiter = || found.buckets().nth(descriptor).flatten().map(|bucket| bucket.limiter.clone());
            let change = match effect.action {
                Action::Ban => Some(LimitChange::Ban { millis: effect.until.millis_since(store.now()) }),
                Action::Exempt => Some(LimitChange::Exempt),
                Action::Adjust => limiter().and_then(|limiter| self.adjusted(&limiter, effect)).map(LimitChange::Rate),
            };
            if let Some(change) = change {
                found.change(descriptor, change);
            }
        }
    }

    /// Returns the overrides of the descriptors of a call. As for a request, an override of the client of one limit changes all
    /// limits in its scope.
    pub(super) fn of_call(&self, route: &str, found: &FoundLimits<'_>, store: &Store) -> CallOverrides<'_> {
        let mut matches = OverrideMatches::default();
        if !self.index.has_hashes() {
            return CallOverrides::new();
        }
        let mut hashes: SmallVec<[Option<u128>; 4]> = SmallVec::new();
        for bucket in found.buckets() {
            let hash = bucket.and_then(|bucket| hash(store, bucket.client));
            if let (Some(bucket), Some(hash)) = (bucket, hash) {
                self.index.find_client(hash, route, &bucket.limit.name, || store.now(), &mut matches);
            }
            hashes.push(hash);
        }
        if matches.is_empty() {
            return CallOverrides::new();
        }
        let effect = |(bucket, hash): (Option<tidegate_service::FoundBucket<'_>>, Option<u128>)| {
            let limit = &bucket?.limit.name;
            let ban = hash.and_then(|hash| matches.ban_of(hash, route, limit));
            ban.or_else(|| matches.effect_on(route, limit))
        };
        found.buckets().zip(hashes).map(effect).collect()
    }
}
