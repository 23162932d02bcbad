//! Applies overrides to requests: rejects banned clients, and exempts or adjusts limits.

use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;

use super::RateLimitLayer;
use super::known_overrides::KnownOverrides;
use crate::admission::may_wait;
use crate::headers;
use crate::local_response::LocalResponse;
use crate::overrides::{Action, Adjustment, Override, OverrideIndex, OverrideMatches, Scope};
use crate::ruleset::RuleSet;
use tidegate_limit::Wait;
use tidegate_rules::charge::{Charge, ClientId, Limiter};
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::route::Route;
use tidegate_rules::rules::{Charges, LimitCheck};
use tidegate_store::Store;

/// Overrides, prepared for the limits of one version of the rules.
#[derive(Debug)]
pub(super) struct PreparedOverrides {
    pub(super) index: OverrideIndex,
    adjusted: AdjustedLimiters,
    /// Whether a ban also ends open responses.
    pub(super) has_disconnecting_bans: bool,
}

/// The overrides that concern a request.
#[derive(Debug, Default)]
pub struct RequestOverrides {
    /// The override that bans the client before a limit rejects the request.
    pub ban: Option<Override>,
    /// For each limit of the route, the ban, or the override that changes the limit.
    pub limits: Vec<Option<LimitOverride>>,
}

/// An override that concerns a request, for one limit.
#[derive(Debug)]
pub struct LimitOverride {
    pub in_force: Override,
    /// The limiter with the rate of the override, if the override changes the rate.
    pub limiter: Option<Arc<Limiter>>,
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
    /// Prepares the overrides for the limits of these rules. Limiters that `before` has already are reused, so that cached
    /// refusals stay valid. Returns `None` if there are no overrides.
    pub(super) fn prepare(&self, rules: &RuleSet, before: Option<&PreparedOverrides>) -> Option<PreparedOverrides> {
        if self.all().is_empty() {
            return None;
        }
        let mut adjusted = AdjustedLimiters::new();
        for entry in self.all().iter().filter(|entry| entry.action == Action::Adjust) {
            let of_domain = match &entry.scope {
                Scope::Limit { route, limit } => rules.domains.find_limit(route, limit),
                // There can be too many limits: their limiters are made for each call.
                Scope::All | Scope::Route(_) => None,
            };
            for (route, limit) in rules.limits().chain(of_domain) {
                if entry.scope.contains_limit(route, &limit.name) && limit.limiter.is_adjustable() {
                    let tiers = limit.rates.iter().flat_map(|rates| rates.tiers()).map(|(_, limiter)| limiter);
                    for limiter in std::iter::once(&limit.limiter).chain(tiers) {
                        let key = key(limiter, entry.adjustment);
                        let before = before.and_then(|before| before.adjusted.get(&key));
                        let new = || AdjustedLimiter::new(limiter, entry.adjustment);
                        adjusted.entry(key).or_insert_with(|| before.map_or_else(new, AdjustedLimiter::share));
                    }
                }
            }
        }
        let index = OverrideIndex::new(self.all().iter().cloned());
        let has_disconnecting_bans = self.all().iter().any(|entry| entry.disconnect);
        Some(PreparedOverrides { index, adjusted, has_disconnecting_bans })
    }
}

// === impl RateLimitLayer ===

impl RateLimitLayer {
    /// Returns the override that concerns this client of a limit.
    #[doc(hidden)]
    pub fn override_of(&self, route: &str, limit: &str, client: &ClientId) -> Option<Override> {
        let active = self.state.active.load();
        let (owner, limit) = active.rules.find_limit(route, limit)?;
        active.overrides.as_ref()?.of_client(&active.rules, owner, limit, client, self.state.store(&active))
    }

    /// Returns the limiter with the rate of an override. It is the given one if the override does not change the rate.
    #[doc(hidden)]
    pub fn adjusted(&self, limiter: &Arc<Limiter>, effect: &Override) -> Arc<Limiter> {
        let active = self.state.active.load();
        let adjusted = active.overrides.as_ref().and_then(|overrides| overrides.adjusted(limiter, effect));
        adjusted.unwrap_or_else(|| Arc::clone(limiter))
    }

    /// Returns the overrides that concern a request on this route. `checks` are the checks of the route's limits.
    #[doc(hidden)]
    pub fn overrides_for(&self, route: &str, facts: &Facts<'_>, checks: &[(&Limit, LimitCheck)]) -> RequestOverrides {
        let active = self.state.active.load();
        let found = active.overrides.as_ref().zip(active.rules.find_named(route));
        let found = found.map(|(overrides, found)| {
            overrides.of_request(&active.rules, found.route, facts, checks, self.state.store(&active))
        });
        found.unwrap_or_default()
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
    /// Returns the charges of a request on this route: as [`Rules::charges`](tidegate_rules::rules::Rules::charges) does, but without
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
        let mut found = OverrideMatches::default();
        if let Some(address) = rules.client_address(facts) {
            self.find_address(address, route, store, &mut found);
            reject_banned(&found, rules, store)?;
        }
        let mut charges = if found.is_empty() {
            rules.charges(route, facts)?
        } else {
            rules.charges_if(route, facts, |limit| !is_exempt(&found, route, limit))?
        };
        if self.index.has_hashes() {
            for entry in charges.iter() {
                let Some(hash) = hash(store, entry.charge.client.as_ref()) else { continue };
                self.index.find_client(
                    hash,
                    entry.limit.owner(&route.name),
                    &entry.limit.name,
                    || store.now(),
                    &mut found,
                );
            }
            reject_banned(&found, rules, store)?;
        }
        if !found.is_empty() {
            charges.retain(|limit| !is_exempt(&found, route, limit));
            charges.replace_limiters(|limit, limiter| self.adjusted(limiter, effect_on(&found, route, limit)?));
        }
        Ok(charges)
    }

    /// Returns the charges that are known before the credentials of a request are verified. Returns no charges if an
    /// override may change the limits of the client that the credentials name.
    ///
    /// # Errors
    /// The address of the client is banned.
    pub(super) fn charges_without_identity<'r>(
        &self,
        rules: &'r RuleSet,
        route: &'r Route,
        facts: &Facts<'_>,
        store: &Store,
    ) -> Result<Charges<'r>, LocalResponse> {
        let mut found = OverrideMatches::default();
        if let Some(address) = rules.client_address(facts) {
            self.find_address(address, route, store, &mut found);
            reject_banned(&found, rules, store)?;
        }
        let may_change = self.index.changes_limits_of_clients();
        let mut charges = rules.rules.charges_without_identity(route, facts, |limit| !may_wait(limit));
        charges.retain(|limit| !may_change && !is_exempt(&found, route, limit));
        charges.replace_limiters(|limit, limiter| self.adjusted(limiter, effect_on(&found, route, limit)?));
        Ok(charges)
    }

    /// Returns the limits that the client of a request may see, as
    /// [`Rules::visible_charges`](tidegate_rules::rules::Rules::visible_charges) does, but without the limits that do not count
    /// its requests, and with its rates.
    ///
    /// # Errors
    /// The client is banned, or a limit that counts its requests cannot identify it.
    pub(super) fn visible_charges<'r>(
        &self,
        rules: &'r RuleSet,
        route: &'r Route,
        facts: &Facts<'_>,
        store: &Store,
    ) -> Result<Vec<(&'r Limit, Charge)>, LocalResponse> {
        let mut found = OverrideMatches::default();
        if let Some(address) = rules.client_address(facts) {
            self.find_address(address, route, store, &mut found);
            reject_banned(&found, rules, store)?;
        }
        let mut charges = rules.visible_charges(route, facts, |limit| !is_exempt(&found, route, limit))?;
        if self.index.has_hashes() {
            // Of all limits: a ban of a client of a shadow limit rejects requests, too.
            for (limit, client) in rules.clients(route, facts) {
                let Some(hash) = hash(store, Some(&client)) else { continue };
                self.index.find_client(hash, limit.owner(&route.name), &limit.name, || store.now(), &mut found);
            }
            reject_banned(&found, rules, store)?;
        }
        charges.retain(|(limit, _)| !is_exempt(&found, route, limit));
        for (limit, charge) in &mut charges {
            let effect = effect_on(&found, route, limit);
            if let Some(limiter) = effect.and_then(|effect| self.adjusted(&charge.limiter, effect)) {
                charge.limiter = limiter;
            }
        }
        Ok(charges)
    }

    /// Returns `true` if the client of a request is exempt from `concurrency` of this route.
    pub(super) fn exempts_from_slots(
        &self,
        rules: &RuleSet,
        route: &Route,
        concurrency: &Concurrency,
        facts: &Facts<'_>,
        store: &Store,
    ) -> bool {
        let mut found = OverrideMatches::default();
        if let Some(address) = rules.client_address(facts) {
            self.find_address(address, route, store, &mut found);
        }
        if self.index.has_hashes() {
            let of_slots = rules.client_in_flight(concurrency, facts);
            let of_slots = of_slots.map(|client| (&*route.name, Concurrency::POLICY, client));
            let of_limits = rules.clients(route, facts);
            let of_limits = of_limits.map(|(limit, client)| (limit.owner(&route.name), &*limit.name, client));
            for (owner, limit, client) in of_limits.chain(of_slots) {
                let Some(hash) = hash(store, Some(&client)) else { continue };
                self.index.find_client(hash, owner, limit, || store.now(), &mut found);
            }
        }
        found.exempts_from_slots(&route.name)
    }

    /// Returns the overrides that concern a request on this route, in the order of [`charges`](Self::charges).
    fn of_request(
        &self,
        rules: &RuleSet,
        route: &Route,
        facts: &Facts<'_>,
        checks: &[(&Limit, LimitCheck)],
        store: &Store,
    ) -> RequestOverrides {
        let mut found = OverrideMatches::default();
        if let Some(address) = rules.client_address(facts) {
            self.find_address(address, route, store, &mut found);
        }
        let is_denied = checks
            .iter()
            .any(|(limit, check)| matches!(check, LimitCheck::Deny(_)) && !is_exempt(&found, route, limit));
        if found.ban().is_none() && !is_denied {
            for (limit, check) in checks {
                let LimitCheck::Charge(charge) = check else { continue };
                let Some(hash) = hash(store, charge.client.as_ref()) else { continue };
                self.index.find_client(hash, limit.owner(&route.name), &limit.name, || store.now(), &mut found);
            }
        }
        let ban = found.ban();
        let of_limit = |(limit, check): &(&Limit, LimitCheck)| {
            let effect = ban.or_else(|| effect_on(&found, route, limit))?;
            let own = route.limits.iter().find(|own| own.name == limit.name);
            let limiter = match check {
                LimitCheck::Charge(charge) if limit.rates.is_some() => Some(&charge.limiter),
                _ => own.map(|own| &own.limiter),
            };
            let limiter = limiter.and_then(|limiter| self.adjusted(limiter, effect));
            let is_effective = effect.action != Action::Adjust || limiter.is_some();
            is_effective.then(|| LimitOverride { in_force: effect.clone(), limiter })
        };
        RequestOverrides { ban: ban.cloned(), limits: checks.iter().map(of_limit).collect() }
    }

    /// Adds the overrides of an address to the matches of a request for this route.
    fn find_address<'i>(&'i self, address: IpAddr, route: &Route, store: &Store, found: &mut OverrideMatches<'i>) {
        self.index.find_address(address, |scope| concerns(scope, route), || store.now(), found);
    }

    /// Returns the override that bans this client of a limit, or changes the limit for it. Overrides of networks count only if
    /// the limit identifies the client by its address.
    pub(super) fn of_client(
        &self,
        rules: &RuleSet,
        owner: &str,
        limit: &Limit,
        client: &ClientId,
        store: &Store,
    ) -> Option<Override> {
        let mut found = OverrideMatches::default();
        if let ClientId::Address(network) = client {
            let in_scope = |scope: &Scope| match rules.find_named(owner) {
                Some(found) => concerns(scope, found.route),
                None => scope.contains_limit(owner, &limit.name),
            };
            self.index.find_address(network.addr(), in_scope, || store.now(), &mut found);
        }
        if let Some(hash) = hash(store, Some(client)) {
            self.index.find_client(hash, owner, &limit.name, || store.now(), &mut found);
        }
        found.ban().or_else(|| found.effect_on(owner, &limit.name)).cloned()
    }

    /// Returns the limiter of a request with the rate of an override, if the override changes the rate.
    pub(super) fn adjusted(&self, limiter: &Arc<Limiter>, effect: &Override) -> Option<Arc<Limiter>> {
        if effect.action != Action::Adjust || !limiter.is_adjustable() {
            return None;
        }
        // Limiters with a number of the request as their rate, and some of domains, are not prepared.
        let adjusted =
            self.adjusted.get(&key(limiter, effect.adjustment)).map(|adjusted| Arc::clone(&adjusted.limiter));
        Some(adjusted.unwrap_or_else(|| AdjustedLimiter::new(limiter, effect.adjustment).limiter))
    }
}

/// Returns the hash of a client that is not an address.
pub(super) fn hash(store: &Store, client: Option<&ClientId>) -> Option<u128> {
    match client? {
        ClientId::Hash(hash) => Some(*hash),
        client => store.key_of(client),
    }
}

/// Returns `true` if an override with this scope concerns requests for this route.
pub(super) fn concerns(scope: &Scope, route: &Route) -> bool {
    let is_in_scope = |limit: &Limit| scope.contains_limit(limit.owner(&route.name), &limit.name);
    match scope {
        Scope::All => true,
        Scope::Route(name) if *name == *route.name => true,
        Scope::Route(_) | Scope::Limit { .. } => route.limits.iter().any(is_in_scope),
    }
}

/// Returns the override that changes a limit of this route.
fn effect_on<'i>(found: &OverrideMatches<'i>, route: &Route, limit: &Limit) -> Option<&'i Override> {
    found.effect_on(limit.owner(&route.name), &limit.name)
}

fn is_exempt(found: &OverrideMatches<'_>, route: &Route, limit: &Limit) -> bool {
    effect_on(found, route, limit).is_some_and(|effect| effect.action == Action::Exempt)
}

fn reject_banned(found: &OverrideMatches<'_>, rules: &RuleSet, store: &Store) -> Result<(), LocalResponse> {
    let Some(ban) = found.ban() else { return Ok(()) };
    let wait = Wait::Millis(ban.until.millis_since(store.now()));
    let retry_after = headers::retry_after(wait).unwrap_or(1);
    Err(LocalResponse::Banned { retry_after, configured: rules.rules.bans.clone() })
}
