//! The state that a reload replaces in one step for all workers: the rules, the stores and the upstreams.

use std::sync::Arc;

use super::known_overrides::KnownOverrides;
use super::overrides::PreparedOverrides;
use crate::admission::may_wait;
use crate::local_response::LocalResponse;
use crate::ruleset::RuleSet;
use tidegate_rules::charge::Charge;
use tidegate_rules::limits::concurrency::Concurrency;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::facts::Facts;
use tidegate_rules::route::Route;
use tidegate_rules::rules::Charges;
use tidegate_store::Store;

/// One version of the state. Each request uses the version that was active when it arrived.
#[derive(Debug)]
pub(super) struct Active {
    /// The rules, with the upstreams of each route.
    pub(super) rules: Arc<RuleSet>,
    pub(super) stores: Stores,
    /// The overrides of the store, or of its predecessor until it replies.
    pub(super) last_read: Arc<KnownOverrides>,
    /// The same, for these rules. `None` if there are no overrides.
    pub(super) overrides: Option<PreparedOverrides>,
}

/// The handles of one store: each worker has its own connections to it.
#[derive(Clone, Debug)]
pub struct Stores {
    main: Store,
    workers: Box<[Store]>,
}

/// The rules, with the overrides, and the store by which a request is evaluated.
#[derive(Clone, Copy)]
pub(super) struct Snapshot<'r> {
    pub(super) active: &'r Active,
    pub(super) store: &'r Store,
}

// === impl Active ===

impl Active {
    pub(super) fn new(rules: RuleSet, stores: Stores) -> Self {
        Self {
            rules: Arc::new(rules),
            last_read: Arc::new(KnownOverrides::unknown(stores.main().clone())),
            overrides: None,
            stores,
        }
    }

    /// Returns the charges of a request on this route, as overrides change them.
    ///
    /// # Errors
    /// The client is banned, or a limit that counts the request lacks its input.
    pub(super) fn charges<'r>(
        &'r self,
        store: &Store,
        route: &'r Route,
        facts: &Facts<'_>,
    ) -> Result<Charges<'r>, LocalResponse> {
        if let Some(overrides) = &self.overrides {
            return overrides.charges(&self.rules, route, facts, store);
        }
        Ok(self.rules.charges(route, facts)?)
    }

    /// Returns the bounds of the requests in flight, unless the route has none or an override exempts the client.
    pub(super) fn concurrency<'r>(
        &'r self,
        store: &Store,
        route: &'r Route,
        facts: &Facts<'_>,
    ) -> Option<&'r Concurrency> {
        let concurrency = route.concurrency.as_deref()?;
        let exempts =
            |overrides: &PreparedOverrides| overrides.exempts_from_slots(&self.rules, route, concurrency, facts, store);
        Some(concurrency).filter(|_| !self.overrides.as_ref().is_some_and(exempts))
    }

    /// Returns the charges that are known before the credentials of a request are verified, as overrides change them.
    ///
    /// # Errors
    /// The address of the client is banned.
    pub(super) fn charges_without_identity<'r>(
        &'r self,
        store: &Store,
        route: &'r Route,
        facts: &Facts<'_>,
    ) -> Result<Charges<'r>, LocalResponse> {
        match &self.overrides {
            Some(overrides) => overrides.charges_without_identity(&self.rules, route, facts, store),
            None => Ok(self.rules.rules.charges_without_identity(route, facts, |limit| !may_wait(limit))),
        }
    }

    /// Returns the limits that the client of a request may see, each with a charge for its bucket, as overrides change
    /// them.
    ///
    /// # Errors
    /// The client is banned, or a limit that counts its requests cannot identify it.
    pub(super) fn visible_charges<'r>(
        &'r self,
        store: &Store,
        route: &'r Route,
        facts: &Facts<'_>,
    ) -> Result<Vec<(&'r Limit, Charge)>, LocalResponse> {
        if let Some(overrides) = &self.overrides {
            return overrides.visible_charges(&self.rules, route, facts, store);
        }
        Ok(self.rules.visible_charges(route, facts, |_| true)?)
    }

    /// Returns the state with other rules and stores. The overrides stay in force.
    pub(super) fn with_rules(&self, rules: RuleSet, stores: Stores) -> Self {
        Self {
            last_read: Arc::clone(&self.last_read),
            overrides: self.last_read.prepare(&rules, self.overrides.as_ref()),
            rules: Arc::new(rules),
            stores,
        }
    }

    pub(super) fn with_overrides(&self, last_read: KnownOverrides) -> Self {
        Self {
            overrides: last_read.prepare(&self.rules, self.overrides.as_ref()),
            last_read: Arc::new(last_read),
            rules: Arc::clone(&self.rules),
            stores: self.stores.clone(),
        }
    }
}

// === impl Stores ===

impl Stores {
    /// Creates handles for this number of workers.
    pub fn new(main: Store, workers: usize) -> Self {
        let workers = (0..workers).map(|_| main.for_worker()).collect();
        Self { main, workers }
    }

    /// Returns the handle for threads other than workers.
    pub fn main(&self) -> &Store {
        &self.main
    }

    /// Returns the handle of a worker.
    pub fn of_worker(&self, worker: Option<usize>) -> &Store {
        worker.and_then(|worker| self.workers.get(worker)).unwrap_or(&self.main)
    }
}
