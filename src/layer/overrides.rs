//! Applies overrides to requests: rejects banned clients, and exempts or adjusts limits.

use std::sync::Arc;

use hashbrown::HashMap;

use super::RateLimitLayer;
use crate::clock::Timestamp;
use crate::facts::Facts;
use crate::headers;
use crate::limit::{ClientId, Limiter, Wait};
use crate::local_response::LocalResponse;
use crate::overrides::{Action, Adjustment, Override, OverrideIndex, OverrideMatches};
use crate::route::Route;
use crate::rule::Limit;
use crate::rules::Charges;
use crate::ruleset::RuleSet;
use crate::store::{OverridesVersion, Store, StoreError, StoredOverrides};

/// The overrides in force, and the store that they are from.
#[derive(Debug)]
pub(crate) struct KnownOverrides {
    pub(super) store: Store,
    /// `None` if the store has not replied yet.
    pub(super) version: Option<OverridesVersion>,
    /// In the order of their ids.
    overrides: Vec<Arc<Override>>,
}

/// Overrides, prepared for the limits of one version of the rules.
#[derive(Debug)]
pub(super) struct PreparedOverrides {
    index: OverrideIndex,
    adjusted: AdjustedLimiters,
}

/// The limiters with other rates, by the address of the limiter in the rules.
type AdjustedLimiters = HashMap<(usize, Adjustment), AdjustedLimiter>;

#[derive(Debug)]
struct AdjustedLimiter {
    /// Keeps its address, which is part of the key, from being reused.
    base: Arc<Limiter>,
    limiter: Arc<Limiter>,
}

// === impl KnownOverrides ===

impl KnownOverrides {
    /// Creates the empty set of a store that has not replied yet.
    pub(super) fn unknown(store: Store) -> Self {
        Self { store, version: None, overrides: Vec::new() }
    }

    /// Creates the set that the store has returned. Skips entries that another version of this program has written in
    /// another form.
    pub(super) fn new(store: Store, version: OverridesVersion, texts: &[(String, String)]) -> Self {
        let read =
            |(id, text): &(String, String)| serde_json::from_str(text).ok().filter(|one: &Override| one.id == *id);
        let mut overrides: Vec<_> = texts.iter().filter_map(read).map(Arc::new).collect();
        if overrides.len() < texts.len() {
            let unreadable = texts.len() - overrides.len();
            tracing::warn!(unreadable, "overrides in the store are not readable, ignoring them");
        }
        overrides.sort_by(|one, other| one.id.cmp(&other.id));
        Self { store, version: Some(version), overrides }
    }

    /// Returns the overrides that are in force at this time, in the order of their ids.
    pub(crate) fn in_force(&self, now: Timestamp) -> impl Iterator<Item = &Arc<Override>> {
        self.overrides.iter().filter(move |one| one.is_in_force(now))
    }

    /// Prepares the overrides for the limits of these rules. Limiters that `before` has already are reused, so that cached
    /// refusals stay valid. Returns `None` if there are no overrides.
    pub(super) fn prepare(&self, rules: &RuleSet, before: Option<&PreparedOverrides>) -> Option<PreparedOverrides> {
        if self.overrides.is_empty() {
            return None;
        }
        let mut adjusted = AdjustedLimiters::new();
        for one in self.overrides.iter().filter(|one| one.action == Action::Adjust) {
            for (route, limit) in rules.limits() {
                if one.scope.contains_limit(&route.name, &limit.name) && limit.limiter.is_adjustable() {
                    let key = key(&limit.limiter, one.adjustment);
                    adjusted.entry(key).or_insert_with(|| match before.and_then(|before| before.adjusted.get(&key)) {
                        Some(same) => same.share(),
                        None => AdjustedLimiter::new(&limit.limiter, one.adjustment),
                    });
                }
            }
        }
        Some(PreparedOverrides { index: OverrideIndex::new(self.overrides.iter().cloned()), adjusted })
    }
}

// === impl RateLimitLayer ===

impl RateLimitLayer {
    /// Returns the overrides in force.
    pub(crate) fn overrides(&self) -> Arc<KnownOverrides> {
        Arc::clone(&self.state.active.load().known)
    }

    /// Returns the override that concerns this client of a limit, and the limiter with its rate.
    pub(crate) fn override_of(&self, route: &str, limit: &str, client: &ClientId) -> Option<(Override, Arc<Limiter>)> {
        let active = self.state.active.load();
        let place = active.rules.limits().find(|(found, one)| *found.name == *route && one.name == limit)?;
        active.overrides.as_ref()?.of_client(place, client, self.state.store(&active))
    }

    /// Reads the overrides of the store, if they have changed, and applies them to all later requests of all workers.
    ///
    /// # Errors
    /// The store did not reply. The known overrides stay in force.
    pub(crate) async fn refresh_overrides(&self) -> Result<(), StoreError> {
        // An earlier reading must not replace a later one.
        let _reading = self.state.reading_overrides.lock().await;
        let (store, known) = (self.store(), self.overrides());
        let version = store.overrides_version().await?;
        if known.version.as_ref() == Some(&version) && known.store.has_same_buckets(&store) {
            return if known.overrides.is_empty() { Ok(()) } else { store.refresh_clock().await };
        }
        let StoredOverrides { version, texts } = store.read_overrides().await?;
        let known = KnownOverrides::new(store, version, &texts);
        let _replacing = self.state.replacing.lock();
        let active = self.state.active.load();
        self.state.active.store(Arc::new(active.with_overrides(known)));
        Ok(())
    }
}

// === impl AdjustedLimiter ===

impl AdjustedLimiter {
    fn new(base: &Arc<Limiter>, adjustment: Adjustment) -> Self {
        let limiter = Arc::new(base.at_rate(adjustment.apply(base.quota.rate())));
        Self { base: Arc::clone(base), limiter }
    }

    fn share(&self) -> Self {
        Self { base: Arc::clone(&self.base), limiter: Arc::clone(&self.limiter) }
    }
}

fn key(limiter: &Arc<Limiter>, adjustment: Adjustment) -> (usize, Adjustment) {
    (Arc::as_ptr(limiter).addr(), adjustment)
}

// === impl PreparedOverrides ===

impl PreparedOverrides {
    /// Returns the charges of a request on this route: as [`Rules::charges`](crate::rules::Rules::charges) does, but without
    /// the limits that do not count the request, and with the rates of its client.
    ///
    /// # Errors
    /// The client is banned, or a limit that counts the request lacks its input.
    pub(super) fn charges<'r>(
        &self,
        rules: &'r RuleSet,
        route: &'r Route,
        facts: &Facts<'_>,
        store: &Store,
    ) -> Result<Charges<'r>, LocalResponse> {
        let (now, mut found) = (store.now(), OverrideMatches::default());
        if let Some(address) = rules.client_address(facts) {
            let has_limit = |name: &str| route.limits.iter().any(|limit| limit.name == name);
            self.index.find_address(address, &route.name, has_limit, now, &mut found);
            reject_banned(&found, now)?;
        }
        let is_exempt = |found: &OverrideMatches<'_>, limit: &Limit| {
            found.effect_on(&route.name, &limit.name).is_some_and(|one| one.action == Action::Exempt)
        };
        let mut charges = if found.is_empty() {
            rules.charges(route, facts)?
        } else {
            rules.charges_if(route, facts, |limit| !is_exempt(&found, limit))?
        };
        if self.index.has_hashes() {
            for one in charges.iter() {
                let Some(hash) = hash(store, one.charge.client.as_ref()) else { continue };
                self.index.find_client(hash, &route.name, &one.limit.name, now, &mut found);
            }
            reject_banned(&found, now)?;
        }
        if !found.is_empty() {
            charges.retain(|limit| !is_exempt(&found, limit));
            charges.replace_limiters(|limit| self.adjusted(limit, found.effect_on(&route.name, &limit.name)?));
        }
        Ok(charges)
    }

    /// Returns the override that bans this client of a limit, or changes the limit for it, and the limiter with the rate of
    /// the override. Overrides of networks count only if the limit identifies the client by its address.
    fn of_client(
        &self,
        (route, limit): (&Route, &Limit),
        client: &ClientId,
        store: &Store,
    ) -> Option<(Override, Arc<Limiter>)> {
        let (now, mut found) = (store.now(), OverrideMatches::default());
        if let ClientId::Address(network) = client {
            let has_limit = |name: &str| route.limits.iter().any(|limit| limit.name == name);
            self.index.find_address(network.addr(), &route.name, has_limit, now, &mut found);
        }
        if let Some(hash) = hash(store, Some(client)) {
            self.index.find_client(hash, &route.name, &limit.name, now, &mut found);
        }
        let one = found.ban().or_else(|| found.effect_on(&route.name, &limit.name))?;
        Some((one.clone(), self.adjusted(limit, one).unwrap_or_else(|| Arc::clone(&limit.limiter))))
    }

    /// Returns the limiter of a limit with the rate of an override, if the override changes the rate.
    fn adjusted(&self, limit: &Limit, one: &Override) -> Option<Arc<Limiter>> {
        let adjusted = self.adjusted.get(&key(&limit.limiter, one.adjustment))?;
        (one.action == Action::Adjust).then(|| Arc::clone(&adjusted.limiter))
    }
}

/// Returns the hash of a client that is not an address.
fn hash(store: &Store, client: Option<&ClientId>) -> Option<u128> {
    match client? {
        ClientId::Hash(hash) => Some(*hash),
        client => store.key_of(client),
    }
}

fn reject_banned(found: &OverrideMatches<'_>, now: Timestamp) -> Result<(), LocalResponse> {
    let Some(ban) = found.ban() else { return Ok(()) };
    let left = Wait::Millis(ban.until.millis_since(now));
    Err(LocalResponse::Banned { retry_after: headers::retry_after(left).unwrap_or(1) })
}
